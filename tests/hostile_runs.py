"""Run directories that somebody else has damaged or prepared: mutations of a sound one, and opening them by every
command."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from harness import QUICK, experiment_of, go

from evorl import evaluate, report
from evorl.analysis.jobs import read_job_log
from evorl.analysis.population import read_population_log
from evorl.analysis.terminal_tables import print_tables
from evorl.cli import config
from evorl.population.work import new_work
from evorl.record import checkpoint
from evorl.run import main as run
from evorl.training.train import Start

LIMIT_S = 10
LIMIT_BYTES = 1 << 30
DEEP = "[" * 50_000
VALUES: tuple[Any, ...] = (
    None, [], {}, "", "x", -1, 0.5, 1e308, -1e308, math.nan, math.inf, 1 << 62, 10**400, True, [[]], {"a": {"b": 1}},
    "x" * 90_000, "../../home/file", "/etc/hostname", "\x1b[2J", ["a", 1],
)  # fmt: skip
SMALL = tuple(x for x in VALUES if not isinstance(x, int | float) or x in (-1, 0.5) or x is True)
"""What is no number of bytes or seconds that a config may ask for."""


class Mutation:
    """One or two changes of a copy of a run, a function of their number."""

    def __init__(self, base: Path, place: Path, number: int) -> None:
        self.draw = random.Random(number)
        self.place, self.outside = place, place.parent / "home"
        self.told: list[str] = []
        (self.outside / "folder" / "1").mkdir(parents=True)
        for name in ("file", "folder/state.json", "folder/1/inner"):
            (self.outside / name).write_text("precious\n")
        shutil.copytree(base, place)
        kinds: list[Callable[[], None]] = [self.bytes, self.kind, self.kind, self.prepared, self.value, self.value]
        kinds += [self.value, self.state, self.state, self.tensors, self.config, self.bomb]
        for _ in range(self.draw.choice((1, 1, 2))):
            self.draw.choice(kinds)()

    def _file(self, pattern: str = "*") -> Path | None:
        found = [one for one in sorted(self.place.rglob(pattern)) if one.is_file() and not one.is_symlink()]
        found = [one for one in found if one.stat().st_size < LIMIT_BYTES]  # not the sparse file of another change
        return self.draw.choice(found) if found else None

    def _note(self, path: Path, what: object) -> None:
        self.told.append(f"{path.relative_to(self.place)}: {what!s:.60}")

    def bytes(self) -> None:
        if (file := self._file()) is None:
            return
        content, how = bytearray(file.read_bytes()), self.draw.choice(("cut", "flip", "empty", "more", "zeros"))
        if how == "flip" and content:
            content[self.draw.randrange(len(content))] ^= 1 << self.draw.randrange(8)
        elif how == "cut":
            del content[self.draw.randrange(len(content) + 1) :]
        else:
            content = {"empty": bytearray(), "zeros": bytearray(len(content))}.get(how, content + b"\n{\xff")
        file.write_bytes(content)
        self._note(file, how)

    def kind(self) -> None:
        """Something else under the name of a file or folder."""
        there = sorted(one for one in self.place.rglob("*") if not one.is_symlink())
        path = self.draw.choice(there)
        _remove(path)
        how = self.draw.choice(("nothing", "link", "dangling", "folder link", "fifo", "folder", "sparse"))
        self._note(path, how)
        if how in ("link", "dangling", "folder link"):
            path.symlink_to(self.outside / {"link": "file", "dangling": "none", "folder link": "folder"}[how])
        elif how == "fifo":
            os.mkfifo(path)
        elif how == "folder":
            (path / "inside").mkdir(parents=True)
        elif how == "sparse":
            path.touch()
            os.truncate(path, 1 << 40)

    def prepared(self) -> None:
        """A link under a name that evorl will write or remove."""
        names = [".result.json.partial", ".provenance.json.partial", "failure.json", "checkpoints/.latest.partial"]
        names += [
            "checkpoints/.x",
            "checkpoints/.ahead",
            "checkpoints/.9.partial",
            "videos",
            ".hydra/.config.yaml.partial",
        ]
        path = self.place / self.draw.choice(
            [*names, "checkpoints/.1.removed", "jobs.jsonl", "population.jsonl", "wandb"]
        )
        if path.parent.is_dir() and not path.parent.is_symlink():
            _remove(path)
            path.symlink_to(self.outside / self.draw.choice(("file", "folder", "none")))
            self._note(path, "a link")

    def value(self) -> None:
        """Another value in a document or a line of JSON."""
        if (file := self._file("*.json*")) is None or file.parent.parent.name == "checkpoints":
            return
        lines = file.read_bytes().splitlines() if file.suffix == ".jsonl" else [file.read_bytes()]
        at = self.draw.randrange(len(lines)) if lines else 0
        if lines and (changed := self._changed(lines[at], VALUES)) is not None:
            lines[at] = changed
            file.write_bytes(b"\n".join(lines) + b"\n")
            self._note(file, "another value")

    def state(self) -> None:
        """Another value in the state or the manifest of a checkpoint, whose checksums are right."""
        if (file := self._file("state.json" if self.draw.random() < 0.8 else "manifest.json")) is None:
            return
        if file.parent.parent.name == "checkpoints" and (text := self._changed(file.read_bytes(), VALUES)) is not None:
            file.write_bytes(text)
            seal(file.parent)
            self._note(file, "another value, sealed")

    def tensors(self) -> None:
        """Another header, or other numbers, of a file of tensors, whose checksum is right."""
        if (file := self._file("*.safetensors")) is None:
            return
        content = bytearray(file.read_bytes())
        end = 8 + int.from_bytes(content[:8], "little")
        if self.draw.random() < 0.5:
            header = self._changed(bytes(content[8:end]), VALUES) or b""
            content[:end] = len(header).to_bytes(8, "little") + header
        else:
            content[self.draw.randrange(end, len(content) + 1) :] = b""
        file.write_bytes(content)
        seal(file.parent)
        self._note(file, "other tensors, sealed")

    def config(self) -> None:
        if (file := self._file("*.yaml")) is None:
            return
        try:
            changed = self._changed(msgspec.json.encode(msgspec.yaml.decode(file.read_bytes())), SMALL)
        except msgspec.DecodeError:
            return
        if changed is not None:
            file.write_bytes(changed)  # JSON is YAML
            self._note(file, "another value")

    def bomb(self) -> None:
        if (file := self._file("*.yaml")) is not None:
            text = "a0: &a0 {x: 1, y: 2}\n" + "".join(
                f"a{k}: &a{k} {{x: *a{k - 1}, y: *a{k - 1}}}\n" for k in range(1, 40)
            )
            file.write_text(self.draw.choice((text, DEEP, "x: [" + "a," * 400_000 + "]")))
            self._note(file, "a bomb")

    def _changed(self, text: bytes, values: tuple[Any, ...]) -> bytes | None:
        """A document with another value at one place, or without it."""
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            return None
        places = [*_places(tree)]
        if not places or self.draw.random() < 0.05:
            return DEEP.encode()
        parent, key = self.draw.choice(places)
        how = self.draw.random()
        if how < 0.15:
            del parent[key]
        elif how < 0.25 and isinstance(parent, dict):
            parent[self.draw.choice(("x" * 90_000, "../x", "", "\x1b"))] = parent.pop(key)
        else:
            parent[key] = self.draw.choice(values)
        return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    keys = [*tree] if isinstance(tree, dict) else [*range(len(tree))] if isinstance(tree, list) else []
    for key in keys:
        yield tree, key
        yield from _places(tree[key])


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    """The content of a file. Raises OSError for anything else, such as a FIFO, which would be waited for."""
    if not path.is_file() or path.stat().st_size > LIMIT_BYTES:
        raise OSError(f"{path} is no file, or too large")
    return path.read_bytes()


def seal(place: Path) -> None:
    """Write the manifest of a checkpoint that was changed, as its maker would."""
    try:
        manifest = json.loads(_content(place / checkpoint.MANIFEST))
        manifest.pop("sha256", None)
        for name in manifest["files"]:
            content = _content(place / name)
            manifest["files"][name] = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        return
    (place / checkpoint.MANIFEST).write_bytes(checkpoint._with_checksum(manifest))


# ------------------------------------------------------------------ opening


LEARNER = ("mdp=cartpole", "rl=ppo", *QUICK, "rl.slots=4", "eval.episodes=1", "record.hardware=false")
BASES = {
    "learner": (*LEARNER, "budget.steps=400"),
    "population": (
        *(*LEARNER, "ec=pbt", "ec.population=3", "ec.asynchronous=true", "ec.train_steps=64", "ec.episodes=1"),
        *("+ec.genes.rl.lr={low:1e-4,high:1e-2,log:true}", "mdp.time_limit=20", "budget.steps=400"),
    ),
}
"""Runs whose copies are damaged."""


def base_runs(place: Path) -> dict[str, Path]:
    for name, words in BASES.items():
        assert go(*words, f"hydra.run.dir={place / name}") == 0
    return {name: place / name for name in BASES}


def damaged(bases: dict[str, Path], place: Path, number: int) -> Mutation:
    names = [*bases]
    return Mutation(bases[names[number % len(names)]], place / "run", number)


def commands(place: Path) -> dict[str, Callable[[], int]]:
    """What opens a run, with little of what it does after: a report draws nothing, a run that starts from it does not
    train, and a replay soon ends."""

    def init() -> None:
        new_work(experiment_of(*LEARNER), Start(place)).close()

    def show() -> None:
        found = report.read([str(place)])
        for note in found.notes:
            print(f"evorl: {note}", file=sys.stderr)
        print_tables(found.runs, found.pending)
        for one in found.runs:
            read_population_log(one)
            read_job_log(one)

    return {
        "resume": lambda: run([f"resume={place}", "budget.steps=500"]),
        "init": lambda: config.exit_code(init),
        "replay": lambda: run([f"replay={place}", "budget.steps=80", f"hydra.run.dir={place.parent / 'replay'}"]),
        "evaluate": lambda: evaluate.main([f"run={place}", "episodes=1"]),
        "report": lambda: config.exit_code(show),
    }


def whole_commands(place: Path) -> dict[str, Callable[[], int]]:
    """What opens a run, with all that it does."""
    made = place.parent
    whole = {
        "init": lambda: run([*LEARNER, "budget.steps=64", f"init={place}", f"hydra.run.dir={made / 'init'}"]),
        "replay": lambda: run([f"replay={place}", f"hydra.run.dir={made / 'replay'}"]),
        "report": lambda: report.main([str(place), f"out={made / 'report'}", "csv=true"]),
    }
    return {**commands(place), **whole}


def check(mutation: Mutation, commands: dict[str, Callable[[], int]], capsys: pytest.CaptureFixture[str]) -> None:
    """Every command ends soon, with a line where it refuses, without a traceback, and changes nothing outside."""
    before = contents(mutation.outside)
    for name, command in commands.items():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        with ends_within(LIMIT_S):
            code = command()
        out, err = capsys.readouterr()
        about = f"{name} of {mutation.told}: exit {code}\n{err[-3000:]}"
        assert code in (0, 1, 2), about
        assert "Traceback" not in err + out, about
        assert code == 0 or err.strip(), about
        assert contents(mutation.outside) == before, about
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - peak < LIMIT_BYTES, about


def contents(folder: Path) -> dict[str, Any]:
    return {str(one): one.read_bytes() if one.is_file() else one.lstat().st_mode for one in sorted(folder.rglob("*"))}


@contextmanager
def ends_within(seconds: int) -> Iterator[None]:
    """End the body by an exception after so many seconds of the processor, or of waiting where it does nothing.

    Other work on the machine makes the clock go faster, so it gets twenty times as long.
    """

    def ring(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still at it ({signal.Signals(number).name})")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, 20 * seconds))
    before = {number: signal.signal(number, ring) for number, _, _ in timers}
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, timer, _ in timers:
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
