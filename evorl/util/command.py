"""The commands that messages ask a person to type."""

from __future__ import annotations

import os
import re
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
    return run(f"resume={literal(str(directory))}", *words, *([trust_word(*trust)] if trust else []))


def trust_word(*names: str) -> str:
    """The word of a command line that trusts root modules and commands."""
    listed = ",".join(literal(name, mark='"') for name in names)
    return f"trust=[{listed}]"


_PLAIN = re.compile(r"(?!(?i:null|true|false|inf|nan)\Z)(?:[A-Za-z_]|\.{0,2}/)[\w./:@+-]*|\$\{[^{}]*\}", re.ASCII)
"""Text that needs no quotation marks in a word, or a reference to another key."""


def literal(text: str, mark: str = "'") -> str:
    """Text as the value of a word that Hydra reads, in quotation marks where it needs them."""
    return text if _PLAIN.fullmatch(text) else quoted(text, mark)


def quoted(text: str, mark: str = "'") -> str:
    """Text in quotation marks, as Hydra reads it in a word: backslashes before a mark are doubled, others are not."""
    inside = re.sub(rf"(\\*)({mark}|\Z)", lambda found: 2 * found[1] + (f"\\{mark}" if found[2] else ""), text)
    return f"{mark}{inside}{mark}"


def word(key: str, text: str) -> str:
    """``KEY=TEXT`` as a shell's command line has it, in quotation marks for Hydra and for the shell."""
    return _shell(f"{key}={literal(text)}")


def line(name: str, *words: str) -> str:
    """The command ``evorl.NAME`` with these words, in the Python that runs now."""
    return " ".join(map(_shell, [python(), "-m", f"evorl.{name}", *words]))


def _shell(word: str) -> str:
    """A word for a shell: in double quotes where it has single ones, which shlex would take apart."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


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
