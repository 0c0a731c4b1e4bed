"""What a GPU changes: nothing but where the numbers are. A second memory stands in for one; see test_gpu.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import second_memory
from harness import MINDS, fingerprint, go

BRIEF = ("record.tensorboard=false", "eval.episodes=1", "eval.every=0")
LITTLE = (*BRIEF, "rl.slots=2", "rl.horizon=8", "budget.steps=32")
IMAGES = ("mdp=atari", "mdp.time_limit=8", *LITTLE)
REPLAY = (*BRIEF, "rl.warm_up=64", "budget.steps=128")
LEARNERS: dict[str, tuple[str, ...]] = {
    "ppo": (*MINDS["pong"], *LITTLE, "rl.normalize_inputs=whiten", "rl.minibatch=8"),
    "memory": (*MINDS["pendulum-lstm"], *LITTLE, "mdp.time_limit=20", "rl.correction=vtrace", "rl.minibatch=8"),
    "masks": (*MINDS["duel"], *LITTLE, "rl.minibatch=8"),
    "gradients": (*MINDS["cartpole"], *LITTLE, "rl=a3c"),
    "images": (*IMAGES, "rl.minibatch=8"),
    "rollouts": (*IMAGES, "rl=vtrace", "rl.asynchronous=false", "rl.fill_in=4", "rl.batch=4"),
    "transitions": ("mdp=pendulum", "rl=td3", *REPLAY),
}
MORE: dict[str, tuple[str, ...]] = {
    "temperature": ("mdp=pendulum", "rl=sac", *REPLAY),
    "priorities": ("mdp=cartpole", "rl=dqn", "+experiment=rainbow", *REPLAY),
    "sequences": ("mdp=cartpole", "rl=r2d2", *REPLAY, "budget.steps=256"),
    "shared critic": (
        *("mdp=pendulum", "rl=td3", "ec=cem_rl", "ec.population=4", "ec.trained=2"),
        *(*BRIEF, "budget.steps=1600"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LEARNERS, *(pytest.param(one, marks=pytest.mark.fault) for one in MORE)])
def test_a_run_in_another_memory_has_the_bits_of_the_cpu(tmp_path: Path, name: str) -> None:
    def commands(run: Path) -> list[tuple[str, ...]]:
        begin = (*(LEARNERS | MORE)[name], f"hydra.run.dir={run}")
        return [begin, (f"resume={run}", "budget.steps=64")] if name == "ppo" else [begin]

    here, there = tmp_path / "here", tmp_path / "there"
    assert not any(go(*words) for words in commands(here))
    code, performed = second_memory.evorl(*commands(there))
    assert code == 0
    assert fingerprint(there) == fingerprint(here)
    assert any(name.endswith("_backward") for name in performed), "it learns there"
    assert performed["act on second"]
    assert not performed["act on cpu"] or name == "shared critic"  # whose individuals play on the CPU
