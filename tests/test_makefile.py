"""The words of `make` that mean something else than they seem to, and what it asks pip for."""

from __future__ import annotations

import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

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


def asked_of_pip(target: str, place: Path) -> list[Requirement]:
    """What the target would have pip install where nothing is there yet, evorl itself with its extras among it."""
    done = dry(target, f"VENV={place}/venv", f"PEERS={place}/peers", "PYTHON=python3")
    assert done.returncode == 0, done.stderr
    found = []
    for line in done.stdout.replace("\\\n", " ").splitlines():
        given = shlex.split(line) if "-m pip " in line else ["install"]
        words = iter(given[given.index("install") + 1 :])
        for word in words:
            if word == "--editable":
                found.append(Requirement(next(words).replace(".", "evorl-suite", 1)))
            elif word == "--target":
                next(words)
            elif not word.startswith("-"):
                found.append(Requirement(word))
    return found


def test_what_pip_is_asked_for_is_what_the_project_names(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    torch = next(one for one in map(Requirement, project["dependencies"]) if one.name == "torch")
    newer = Requirement("pip")
    assert asked_of_pip("train", tmp_path) == [newer, torch, Requirement("evorl-suite[video,pandas]")]
    *first, everything = asked_of_pip("setup", tmp_path)
    assert first == [newer, torch]
    assert everything.name == "evorl-suite" and {"dev"} < everything.extras <= {*project["optional-dependencies"]}
    compared = [Requirement(one) for one in project["optional-dependencies"]["peers"]]
    assert any(len(one.specifier) == 2 for one in compared)  # whose comma is no end of a word
    asked = asked_of_pip("peers", tmp_path)
    assert asked[: len(compared) + 2] == [newer, torch, *compared]
    assert {one.name for one in asked[len(compared) + 2 :]} >= {"cleanrl"}
