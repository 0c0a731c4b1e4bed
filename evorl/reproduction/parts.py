"""What a table is made of: sweeps of ``evorl.run``, and measurements by a function. Both resume and run once.

A sweep is one command, ``evorl.run --multirun``, in a folder of its own. A measurement is a function whose answer is
kept in a file. Both lie below the folder of the table's runs, so several tables of a paper can share a sweep.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import evorl
from evorl.analysis.runs import RunRecord, find_runs, read_json, read_runs
from evorl.analysis.sweeps import read_index
from evorl.cli.repeats import last_choices
from evorl.cluster.processes.fork import with_parent
from evorl.util.command import literal
from evorl.util.errors import BadRequest
from evorl.util.files import write_json

ROOT = Path(evorl.__file__).resolve().parents[1]
"""The checkout, where conf/, benchmarks/ and by default runs/ lie."""
TWO_AT_ONCE = ("hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2")
"""A launcher for two cores; each job has one thread."""
CLUSTER = ("hydra/launcher=ray",)
"""A launcher for whatever Ray has; hydra.launcher.ray.init.address=auto joins a cluster."""
ALONE = ()
"""No launcher: the jobs follow each other in one process."""


class Sweep(NamedTuple):
    """Jobs of ``evorl.run``."""

    name: str
    """Of its folder."""
    words: tuple[str, ...]
    launcher: tuple[str, ...] = ALONE

    def command(self, runs: Path, also: Sequence[str] = ()) -> list[str]:
        """The command line; ``also``: words for every job, of which the last for a key counts."""
        place = f"hydra.sweep.dir={literal(str(runs / self.name))}"
        words = last_choices([*self.launcher, place, *self.words, *also])
        return [sys.executable, "-m", "evorl.run", "--multirun", *words]

    def carry_out(self, runs: Path, also: Sequence[str] = ()) -> bool:
        """Start or resume the sweep; return whether all its jobs have finished. Raises SystemExit if it was refused."""
        code = _run(self.command(runs, also))
        if code == 2:
            raise SystemExit(2)  # it has said why
        return code == 0 and self.results(runs, also) is not None

    def results(self, runs: Path, also: Sequence[str] = ()) -> list[bytes] | None:
        """Return what each job wrote at its end, of the seeds that ``also`` names; None unless all have finished."""
        place, given = runs / self.name, [word for word in also if re.fullmatch(r"seed=[\d,]+", word)]
        asked = {f"seed={seed}" for word in given[-1:] for seed in word.removeprefix("seed=").split(",")}
        jobs = [folder for folder, words in read_index(place).items() if not asked or asked & {*words}]
        files = [place / folder / "result.json" for folder in jobs]
        return [file.read_bytes() for file in files] if files and all(map(Path.exists, files)) else None


class Inputs(NamedTuple):
    """The inputs of a measurement."""

    words: Sequence[str]
    """The `settings` of the command line."""
    folder: Path
    """A place for runs that it wants to keep; it may hold those of a measurement that was stopped."""


class Measurement(NamedTuple):
    """What no sweep can measure: a peer's program, or programs in alternation."""

    name: str
    """Of its file, without the suffix, and of its folder."""
    measure: Callable[[Inputs], Any]
    """Returns plain data."""

    def place(self, runs: Path) -> Path:
        return runs / f"{self.name}.json"

    def carry_out(self, runs: Path, also: Sequence[str] = ()) -> bool:
        """Measure, unless the answer is there; return True. Raises `BadRequest` if it is that of other words."""
        place, words = self.place(runs), settings(also)
        kept = read_json(place.parent, place.name)
        if kept is None:
            measured = self.measure(Inputs(words, runs / self.name))
            place.parent.mkdir(parents=True, exist_ok=True)
            write_json(place, {"words": words, "found": measured})
            print(f"{place} has been measured", flush=True)
        elif kept["words"] != words:
            past = " ".join(kept["words"]) or "no words"
            raise BadRequest(f"{place} was measured with {past}; give another folder: runs=DIR", "runs")
        return True

    def results(self, runs: Path) -> list[bytes] | None:
        """Return what was measured; None if nothing was."""
        return [self.place(runs).read_bytes()] if self.place(runs).exists() else None


Part = Sweep | Measurement


def settings(words: Sequence[str]) -> list[str]:
    """The words that change what is measured: not where it runs, and not how many seeds there are."""
    return [word for word in words if not word.lstrip("+").startswith(("hydra.", "hydra/", "cluster", "seed="))]


def runs_of(runs: Path, parts: Sequence[Part]) -> list[RunRecord]:
    """The runs of all sweeps that have started."""
    places = [runs / part.name for part in parts if isinstance(part, Sweep) and (runs / part.name).is_dir()]
    try:
        return read_runs(find_runs(places))[0]
    except BadRequest:  # none has begun
        return []


def measured_of(runs: Path, parts: Sequence[Part]) -> dict[str, Any]:
    """The answers of all measurements that were made, by name."""
    kept = {part.name: read_json(runs, f"{part.name}.json") for part in parts if isinstance(part, Measurement)}
    return {name: result["found"] for name, result in kept.items() if result is not None}


def _run(command: Sequence[str]) -> int:
    """Run a command to its end and return its exit code. On a signal it stops first, then this program."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": _path()}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment,
        process_group=0,  # signals come from here alone
        preexec_fn=with_parent(signal.SIGTERM),  # also if this program is killed
    )  # fmt: skip
    with _forwarded(process):
        return process.wait()


def _path() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))


@contextmanager
def _forwarded(process: subprocess.Popen[bytes]) -> Iterator[None]:
    stopped: list[int] = []

    def forward(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if stopped:
        raise SystemExit(128 + stopped[0])
