"""The commands that a person is told to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path


def run(*words: str) -> str:
    """``evorl.run`` with these words, in the Python that runs now."""
    return shlex.join([python(), "-m", "evorl.run", *words])


def install(extra: str) -> str:
    """How to add an extra of ours."""
    return f"pip install 'evorl-suite[{extra}]', or in a checkout .venv/bin/pip install -e '.[{extra}]'"


def python() -> str:
    """``python`` where that is this one on PATH; else its path, relative where it lies below the working directory."""
    found, here = shutil.which("python"), Path(os.path.abspath(sys.executable))
    if found and Path(os.path.abspath(found)).parent == here.parent and here.samefile(found):
        return "python"
    try:
        return str(here.relative_to(Path.cwd()))
    except ValueError:
        return str(here)
