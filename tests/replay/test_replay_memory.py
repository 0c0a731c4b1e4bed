"""A replay that does not fit into memory is refused before a run starts."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from harness import experiment_of

from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.cluster.ray.cluster import Ray
from evorl.ec.core import IndependentEvolution
from evorl.mdp.core import Box, Discrete, Input, Spec
from evorl.population.evaluation import evaluation_plan
from evorl.population.loop import Population
from evorl.replay import memory
from evorl.replay.samplers.core import BufferKeys
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.replay.shared import SharedReplay, ring_bytes
from evorl.replay.storage import Replay, Shape
from evorl.rl.dqn import DQN
from evorl.rl.rollout_replay import RolloutLearner
from evorl.rl.sac import SAC
from evorl.rl.vtrace import VTrace
from evorl.util.errors import BadRequest
from evorl.util.memory import Memory

PICTURES = Spec((Input("picture", (4, 84, 84), "uint8", stacked=True),), Discrete(6))
NUMBERS = Spec((Input("x", (17,)), Input("y", ())), Box((-1,) * 6, (1,) * 6))


def limit(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    monkeypatch.setattr(memory, "available", lambda: Memory(left, "the limit of its cgroup is 8 GB"))


@pytest.mark.parametrize("spec", [PICTURES, NUMBERS])
def test_the_bytes_of_a_ring_are_those_of_its_arrays(spec: Spec) -> None:
    shape = Shape(1000, 4)
    ring = Replay(spec, shape)
    arrays = [
        x for x in (*ring.inputs, ring.earlier, ring.legal, *map(ring.__getattribute__, ring.stored)) if x is not None
    ]
    exact = sum(x.nbytes for x in (*arrays, ring.following))
    assert exact <= ring_bytes(spec, shape) <= exact + 64 * 12
    shared = SharedReplay(spec, shape)
    assert shared.size == ring_bytes(spec, shape)
    shared.close()


def test_what_does_not_fit_is_refused_with_its_figures(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """A million frames of 84 x 84 bytes, and a sixteenth more twice, take 7.06 GB * 1.125; the rest is 60 MB."""
    needed = ring_bytes(PICTURES, Shape(1_000_000, 1))
    assert needed == pytest.approx(7.056e9 * 1.125, rel=0.02)
    hyper = DQN(capacity=1_000_000)
    limit(monkeypatch, needed - 1)
    with pytest.raises(BadRequest) as caught:
        hyper.check_memory(PICTURES, 10_000_000)
    text = str(caught.value)
    assert text.startswith("rl.capacity: 1000000 transitions of picture (uint8 [4, 84, 84]) take 7.99 GB")
    assert f"({needed} bytes)" in text and "the limit of its cgroup is 8 GB" in text and "\n" not in text
    assert not caplog.records
    limit(monkeypatch, 2 * needed - 1)
    hyper.check_memory(PICTURES, 10_000_000)
    (told,) = caplog.records
    assert told.levelno == logging.WARNING and "rl.capacity: 1000000 transitions" in told.getMessage()
    caplog.clear()
    limit(monkeypatch, 2 * needed)
    hyper.check_memory(PICTURES, 10_000_000)
    assert not caplog.records


def test_a_short_run_needs_no_more_than_it_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 2 * ring_bytes(PICTURES, Shape(5000, 1)))
    DQN(capacity=1_000_000).check_memory(PICTURES, 5000)
    with pytest.raises(BadRequest, match="12000 transitions"):
        DQN(capacity=1_000_000).check_memory(PICTURES, 12_000)


def test_replays_side_by_side_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 3 * ring_bytes(NUMBERS, Shape(100_000, 1)))
    SAC(capacity=100_000).check_memory(NUMBERS, 10**6, copies=3)
    with pytest.raises(BadRequest, match="4 replays at once"):
        SAC(capacity=100_000).check_memory(NUMBERS, 10**6, copies=4)


def test_compressed_pictures_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 200_000_000)
    DQN(capacity=1_000_000, compress=True).check_memory(PICTURES, 10**7)


def test_a_replay_of_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    hyper = VTrace(replay=RolloutSamplers(uniform=BufferKeys(capacity=400)), batch=4, slots=2, horizon=20)
    learner = hyper.learner(PICTURES, 0, torch.device("cpu"))
    assert isinstance(learner, RolloutLearner)
    exact = sum(np.asarray(x).nbytes for x in learner.replay.parts["uniform"].rollouts.arrays.values())
    limit(monkeypatch, exact)
    hyper.check_memory(PICTURES, 10**7)
    limit(monkeypatch, exact - 1)
    with pytest.raises(BadRequest, match=r"^rl\.replay\.uniform\.capacity: 400 rollouts of picture"):
        hyper.check_memory(PICTURES, 10**7)


def test_what_learners_of_a_population_need_counts_where_they_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No replay fits. So the run is refused, but its individuals can be evaluated."""
    words = ("mdp=pendulum", "rl=sac", "ec=pbt", "ec.population=10", "ec.train_steps=5000", "budget.steps=20000")
    experiment = experiment_of(*words, "cluster=processes", "cluster.workers=16")
    assert isinstance(experiment.ec, IndependentEvolution)
    limit(monkeypatch, 100_000)
    evaluation_plan(experiment, experiment.ec)
    with pytest.raises(BadRequest, match=r"rl\.capacity: 10 replays at once, each of 7000 transitions"):
        Population(experiment, experiment.ec)


@pytest.mark.parametrize(("ec", "held"), [("pbt", 5000 + 40_000 // 8), ("random", 5000)])
def test_a_replay_holds_the_lifetimes_before_where_it_is_handed_on(
    ec: str, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (f"ec={ec}", "ec.lifetime=train", "ec.population=8", "ec.train_steps=5000", "budget.steps=40000")
    experiment = experiment_of("mdp=pendulum", "rl=sac", *words)
    assert isinstance(experiment.ec, IndependentEvolution)
    limit(monkeypatch, 100_000)
    with pytest.raises(BadRequest, match=rf"rl\.capacity: {held} transitions"):
        evaluation_plan(experiment, experiment.ec).check_memory(1)


def test_workers_on_other_machines_take_nothing_here() -> None:
    clusters = (Local(), Processes(workers=3), Ray(workers=3), Ray(workers=3, address="auto"))
    assert [one.workers_here for one in clusters] == [1, 3, 3, 1]
