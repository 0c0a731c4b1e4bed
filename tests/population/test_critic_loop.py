"""Evolution with a shared critic from the command line: the same bits on any number of workers, after a stop, in a
replay; what is stored, counted and refused."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from critic_runs import ASYNCHRONOUS, CRITIC, QUICK, SYNCHRONOUS, WORKERS, bits, check_critics, evolved, jobs
from evolution_runs import journal
from harness import experiment_of, fingerprint, go, newest, saved_rows, with_signal_at, with_small_segments
from mutating import check_notices, mutate

from evorl.mdp.core import WorldError
from evorl.population import core
from evorl.population.critic_jobs import RANDOM, JobWorker
from evorl.population.critic_loop import CriticPopulation
from evorl.population.critics import Critics
from evorl.population.work import UNUSED
from evorl.rl.core import NotFinite


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A case's run in one process, made once."""
    place = tmp_path_factory.mktemp("alone")

    @cache
    def made(kind: str, case: str) -> Path:
        cases = SYNCHRONOUS if kind == "synchronous" else ASYNCHRONOUS
        return evolved(place / kind / re.sub(r"\W+", "_", case), *cases[case])

    return made


@pytest.mark.slow
def test_rows_written_ahead_of_checkpoints_change_no_bit(
    alone: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, names = with_small_segments(monkeypatch)
    ahead = evolved(tmp_path / "ahead", *ASYNCHRONOUS["aes_rl"], "checkpoint.every=400")
    assert max(there) > 1 and names == saved_rows(ahead)
    assert bits(ahead) == bits(alone("asynchronous", "aes_rl"))


@pytest.mark.slow
def test_keys_that_are_said_to_have_no_effect_have_none(alone: Callable[[str, str], Path], tmp_path: Path) -> None:
    others = {
        "members": 2, "slots": 3, "horizon": 7, "rounds": 2, "samples_per_step": 3, "asynchronous": "true",
        "max_lag": 3, "exploration": 0.5, "delay": 1, "warm_up_actions": "policy",
    }  # fmt: skip
    assert {*others} == {*UNUSED}
    changed = [f"rl.{key}={value}" for key, value in others.items()]
    found = evolved(tmp_path / "run", *ASYNCHRONOUS["aes_rl"], *changed)
    (state, journal), (others_state, others_journal) = bits(found), bits(alone("asynchronous", "aes_rl"))
    for each in (state, others_state):
        del each["learner"]["limiter"]  # of a learner that trains alone
    assert (state, journal) == (others_state, others_journal)


LONG = ("cem_rl, told", "p_cem_rl, sac", "p_cem_rl, together", "acem_rl", "one_plus_one_rl")
"""Those of make faults."""


@pytest.mark.slow_cases(but=("asynchronous-aes_rl",))
@pytest.mark.parametrize(
    ("kind", "case"),
    [
        pytest.param(kind, case, marks=[pytest.mark.fault] * (case in LONG))
        for kind, cases in (("synchronous", SYNCHRONOUS), ("asynchronous", ASYNCHRONOUS))
        for case in cases
    ],
)
def test_n_and_n_more_is_2n(kind: str, case: str, alone: Callable[[str, str], Path], tmp_path: Path) -> None:
    """Also in the middle of a generation, with jobs in flight that read an older replay."""
    words = (SYNCHRONOUS if kind == "synchronous" else ASYNCHRONOUS)[case]
    whole, halves = alone(kind, case), tmp_path / "halves"
    evolved(halves, *words[:-1], "budget.steps=650")
    flying = newest(halves)["run"]["in_flight"]
    assert any(len(job["individuals"]["id"]) == (2 if case == "p_cem_rl, together" else 1) for job in flying.values())
    assert go(f"resume={halves}", words[-1]) == 0
    assert jobs(halves) == jobs(whole)
    assert journal(halves) == journal(whole)
    one, two = (fingerprint(place)["state"]["run"] for place in (whole, halves))
    for run in (one, two):  # the stop has evaluated the mean
        del run["best"]
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "case"), [("synchronous", "p_cem_rl"), ("asynchronous", "aes_rl")])
def test_a_signal_ends_the_job_at_work_at_once(
    kind: str, case: str, alone: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, words = tmp_path / "run", (SYNCHRONOUS if kind == "synchronous" else ASYNCHRONOUS)[case]
    made = with_signal_at(monkeypatch, 420)
    assert go(*QUICK, *words, f"hydra.run.dir={run}") == 130
    monkeypatch.undo()
    assert made == [420]
    assert go(f"resume={run}") == 0
    assert jobs(run) == jobs(alone(kind, case))
    assert bits(run) == bits(alone(kind, case))


@pytest.mark.slow
@pytest.mark.parametrize("case", SYNCHRONOUS)
def test_workers_change_nothing(case: str, alone: Callable[[str, str], Path], tmp_path: Path) -> None:
    there = evolved(tmp_path / "there", *SYNCHRONOUS[case], *WORKERS)
    assert jobs(there) == jobs(alone("synchronous", case))
    assert bits(there) == bits(alone("synchronous", case))


@pytest.mark.slow  # the test below compares workers with none as well
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_bits(
    workers: int, alone: Callable[[str, str], Path], tmp_path: Path
) -> None:
    there = evolved(tmp_path / "there", *SYNCHRONOUS["p_cem_rl"], WORKERS[0], f"cluster.workers={workers}")
    assert jobs(there) == jobs(alone("synchronous", "p_cem_rl"))
    assert bits(there) == bits(alone("synchronous", "p_cem_rl"))


@pytest.mark.slow
def test_with_one_slot_on_one_worker_the_order_is_that_of_one_process(tmp_path: Path) -> None:
    """Where a job of the critic takes all that is due, none is sent while an individual is at work: the worker does
    all jobs in the order in which they were given out. Shorter jobs go first in one process, but wait here."""
    words = (*ASYNCHRONOUS["aes_rl"], "ec.slots=1", "ec.critic_job=60")
    here, there = evolved(tmp_path / "here", *words), evolved(tmp_path / "there", *words, *WORKERS, "cluster.workers=1")
    assert len([one for one in jobs(here) if one["kind"] == "critic"]) > 3
    assert jobs(there) == jobs(here)
    assert bits(there) == bits(here)


@pytest.mark.slow_cases(but=("aes_rl",))
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.fault] * (case in LONG)) for case in ASYNCHRONOUS]
)
def test_an_asynchronous_run_is_repeated_from_its_journal(case: str, tmp_path: Path) -> None:
    first = evolved(tmp_path / "first", *ASYNCHRONOUS[case][:-1], "budget.steps=1000", *WORKERS)
    assert go(f"replay={first}", "cluster=local", f"hydra.run.dir={tmp_path / 'again'}") == 0
    assert jobs(tmp_path / "again") == jobs(first)
    assert bits(tmp_path / "again") == bits(first)


def test_a_journal_of_another_run_is_refused(
    alone: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Path(shutil.copytree(alone("asynchronous", "aes_rl"), tmp_path / "first"))
    capsys.readouterr()
    lines = (first / "jobs.jsonl").read_text().splitlines(keepends=True)
    (first / "jobs.jsonl").write_text("".join([*lines[:3], *lines[9:]]))
    assert go(f"replay={first}", f"hydra.run.dir={tmp_path / 'again'}") == 2
    assert "line 4 of jobs.jsonl is job" in capsys.readouterr().err


@pytest.mark.slow
def test_a_replay_with_other_objectives_than_its_journal_warns_once(
    alone: Callable[[str, str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Path(shutil.copytree(alone("asynchronous", "acem_rl"), tmp_path / "first"))
    lines = [json.loads(line) for line in (first / "jobs.jsonl").read_text().splitlines()]
    played = [line for line in lines if line["objectives"]][3:5]
    for line in played:
        line["objectives"]["fitness"] += 1e-9
    (first / "jobs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert go(f"replay={first}", f"hydra.run.dir={tmp_path / 'again'}") == 0
    says = "".join(capsys.readouterr())
    assert says.count("this replay differs: ") == 1
    assert f"this replay differs: job {played[0]['job']} ({played[0]['kind']}) has objectives" in says


def test_a_run_in_which_everybody_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after some did not: individuals that fail at once take no steps, so that no budget would end the run."""
    monkeypatch.setattr(core, "HOPELESS", 12)
    experiment = experiment_of(*QUICK, *ASYNCHRONOUS["acem_rl"])
    population = CriticPopulation(experiment, experiment.ec)
    try:
        while population.evaluations < 2:
            population.iterate()

        def fails(*words: Any) -> Any:
            raise NotFinite("the reward of slot 0 is not finite: nan")

        monkeypatch.setattr(JobWorker, "_episodes", fails)
        with pytest.raises(WorldError, match="the last 12 individuals all failed; the last one: the reward of slot 0"):
            for _ in range(60):
                population.iterate()
    finally:
        population.close()


@pytest.mark.parametrize(("case", "random"), [("aes_rl", True), ("cem_rl", False), ("aes_rl", False)])
def test_a_first_population_that_fails_whole_ends_the_run(
    case: str, random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of the warm-up are none of the search's, whether they fail or not."""
    real = JobWorker._episodes

    def fails(self: JobWorker, role: str, *words: Any) -> Any:
        if random and role == RANDOM:
            return real(self, role, *words)
        raise NotFinite("the reward of slot 0 is not finite: nan")

    monkeypatch.setattr(JobWorker, "_episodes", fails)
    experiment = experiment_of(*QUICK, *{**SYNCHRONOUS, **ASYNCHRONOUS}[case])
    population = CriticPopulation(experiment, experiment.ec)
    try:
        with pytest.raises(WorldError, match="every individual so far failed; the last one: the reward of slot 0"):
            for _ in range(60):
                population.iterate()
        assert population.failures_in_a_row == 4
    finally:
        population.close()


# ------------------------------------------------------------------ what is counted, stored and trained


@pytest.mark.slow
@pytest.mark.parametrize("case", ["aes_rl", "acem_rl", "one_plus_one_rl"])
def test_budgets_of_an_asynchronous_run(case: str, alone: Callable[[str, str], Path]) -> None:
    run = alone("asynchronous", case)
    state, lines = newest(run)["run"], jobs(run)
    counted = [one for one in lines if one["kind"] in ("random", "evolved", "trained")]
    assert state["steps"] == 50 * len(counted) == state["learner"]["replay"]["count"]  # means are not stored
    means = [one for one in lines if one["kind"] == "mean"]
    assert state["uncounted"] == len(means) * {"aes_rl": 5, "one_plus_one_rl": 2, "acem_rl": 0}[case] * 50
    assert abs(state["critics"]["0"]["gradient_steps"] - 0.2 * state["steps"]) <= 30 + 0.2 * 50
    trained = [one for one in lines if one["kind"] == "trained"]
    assert len(trained) > 3
    assert {one["gradient_steps"] for one in trained} == {20}  # a tenth of the last four episodes' 200 steps
    assert not any(one["kind"] == "trained" for one in lines[: next(i for i, x in enumerate(lines) if x["critic"])])


def learning(run: Path) -> list[dict[str, Any]]:
    """Lines of jobs.jsonl from the first of a critic on."""
    return list(itertools.dropwhile(lambda one: one["kind"] != "critic", jobs(run)))


def test_budgets_of_cem_rl(alone: Callable[[str, str], Path]) -> None:
    """A fifth of the last generation's steps for the critic, half of it for each of two individuals, in turn."""
    generation = learning(alone("synchronous", "cem_rl"))[:6]
    assert [one["kind"] for one in generation] == ["critic", "critic", "trained", "trained", "evolved", "evolved"]
    assert [one["gradient_steps"] for one in generation] == [20, 20, 20, 20, 0, 0]
    assert [one["critic"] for one in generation] == [0, 1, 1, 2, None, None]  # the version that each began with
    assert {one["length"] for one in generation} == {200, None}


@pytest.mark.slow_cases("uniform-True-0")
@pytest.mark.parametrize(("actions", "random", "told"), [("uniform", True, 0), ("told", True, 4), ("policy", False, 4)])
def test_who_plays_in_the_warm_up(actions: str, random: bool, told: int) -> None:
    """Uniform actions change at every step; a policy near the start, whose weights are small, hardly acts."""
    experiment = experiment_of(*QUICK, "rl=td3", "ec=cem_rl", "ec.trained=2", f"ec.warm_up_actions={actions}")
    population = CriticPopulation(experiment, experiment.ec)
    try:
        rows = [row for _ in range(4) for row in population.iterate().evaluated]
        played = population.replay.read(np.arange(200), 200, np.ones(1)).action
    finally:
        population.close()
    assert len(rows) == told
    assert (np.abs(np.diff(played, axis=0)).mean() > 0.3) == random


def test_p_cem_rl_trains_its_critic_before_all_individuals(alone: Callable[[str, str], Path]) -> None:
    lines = learning(alone("synchronous", "p_cem_rl"))[:5]
    assert [one["kind"] for one in lines] == ["critic", "trained", "trained", "evolved", "evolved"]
    assert [one["critic"] for one in lines] == [0, 1, 1, None, None]


@pytest.mark.slow
def test_p_cem_rl_trains_several_individuals_in_a_job(alone: Callable[[str, str], Path]) -> None:
    """Each has its own line, as if the job were its own, but the training of both counts once."""
    run = alone("synchronous", "p_cem_rl, together")
    lines = [json.loads(line) for line in (run / "jobs.jsonl").read_text().splitlines()]
    trained = [one for one in lines if one["kind"] == "trained"][:4]
    assert [one["individual"] - trained[0]["individual"] for one in trained] == [0, 1, 2, 3]
    assert [one["job"] - trained[0]["job"] for one in trained] == [0, 0, 1, 1]
    assert [one["step"] - trained[0]["step"] for one in trained] == [0, 50, 100, 150]
    assert {(one["critic"], one["gradient_steps"]) for one in trained} == {(1, 20)}
    first, second = trained[:2]
    assert first["began"] < first["trained"] < first["ended"] == second["began"] == second["trained"] < second["ended"]


@pytest.mark.slow
def test_the_lag_of_the_critic_is_bounded(alone: Callable[[str, str], Path]) -> None:
    lines = (alone("asynchronous", "aes_rl, bounded") / "metrics.jsonl").read_text().splitlines()
    lags = [line["critic/lag"] for line in map(json.loads, lines) if "critic/lag" in line]
    assert max(lags) <= 200 + 3 * 50


def test_a_critic_that_is_ahead_has_no_lag() -> None:
    """A job is always whole: after 1,050 steps it may have taken 2,000 gradient steps."""
    critics = Critics([MagicMock(critic_state=dict) for _ in range(2)], 1.0)
    critics[0].gradient_steps, critics[1].gradient_steps = 3000, 2000
    assert [critics.lag(steps) for steps in (1050, 2000, 2250)] == [0, 0, 250]
    assert [critics.learned(steps) for steps in (1050, 2000, 2250)] == [True, True, False]
    assert [critics.may_learn(1, steps) for steps in (1050, 2000, 2250)] == [False, False, True]


def test_further_critics_begin_with_weights_of_their_own() -> None:
    """The second of a seed is not the first of the next seed."""

    def critics(seed: int) -> list[Any]:
        words = ("mdp=pendulum", "rl=td3", "ec=aes_rl", "ec.critics=3", "rl.net.hidden=[8]", "rl.capacity=1000")
        experiment = experiment_of(*words, f"seed={seed}")
        population = CriticPopulation(experiment, experiment.ec)
        try:
            return [one.state["q"] for one in population.critics.chains]
        finally:
            population.close()

    weights = [*critics(1), *critics(2)]
    assert len({one.tobytes() for one in weights}) == 6


TRAINS = ["cem_rl", "p_cem_rl", "aes_rl", "aes_rl, bounded"]


@pytest.mark.slow_cases(but=("aes_rl",))
@pytest.mark.parametrize("case", TRAINS)
def test_individuals_follow_the_versions_of_a_critic_that_learns(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**ASYNCHRONOUS, **SYNCHRONOUS}[case]
    check_critics(lambda: evolved(tmp_path / "run", *words), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "function", "old", "new"),
    [
        ("cem_rl", CriticPopulation._finish_critic, 'answer["state"].items()', "critic.state.items()"),
        ("aes_rl", CriticPopulation._finish_critic, 'answer["state"].items()', "critic.state.items()"),
        ("aes_rl, bounded", CriticPopulation._send_individuals, "self.trained % len(self.critics)", "-1"),
    ],
)
def test_a_frozen_critic_is_noticed(
    case: str, function: Any, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {**ASYNCHRONOUS, **SYNCHRONOUS}[case]
    mutate(monkeypatch, function, old, new)
    check_notices(check_critics, lambda: evolved(tmp_path / "run", *words), monkeypatch)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(("words", "says"), [
    (("rl=dqn", "mdp=cartpole"), "ec: needs a learner with a replay and an actor: rl=td3"),
    (("rl=ppo",), "ec: needs a learner with a replay and an actor: rl=td3, rl=sac or rl=ddpg"),
    (("rl=td3", "rl.normalize_inputs=true"), "rl.normalize_inputs: individuals that share a critic share no input"),
    (("rl=td3", "rl.sampling=attentive"), "rl.sampling: there is no one state that all individuals are in"),
    (("rl=td3", "ec.objectives=[fitness,{length:-1}]"), "ec.objectives: this evolution takes one"),
    (("rl=td3", "rl.capacity=64", "rl.horizon=1", "rl.batch=8"), "rl.capacity: must be at least 100: episodes have up"),
    (("rl=td3", "ec=p_cem_rl", "ec.parallel_critic=true", "ec.train_together=2"), "ec.train_together: above 1 needs"),
    (("rl=td3", "ec=p_cem_rl", "ec.critics=3"), "ec.critics: is of a critic beside the actors; add ec.parallel_critic"),
    (("rl=td3", "ec=p_cem_rl", "ec.max_critic_lag=9"), "ec.max_critic_lag: is of a critic beside the actors; add"),
    (("rl=td3", "ec=p_cem_rl", "ec.critic_job=9"), "ec.critic_job: is of a critic beside the actors; add"),
    (("rl=td3", "ec.objectives=[speed]"), "ec.objectives: there is no result speed"),
    (("rl=td3", "ec.critic_ratio=null"), "ec.critic_ratio: null needs cluster=processes or ray"),
    (("rl=td3", "ec=p_cem_rl", "ec.critic_ratio=null"), "ec.critic_ratio: null is for a critic that learns beside"),
])  # fmt: skip
def test_what_is_refused(words: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("mdp=pendulum", "mdp.time_limit=50", "ec=aes_rl", *words)
    assert go(*words, "record.tensorboard=false", f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert says in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_an_episode_of_unknown_length_that_does_not_fit_ends_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorl.mdp.gymnasium.world.Gymnasium.longest_episode", None)
    words = (*QUICK, "rl=td3", "ec=aes_rl", "rl.capacity=64", "rl.horizon=1", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words) == 1
    assert "an episode of 50 decisions needs rl.capacity=100 or more" in capsys.readouterr().err


# ------------------------------------------------------------------ what others make of it


@pytest.mark.slow_cases(but=("one learner",))
@pytest.mark.parametrize("words", [
    ("budget.steps=50",),
    ("ec=cem", "ec.population=2", "ec.sigma=1e-12", "ec.noise=0", "ec.noise_end=0", "budget.steps=1"),
], ids=["one learner", "a population"])  # fmt: skip
def test_other_runs_start_from_its_mean(
    words: tuple[str, ...], alone: Callable[[str, str], Path], tmp_path: Path
) -> None:
    past = alone("asynchronous", "aes_rl")
    usual = ("mdp=pendulum", "mdp.time_limit=50", "rl=td3", "rl.net.hidden=[8]", "rl.batch=16", "eval.every=0")
    assert go(f"init={past}", *usual, *words, f"hydra.run.dir={tmp_path / 'run'}") == 0
    policies = (newest(place)["run"]["learner"]["policy"] for place in (past, tmp_path / "run"))
    for mean, start in zip(*(one.values() for one in policies), strict=True):
        np.testing.assert_allclose(start, mean, atol=1e-6)


@pytest.mark.slow
def test_a_critic_without_a_budget_may_always_learn_and_is_repeated(tmp_path: Path) -> None:
    bounded, free = (Critics([MagicMock(critic_state=dict)], ratio) for ratio in (1.0, None))
    bounded[0].gradient_steps = free[0].gradient_steps = 100
    assert not bounded.may_learn(0, 100) and free.may_learn(0, 100)
    words = (*CRITIC, "rl=td3", "ec=p_cem_rl", "ec.trained=2", "ec.parallel_critic=true", "budget.steps=1500")
    words = (*words, "ec.critic_ratio=null")
    first = evolved(tmp_path / "first", *words, *WORKERS)
    assert go(f"replay={first}", "cluster=local", f"hydra.run.dir={tmp_path / 'again'}") == 0
    assert jobs(tmp_path / "again") == jobs(first)
    assert bits(tmp_path / "again") == bits(first)
