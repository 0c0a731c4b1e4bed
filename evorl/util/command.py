"""The commands that messages ask a person to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NEEDED = (
    *("hydra", "omegaconf", "torch", "ray", "zmq", "gymnasium", "wandb", "numpy", "msgspec", "yaml"),
    *("rich", "tensorboard", "matplotlib", "psutil", "wandb_workspaces"),
)
"""Modules of the packages that evorl depends on."""


def run(*words: str) -> str:
    """``evorl.run`` with these words, in the Python that runs now."""
    return line("run", *words)


def resume(directory: Path, trust: Sequence[str], *words: str) -> str:
    """The command that goes on with a run, whose code and commands outside evorl (``trust``) it must trust again."""
    return run(f"resume={directory}", *words, *([trust_word(*trust)] if trust else []))


def trust_word(*names: str) -> str:
    """The word of a command line that trusts root modules and commands."""
    quoted = [name if name.isidentifier() else '"' + name.replace('"', r"\"") + '"' for name in names]
    return f"trust=[{','.join(quoted)}]"


def line(name: str, *words: str) -> str:
    """The command ``evorl.NAME`` with these words, in the Python that runs now."""
    return shlex.join([python(), "-m", f"evorl.{name}", *words])


def evaluate(*words: str) -> str:
    """``evorl.evaluate`` with these words, in the Python that runs now."""
    return line("evaluate", *words)


def install(extra: str) -> str:
    """The command that installs an optional extra of evorl."""
    return f"pip install 'evorl-suite[{extra}]', or in a checkout .venv/bin/pip install -e '.[{extra}]'"


def lacking(module: str | None) -> str:
    """One line: this Python lacks a module that evorl needs, and the command that installs all missing ones."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("evorl-suite")
        remedy = shlex.join([python(), "-m", "pip", "install", "evorl-suite"])
    except PackageNotFoundError:
        remedy = "in a checkout: make setup, once, then source .venv/bin/activate"
    return f"{module} is not installed for {sys.executable}; {remedy}"


def python() -> str:
    """``python`` where that is this one on PATH; else its path, relative where it lies below the working directory."""
    program, here = shutil.which("python"), Path(os.path.abspath(sys.executable))
    if program and Path(os.path.abspath(program)).parent == here.parent and here.samefile(program):
        return "python"
    try:
        return str(here.relative_to(Path.cwd()))
    except ValueError:
        return str(here)
