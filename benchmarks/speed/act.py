"""The time of one decision of a loaded policy, for one observation: `policy.act`, and Stable-Baselines3's ``predict``.

Beside them the bare network: the actor alone, called as a module of PyTorch under inference_mode with a tensor that is
ready, up to its raw outputs. `policy.act` begins with the environment's observation and ends with the action that the
environment takes. All have the same layers, of initial weights, and one thread. Each number is the median of blocks of
decisions, in microseconds of processor time; the blocks of all alternate.

    python benchmarks/speed/act.py [--rounds 25] [--seconds 0.2] [--out DIR]
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import torch
from common import PEERS, Worker, alternate, arguments, in_block, machine, median, microseconds, page, save
from ours import experiment

from evorl.api.policy import Policy
from evorl.inference.module import plain_network
from evorl.training.train import spec

ONE = {"threads": 1}
CASES: dict[str, tuple[list[str], dict[str, Any] | None]] = {
    "CartPole, PPO": (["mdp=cartpole", "rl=ppo"], {"world": "CartPole-v1", "envs": 1, "ppo": {}, **ONE}),
    "Pendulum, PPO": (["mdp=pendulum", "rl=ppo"], {"world": "Pendulum-v1", "envs": 1, "ppo": {}, **ONE}),
    "Pendulum, SAC": (
        ["mdp=pendulum", "rl=sac"], {"world": "Pendulum-v1", "algorithm": "SAC", "arguments": {}, **ONE},
    ),
    "CartPole, PPO, LSTM of 64": (["mdp=cartpole", "rl=ppo", "rl.net.lstm=64"], None),
}  # fmt: skip
"""Our words, and the settings of the peer: Stable-Baselines3 itself has no LSTM."""
ACT, NETWORK, PEER = "policy.act", "network", "SB3's predict"


def acting(policy: Policy) -> Callable[[], object]:
    """`policy.act` as an environment's loop calls it."""
    seen, state = np.zeros(policy.spec.inputs[0].shape, np.float32), None
    if not policy.recurrent:
        return lambda: policy.act(seen)

    def act() -> object:
        nonlocal state
        action, state = policy.act(seen, state=state)
        return action

    return act


def bare(policy: Policy) -> Callable[[], object]:
    """The network's raw outputs."""
    learner: Any = policy.learner
    network, carry = plain_network(learner), learner.carry(1)
    row = torch.zeros(1, *policy.spec.inputs[0].shape)
    inputs = (row,) if carry is None else (row[None],)

    def compute() -> object:
        with torch.inference_mode():
            return network(inputs, carry)

    return compute


def peer(settings: dict[str, Any], net: Any) -> Worker:
    """Stable-Baselines3 with layers as ours."""
    layers: dict[str, Any] = {"hidden": [*net.hidden]}
    if "algorithm" not in settings:
        layers |= {"activation": net.activation}
    return Worker(PEERS, "sb3.py", "predict", json.dumps(settings | layers))


def main() -> None:
    args = arguments(__doc__, rounds=25, seconds=0.2)
    torch.set_num_threads(1)
    facts, rows, data = {**machine(), "decisions": "one row, one thread"}, [], {}
    for name, (words, settings) in CASES.items():
        made = experiment(words)
        policy = Policy(made.rl.learner(spec(made.mdp), 1, torch.device("cpu")), made.mdp)
        with ExitStack() as peers:
            contests: dict[str, Callable[[int], float]] = {}
            for who, decide in {ACT: acting(policy), NETWORK: bare(policy)}.items():
                microseconds(decide, 0.1)  # captures and warms up
                contests[who] = partial(in_block, decide, args.seconds)
            if settings is not None:
                worker = peers.enter_context(peer(settings, made.rl.net))
                contests[PEER] = lambda _, worker=worker: worker.answer(args.seconds)
                facts[PEER] = worker.versions
            data[name] = alternate(contests, range(args.rounds))
        medians = {who: median(samples) for who, samples in data[name].items()}
        act, network, theirs = (medians.get(who) for who in (ACT, NETWORK, PEER))
        assert act is not None and network is not None
        against = ["", ""] if theirs is None else [f"{theirs:.0f}", f"{theirs / act:.1f}"]
        rows.append([name, f"{act:.0f}", f"{network:.0f}", f"{act / network:.2f}", *against])
        header = ["policy", f"{ACT}, us", f"{NETWORK}, us", "act / network", f"{PEER}, us", "times as fast"]
        save(args.out, facts, page("A decision of a loaded policy", __doc__, header, rows), {"cases": data})


if __name__ == "__main__":
    main()
