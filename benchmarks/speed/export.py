"""The time of one decision for one game: of an exported file in ONNX Runtime, and of our own act.

Both begin and end with NumPy arrays, on one thread, with networks of initial weights. Each number is the median of
blocks of decisions, in microseconds of processor time; the blocks of both alternate.

    python benchmarks/speed/export.py [--rounds 15] [--seconds 0.2] [--out DIR]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from common import alternate, arguments, in_block, machine, median, microseconds, page, save
from ours import experiment

from evorl.inference.check import onnx_program
from evorl.inference.file import PolicyFile
from evorl.inference.module import PolicyModule, Seen
from evorl.mdp.core import heads
from evorl.nets.distributions import noise_size
from evorl.rl.network_learner import NetworkLearner
from evorl.training.train import spec

RAINBOW = ["mdp=cartpole", "rl=dqn", "rl.dueling=true"]
CASES = {
    "CartPole, PPO": ["mdp=cartpole", "rl=ppo"],
    "Pong, PPO, whitened": ["mdp=pong", "rl=ppo", "rl.normalize_inputs=whiten"],
    "Pendulum, SAC, 2 x 256": ["mdp=pendulum", "rl=sac"],
    "HalfCheetah, TD3, 2 x 256": ["mdp=halfcheetah", "rl=td3"],
    "Soccer, PPO, several choices": ["mdp=soccer", "rl=ppo"],
    "Duel, PPO, masks": ["mdp=duel", "rl=ppo"],
    "Duel, PPO, masks, LSTM of 64": ["mdp=duel", "rl=ppo", "rl.net.lstm=64"],
    "CartPole, Rainbow's network": [*RAINBOW, "rl.noisy=true", "rl.distribution=c51"],
    "Atari, DQN, Nature CNN": ["mdp=atari", "rl=dqn", "rl.net.hidden=[512]"],
}


def seen_by(learner: NetworkLearner[Any], width: int) -> Seen:
    """One row of what a policy decides from."""
    inputs = tuple(np.ones((1, *observation.shape), observation.dtype) for observation in learner.spec.inputs)
    legal = np.ones((1, sum(heads(learner.spec.action))), bool) if learner.spec.masked else None
    state = np.zeros((1, 2 * width), np.float32) if width else None
    return Seen(inputs, legal, state, np.zeros((1, noise_size(learner.spec.action)), np.float32))


def ours(learner: NetworkLearner[Any], seen: Seen) -> Callable[[], object]:
    """A decision as actors make it."""
    noise, start = torch.from_numpy(seen.noise), torch.zeros(1, dtype=torch.bool)
    carry = learner.carry(1)

    def decide() -> object:
        nonlocal carry
        inputs = tuple(map(torch.from_numpy, seen.inputs))
        legal = None if seen.legal is None else torch.from_numpy(seen.legal)
        decision = learner.act(inputs, legal, noise, carry, None if carry is None else start)
        carry = decision.carry
        return decision.played.numpy()

    return decide


def theirs(module: PolicyModule, seen: Seen) -> Callable[[], object]:
    """A decision of the file."""
    run, feed = onnx_program(PolicyFile(module, "onnx").content({})), module.feed(seen)

    def decide() -> object:
        outputs = run(feed)
        if "state" in feed:
            feed["state"] = outputs["next_state"]
        return outputs["action"]

    return decide


def main() -> None:
    args = arguments(__doc__, rounds=15, seconds=0.2)
    facts = {**machine(), "decisions": "one row, one thread"}
    rows, data = [], {}
    for name, words in CASES.items():
        learner: Any = experiment(words).rl.learner(spec(experiment(words).mdp), 1, torch.device("cpu"))
        module = PolicyModule(learner)
        seen = seen_by(learner, module.width)
        contestants = {"act": ours(learner, seen), "file": theirs(module, seen)}
        for decide in contestants.values():
            microseconds(decide, 0.1)  # captures and warms up
        contests = {who: partial(in_block, decide, args.seconds) for who, decide in contestants.items()}
        samples = alternate(contests, range(args.rounds))
        act, file = median(samples["act"]), median(samples["file"])
        rows.append([name, f"{act:.0f}", f"{file:.0f}", f"{act / file:.2f}"])
        data[name] = samples
        header = ["policy", "our act, us", "ONNX Runtime, us", "times as fast"]
        save(args.out, facts, page("A decision of an exported policy", __doc__, header, rows), {"cases": data})


if __name__ == "__main__":
    main()
