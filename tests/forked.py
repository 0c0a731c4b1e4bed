"""The command ``evorl`` in a process of its own that is forked, once for all tests, after the costly imports.

For tests of what a command does. Those of how it starts, and of signals meanwhile, start an interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
PRELOADED = ("evorl.run", "evorl.evaluate", "evorl.report", "evorl.evolve", "evorl.record.figures", "evorl.rl.ppo")


def evorl(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """``python -m evorl WORDS`` in the folder ``cwd``, one thread for each operation."""
    os.environ["OMP_NUM_THREADS"] = "1"
    forked = multiprocessing.get_context("forkserver")
    forked.set_forkserver_preload([*PRELOADED])
    whole = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **env,
    }
    with TemporaryDirectory() as said:
        out, err = Path(said, "out"), Path(said, "err")
        process = forked.Process(target=_command, args=(words, cwd, whole, out, err))
        process.start()
        process.join()
        assert process.exitcode is not None
        return subprocess.CompletedProcess(words, process.exitcode, out.read_text(), err.read_text())


def _command(words: tuple[str, ...], cwd: Path, env: Mapping[str, str], out: Path, err: Path) -> None:
    from evorl.__main__ import main

    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, str(cwd))  # as -m does
    for path, number in ((out, 1), (err, 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
    sys.exit(main(words))
