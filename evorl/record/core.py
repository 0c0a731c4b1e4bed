"""Recorder of a run: writes its files of JSON lines and starts the TensorBoard and W&B sinks.

The sinks read ``metrics.jsonl`` in a thread or process of their own. Their failures do not affect the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, Protocol, Self

import msgspec

from evorl.record import metrics
from evorl.record.hardware import Hardware
from evorl.record.json_lines import JsonLinesFile
from evorl.util.types import StateDict, Steps

RowFile = Literal["population.jsonl", "jobs.jsonl", "opponents.jsonl", "payoffs.jsonl"]
"""The files of rows beside metrics.jsonl."""
_log = logging.getLogger("evorl")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Settings (config group ``record``): where metrics go besides ``metrics.jsonl``."""

    hardware: bool = True
    """Whether to record what processes, machine and GPUs use (metrics ``hardware/...``)."""
    tensorboard: bool = True
    """Write TensorBoard event files into the run directory."""
    wandb: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "evorl"
    """W&B project."""
    group: str | None = None
    """W&B group; null: none."""
    name: str | None = None
    """W&B run name; null: the name of the run directory."""
    tags: tuple[str, ...] = ()
    """W&B tags."""
    job_type: str | None = None
    """W&B job type; null: ``evolve`` for a population, else ``train``."""
    artifacts: bool = False
    """Whether W&B also gets checkpoints, as versions of one artifact."""


class Sink(Protocol):
    """A reader of ``metrics.jsonl`` in a thread or process of its own."""

    def check(self) -> None:
        """Log one warning if the sink has failed. Does not block."""
        ...

    def close(self, ok: bool) -> None:
        """Wait a few seconds for the sink to read the rest; ``ok``: the run did not fail."""
        ...


class RecorderState(msgspec.Struct, frozen=True):
    """The state from which a recorder continues. It is data from a file, so no file is opened under a name in it."""

    offset: Steps
    """Bytes of metrics.jsonl."""
    time: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    steps: dict[str, Steps]
    """Last step of each prefix."""
    files: dict[RowFile, Steps]
    """Bytes of the other files."""


def recorder_state(saved: StateDict) -> RecorderState:
    """Return a checked `Recorder.state_dict`. Raises ValueError if it is of another form, or lacks a part: rows that
    are there would be cut off."""
    if "told" in saved:  # of a run of an older version
        saved = {**saved, "files": {"population.jsonl": saved["told"]}}
    return msgspec.convert(saved, RecorderState)


class Recorder:
    """Writer of ``metrics.jsonl`` in a run directory, one system call per row.

    ``resume`` is an earlier `state_dict`: the file is truncated to its length at that time, so the rows of a run
    that was killed and resumed have no gap and no duplicate. Without it the file starts empty. ``packages`` names root
    modules outside evorl, whose metrics are named PACKAGE/NAME.
    """

    def __init__(
        self,
        directory: Path,
        record: Record,
        config: Mapping[str, Any],
        resume: StateDict | None = None,
        packages: Collection[str] = (),
    ) -> None:
        self._packages = packages
        state = RecorderState(0, 0.0, {}, {}) if resume is None else recorder_state(resume)
        self._directory = directory
        self._files: dict[str, JsonLinesFile] = {}
        with ExitStack() as opened:
            self._rows = JsonLinesFile(directory, "metrics.jsonl", state.offset)
            opened.callback(self._rows.close)
            for name, offset in state.files.items():
                self._files[name] = JsonLinesFile(directory, name, offset)
                opened.callback(self._files[name].close)
            opened.pop_all()
        self._started_at: float = time.monotonic() - state.time
        self._steps: dict[str, int] = dict(state.steps)
        self._prefixes: dict[str, str] = {}
        self._hardware = Hardware() if record.hardware else None
        self._sinks = _sinks(directory, record, config, self._rows.offset, state.time)

    @property
    def time(self) -> float:
        """Seconds since the start of the run, without the time between a stop and a resume."""
        return time.monotonic() - self._started_at

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one row: the values of these metrics after ``step`` environment steps.

        Every few seconds a row also gets readings of the hardware; they are no part of the recorder's state, which must
        not depend on the time. Values that are not finite become null. On a full disk a warning is logged and the rows
        wait in memory.
        Raises `UnregisteredMetric`, and ValueError for a step that is not above the last step of its prefix.
        """
        self._advance(step, {self._prefix(name) for name in values})
        row = {"step": step, "time": round(self.time, 3)}
        row.update((name, value if type(value) is int else float(value)) for name, value in values.items())
        if self._hardware is not None and self._hardware.due():
            row.update(self._hardware.read())
        self._rows.append([row])
        for sink in self._sinks:
            sink.check()

    def write_rows(self, name: RowFile, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows to another file of JSON lines, such as ``population.jsonl``; the first call creates it."""
        if name not in self._files:
            self._files[name] = JsonLinesFile(self._directory, name, 0)
        self._files[name].append(rows)

    def state_dict(self) -> StateDict:
        """Return the state that ``resume`` takes. Flushes all rows to stable storage; raises OSError if that fails."""
        state: StateDict = {"offset": self._rows.sync(), "time": self.time, "steps": dict(self._steps)}
        return {**state, "files": {name: file.sync() for name, file in self._files.items()}}

    def close(self, ok: bool = True) -> None:
        """Close the files and sinks; ``ok``: the run did not fail. A sink that hangs delays this by two seconds."""
        if self._rows.close():
            for file in self._files.values():
                file.close()
            for sink in self._sinks:
                sink.close(ok)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(ok=kind is None)

    def _prefix(self, name: str) -> str:
        prefix = self._prefixes.get(name)
        if prefix is None:
            metrics.check([name], self._packages)
            prefix = self._prefixes[name] = name.partition("/")[0]
        return prefix

    def _advance(self, step: int, prefixes: set[str]) -> None:
        for prefix in prefixes:
            if step <= self._steps.get(prefix, -1):
                raise ValueError(f"step {step} of {prefix}/ does not follow step {self._steps[prefix]}")
        self._steps.update(dict.fromkeys(prefixes, step))


def _sinks(directory: Path, record: Record, config: Mapping[str, Any], kept: int, seconds: float) -> list[Sink]:
    from evorl.record.tensorboard import TensorBoard
    from evorl.record.wandb import WandB, run_settings

    available: list[tuple[bool, Callable[[], Sink]]] = [
        (record.tensorboard, lambda: TensorBoard(directory, kept, seconds, config)),
        (
            record.wandb != "disabled",
            lambda: WandB(directory, run_settings(directory, asdict(record), config), record.wandb),
        ),
    ]
    return [sink for enabled, start in available if enabled and (sink := _start_sink(start))]


def _start_sink(start: Callable[[], Sink]) -> Sink | None:
    try:
        return start()
    except Exception as error:
        _log.warning("a sink of metrics.jsonl did not start (%s: %s)", type(error).__name__, error)
        return None
