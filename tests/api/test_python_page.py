"""Python blocks of the docs run, one after the other as a reader would type them, with tiny budgets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import page_commands
import pytest
from page_commands import PAGES

import evorl
from evorl import export
from evorl.reproduction.kept_policies import find

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
OTHERS = ("README.md", "docs/coming_from.md", "docs/export.md", "docs/gallery.md")
TESTED_ELSEWHERE = {
    "docs/plugins.md": "test_plugins_page.py",
    "docs/samplers.md": "replay/test_samplers.py", "docs/write_a_world.md": "mdp/test_write_a_world_page.py",
}  # fmt: skip
OF_A_PEER = ("from stable_baselines3", "PPO.load")
"""In blocks that need the environment of the peers: inference/test_library_formats.py runs what they say."""
WORDS = '"+debug=tiny record.tensorboard=false budget.steps=1024"'


def blocks(page: Path) -> list[str]:
    return [block.text for block in page_commands.blocks(page) if block.label == "python"]


BLOCKS = blocks(PAGE)
LOOP = "while playing:"
"""Of the block whose run has a memory and whose loop is the reader's."""


class ThreeTimes:
    """True, but at the fourth time."""

    def __init__(self) -> None:
        self.asked = 0

    def __bool__(self) -> bool:
        self.asked += 1
        return self.asked < 4


def tiny(block: str) -> str:
    """A block whose runs are short."""
    block = re.sub(r'evorl\.(run|sweep)\("', rf'evorl.\1({WORDS}, "', block)
    return block.replace("20_000", "1024").replace("200_000", "2048")


@pytest.mark.slow
def test_the_blocks_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    for block in (block for block in BLOCKS if LOOP not in block):
        exec(compile(tiny(block), str(PAGE), "exec"), names)
    assert names["best"].objectives[0] > -1e-3
    assert names["minibatch"].reward.shape == (32, 1)
    assert names["experiment"].rl == names["run"].experiment.rl


@pytest.mark.slow
def test_the_loop_of_a_policy_with_a_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in BLOCKS if LOOP in block)
    made = evorl.run(f"{WORDS[1:-1]} mdp=cartpole rl.net.lstm=8")
    names: dict[str, Any] = {"run": made, "playing": ThreeTimes(), "observation": np.zeros(4, np.float32)}
    exec(compile(block, str(PAGE), "exec"), names)
    assert names["playing"].asked == 4 and names["action"] in (0, 1) and names["state"].any()


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
        if any(words in block for words in OF_A_PEER):
            continue
        exec(compile(tiny(block), name, "exec"), names)


def test_every_page_with_python_is_run_by_a_test() -> None:
    """Here, in the test of the page, or those of evolvers in test_evolution_page.py.

    test_docs.py sees to it that blocks of Python are labelled so.
    """
    with_blocks = {str(page.relative_to(ROOT)) for page in PAGES if page not in page_commands.EVOLVERS and blocks(page)}
    assert with_blocks == {"docs/python.md", *OTHERS, *TESTED_ELSEWHERE}
    for name, test in TESTED_ELSEWHERE.items():
        assert Path(name).name in (ROOT / "tests" / test).read_text()
