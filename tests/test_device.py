"""What a GPU changes: nothing but where the numbers are. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import QUICK, go

from evorl.record import checkpoint

# what a GPU computes only a GPU can show
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def newest(run: Path) -> dict[str, Any]:
    found = checkpoint.newest(run)
    assert found is not None
    return dict(found[1]["run"]["learner"])


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
