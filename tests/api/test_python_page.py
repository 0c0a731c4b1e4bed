"""Python blocks of the docs run, one after the other as a reader would type them, with tiny budgets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from evorl import export
from evorl.reproduction.kept_policies import find

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
OTHERS = ("README.md", "docs/coming_from.md", "docs/export.md", "docs/gallery.md")
TESTED_ELSEWHERE = {"docs/evolution.md", "docs/plugins.md", "docs/samplers.md", "docs/worlds.md"}
WORDS = '"+debug=tiny record.tensorboard=false budget.steps=1024"'


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


BLOCKS = blocks(PAGE)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_the_blocks_of_another_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``observation`` is the reader's, and the policy of the page on export is one of Pong."""
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, Any] = {"observation": np.zeros(4, np.float32)}
    if name == "docs/export.md":
        pong = find("suite/ppo_pong").directory
        assert export.main([f"run={pong}", "out=policy.onnx", "episodes=1"]) == 0
        from evorl import load

        names["observation"] = np.zeros((1, *load(pong).policy.spec.inputs[0].shape), np.float32)
    for block in blocks(ROOT / name):
        exec(compile(tiny(block), name, "exec"), names)


def test_no_page_has_a_block_that_no_test_runs() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    with_blocks = {str(page.relative_to(ROOT)) for page in pages if blocks(page)}
    assert with_blocks == {"docs/python.md", *OTHERS, *TESTED_ELSEWHERE}
