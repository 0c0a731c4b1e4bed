"""The config files that a run chose are names below conf/, whatever its directory says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evorl.jobs import job
from evorl.util.errors import BadRequest
from evorl.util.files import replace


def with_choices(directory: Path, choices: object) -> Path:
    """A run directory with these choices."""
    (directory / ".hydra").mkdir()
    content: dict[str, Any] = {"hydra": {"runtime": {"choices": choices}}}
    replace(directory / ".hydra" / "hydra.yaml", job.config_yaml(content))
    return directory


def test_choices_are_names_of_files_below_conf(tmp_path: Path) -> None:
    choices = {
        "mdp": "pong", "experiment": "aes_rl/halfcheetah", "hydra/launcher": "ray", "tuned": None, "rl": 5,
        "hydra/env@x.y": "default", "debug": ["tiny", "a/b-c.d"],
    }  # fmt: skip
    assert job.choices(with_choices(tmp_path, choices)) == choices


@pytest.mark.parametrize(
    ("group", "choice"),
    [
        *(("mdp", one) for one in ("../../x", "/etc/x", "a/../../x", "", "a//b", "file:///x", "pkg://x", ".", "..")),
        ("../mdp", "pong"), ("/mdp", "pong"), ("mdp", ["pong", "../x"]), ("mdp", {"a": 1}),
    ],
)  # fmt: skip
def test_others_are_damage(group: str, choice: object, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match=r"hydra\.yaml is damaged: .* is no choice of "):
        job.choices(with_choices(tmp_path, {"rl": "ppo", group: choice}))
