"""The best individual is named by replays on fresh episodes, and its fitness is of episodes that chose nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_runs import in_old_form
from harness import Alone, newest, rows, train_in

from evorl.ec.core import Evaluation, IndependentEvolution, Individual
from evorl.ec.sga import SGA
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step
from evorl.mdp.problem import Problem
from evorl.nets.policy import Net
from evorl.population.loop import Population
from evorl.population.selection import Candidate, Selection, rounds, with_interval
from evorl.record.core import Record
from evorl.rl.dqn import DQN
from evorl.rl.ppo import PPO
from evorl.training.experiment import Budget, Checkpoints, Experiment
from evorl.training.experiment import Evaluation as Evaluating
from evorl.training.session import Interrupted
from evorl.util.seed import Episodes, generator


@dataclass(frozen=True, kw_only=True)
class Lottery(BattleWorld):
    """An episode is one decision, which counts for nothing: its return is the skill, and luck that follows the key."""

    skill: float = 0.0
    nan: bool = False

    @property
    def spec(self) -> Spec:
        return Spec((Input("x", (1,)),), Discrete(2))

    def reset(self, *players: int, seed: int) -> Alone:
        return Alone(Ticket(self, seed))


class Ticket:
    def __init__(self, world: Lottery, seed: int) -> None:
        self.world, self.prize = world, prize(seed)

    @property
    def state(self) -> State:
        return State((np.zeros(1, np.float32),))

    async def __call__(self, action: Array) -> Step:
        return Step(np.array([self.world.skill + self.prize], np.float32), terminated=True)

    def result(self) -> Mapping[str, float]:
        return {"return": self.world.skill + self.prize, "length": 1.0}


def prize(key: int) -> float:
    """Mostly nothing, seldom 1000."""
    return float(generator("lottery", int(key)).choice([0, 1000], p=[0.9, 0.1]))


def prizes(purpose: str, count: int) -> Array:
    """What the episodes of a purpose win, in the order in which they are played."""
    return np.array([prize(int(Episodes(0, purpose, evaluation=True)(slot, 0))) for slot in range(count)])


def experiment(**changed: Any) -> Experiment:
    evolution = SGA(population=20, episodes=1, seeds="fresh", together=5, genes={"mdp": {"skill": [0, 10]}})
    usual = Experiment(
        mdp=Lottery(), rl=PPO(net=Net(hidden=(4,))), ec=evolution, record=Record(tensorboard=False, hardware=False),
        budget=Budget(steps=60), eval=Evaluating(every=0, episodes=30), checkpoint=Checkpoints(every=0),
    )  # fmt: skip
    return replace(usual, **changed)


def journal(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "population.jsonl").read_text().splitlines()]


def test_a_lucky_individual_is_not_named_best(tmp_path: Path) -> None:
    """Of 60 individuals with one episode each some win 1000. The best of them plays for its skill when replayed."""
    result = train_in(tmp_path / "run", experiment())
    best, told = result["best"], journal(tmp_path / "run")
    standing = sorted(told, key=lambda one: -one["results"]["return"])[:4]
    assert standing[0]["results"]["return"] > 1000 and best["candidates"] == [one["id"] for one in standing]
    # the same episodes for all: 30 to choose with, 15 of them for four and 15 for two
    played = {one["id"]: np.array([one["results"]["return"]]) for one in standing}
    skill = {one["id"]: one["genes"]["mdp.skill"] for one in standing}
    left = [one["id"] for one in standing]
    for place, (count, episodes) in enumerate([(4, 3), (2, 7)]):
        left = left[:count]
        for one in left:
            played[one] = np.append(played[one], skill[one] + prizes(f"select {place}", episodes))
        left.sort(key=lambda one: -played[one].mean())
    heldout = skill[left[0]] + prizes("held out", 60 - 12 - 14)
    assert best["individual"] == left[0] and best["selected_by"] == "held-out"
    assert result["fitness"] == best["fitness"] == best["heldout"]["mean"] == pytest.approx(heldout.mean())
    assert best["heldout"] == pytest.approx(with_interval(heldout.tolist(), 34))
    first = next(one for one in told if one["id"] == left[0])
    assert best["first_fitness"] == first["results"]["return"] and best["step"] == first["step"]
    assert best["luck"] == pytest.approx(first["results"]["return"] - heldout.mean())
    assert best["selection_steps"] == 60 and result["steps"] == 60  # counted apart
    (row,) = (x for x in rows(tmp_path / "run") if "selection/steps" in x)
    assert (row["step"], row["selection/steps"]) == (60, 60)
    assert (row["selection/heldout"], row["selection/luck"]) == (best["fitness"], best["luck"])


def test_the_interval_is_students() -> None:
    """1, 2, 3, 4: mean 2.5, deviation 1.29, and 3.182 is the quantile for three degrees of freedom."""
    told = with_interval([1.0, 2.0, 3.0, 4.0], 8)
    half = 3.182446305 * 1.290994449 / 2
    assert (told["mean"], told["confidence"], told["episodes"]) == (2.5, 0.95, 8)
    assert (told["low"], told["high"]) == pytest.approx((2.5 - half, 2.5 + half))
    assert with_interval([7.0], 1)["low"] is None


@pytest.mark.parametrize(("candidates", "episodes", "plan"), [
    (4, 120, [(4, 7), (2, 15)]), (8, 120, [(8, 2), (4, 5), (2, 10)]), (4, 16, [(4, 1), (2, 2)]),
    (4, 4, [(2, 1)]), (4, 3, []), (1, 120, []), (0, 120, []), (5, 60, [(5, 2), (3, 3), (2, 5)]),
])  # fmt: skip
def test_rounds_take_half_of_the_episodes(candidates: int, episodes: int, plan: list[tuple[int, int]]) -> None:
    assert rounds(candidates, episodes) == plan
    assert sum(count * each for count, each in plan) <= episodes // 2


def test_without_replays_the_highest_fitness_is_the_best(tmp_path: Path) -> None:
    off = experiment(eval=Evaluating(every=0, episodes=30, candidates=0))
    result = train_in(tmp_path / "run", off)
    first = max(journal(tmp_path / "run"), key=lambda one: one["results"]["return"])
    assert result["best"]["individual"] == first["id"] and result["best"]["selected_by"] == "first fitness"
    assert result["fitness"] == result["best"]["fitness"] == first["results"]["return"]
    assert "selection/steps" not in (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_function_has_no_luck(tmp_path: Path) -> None:
    world = Problem(id="sphere", dimensions=3)
    result = train_in(tmp_path / "run", experiment(mdp=world, ec=SGA(population=20)))
    assert result["best"]["selected_by"] == "exact fitness"
    assert result["fitness"] == max(one["results"]["fitness"] for one in journal(tmp_path / "run"))


@pytest.mark.slow
def test_stopping_and_evaluating_more_often_name_the_same_individual(tmp_path: Path) -> None:
    whole = train_in(tmp_path / "whole", experiment(budget=Budget(steps=80)))
    train_in(tmp_path / "halves", experiment(budget=Budget(steps=40)))
    halves = train_in(tmp_path / "halves", experiment(budget=Budget(steps=80)))
    often = train_in(tmp_path / "often", experiment(budget=Budget(steps=80), eval=Evaluating(every=20, episodes=30)))
    assert whole["best"] == halves["best"] == often["best"]


def population(**changed: Any) -> Population:
    changed_experiment = experiment(**changed)
    assert isinstance(changed_experiment.ec, IndependentEvolution)
    return Population(changed_experiment, changed_experiment.ec)


def test_a_checkpoint_keeps_the_candidates_and_the_named_one() -> None:
    """Also a named individual that four others have passed since."""
    work, again = population(), population()
    try:
        for _ in range(4):
            work.iterate()
        work.evaluate()
        named = work.leader
        assert named is not None
        for number in range(4):
            individual = named.individual._replace(id=100 + number)
            passed = Candidate(Evaluation(individual, (5000.0,), 1, {"fitness": np.array([5000.0])}), 5000.0, 1)
            work.best_individual.add(passed)
        assert work.leader is named
        again.load_state_dict(work.state_dict())
        assert again.result() == work.result()
        for one in (work, again):
            one.evaluate()
        assert again.result() == work.result() and work.result()["best"]["individual"] == 103
    finally:
        work.close()
        again.close()


@pytest.mark.parametrize(("replayed", "standing"), [(5, [7, 5, 9, 8, 6]), (0, [5])])
def test_of_equal_ones_the_last_are_replayed_and_the_first_stands_without_replays(
    replayed: int, standing: list[int]
) -> None:
    """A share of games has a ceiling, which many reach by luck; those born later come of more selection."""
    work = population(eval=Evaluating(every=0, episodes=30, candidates=replayed))
    try:
        best = work.best_individual
        for number, fitness in [(number, float(number in (5, 7)) + 1.0) for number in range(10)]:
            evaluation = Evaluation(Individual(number, np.zeros(1)), (fitness,), 1, {"fitness": np.array([fitness])})
            if best.may_be(fitness):
                best.add(Candidate(evaluation, fitness, 1))
        assert [candidate.id for candidate in best.candidates] == standing
    finally:
        work.close()


def test_the_sides_of_a_game_count_as_one_game(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not independent."""
    monkeypatch.setattr(Selection, "_sides", 2)
    monkeypatch.setattr(Selection, "_replay", lambda self, one, purpose, count: (np.arange(float(count)), count))
    work = population()
    try:
        evaluation = Evaluation(Individual(7, np.zeros(1)), (1.0,), 1, {"fitness": np.ones(1)})
        selected = work.best_individual.selection.of([Candidate(evaluation, 1.0, 1)])
    finally:
        work.close()
    assert selected is not None and (selected.id, selected.episodes) == (7, 60)
    assert selected.heldout == [2 * game + 0.5 for game in range(30)]


def test_an_older_checkpoint_has_its_best_as_the_only_candidate() -> None:
    work, again = population(), population()
    try:
        work.iterate()
        state = in_old_form(work.state_dict())
        for name in ("candidates", "ranking", "named", "considered", "selected", "in_vain", "values"):
            del state[name]
        again.load_state_dict(state)
        assert [one.id for one in again.best_individual.candidates] == state["leader"]["individuals"]["id"]
        assert again.best is not None and again.result()["fitness"] == again.best[0]
    finally:
        work.close()
        again.close()


def test_candidates_carry_no_replay() -> None:
    learner = DQN(net=Net(hidden=(4,)), slots=2, horizon=4, capacity=500, warm_up=8, batch=4)
    evolution = SGA(population=4, episodes=1, lifetime="train", train_steps=32, seeds="fresh")
    work = population(rl=learner, ec=evolution)
    try:
        for _ in range(4):
            work.iterate()
        kept = [one.evaluation.individual.memory for one in work.best_individual.candidates]
        assert all("replay" not in (memory or {})["learner"] for memory in kept) and len(kept) == 4
        work.evaluate()
        assert work.result()["best"]["selected_by"] == "held-out"
    finally:
        work.close()


@pytest.mark.slow
def test_a_signal_during_the_replays_saves_and_the_resume_names_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_in(tmp_path / "whole", experiment())
    real = Selection.of

    def interrupted(self: Selection, candidates: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(self, candidates)

    often = experiment(eval=Evaluating(every=20, episodes=30))
    with monkeypatch.context() as patch:
        patch.setattr(Selection, "of", interrupted)
        with pytest.raises(Interrupted):
            train_in(tmp_path / "run", often)
    assert newest(tmp_path / "run")["run"]["steps"] == 20 and not (tmp_path / "run" / "result.json").exists()
    assert train_in(tmp_path / "run", often)["best"] == whole["best"]
