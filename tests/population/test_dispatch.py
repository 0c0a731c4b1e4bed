"""Individuals that travel by their seeds: who follows the search, who is sent its parameters, and how often."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import experiment_of, go, newest

from evorl.cluster.transport.connection import dumps
from evorl.cluster.workers.group import RemoteGroup
from evorl.ec.core import pack
from evorl.ec.openai_es import Centre, OpenAIES
from evorl.evaluate import main
from evorl.population import dispatch
from evorl.population.dispatch import MEMORY, SeedDispatcher, SeedFollower
from evorl.population.evaluation import evaluation_plan
from evorl.population.loop import Population
from evorl.population.play_evaluator import PlayEvaluator
from evorl.population.results import to_evaluation


def followers(population: int, dimensions: int, *words: str) -> tuple[OpenAIES, Any, Any]:
    evolution = OpenAIES(population=population, episodes=1, together=population)
    experiment = experiment_of("mdp=cartpole", f"rl.net.hidden=[{dimensions}]", *words)
    experiment = dataclasses.replace(experiment, ec=evolution)
    found = evaluation_plan(experiment, evolution)
    return evolution, found, lambda: evolution.centre(found.space, 0)


class Group:
    """Members that are called in turn, and what crossed over to them."""

    def __init__(self, members: list[SeedFollower]) -> None:
        self.members, self.calls, self.sent, self.shared = members, 0, 0, 0

    def any(self, method: str, *args: Any) -> Any:
        self.calls += 1
        self.sent += len(dumps(list(args)))
        out = getattr(self.members[self.calls % len(self.members)], method)(*args)
        return type("Done", (), {"result": lambda _: out, "done": lambda _: True})()

    def all(self, method: str, *args: Any) -> list[Any]:
        self.shared += 1
        return [getattr(one, method)(*args) for one in self.members]

    def set_recovery_state(self, state: Callable[[], object]) -> None:
        pass

    def set_feed(self, feed: object) -> None:
        pass


# ------------------------------------------------------------------ members that fell behind, or went astray


@pytest.mark.slow_cases("9", "0")
@pytest.mark.parametrize("missed", [0, 1, MEMORY, MEMORY + 1])
def test_a_member_that_missed_generations_catches_up_or_is_sent_all(missed: int) -> None:
    evolution, found, centre = followers(4, 4)
    members = [SeedFollower(lambda i: found.make(i), centre, i) for i in range(2)]
    evolver = evolution.evolver(found.space, 0)
    group: Any = Group(members[:1])
    dispatcher = SeedDispatcher(group, evolver, 4)
    for generation in range(missed + 2):
        if generation == missed + 1:
            group.members = members[1:]  # who has seen nothing so far
        task = dispatcher.send(evolver.ask())
        answers = dispatcher.answers(task)
        whole = [evolver.centre.individual_at(*divmod(one.id, 4)) for one in task.individuals]
        same = members[0].evaluator.evaluate(pack(whole))
        assert [a.objectives for a in answers.each] == [a.objectives for a in same.each]
        told(dispatcher, evolver, task.individuals, answers)
    assert group.shared == (1 if missed + 1 > MEMORY else 0)


def told(dispatcher: SeedDispatcher, evolver: Any, individuals: Any, answers: Any) -> None:
    evaluations = [to_evaluation(one, answer)[0] for one, answer in zip(individuals, answers.each, strict=True)]
    dispatcher.tell(evaluations)
    evolver.tell(evaluations)


@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_member_with_wrong_parameters_is_named_and_gets_the_right_ones(
    noise: float, caplog: pytest.LogCaptureFixture
) -> None:
    """Four members evaluate two of eight individuals each; in generation 1 the third one's parameters are spoiled."""
    evolution, found, centre = followers(8, 4)
    members = [SeedFollower(lambda i: found.make(i), centre, i) for i in range(4)]
    evolver = evolution.evolver(found.space, 0)
    group: Any = Group(members)
    dispatcher = SeedDispatcher(group, evolver, 8)
    fitness = []
    for generation in range(3):
        if generation == 1:
            members[2].centre.theta = members[2].centre.theta + noise
        tasks = [dispatcher.send(evolver.ask(1)) for _ in range(8)]
        lone = [evolver.centre.individual_at(generation, place) for place in range(8)]
        true = [members[0].evaluator.evaluate(pack([one])).each[0].objectives for one in lone]
        answers = [dispatcher.answers(task) for task in tasks]
        assert [one.each[0].objectives for one in answers] == true
        fitness += true
        for task, one in zip(tasks, answers, strict=True):
            told(dispatcher, evolver, task.individuals, one)
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == group.shared == (1 if noise else 0)
    assert all(text.startswith("member 2 had other parameters than this run") for text in said)
    assert members[2].centre.hash() == members[0].centre.hash()
    assert len({one[0] for one in fitness}) > 1


# ------------------------------------------------------------------ members in processes that come and go

TASKS = 8
PATIENCE_S = 60.0


def population(*words: str) -> Population:
    """Of one individual in each of a generation's tasks."""
    quick = ("mdp=cartpole", "rl.net.hidden=[4]", "ec=openai_es", f"ec.population={TASKS}", "ec.episodes=1")
    experiment = experiment_of(*quick, "ec.together=1", "rl.normalize_inputs=true", *words)
    assert experiment.ec is not None
    return Population(experiment, experiment.ec)


def objectives(found: Population, tasks: int) -> list[float]:
    return [row["objectives"]["fitness"] for _ in range(tasks) for row in found.iterate().evaluated]


class Watched:
    """What each process does, as it says in a file of its own: when it was sent all, and evaluated whom.

    Who evaluates an individual waits until another process is at one of the same generation.
    """

    def __init__(self, place: Path, patch: pytest.MonkeyPatch) -> None:
        self.place = place
        load, evaluate = Centre.load_state_dict, PlayEvaluator.evaluate

        def loading(centre: Centre, state: Any) -> None:
            self._say("sent", state["generation"])
            load(centre, state)

        def evaluating(one: PlayEvaluator, packed: Any) -> Any:
            generation = int(packed["id"][0]) // TASKS
            self._say("evaluates", generation)
            ends = time.monotonic() + PATIENCE_S
            while generation not in self.evaluated():
                assert time.monotonic() < ends, f"nobody else evaluates individuals of generation {generation}"
                time.sleep(0.005)
            time.sleep(0.05)  # who is killed among a generation's tasks has some left
            return evaluate(one, packed)

        patch.setattr(Centre, "load_state_dict", loading)
        patch.setattr(PlayEvaluator, "evaluate", evaluating)

    def _say(self, *words: object) -> None:
        with (self.place / str(os.getpid())).open("a") as file:
            print(*words, file=file)

    def lines(self) -> list[tuple[int, list[str]]]:
        """(process, its words), this one's not among them."""
        others = [path for path in self.place.iterdir() if int(path.name) != os.getpid()]
        return [(int(path.name), line.split()) for path in others for line in path.read_text().splitlines()]

    def members(self) -> set[int]:
        return {pid for pid, _ in self.lines()}

    def sent(self) -> Counter[int]:
        """How often each process was sent all parameters."""
        return Counter(pid for pid, (what, *_) in self.lines() if what == "sent")

    def evaluated(self) -> dict[int, set[int]]:
        """The processes that have begun to evaluate individuals of each generation."""
        found: dict[int, set[int]] = {}
        for pid, (what, generation) in self.lines():
            if what == "evaluates":
                found.setdefault(int(generation), set()).add(pid)
        return found


def wait(found: Population, until: Callable[[RemoteGroup], bool], what: str) -> None:
    group, ends = found.group, time.monotonic() + PATIENCE_S
    assert isinstance(group, RemoteGroup)
    while not until(group):
        assert time.monotonic() < ends, f"not within {PATIENCE_S:g} s: {what}"
        group.poll(0.01)


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """What seven generations come to in one process."""
    found = population()
    try:
        return objectives(found, 7 * TASKS)
    finally:
        found.close()


@pytest.mark.slow
def test_members_begin_with_the_parameters_of_a_driver_with_more_threads(caplog: pytest.LogCaptureFixture) -> None:
    torch.set_num_threads(2)  # as a process begins
    try:
        found = population("rl.net.hidden=[64,64]", "cluster=processes", "cluster.workers=1")
    finally:
        torch.set_num_threads(1)
    try:
        objectives(found, TASKS)
    finally:
        found.close()
    assert not caplog.records


@pytest.mark.slow
def test_resumed_members_are_sent_all_once_and_evaluate_side_by_side(
    alone: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = population()
    try:
        objectives(first, 2 * TASKS + 3)
        state = first.state_dict()
    finally:
        first.close()
    watched = Watched(tmp_path, monkeypatch)
    second = population("cluster=processes", "cluster.workers=2")
    try:
        second.load_state_dict(state)
        assert objectives(second, 3 * TASKS - 3) == alone[2 * TASKS + 3 : 5 * TASKS]
    finally:
        second.close()
    assert len(watched.members()) == 2 and watched.sent() == dict.fromkeys(watched.members(), 1)
    assert all(len(watched.evaluated()[generation]) > 1 for generation in (2, 3, 4))


@pytest.mark.slow
def test_who_takes_the_place_of_a_dead_member_is_sent_all_once_and_works_beside_the_others(
    alone: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One dies between generations, later one among the tasks of another; neither's successor could catch up."""
    monkeypatch.setattr(dispatch, "MEMORY", 2)
    watched = Watched(tmp_path, monkeypatch)
    found = population("cluster=processes", "cluster.workers=2")
    try:
        answers = objectives(found, 4 * TASKS)
        begun = watched.members()
        assert len(begun) == 2 and not watched.sent()
        for more in (TASKS + 3, 2 * TASKS - 3):
            os.kill(begun.pop(), signal.SIGKILL)
            dead = 2 - len(begun)
            wait(found, lambda group, dead=dead: group.counters()["cluster/replaced"] >= dead, "a death is noticed")
            wait(
                found, lambda group: all(handle.ready for handle in group.pool.handles), "every worker has its members"
            )
            answers += objectives(found, more)
        assert answers == alone
    finally:
        found.close()
    assert len(watched.members()) == 4 and [*watched.sent().values()] == [1, 1]
    assert all(len(watched.evaluated()[generation]) > 1 for generation in range(4, 7))


# ------------------------------------------------------------------ evaluated again


def test_who_went_by_a_seed_can_be_evaluated_while_its_generation_is_under_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("mdp=cartpole", "rl.net.hidden=[4]", "rl.normalize_inputs=true", "ec=openai_es", "ec.population=12")
    quick = ("ec.together=4", "ec.episodes=3", "record.tensorboard=false", "eval.episodes=1", "budget.steps=1300")
    places = {"alone": (), "there": ("cluster=processes", "cluster.workers=1")}
    for name, where in places.items():
        assert go(*words, *quick, *where, f"hydra.run.dir={tmp_path / name}") == 0
    state = newest(tmp_path / "there")["run"]["evolver"]
    former, told = (state[part]["individuals"]["id"] for part in ("population", "arrived"))
    assert 0 < len(told) < len(former) == 12
    capsys.readouterr()

    def evaluated(name: str, *words: str) -> dict[str, Any]:
        assert main([f"run={tmp_path / name}", *words, "episodes=2", "json=true"]) == 0
        return {**json.loads(capsys.readouterr().out.splitlines()[-1]), "run": ""}

    for number in told[::3]:
        for seed in ((), ("seed=5",)):  # the seed of the games, not of its weights
            assert evaluated("there", f"individual={number}", *seed) == evaluated(
                "alone", f"individual={number}", *seed
            )
    gone = next(number for number in former if number != evaluated("there", "individual=best")["individual"])
    assert main([f"run={tmp_path / 'there'}", f"individual={gone}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"evorl: individual: '{gone}' was a seed around weights that the search has left, so none")
    assert said.count("\n") == 1


# ------------------------------------------------------------------ bytes


def weighed(width: int, normalize: str) -> tuple[int, int]:
    """What goes out and what comes back in three generations by seed: bytes."""
    evolution, found, centre = followers(4, width, f"rl.normalize_inputs={normalize}")
    group: Any = Group([SeedFollower(lambda i: found.make(i), centre, 0)])
    evolver = evolution.evolver(found.space, 0)
    dispatcher = SeedDispatcher(group, evolver, 4)
    moments, back = found.moments(), 0
    for _ in range(3):
        memory = None if moments is None else {"moments": moments.state_dict()}
        task = dispatcher.send([one._replace(memory=memory) for one in evolver.ask()])
        answers = dispatcher.answers(task)
        back += len(dumps(answers.seen))
        if moments is not None:
            moments.merge(answers.seen)
        told(dispatcher, evolver, task.individuals, answers)
    return group.sent, back


def test_bytes_grow_with_the_observation_but_not_with_the_parameters() -> None:
    plain, normal = [weighed(width, "false") for width in (2, 64)], [weighed(width, "true") for width in (2, 64)]
    assert plain[0] == plain[1]
    assert normal[0] == normal[1]
    once = 8 * (2 * 4 + 1)  # CartPole's four numbers: a count, a mean and a sum of squares each, in float64
    for more in (normal[0][0] - plain[0][0], normal[0][1] - plain[0][1]):
        assert 3 * once <= more < 3 * (once + 250)  # in each generation of one task; the rest is names
