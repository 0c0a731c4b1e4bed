"""Streams of fragments whose workers are killed: each fragment comes once, as it would have without the kills."""

from __future__ import annotations

import random
import signal
import time
from functools import partial
from typing import Any

import pytest
import torch
from cluster_victims import send

from evorl.cluster.local import LocalGroup
from evorl.cluster.processes import Processes
from evorl.mdp.pong import Pong
from evorl.nets.policy import Net
from evorl.rl.ppo import PPO
from evorl.rl.sampler import Sampler

torch.set_num_threads(1)
CPU = torch.device("cpu")
HYPER = PPO(members=3, slots=4, horizon=64, net=Net(hidden=(8,)), asynchronous=True)
WORLD = Pong(rounds=2, round_steps=60)


def told(answer: dict[str, Any]) -> tuple[Any, ...]:
    """A fragment's numbers, copied."""
    lesson = answer["update_input"]
    tensors = [*lesson["inputs"], lesson["action"], lesson["log_prob"], lesson["reward"]]
    return answer["cost"], answer["version"], *(bytes(x.numpy().tobytes()) for x in tensors)


def killed(group: Any, chance: random.Random) -> int:
    """Now and then one worker, or all of them; how many were hit."""
    pids = [handle.process.reader.pid for handle in group.pool.handles if handle.process.reader is not None]
    hit = chance.choice([[], [], [], pids[:1], pids[1:], pids])
    send(signal.SIGKILL, {*hit})
    return len(hit)


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.fault)])
def test_every_fragment_comes_once(count: int) -> None:
    make = partial(Sampler, WORLD, HYPER, 0, CPU)
    weights = HYPER.learner(WORLD.spec, 0, CPU).weights()
    left_alone, group = LocalGroup(make, 3, ()), Processes(workers=2).spawn(make, 3)
    chance, kills = random.Random(7), 0
    found: dict[int, list[Any]] = {member: [] for member in range(3)}
    try:
        stream = group.gather("play", weights, 0, 0)
        for _ in range(count):
            member, answer = next(stream)
            found[member].append(told(answer))
            kills += killed(group, chance)
            time.sleep(chance.choice([0, 0.002, 0.01]))
        state = group.states()
        for member, fragments in found.items():
            want = [told(left_alone.members[member].play(weights, 0, 0)) for _ in fragments]
            assert fragments == want, member
        assert kills >= count // 3 and [one["fragments"] for one in state] == [len(x) for x in found.values()]
    finally:
        left_alone.close()
        group.close()
