"""The words of `make` that mean something else than they seem to."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def dry(*words: str) -> subprocess.CompletedProcess[str]:
    """What `make` would run."""
    return subprocess.run(
        ["make", "-n", *words], cwd=ROOT, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "mdp=cartpole"], 'make train ARGS="mdp=cartpole"'),
        (["train", "mdp.id=Ant-v5", "ARGS=rl=ppo seed=2"], 'make train ARGS="mdp.id=Ant-v5 rl=ppo seed=2"'),
    ],
)
def test_a_word_for_evorl_outside_args_is_refused(words: list[str], meant: str) -> None:
    done = dry(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert meant in done.stderr


def test_words_in_args_reach_evorl() -> None:
    done = dry("train", "ARGS=mdp=cartpole seed=2", "PYTHON=python3")
    assert done.returncode == 0, done.stderr
    assert "-m evorl.run mdp=cartpole seed=2" in done.stdout
