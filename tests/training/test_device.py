"""What a GPU changes: nothing but where the numbers are. A second memory stands in for one; see test_gpu.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import second_memory
from harness import MINDS, fingerprint, go

LITTLE = ("record.tensorboard=false", "eval.episodes=1", "eval.every=0", "rl.slots=2", "rl.horizon=8")
LEARNERS: dict[str, tuple[str, ...]] = {
    "ppo": (*MINDS["pong"], "rl.normalize_inputs=whiten", "rl.minibatch=8"),
    "memory": (*MINDS["pendulum-lstm"], "mdp.time_limit=20", "rl.correction=vtrace", "rl.minibatch=8"),
    "masks": (*MINDS["duel"], "rl.minibatch=8"),
    "gradients": (*MINDS["cartpole"], "rl=a3c"),
    "images": ("mdp=atari", "mdp.time_limit=8", "rl.minibatch=8"),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_in_another_memory_has_the_bits_of_the_cpu(tmp_path: Path, name: str) -> None:
    def commands(run: Path) -> list[tuple[str, ...]]:
        begin = (*LEARNERS[name], *LITTLE, "budget.steps=32", f"hydra.run.dir={run}")
        return [begin, (f"resume={run}", "budget.steps=64")] if name == "ppo" else [begin]

    here, there = tmp_path / "here", tmp_path / "there"
    assert not any(go(*words) for words in commands(here))
    code, performed = second_memory.evorl(*commands(there), captured=name != "images")
    assert code == 0
    assert fingerprint(there) == fingerprint(here)
    assert performed["mse_loss_backward"] > 0, "it learns there"
    assert [name for name in performed if name.startswith("act on")] == ["act on second"]
