"""What a GPU changes: nothing but where the numbers are.

A second memory stands in for one everywhere; what a GPU itself computes is skipped where there is none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import second_memory
import torch
from harness import MINDS, QUICK, fingerprint, go

from evorl.record import checkpoint

# what a GPU computes only a GPU can show
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

LITTLE = ("record.tensorboard=false", "eval.episodes=1", "eval.every=0", "rl.slots=2", "rl.horizon=8")
LEARNERS: dict[str, tuple[str, ...]] = {
    "ppo": (*MINDS["pong"], "rl.normalize_inputs=whiten", "rl.minibatch=8"),
    "memory": (*MINDS["pendulum-lstm"], "mdp.time_limit=20", "rl.correction=vtrace", "rl.minibatch=8"),
    "masks": (*MINDS["duel"], "rl.minibatch=8"),
    "gradients": (*MINDS["cartpole"], "rl=a3c"),
    "images": ("mdp=atari", "mdp.time_limit=8", "rl.minibatch=8"),
}


def newest(run: Path) -> dict[str, Any]:
    found = checkpoint.newest(run)
    assert found is not None
    return dict(found[1]["run"]["learner"])


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


@on_a_gpu
@pytest.mark.parametrize("extra", [(), ("rl.net.lstm=8",), ("rl.normalize_inputs=whiten",)], ids=["", "lstm", "whiten"])
def test_a_run_on_a_gpu_trains_stops_and_goes_on(tmp_path: Path, extra: tuple[str, ...]) -> None:
    words = ("mdp=pendulum", *QUICK, *extra, "device=cuda", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, "budget.steps=512") == 0
    begun = newest(tmp_path / "run")
    assert go(f"resume={tmp_path / 'run'}", "budget.steps=1024") == 0
    ended = newest(tmp_path / "run")
    weights = begun["policy"]
    assert any(
        not torch.equal(torch.as_tensor(ended["policy"][name]), torch.as_tensor(x)) for name, x in weights.items()
    )
    assert all(torch.isfinite(torch.as_tensor(x)).all() for x in ended["policy"].values())
