"""The command ``evorl`` in a process of its own that is forked after the costly imports and a first composition.

For tests of what a command does, and of signals once it is at work. Those of how it starts start an interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).parent.parent
PRELOADED = (
    "evorl.run",
    "evorl.evaluate",
    "evorl.report",
    "evorl.population.loop",
    "evorl.analysis.figures",
    "evorl.rl.ppo",
    "composed",
)


class Forked:
    """``python -m evorl WORDS`` in the folder ``cwd`` and a session of its own, one thread for each operation; what
    `subprocess.Popen` has of it. Its output goes to the files ``out`` and ``err``."""

    def __init__(self, words: tuple[str, ...], cwd: Path, out: Path, err: Path, **env: str) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        forked = multiprocessing.get_context("forkserver")
        forked.set_forkserver_preload([*PRELOADED])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(__file__).parent)]))  # all that it finds
            forkserver.ensure_running()
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        whole = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **env}
        self._process = forked.Process(target=_command, args=(words, cwd, whole, out, err))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        assert code is not None, f"it goes on after {timeout} s"
        return code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()


def evorl(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """``python -m evorl WORDS`` in the folder ``cwd``, once it has ended."""
    with TemporaryDirectory() as said:
        out, err = Path(said, "out"), Path(said, "err")
        code = Forked(words, cwd, out, err, **env).wait()
        return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


def _command(words: tuple[str, ...], cwd: Path, env: Mapping[str, str], out: Path, err: Path) -> None:
    os.setsid()
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # as the environment has it
    sys.path.insert(0, str(cwd))  # as -m does
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    from evorl.__main__ import main

    sys.exit(main(words))
