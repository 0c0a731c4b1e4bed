"""Batches in lockstep and as a stream, from members that are scripted, and from real ones in other processes."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from evorl.cluster.local import Local
from evorl.cluster.processes import Processes
from evorl.mdp.pong.world import SPEC, Pong
from evorl.nets.policy import Net
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.ppo import PPO
from evorl.rl.sampler import Sampler
from evorl.rl.sources import Lockstep, Stream, source

torch.set_num_threads(1)
CPU = torch.device("cpu")
TINY = PPO(members=3, slots=2, horizon=4, minibatch=8, net=Net(hidden=(8,)), normalize_inputs="whiten")


class Scripted:
    """A group whose stream is told beforehand: (member, version of the weights that acted)."""

    def __init__(self, fragments: list[tuple[int, int]]) -> None:
        self.fragments, self.told, self.size, self.begun = fragments, list[int](), 3, list[int]()

    def gather(self, method: str, *args: Any, begin: int) -> Generator[tuple[int, Any], Any, None]:
        assert method == "play"
        self.begun.append(begin)
        self.told.append(args[1])
        for number, (member, version) in enumerate(self.fragments):
            batch = PolicyGradientBatch.empty(SPEC, 4, 2, 0)
            batch.reward.fill_(number)
            episode = [float(number), 1.0, [float(number)], {}]
            answer = {"update_input": vars(batch), "cost": 8, "episodes": [episode], "version": version, "wait": 0.5}
            if (new := (yield member, answer)) is not None:
                self.told.append(new[1])


def learner(hyper: PPO = TINY) -> Any:
    return hyper.learner(SPEC, 0, CPU)


def test_a_stream_takes_fragments_as_they_come_and_counts_the_ones_too_old() -> None:
    group: Any = Scripted([(0, 0), (2, 0), (1, 0), (1, 0), (0, 3)])
    stream, policy = Stream(group, max_lag=1), learner()
    first, second = stream.take(policy, 0, 0), stream.take(policy, 8, 1)
    assert [float(one.update_input.reward[0, 0, 0]) for one in (first, second)] == [0, 1]
    assert (first.metrics["policy/lag"], second.metrics["policy/lag"], second.metrics["policy/lag_max"]) == (0, 0.5, 1)
    third = stream.take(policy, 16, 3)  # fragments 2 and 3 are three updates old
    assert float(third.update_input.reward[0, 0, 0]) == 4
    assert third.cost == 24 and [e.ret for e in third.episodes] == [2, 3, 4]  # steps and episodes count all the same
    assert third.metrics["policy/dropped_fragments"] == 2
    assert group.told == [0, 1, 3]  # weights go out before a fragment is taken, once
    assert third.metrics["speed/actor_wait"] == 0.5 and third.metrics["speed/learner_wait"] >= 0


def test_a_stream_goes_on_from_its_state() -> None:
    """With the member whose turn it is, and the same lags and drops."""
    fragments = [(0, 0), (2, 0), (1, 0), (1, 0), (0, 3), (1, 4)]
    group: Any = Scripted(fragments)
    whole, policy = Stream(group, max_lag=1), learner()
    for iteration in (0, 1, 3):
        whole.take(policy, 0, iteration)
    rest: Any = Scripted(fragments[5:])
    resumed = Stream(rest, max_lag=1)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    names = ("policy/lag", "policy/lag_max", "policy/dropped_fragments")
    want, got = (stream.take(policy, 0, 4).metrics for stream in (whole, resumed))
    assert [got[name] for name in names] == [want[name] for name in names] == [0.25, 1, 2]
    assert (group.begun, rest.begun) == ([0], [1])


def test_which_source_an_experiment_has() -> None:
    group: Any = Scripted([])
    assert isinstance(source(group, TINY, SPEC), Lockstep)
    stream = source(group, replace(TINY, asynchronous=True), SPEC)
    assert isinstance(stream, Stream) and stream.max_lag == 12
    other = source(group, replace(TINY, asynchronous=True, max_lag=5), SPEC)
    assert isinstance(other, Stream) and other.max_lag == 5


def test_returns_of_several_members_in_one_stream_are_not_scaled() -> None:
    """A running return goes on in the next batch, which would be another member's."""
    for fine in ({"members": 1, "asynchronous": True}, {"members": 3}):
        PPO(normalize_rewards=True, **fine)
    with pytest.raises(ValueError, match="normalize_rewards: asynchronous batches"):
        PPO(normalize_rewards=True, members=2, asynchronous=True)


@pytest.mark.parametrize("cluster", [Local(), Processes(workers=2)], ids=["local", "processes"])
def test_members_act_under_the_weights_they_are_given(cluster: Any) -> None:
    """Each fragment's log-probabilities are those of the learner whose version it names."""
    hyper = replace(TINY, asynchronous=True)
    world = Pong(rounds=2, round_steps=60)
    group = cluster.spawn(partial(Sampler, world, hyper, 0, CPU), hyper.members)
    try:
        policy, stream = learner(hyper), source(group, hyper, SPEC)
        versions: list[Any] = []
        for iteration in range(8):
            versions.append(policy.state_dict())
            taken = stream.take(policy, 0, iteration)
            acted = learner(hyper)
            assert isinstance(stream, Stream)
            lag = stream.lags[-1]
            acted.load_policy(versions[iteration - lag])
            log_prob, value = acted._reevaluate(taken.update_input)
            torch.testing.assert_close(log_prob, taken.update_input.log_prob, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(value, taken.update_input.value, rtol=1e-4, atol=1e-4)
            policy.update(taken.update_input, 0, iteration)
    finally:
        group.close()


def test_a_sampler_goes_on_with_its_stream_from_its_state() -> None:
    world, hyper = Pong(rounds=2, round_steps=60), replace(TINY, asynchronous=True)
    one, other = (Sampler(world, hyper, 0, CPU, 1) for _ in range(2))
    weights = learner(hyper).weights()
    one.play(weights, 4, 0)
    state = one.state_dict()
    want = {name: x.clone() for name, x in one.play(weights, 4, 0)["update_input"].items() if isinstance(x, Tensor)}
    other.load_state_dict(state)
    got = other.play(weights, 4, 0)
    assert got["version"] == 4
    assert all(torch.equal(got["update_input"][name], x) for name, x in want.items())
