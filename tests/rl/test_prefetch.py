"""The second thread of a learner with elite sampling: what it does depends on gradient steps alone, never on time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from mutating import check_mutation
from rl_toys import Games, Wandering, episodes

from evorl.nets.policy import Net
from evorl.replay.mixture import Mixture
from evorl.replay.samplers.nearest import NearestRollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.rl.actor import Actor
from evorl.rl.rollout_replay import RolloutLearner
from evorl.rl.vtrace import VTrace


def learner(lag: int) -> Any:
    options = RolloutSamplers(elite=NearestRollouts(capacity=24, candidates=3.0, lag=lag))
    more: dict[str, Any] = {"sampling": {"queue": 0.5, "elite": 0.5}, "replay": options}
    hyper = VTrace(slots=8, horizon=5, batch=16, fill_in=24, net=Net(hidden=(8,)), **more)
    return hyper.learner(Wandering.spec, 3, torch.device("cpu"))


def guarded(one: Any) -> Any:
    """Let prefetching last until the learner waits for it, and refuse to touch the replay meanwhile."""
    busy, awaited = False, threading.Event()

    def begin() -> None:
        nonlocal busy
        busy = True
        awaited.clear()
        RolloutLearner._prefetch(one)

    def prefetch(*given: Any) -> None:
        nonlocal busy
        awaited.wait(10)
        Mixture.prefetch(one.replay, *given)
        busy = False

    def wait() -> None:
        awaited.set()
        RolloutLearner._prefetched(one)

    def alone(method: Any) -> Any:
        def called(*given: Any) -> Any:
            assert not busy
            return method(one.replay, *given)

        return called

    one._prefetch, one._prefetched, one.replay.prefetch = begin, wait, prefetch
    for name in ("insert", "sample", "state_dict"):
        setattr(one.replay, name, alone(getattr(Mixture, name)))
    return one


def learned(one: Any, steps: int = 10) -> list[float]:
    """The shares of candidates that were encoded when they were drawn, and the weights at last."""
    member = one.hyper.learner(Wandering.spec, 3, torch.device("cpu"))
    actor = Actor(Games(Wandering, 8, episodes()), member, 3, 0, one.hyper.storage(Wandering.spec, 8))
    found = []
    for number in range(steps):
        member.load_weights(one.weights())
        actor.collect(number)
        found.append(one.update(actor.batch, number, number).metrics.get("replay/encoded_elite", 0.0))
    one.state_dict()
    return [*found, *one.theta.tolist()]


def check_alone() -> None:
    one = guarded(learner(1))
    try:
        assert learned(one) == learned(learner(1))
    finally:
        one._prefetched()  # a failure leaves the thread at work


def test_a_slow_thread_changes_no_bit() -> None:
    check_alone()


MUTATIONS = {
    "insertion does not wait": (
        RolloutLearner.update,
        "self._prefetched()\n    self.replay.insert(",
        "self.replay.insert(",
    ),
    "weights move while it encodes": (RolloutLearner._prefetch, "self.theta.clone()", "self.theta"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_that_can_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, check_alone, (), *MUTATIONS[name])


def test_most_is_encoded_ahead() -> None:
    """What a gradient step draws was encoded before it, but for the third of the part that arrived since."""
    encoded = learned(learner(1))[4:10]
    assert 0 < np.mean(encoded) < 0.6 and learned(learner(0))[4:10] == [1.0] * 6


def test_a_failure_in_the_thread_is_raised() -> None:
    one = learner(1)

    def failing(*_: Any) -> None:
        raise ValueError("planted")

    one.replay.prefetch = failing
    with pytest.raises(ValueError, match="planted"):
        learned(one)
