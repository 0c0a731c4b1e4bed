"""The commands of docs/atari.md from training to films, each made tiny, in their order."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from forked import evorl
from harness import newest

pytest.importorskip("ale_py")
PAGE = Path(__file__).parents[2] / "docs" / "atari.md"
TINY = (
    *("mdp.size=42", "mdp.time_limit=12", "rl.slots=2", "rl.horizon=4", "rl.batch=4", "rl.fill_in=4"),
    *("rl.net.hidden=[8]", "rl.replay.uniform.capacity=9", "record.tensorboard=false"),
    *("eval.episodes=2", "eval.every=0", "checkpoint.every=0"),
)


def commands() -> Iterator[list[str]]:
    """What comes after ``python -m evorl.`` in each line of the section."""
    section = PAGE.read_text().partition("## From training to films")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines():
        yield shlex.split(line.removeprefix("python -m evorl."))


@pytest.mark.learn
def test_from_training_to_films(tmp_path: Path) -> None:
    for words in commands():
        steps = "32" if any(word.startswith("resume=") for word in words) else "16"
        short = {"budget.steps": f"budget.steps={steps}", "episodes": "episodes=3", "seed": "seed=1"}
        words = [short.get(word.partition("=")[0], word) for word in words if "hydra/launcher" not in word]
        words = [word for word in words if "hydra.launcher" not in word and not word.startswith("mdp.time_limit")]
        if words[0] == "run" and not any(word.startswith("resume=") for word in words):
            words += [*TINY, "budget.steps=16"]
        done = evorl(*words, cwd=tmp_path)
        assert done.returncode == 0, (words, done.stderr)
    runs = tmp_path / "runs"
    assert json.loads((runs / "breakout" / "result.json").read_bytes())["steps"] == 32
    assert json.loads((runs / "elite" / "provenance.json").read_bytes())["init_step"] == 32
    assert len({film.name.rpartition("-")[2] for film in (runs / "elite" / "videos").iterdir()}) == 2
    assert len([*runs.glob("games/*/result.json")]) == len([*runs.glob("more/*/result.json")]) == 2
    assert (tmp_path / "report" / "index.html").exists()

    undisturbed = ["run", "mdp=atari", "mdp.game=breakout", "rl=vtrace", *TINY, "budget.steps=32"]
    assert evorl(*undisturbed, "hydra.run.dir=runs/whole", cwd=tmp_path).returncode == 0
    there, here = (newest(runs / name)["run"]["learner"] for name in ("whole", "breakout"))
    assert there["gradient_steps"] == here["gradient_steps"] > 2
    for name, weights in there["policy"].items():
        assert torch.equal(torch.as_tensor(weights), torch.as_tensor(here["policy"][name]))
