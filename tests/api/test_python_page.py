"""Every Python block of docs/python.md runs, one after the other as a reader would type them, with tiny budgets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
WORDS = '"+debug=tiny record.tensorboard=false budget.steps=1024"'


def tiny(block: str) -> str:
    """A block whose runs are short."""
    block = re.sub(r'evorl\.(run|sweep)\("', rf'evorl.\1({WORDS}, "', block)
    return block.replace("20_000", "1024").replace("200_000", "2048")


@pytest.mark.slow
def test_the_blocks_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    assert len(BLOCKS) == 10
    for block in BLOCKS:
        exec(compile(tiny(block), str(PAGE), "exec"), names)
    assert names["best"].objectives[0] > -1e-3
    assert names["minibatch"].reward.shape == (32, 1)
    assert names["experiment"].rl == names["run"].experiment.rl
