"""Checkpoints against what machines do to files: flips, cuts, kills, power cuts and full disks."""

import errno
import logging
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.record import checkpoint
from evorl.record.checkpoint import DamagedCheckpoint


def state(step: int, size: int = 700, seed: int | None = None) -> dict[str, Any]:
    rng = np.random.default_rng(step if seed is None else seed)
    arrays = {"w": rng.standard_normal((7, size)), "n": rng.integers(0, 255, 33).astype(np.uint8), "e": np.zeros(0)}
    return {"step": step, "net": arrays, "words": [str(step)] * 40}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    arrays = all(np.array_equal(a["net"][k], b["net"][k]) for k in b["net"])
    return arrays and {**a, "net": 0} == {**b, "net": 0} and a["net"].keys() == b["net"].keys()


def newest(run_dir: Path) -> int:
    """The step of the newest checkpoint, whose every bit is checked."""
    found = checkpoint.newest(run_dir)
    assert found is not None
    assert equal(found[1], state(found[1]["step"])) and found[0].name == str(found[1]["step"])
    return int(found[1]["step"])


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "evorl")


# ------------------------------------------------------------------ bytes


def check_damage(file: Path, whole: bytes, damaged: bytes) -> None:
    """Loading says which file is damaged, unless the bytes are those that were saved."""
    file.write_bytes(damaged)
    try:
        loaded = checkpoint.load(file.parent)
    except DamagedCheckpoint as error:
        assert file.name in str(error)
    else:
        assert damaged == whole and equal(loaded, state(1))


def flips(path: Path, number: int) -> None:
    rng = random.Random(0)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for _ in range(number):
            damaged = bytearray(whole)
            for _ in range(rng.choice((1, 1, 1, 2, 8))):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            check_damage(file, whole, bytes(damaged))
        file.write_bytes(whole)


@pytest.mark.slow
def test_every_bit_flip_is_found(tmp_path: Path) -> None:
    flips(checkpoint.save(tmp_path, 1, state(1), keep=1), 400)


@pytest.mark.fault
def test_every_bit_flip_is_found_3000_a_file(tmp_path: Path) -> None:
    flips(checkpoint.save(tmp_path, 1, state(1), keep=1), 3000)


def test_every_single_bit_of_the_manifest_counts(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, state(1), keep=1)
    whole = (path / "manifest.json").read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        check_damage(path / "manifest.json", whole, bytes(damaged))


def test_every_truncation_and_zeroed_tail_is_found(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, state(1), keep=1)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for end in {*range(0, len(whole), 1024), *range(max(len(whole) - 9, 0), len(whole))}:
            check_damage(file, whole, whole[:end])
            check_damage(file, whole, whole[:end] + bytes(len(whole) - end))
        check_damage(file, whole, whole + whole[-1:])
        file.write_bytes(whole)


# ------------------------------------------------------------------ a crash after each operation


class Crash(BaseException):
    """The machine is dead: nothing that follows happens."""


class Machine:
    """Lets a number of file operations happen, then none, and keeps the books of what was not yet durable."""

    OPERATIONS = ("mkdir", "open", "write", "fsync", "rename", "replace", "unlink", "rmdir")

    def __init__(self, alive: int, torn: bool) -> None:
        self.left, self.torn = alive, torn
        self.unsynced: set[int] = set()  # inodes of files whose bytes are only in memory
        self.names: list[tuple[Path, Path]] = []  # renames that no fsync of their directory has made durable

    @contextmanager
    def running(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in self.OPERATIONS:
                patch.setattr(os, name, self._guarded(name, getattr(os, name)))
            yield

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "open" and not args[1] & os.O_CREAT:  # it changes nothing
                return real(*args, **kwargs)
            if self.left == 0:
                if name == "write" and self.torn:
                    self.torn = False
                    self.unsynced.add(os.fstat(args[0]).st_ino)
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                raise Crash
            self.left -= 1
            result = real(*args, **kwargs)
            self._note(name, args, kwargs)
            return result

        return call

    def _note(self, name: str, args: tuple[Any, ...], folders: dict[str, int]) -> None:
        if name == "write":
            self.unsynced.add(os.fstat(args[0]).st_ino)
        if name == "fsync":
            self.unsynced.discard(os.fstat(args[0]).st_ino)
            synced = Path(os.readlink(f"/proc/self/fd/{args[0]}"))
            self.names = [pair for pair in self.names if pair[1].parent != synced]
        if name == "rename":
            old, new = (Path(os.readlink(f"/proc/self/fd/{folders[one]}")) for one in ("src_dir_fd", "dst_dir_fd"))
            self.names.append((old / args[0], new / args[1]))

    def lose(self, run_dir: Path, rng: random.Random, names_too: bool) -> None:
        """What a power cut takes: bytes without fsync, and, if asked, renames without fsync of their directory."""
        for file in [path for path in run_dir.rglob("*") if path.is_file() and path.stat().st_ino in self.unsynced]:
            os.truncate(file, rng.randrange(file.stat().st_size + 1))
        for old, new in reversed(self.names if names_too else []):
            if new.exists() and not old.exists():
                os.rename(new, old)


def crashes(tmp_path: Path, keep: int, torn: bool, names_too: bool, again: bool) -> int:
    """Crash a save, of the step before ``again`` or the next, after every number of operations; return how many a save
    has."""
    step = 2 if again else 3
    old, new = state(2, 40), state(step, 40, seed=3)
    rng = random.Random(keep)
    for alive in range(10_000):
        run_dir = tmp_path / f"{keep}-{alive}"
        run_dir.mkdir()
        for earlier in (state(1, 40), old):
            checkpoint.save(run_dir, earlier["step"], earlier, keep)
        machine = Machine(alive, torn)
        try:
            with machine.running():
                checkpoint.save(run_dir, step, new, keep)
            finished = True
        except Crash:
            finished = False
        machine.lose(run_dir, rng, names_too)
        found = checkpoint.newest(run_dir)
        assert found is not None and (equal(found[1], new) or (equal(found[1], old) and not finished))
        latest = int((run_dir / "checkpoints" / "latest").read_text())
        assert found[1]["step"] == latest or (found[1]["step"], latest) == (3, 2)
        checkpoint.save(run_dir, 4, state(4, 40), keep)  # and the run goes on
        assert {path.name for path in (run_dir / "checkpoints").glob(".*")} == set()
        assert checkpoint.steps(run_dir)[-1] == 4 and len(checkpoint.steps(run_dir)) <= keep
        if finished:
            return alive
    raise AssertionError("a save never ends")


@pytest.mark.slow_cases(but=("True-True-1-False", "False-False-2-False", "True-True-1-True"))
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize(("torn", "names_too"), [(False, False), (True, False), (True, True)])
def test_a_crash_after_any_operation_leaves_old_or_new(
    tmp_path: Path, keep: int, torn: bool, names_too: bool, again: bool
) -> None:
    assert crashes(tmp_path, keep, torn, names_too, again) > 25


# ------------------------------------------------------------------ kill -9

SAVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoint_faults import newest, state
from evorl.record import checkpoint
directory = Path(sys.argv[1])
step = newest(directory) if checkpoint.steps(directory) else 0
print("go", flush=True)
while True:
    step += 1
    checkpoint.save(directory, step, state(step), keep=2, best=step // 2)
"""


def kills(run_dir: Path, number: int) -> None:
    rng = random.Random(number)
    killed = reached = 0
    while killed < number or reached <= number:
        words = [sys.executable, "-c", SAVER, run_dir, Path(__file__).parent]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stdout.read(3) == b"go\n"
            threading.Timer(rng.uniform(0.001, 0.1), child.kill).start()
            assert child.wait() == -9
        killed += 1
        if checkpoint.steps(run_dir):
            step = newest(run_dir)
            assert step >= reached
            reached = step


@pytest.mark.slow
def test_kill_leaves_a_complete_newest(tmp_path: Path) -> None:
    kills(tmp_path, 6)


@pytest.mark.fault
def test_kill_leaves_a_complete_newest_100(tmp_path: Path) -> None:
    kills(tmp_path, 100)


# ------------------------------------------------------------------ a full disk

LIMITED = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_checkpoint_faults import state
from evorl.record import checkpoint
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    checkpoint.save(Path(sys.argv[1]), 2, state(2), keep=1)
except OSError as error:
    sys.exit(error.errno)
"""


@pytest.mark.parametrize("limit", [0, 100, 20_000])
def test_a_file_size_limit_leaves_the_earlier_one(tmp_path: Path, limit: int) -> None:
    checkpoint.save(tmp_path, 1, state(1), keep=1)
    words = [sys.executable, "-c", LIMITED, tmp_path, Path(__file__).parent, str(limit)]
    assert subprocess.run(words).returncode == errno.EFBIG
    assert newest(tmp_path) == 1
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"1", "latest"}
    checkpoint.save(tmp_path, 2, state(2), keep=1)
    assert newest(tmp_path) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    # only root may mount, and not in every container; without, test_a_file_size_limit_leaves_the_earlier_one stays
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting is not permitted here; RLIMIT_FSIZE stands for it")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_leaves_the_earlier_one_and_freed_space_is_used(small_disk: Path) -> None:
    for step in (1, 2):
        checkpoint.save(small_disk, step, state(step), keep=2)
    rng = random.Random(0)
    for step in range(3, 20):
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        room = rng.randrange(0, 44_000)  # a save takes some 50 kB
        (small_disk / "filler").write_bytes(bytes(max(free - room, 0)))
        with pytest.raises(OSError, match="No space left"):
            checkpoint.save(small_disk, step, state(step), keep=2)
        assert {path.name for path in (small_disk / "checkpoints").iterdir()} == {
            str(step - 2),
            str(step - 1),
            "latest",
        }
        assert newest(small_disk) == step - 1
        (small_disk / "filler").unlink()
        checkpoint.save(small_disk, step, state(step), keep=2)
        assert newest(small_disk) == step
