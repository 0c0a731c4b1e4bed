"""The loop around one learner: what it counts, when it judges, saves and stops, and how it fails."""

from __future__ import annotations

import errno
import json
import math
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import (
    NEEDS_COMPILER,
    QUICK,
    Faulty,
    fingerprint,
    go,
    newest,
    rows,
    timeless,
    train_in,
    with_small_segments,
)

from evorl.ec.pbt import PBT
from evorl.ec.sga import SGA
from evorl.jobs.saved_policies import learner_of
from evorl.mdp.core import World, WorldError
from evorl.mdp.gymnasium import Gymnasium
from evorl.nets.capture import Trace as Recorded
from evorl.nets.capture import capture
from evorl.nets.policy import Net
from evorl.population import genes
from evorl.population.evaluation import evaluation_plan
from evorl.population.loop import Population
from evorl.record import checkpoint
from evorl.record.core import Record
from evorl.record.terminal import Terminal
from evorl.replay.samplers.prioritized import PrioritizedKeys
from evorl.replay.samplers.registry import WeightedSamplers
from evorl.rl import network_learner
from evorl.rl.core import NotFinite
from evorl.rl.dqn import DQN
from evorl.rl.impact import Impact
from evorl.rl.ppo import PPO
from evorl.rl.sac import SAC
from evorl.rl.sampler import Sampler
from evorl.rl.sources import Lockstep
from evorl.rl.td3 import TD3
from evorl.rl.vtrace import VTrace
from evorl.training.experiment import Budget, Checkpoints, Evaluation, Experiment
from evorl.training.train import Run, Start, new_run
from evorl.util import run_directory
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal

BATCH = 64  # environment steps of an iteration
SMALL = PPO(slots=4, horizon=16, minibatch=32, passes=2, net=Net(hidden=(8,)))


def experiment(**changed: Any) -> Experiment:
    usual = Experiment(
        mdp=Gymnasium(id="CartPole-v1"),
        rl=SMALL,
        record=Record(tensorboard=False),
        budget=Budget(steps=10 * BATCH),
        eval=Evaluation(every=0, episodes=2),
        checkpoint=Checkpoints(every=0),
    )
    return replace(usual, **changed)


def having(found: list[dict[str, Any]], name: str) -> list[int]:
    return [row["step"] for row in found if name in row]


# ------------------------------------------------------------------ machine code


CPU = experiment(device="cpu")


@pytest.mark.slow
@NEEDS_COMPILER
@pytest.mark.learn
def test_a_compiled_run_learns_the_same_and_goes_on_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")

    def trained(batches: int, state: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
        run = Run(replace(CPU, rl=replace(SMALL, **changed)))
        try:
            if state is not None:
                run.load_state_dict(state)
            while run.iteration < batches:
                run.iterate()
            return run.state_dict()
        finally:
            run.close()

    def libraries() -> int:
        return len([*tmp_path.glob("evorl/*.so")])

    eager = trained(1)
    assert libraries() == 0
    first = trained(1, compile=True)
    for name, weight in eager["learner"]["policy"].items():
        torch.testing.assert_close(first["learner"]["policy"][name], weight, rtol=1e-4, atol=1e-6)
    learners = [trained(3, state, compile=True)["learner"] for state in (None, first)]
    for part in ("policy", "optimizer"):
        whole, resumed = (learner[part] for learner in learners)
        assert all(torch.equal(x, resumed[name]) for name, x in whole.items())
    own: dict[str, Any] = {
        "lr": 1e-2,
        "critic_coef": 1,
        "entropy_coef": 0.1,
    }  # what a population varies is not in the code
    assert not torch.equal(
        trained(1, compile=True, **own)["learner"]["policy"]["policy.weight"],
        first["learner"]["policy"]["policy.weight"],
    )
    assert libraries() == 1


SHARED: dict[str, Any] = {
    "slots": 8, "horizon": 32, "gamma": 0.9, "lr": 1e-2, "adam_epsilon": 1e-4, "max_grad_norm": 0.1,
}  # fmt: skip
MEMORY: dict[str, Any] = {
    "batch": 8, "samples_per_step": 2, "warm_up": 16, "warm_up_actions": "policy", "n_step": 2, "tau": 0.1,
}  # fmt: skip
NOT_SEARCHED = {"asynchronous", "max_lag", "correction", "rounds", "replay"}
NOT_SEARCHED |= {key.removeprefix("rl.") for key in genes.FIXED}
"""Keys that are the same for all individuals, or that change how a run samples and not what a step does."""
REPLAYED: Any = {"horizon": 16, "batch": 16, "warm_up": 8, "samples_per_step": 4}
ROLLOUTS: Any = VTrace(
    slots=8, horizon=8, batch=4, fill_in=0, asynchronous=False, clone_policy=0.1, clone_value=0.1, kl_mask=0.3,
    net=Net(hidden=(8,)),
)  # fmt: skip
IMPACT: Any = Impact(slots=8, horizon=8, batch=4, asynchronous=False, net=Net(hidden=(8,)))
PENDULUM = Gymnasium(id="Pendulum-v1")
COMPILED: dict[str, tuple[Any, World, dict[str, Any]]] = {
    "ppo": (SMALL, CPU.mdp, SHARED | {
        "lam": 0.9, "critic_coef": 0.3, "entropy_coef": 0.1, "normalize_advantage": False,
        "normalize_rewards": True, "clip": 0.1, "passes": 1, "minibatch": 16, "value_clip": 0.2, "target_kl": 0.1,
    }),
    "vtrace": (ROLLOUTS, CPU.mdp, {
        **SHARED, "horizon": 16, "batch": 8, "fill_in": 8, "lam": 0.9, "critic_coef": 0.3, "entropy_coef": 0.1,
        "reduction": "sum", "rmsprop_epsilon": 0.1, "rmsprop_decay": 0.9, "correction": "none",
        "rho_bar": 2.0, "c_bar": 0.5, "rho_pg_bar": 3.0, "clone_policy": 0.2, "clone_value": 0.2, "clone_kl": "policy",
        "clone_error": "norm", "clone_on": "all", "kl_mask": 0.4, "kl_mask_to": "behaviour",
    }),
    "impact": (IMPACT, CPU.mdp, {
        **SHARED, "horizon": 16, "batch": 8, "fill_in": 8, "lam": 0.9, "critic_coef": 0.3, "entropy_coef": 0.1,
        "reduction": "sum", "rmsprop_epsilon": 0.1, "rmsprop_decay": 0.9, "clip": 0.1,
        "worker_clip": 1.5, "rho_bar": 2.0, "c_bar": 0.5, "target_every": 3,
    }),
    "td3": (TD3(**REPLAYED, net=Net(hidden=(8,), output="tanh")), PENDULUM, SHARED | MEMORY | {
        "exploration": 0.3, "target_noise": 0.3, "target_clip": 0.2, "delay": 3,
    }),
    "sac": (SAC(**REPLAYED, net=Net(hidden=(8,), std="state")), PENDULUM, SHARED | MEMORY | {
        "alpha": 0.5, "target_entropy": -2.0, "learn_alpha": False,
    }),
    "dqn": (DQN(**REPLAYED, net=Net(hidden=(8,)), target_every=2), CPU.mdp, SHARED | MEMORY | {
        "epsilon": 0.2, "epsilon_spread": 2.0, "target_every": 3, "huber": 0.5, "double": True, "noisy_std": 0.1,
        "replay": WeightedSamplers(prioritized=PrioritizedKeys(alpha=0.4, beta=0.2)),
    }),
}  # fmt: skip
"""For each learner: settings, a world, and another value for each key that may be a gene."""
OUTSIDE = {
    "td3": {"rl.slots", "rl.horizon"},
    "sac": {"rl.slots", "rl.horizon"},
    "dqn": {"rl.slots", "rl.horizon"},
    "vtrace": {"rl.slots", "rl.rmsprop_epsilon", "rl.rmsprop_decay"},
    "impact": {"rl.slots", "rl.rmsprop_epsilon", "rl.rmsprop_decay"},
}
"""Keys that shape the minibatch of a policy gradient, and not that of a learner with a replay; and RMSProp's."""


@pytest.mark.slow_cases(but=("ppo",))
@pytest.mark.parametrize("name", COMPILED)
def test_genes_refused_beside_a_compiled_step_are_those_that_its_code_holds(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", sys.executable)  # nothing is compiled: any program will do
    texts: set[str] = set()

    def noted(function: Any, *example: torch.Tensor) -> Any:
        texts.add(Recorded.of(function, *example).text)
        return capture(function, *example)

    monkeypatch.setattr(network_learner, "compiled", noted)
    usual, world, others = COMPILED[name]
    assert {one.name for one in fields(usual)} == {*others} | (NOT_SEARCHED & {one.name for one in fields(usual)})

    def code(**changed: Any) -> set[str]:
        texts.clear()
        run = Run(replace(CPU, mdp=world, rl=replace(usual, compile=True, **changed)))
        for _ in range(2):
            run.iterate()
        run.close()
        return {*texts}

    before = code()
    held = {f"rl.{key}" for key, value in others.items() if code(**{key: value}) != before}
    frozen = {*genes.FROZEN} & {f"rl.{key}" for key in others}
    assert held == frozen - OUTSIDE.get(name, set())
    assert {*genes.FROZEN} <= {f"rl.{key}" for _, _, keys in COMPILED.values() for key in keys}


def test_what_cannot_be_compiled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", sys.executable)
    with pytest.raises(BadRequest, match="without an LSTM") as raised:
        Run(replace(CPU, rl=replace(SMALL, compile=True, net=Net(hidden=(8,), lstm=4))))
    assert raised.value.key == "rl.compile"
    monkeypatch.setenv("CXX", "no-such-compiler")
    there = tmp_path / "run"
    evolved = ("ec=pbt", "ec.population=2", "ec.slots=2", "+ec.genes.rl.lr=[0.001,0.01]")
    for more in ((), evolved):
        assert go("mdp=cartpole", "rl=ppo", *more, "rl.compile=true", "device=cpu", f"hydra.run.dir={there}") == 2
        assert "rl.compile: needs a C++ compiler" in capsys.readouterr().err and not there.exists()
    # whoever only plays needs none
    whole = replace(CPU, rl=replace(SMALL, compile=True))
    assert (
        evaluation_plan(whole, PBT(population=2, train_steps=BATCH, genes={"rl": {"lr": [0.001, 0.01]}})).together == 1
    )


# ------------------------------------------------------------------ counting and stopping


def test_counters_and_result(tmp_path: Path) -> None:
    result = train_in(tmp_path / "run", experiment())
    found = rows(tmp_path / "run")
    assert having(found, "train/episodes") == [BATCH * i for i in range(1, 11)]
    assert having(found, "eval/return_mean") == [10 * BATCH]
    updates = [row["optimizer/updates"] for row in found if "optimizer/updates" in row]
    assert updates == [4 * i for i in range(1, 11)]
    assert json.loads((tmp_path / "run" / "result.json").read_bytes()) == result
    evaluated = {k.removeprefix("eval/"): v for k, v in found[-1].items() if k.startswith("eval/")}
    assert result["eval"] == {**evaluated, "episodes": 2}
    assert result["fitness"] == result["eval"]["return_mean"]
    assert (
        result["best"]
        == {
            "fitness": result["fitness"],
            "step": 640,
            "selected_by": "highest evaluation",
        }
        and result["steps"] == 640
    )
    assert result["steps_per_second"] == pytest.approx(640 / result["seconds"])
    assert result["seconds"] == pytest.approx(found[-1]["time"], abs=5)


def test_episodes_and_the_window_of_the_last_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes of 3 decisions in 4 slots: 16 decisions end 5 in each, and later batches 5 or 6."""
    world = Faulty(length=3)
    run = Run(experiment(mdp=world))
    numbers: list[float] = []
    remember = run._remember

    def noting(episodes: Any) -> None:
        numbers.extend(episode.ret for episode in episodes)
        remember(episodes)

    monkeypatch.setattr(run, "_remember", noting)
    try:
        for iteration in range(1, 13):
            metrics = run.iterate().metrics
            assert metrics["train/episodes"] == 4 * (16 * iteration // 3) == len(numbers)
            assert metrics["train/return"] == np.mean(numbers[-100:])
            assert metrics["train/episode_length"] == metrics["train/score"] == 3
    finally:
        run.close()
    assert len(numbers) == 256


def test_a_process_takes_the_experiments_threads_where_it_begins_to_work() -> None:
    before = torch.get_num_threads()
    e = experiment(rl=replace(SMALL, threads=before + 1))
    works: list[Callable[[], Any]] = [
        lambda: Run(e), lambda: Sampler(e.mdp, e.rl, 0, torch.device("cpu"), 0), lambda: Population(e, SGA()),
        lambda: evaluation_plan(e, SGA()).make(0), lambda: learner_of(e, state, torch.device("cpu"), Path()),
    ]  # fmt: skip
    try:
        run = Run(e)
        state = run.learner.state_dict()
        run.close()
        for begin in works:
            torch.set_num_threads(before)
            work = begin()
            assert torch.get_num_threads() == before + 1
            if hasattr(work, "close"):
                work.close()
    finally:
        torch.set_num_threads(before)


def test_no_episode_no_return(tmp_path: Path) -> None:
    run = Run(experiment(mdp=Faulty()))
    metrics = run.iterate().metrics
    run.close()
    assert metrics["train/episodes"] == 0 and "train/return" not in metrics


@pytest.mark.slow_cases("64", "0")
@pytest.mark.parametrize("every", [BATCH, 100, 3 * BATCH, 0])
def test_evaluations_and_checkpoints_are_due_at_multiples(every: int, tmp_path: Path) -> None:
    train_in(tmp_path / "a", experiment(eval=Evaluation(every=every, episodes=1)))
    train_in(tmp_path / "b", experiment(checkpoint=Checkpoints(every=every, keep=100)))
    ends = range(BATCH, 10 * BATCH + 1, BATCH)
    due = [end for end in ends if any(end - BATCH < m * every <= end for m in range(1, 11))] if every else []
    due = sorted({*due, 10 * BATCH})
    assert having(rows(tmp_path / "a"), "eval/return_mean") == due
    assert checkpoint.steps(tmp_path / "b") == due


def test_the_default_schedule_follows_the_worlds_budget(tmp_path: Path) -> None:
    world = Gymnasium(id="CartPole-v1", budget=20 * BATCH)
    found = experiment(mdp=world, budget=Budget(), eval=Evaluation(episodes=1), checkpoint=Checkpoints(keep=100))
    assert train_in(tmp_path / "run", found)["steps"] == 20 * BATCH
    assert having(rows(tmp_path / "run"), "eval/return_mean") == [*range(2 * BATCH, 20 * BATCH + 1, 2 * BATCH)]
    assert checkpoint.steps(tmp_path / "run") == [*range(BATCH, 20 * BATCH + 1, BATCH)]


def test_the_newest_and_the_best_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worth = iter([1.0, 5.0, 2.0, 5.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0])
    monkeypatch.setattr("evorl.training.train.evaluate_policy", lambda *_: {"eval/return_mean": next(worth)})
    found = experiment(eval=Evaluation(every=BATCH), checkpoint=Checkpoints(keep=3))
    result = train_in(tmp_path / "run", found)
    assert result["best"] == {
        "fitness": 5.0,
        "step": 2 * BATCH,
        "selected_by": "highest evaluation",
    }  # the first of equals
    # the first of equals
    assert checkpoint.steps(tmp_path / "run") == [2 * BATCH, 8 * BATCH, 9 * BATCH, 10 * BATCH]


def test_the_worlds_own_fitness_is_what_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "evorl.training.train.evaluate_policy", lambda *_: {"eval/return_mean": 1.0, "eval/fitness_mean": 7.0}
    )
    result = train_in(tmp_path / "run", experiment(budget=Budget(steps=BATCH)))
    assert result["fitness"] == result["best"]["fitness"] == result["eval"]["fitness_mean"] == 7.0


def test_budget_of_seconds(tmp_path: Path) -> None:
    result = train_in(tmp_path / "run", experiment(budget=Budget(steps=10**9, seconds=0.3)))
    assert 0 < result["steps"] < 10**6 and result["seconds"] >= 0.3
    assert having(rows(tmp_path / "run"), "eval/return_mean") == [result["steps"]]


def test_a_resumed_run_shows_the_time_that_is_left_of_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[float | None] = []

    def noting(budget: int, seconds: float | None, start: int, **given: Any) -> Terminal:
        shown.append(seconds)
        return Terminal(budget, seconds, start)

    monkeypatch.setattr("evorl.training.session.Terminal", noting)
    for steps in (4 * BATCH, 8 * BATCH):
        result = train_in(tmp_path / "run", experiment(budget=Budget(steps=steps, seconds=1000.0)))
    first, resumed = shown
    assert first is not None and resumed is not None
    assert 1000 - result["seconds"] <= resumed < first - 0.005


def test_budget_of_fitness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worth = iter([1.0, 2.0, 3.0, 9.0])
    monkeypatch.setattr("evorl.training.train.evaluate_policy", lambda *_: {"eval/return_mean": next(worth)})
    found = experiment(budget=Budget(steps=10**6, fitness=3.0), eval=Evaluation(every=2 * BATCH))
    assert train_in(tmp_path / "run", found)["steps"] == 6 * BATCH
    assert train_in(tmp_path / "run", found)["fitness"] == 3.0  # and again: it is over already
    assert next(worth) == 9.0


def test_members_are_shards_with_episodes_of_their_own(tmp_path: Path) -> None:
    run = Run(experiment(rl=replace(SMALL, members=3, slots=4)))
    run.iterate()
    run.close()
    assert isinstance(run.source, Lockstep)
    batch = run.source.storage
    assert run.steps == 3 * BATCH and batch.reward.shape == (16, 12, 1)
    first = batch.inputs[0][0].numpy()
    assert len({row.tobytes() for row in first}) == 12


# ------------------------------------------------------------------ init


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("teacher") / "run"
    train_in(place, experiment(rl=replace(SMALL, normalize_inputs=True)))
    return place


def test_init_takes_the_policy_and_nothing_else(teacher: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, Any] = {}
    iterate = Run.iterate

    def first(run: Run) -> Any:
        begun.setdefault("state", run.state_dict())
        return iterate(run)

    monkeypatch.setattr(Run, "iterate", first)
    train_in(tmp_path / "run", experiment(seed=5, rl=replace(SMALL, lr=1e-4, normalize_inputs=True)), teacher)
    old, new = newest(teacher)["run"], begun["state"]
    assert all(torch.equal(new["learner"]["policy"][k], x) for k, x in old["learner"]["policy"].items())
    assert torch.equal(new["learner"]["moments"]["0"]["mean"], old["learner"]["moments"]["0"]["mean"])
    assert all(not x.any() for x in new["learner"]["optimizer"].values())
    assert any(x.any() for x in old["learner"]["optimizer"].values())
    assert (new["steps"], new["iteration"], new["updates"], new["episodes"], new["best"]) == (0, 0, 0, 0, None)


def test_init_takes_the_optimiser_on_request(teacher: Path) -> None:
    run = new_run(experiment(seed=5, rl=replace(SMALL, lr=1e-4, normalize_inputs=True)), Start(teacher, True))
    old, new = newest(teacher)["run"]["learner"], run.learner.state_dict()
    run.close()
    assert all(torch.equal(new[part][k], x) for part in ("policy", "optimizer") for k, x in old[part].items())
    assert torch.equal(new["moments"]["0"]["mean"], old["moments"]["0"]["mean"])
    assert run.steps == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"rl": replace(SMALL, normalize_inputs=True, net=Net(hidden=(9,)))},
        {"rl": replace(SMALL, normalize_inputs=True, net=Net(hidden=(8,), lstm=4))},
        {"rl": SMALL},
        {"mdp": Gymnasium(id="Acrobot-v1"), "rl": replace(SMALL, normalize_inputs=True)},
    ],
)
def test_init_from_what_does_not_fit_writes_nothing(changed: dict[str, Any], teacher: Path, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"init: the policy of .* does not fit"):
        train_in(tmp_path / "run", experiment(**changed), teacher)
    assert list(tmp_path.iterdir()) == []


def test_init_from_no_run(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no checkpoint"):
        train_in(tmp_path / "run", experiment(), tmp_path)
    assert list(tmp_path.iterdir()) == []


# ------------------------------------------------------------------ numbers that are none


@pytest.mark.parametrize(
    ("fault", "what"), [("observation", "sight"), ("reward", "reward"), ("fitness", "the result 'fitness'")]
)
def test_nan_from_the_world_is_named(fault: Any, what: str, tmp_path: Path) -> None:
    found = experiment(mdp=Faulty(fault=fault, at=70, length=71), checkpoint=Checkpoints(every=BATCH))
    with pytest.raises(NotFinite) as caught:
        train_in(tmp_path / "run", found)
    message = str(caught.value)
    assert what in message and "slot 0" in message and "after 256 environment steps" in message
    assert checkpoint.steps(tmp_path / "run")[-1] == 4 * BATCH == rows(tmp_path / "run")[-1]["step"]
    assert not (tmp_path / "run" / "result.json").exists()
    policy = newest(tmp_path / "run")["run"]["learner"]["policy"]
    assert all(torch.isfinite(x).all() for x in policy.values())


def test_nan_in_the_first_observation_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFinite, match="sight"):
        train_in(tmp_path / "run", experiment(mdp=Faulty(fault="observation", at=0)))


def test_nan_of_the_loss_is_named(tmp_path: Path) -> None:
    rl = replace(SMALL, lr=Anneal(start=1e-3, end=1e38, steps=BATCH))
    with pytest.raises(NotFinite) as caught:
        train_in(tmp_path / "run", experiment(rl=rl, checkpoint=Checkpoints(every=BATCH)))
    assert "gradient step" in str(caught.value) and "environment steps" in str(caught.value)
    saved = newest(tmp_path / "run")["run"]
    assert saved["steps"] == BATCH
    assert all(torch.isfinite(x).all() for x in saved["learner"]["policy"].values())


def test_a_number_that_is_none_ends_the_command_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*QUICK, "mdp=cartpole", "rl.lr={start: 1e-3, end: 1e38, steps: 300}", "checkpoint.every=128")
    words = tuple({word.partition("=")[0]: word for word in words}.values())  # the last one of a key
    assert go(*words, "budget.steps=3000", f"hydra.run.dir={tmp_path / 'run'}") == 1
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("evorl: NotFinite: ") and "gradient step" in line
    assert all(torch.isfinite(x).all() for x in newest(tmp_path / "run")["run"]["learner"]["policy"].values())


# ------------------------------------------------------------------ what fails


@pytest.mark.usefixtures("at_once")
def test_a_world_that_keeps_crashing_ends_the_run_with_its_cause(tmp_path: Path) -> None:
    found = experiment(mdp=Faulty(fault="crash", at=40), checkpoint=Checkpoints(every=BATCH))
    with pytest.raises(WorldError, match="the roof fell in at decision 40") as caught:
        train_in(tmp_path / "run", found)
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert checkpoint.steps(tmp_path / "run")[-1] >= 2 * BATCH
    assert not (tmp_path / "run" / "result.json").exists()


def full(after: int, until: int) -> Callable[..., Any]:
    """`run_directory.write` on a disk that is full for the calls from number ``after`` up to ``until``."""
    write, calls = run_directory.write, 0

    def limited(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if after <= calls < until:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(*given)

    return limited


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = experiment(checkpoint=Checkpoints(every=BATCH, keep=100))
    train_in(tmp_path / "whole", found)
    monkeypatch.setattr(run_directory, "write", full(after=9, until=12))  # four calls make a checkpoint
    train_in(tmp_path / "run", found)
    out = capsys.readouterr().out
    missing = [step for step in range(BATCH, 640, BATCH) if f"checkpoint at step {step} NOT saved" in out]
    assert missing and "No space left" in out
    assert checkpoint.steps(tmp_path / "run") == [s for s in range(BATCH, 641, BATCH) if s not in missing]
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


REMEMBERS = {"mdp": PENDULUM, "rl": TD3(**REPLAYED, net=Net(hidden=(8,), output="tanh"))}


def test_a_disk_that_is_full_between_checkpoints_is_told_once_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it saves only what it evaluated."""

    def write_ahead(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_ahead", write_ahead)
    train_in(tmp_path / "run", experiment(**REMEMBERS, eval=Evaluation(every=160, episodes=1)))
    told = re.findall(r"rows of the next checkpoint NOT written at step (\d+) ", capsys.readouterr().out)
    assert [*map(int, told)] == [16, 176, 336, 496]
    assert checkpoint.steps(tmp_path / "run")[-1] == 640


@pytest.mark.slow_cases(but=("320",))
@pytest.mark.parametrize("every", [0, 320])
def test_what_a_failed_run_wrote_ahead_is_removed(every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, _ = with_small_segments(monkeypatch)
    iterate = Run.iterate

    def failing(run: Run) -> Any:
        if run.steps >= 160:
            raise NotFinite("a test")
        return iterate(run)

    monkeypatch.setattr(Run, "iterate", failing)
    with pytest.raises(NotFinite):
        train_in(tmp_path / "run", experiment(**REMEMBERS, checkpoint=Checkpoints(every=every)))
    assert max(there, default=0) > 0 if every else not there  # without checkpoints nothing is written ahead
    assert not [*tmp_path.glob("run/checkpoints/.*")]


def test_without_its_final_checkpoint_a_run_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = experiment(checkpoint=Checkpoints(every=BATCH))
    train_in(tmp_path / "whole", found)
    monkeypatch.setattr(run_directory, "write", full(after=9, until=10**9))
    with pytest.raises(OSError, match="No space left"):
        train_in(tmp_path / "run", found)
    assert checkpoint.steps(tmp_path / "run") == [BATCH, 2 * BATCH] and not (tmp_path / "run/result.json").exists()
    monkeypatch.undo()
    train_in(tmp_path / "run", found)
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_a_request_that_cannot_be_met_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadRequest, match="no CUDA device"):
        train_in(tmp_path / "run", experiment(mdp=Gymnasium(id="CartPole-v1"), device="cuda"))
    assert list(tmp_path.iterdir()) == []


def test_steps_rise_within_a_prefix_and_numbers_are_finite(tmp_path: Path) -> None:
    train_in(tmp_path / "run", experiment(eval=Evaluation(every=BATCH, episodes=1)))
    found = timeless(rows(tmp_path / "run"))
    for prefix in ("train/episodes", "eval/return_mean"):
        steps = having(found, prefix)
        assert steps == sorted(set(steps))
    assert all(math.isfinite(x) for row in found for x in row.values())


LATE = "gradient steps begin after 50 steps (rl.warm_up), when the budget of 50 is spent"
STALE = "use ec.slots=1: one process plays one individual at a time, and with ec.slots=5 it is only older"
FEW = "the first generation may end after 100 steps, beyond the budget of 50"
IDLE = "no effect on a search with a shared critic: rl.slots, rl.delay"
RANDOM_FIRST = "the first generation may end after 60 steps, beyond the budget of 50"


@pytest.mark.slow_cases(but=("ec=aes_rl-2", "ec=cem-", "rl.warm_up=50-"))
@pytest.mark.parametrize(("words", "told"), [
    (("rl.warm_up=50",), [LATE]), (("rl.warm_up=49",), []), (("ec=aes_rl", "rl.warm_up=50"), [LATE, STALE]),
    (("ec=cem", "ec.population=2", "rl.warm_up=50"), []), (("ec=aes_rl", "ec.slots=1", "rl.warm_up=20"), []),
    (("ec=acem_rl", "rl.warm_up=20"), [STALE]),
    (("ec=aes_rl", "ec.slots=1", "rl.warm_up=20", "rl.delay=1", "rl.slots=4", "rl.tau=0.1"), [IDLE]),
    (("rl.slots=4", "rl.warm_up=20"), []), (("ec=cem_rl", "rl.warm_up=20"), [FEW]),
    (("ec=cem_rl", "ec.population=5", "ec.trained=2", "rl.warm_up=20"), []),
    (("ec=cem_rl", "ec.population=4", "ec.trained=2", "rl.warm_up=20", "ec.warm_up_actions=uniform"), [RANDOM_FIRST]),
], ids=lambda one: one[0] if isinstance(one, tuple) else "")  # fmt: skip
def test_settings_that_a_user_hardly_wants_are_told(
    words: tuple[str, ...], told: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    horizon = [] if any(one.startswith("ec=") for one in words) else ["rl.horizon=5"]
    small = ("mdp=pendulum", "mdp.time_limit=10", "rl=td3", *horizon, "rl.net.hidden=[8]", "eval.episodes=1")
    small = (*small, "eval.every=0", "record.tensorboard=false", "budget.steps=50", "rl.capacity=500")
    assert go(*small, *words, f"hydra.run.dir={tmp_path / 'run'}") == 0
    out = capsys.readouterr().out
    assert [one for one in (LATE, STALE, IDLE, FEW, RANDOM_FIRST) if one in out] == told
