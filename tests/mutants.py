"""Planted defects, each of which the fast tests must notice: ``make mutants``.

``mutants.toml`` lists them: a text that occurs once in a file, what is put in its place, and the test files that notice
it. They are planted one at a time in a copy of the checkout's tracked files, since subprocesses must see them too. Each
pytest is forked from this process, which has imported what takes longest to import.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
LIST, LOG = "tests/mutants.toml", ".mutants.log"
FORKED_WITH = ("torch", "scipy.stats", "gymnasium")  # nothing that imports evorl
PROFILE = "unshrunk"  # of hypothesis; in tests/conftest.py
PASSED, FAILED = 0, 1  # exit codes of pytest; by others a defect keeps it from running tests
LIMIT_S = 600.0
POLL_S = 0.05


class Defect(NamedTuple):
    """A text of a file, what replaces it, and the test files, or tests of long ones, of which one must fail then."""

    file: str
    old: str
    new: str
    tests: list[str]
    what: str


class Ended(NamedTuple):
    """What came of a pytest."""

    code: int
    seconds: float
    output: str


def defects(root: Path = ROOT) -> list[Defect]:
    """Return the list of defects of a checkout."""
    return [Defect(**row) for row in tomllib.loads((root / LIST).read_text())["defect"]]


def selection(root: Path = ROOT) -> str:
    """Return the expression that ``make test`` chooses tests by."""
    match = re.search(r"^FAST := (.+)$", (root / "Makefile").read_text(), re.M)
    assert match is not None, "the Makefile has no FAST"
    return match[1]


class Copy:
    """A copy of a checkout's tracked files, in which one pytest runs at a time."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place, self.fast = place, selection(root)
        self.pid: int | None = None  # of the pytest
        names = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True).stdout
        for name in names.split("\0"):
            if (root / name).is_file():  # else it was removed, and the removal is not committed yet
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, place / name)

    def write(self, name: str, text: str) -> None:
        """Replace the text of a module."""
        file = self.place / name
        file.write_text(text)
        # Python would take the compiled module for the new one after a change of the same size in the same second
        Path(cache_from_source(file)).unlink(missing_ok=True)

    def start(self, tests: Sequence[str]) -> None:
        """Start the fast ones of these tests, which end with the first failure."""
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self._test(tests)
            finally:
                os._exit(os.EX_SOFTWARE)

    def _test(self, tests: Sequence[str]) -> None:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open(self.place / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
        os.chdir(self.place)
        os.environ["PYTHONPATH"] = sys.path[0] = str(self.place)
        # Python 3.11 may fail to parse the source for a traceback of pytest's own form after a timeout
        words = ["-x", "--tb=native", "-p", "no:cacheprovider", f"--hypothesis-profile={PROFILE}", "-m", self.fast]
        code = pytest.main([*words, *tests])
        sys.stdout.flush()
        os._exit(code)

    def ended(self, limit_s: float = LIMIT_S) -> Ended | None:
        """Return what came of the pytest, which is killed after the limit; None while it runs."""
        assert self.pid is not None
        seconds = time.monotonic() - self.began
        running = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        if running and seconds < limit_s:
            return None
        code = self.stop()
        output = (self.place / LOG).read_text(errors="replace")
        (self.place / LOG).unlink()
        return Ended(code, seconds, output)

    def stop(self) -> int:
        """Kill the pytest, if there is one, and what it started; return its exit code."""
        if self.pid is None:
            return PASSED
        with suppress(ProcessLookupError, PermissionError):  # it has no group before its setsid, or only dead ones
            os.killpg(self.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        self.pid = None
        return os.waitstatus_to_exitcode(status)


def plant(copies: Sequence[Copy], planted: Sequence[Defect]) -> Iterator[tuple[Defect, Ended]]:
    """Plant each defect in one of the copies; yield what came of its tests."""
    waiting, free = list(reversed(planted)), list(copies)
    running: list[tuple[Copy, Defect, str]] = []
    while waiting or running:
        while waiting and free:
            copy, defect = free.pop(), waiting.pop()
            sound = (copy.place / defect.file).read_text()
            assert sound.count(defect.old) == 1, (
                f"{defect.file} has no longer one {defect.old!r}: choose another defect"
            )
            copy.write(defect.file, sound.replace(defect.old, defect.new))
            copy.start(defect.tests)
            running.append((copy, defect, sound))
        time.sleep(POLL_S)
        for entry in [*running]:
            copy, defect, sound = entry
            if (ended := copy.ended()) is not None:
                running.remove(entry)
                copy.write(defect.file, sound)
                free.append(copy)
                yield defect, ended


def passes(copy: Copy, tests: Sequence[str]) -> bool:
    """Return whether tests pass without a defect; print what they say if not."""
    copy.start(tests)
    while (ended := copy.ended(math.inf)) is None:
        time.sleep(POLL_S)
    print(f"without a defect: exit code {ended.code}, {ended.seconds:.0f} s", flush=True)
    if ended.code != PASSED:
        print(ended.output)
    return ended.code == PASSED


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Plant the defects that the words select; return 1 if one survives."""
    parser = argparse.ArgumentParser(description="Plant defects that the fast tests must notice.")
    parser.add_argument("words", nargs="*", help="only defects of files with one of these words in their path")
    parser.add_argument("--jobs", type=int, default=1, help="defects at a time")
    parser.add_argument("--planted-only", action="store_true", help="do not run the tests without a defect first")
    args = parser.parse_args(words)
    chosen = [one for one in defects(root) if not args.words or any(word in one.file for word in args.words)]
    if not chosen:
        parser.error(f"no defect is in a file with {' or '.join(args.words)} in its path")
    for name in FORKED_WITH:
        import_module(name)
    survivors = []
    with ExitStack() as stack:
        copies = []
        for _ in range(args.jobs):
            copies.append(Copy(root, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="evorl-mutants-")))))
            stack.callback(copies[-1].stop)
        if not args.planted_only and not passes(copies[0], sorted({test for one in chosen for test in one.tests})):
            return 1
        for defect, ended in plant(copies, chosen):
            caught = ended.code == FAILED
            verdict = "caught  " if caught else "SURVIVED" if ended.code == PASSED else f"exit code {ended.code}"
            print(f"{verdict} {defect.file}: {defect.what} ({ended.seconds:.0f} s)", flush=True)
            if not caught:
                survivors.append(defect)
                print("\n".join(ended.output.splitlines()[-15:]), flush=True)
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} defects caught")
    return 1 if survivors else 0


def run(words: Sequence[str] | None = None, root: Path = ROOT) -> None:
    """Exit with the code of `main`; a signal ends it with that of the signal, and its copies are removed."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(words, root))


if __name__ == "__main__":
    run()
