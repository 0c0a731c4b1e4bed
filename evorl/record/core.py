"""The record of a run: ``metrics.jsonl`` first; TensorBoard and W&B read it and can fail without hurting the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from evorl.record import metrics
from evorl.record.json_lines import Lines
from evorl.util.types import StateDict

_log = logging.getLogger("evorl")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Where the numbers of a run go, besides ``metrics.jsonl``."""

    tensorboard: bool = True
    """Also write TensorBoard's event files into the run directory."""
    wandb: Literal["disabled", "offline", "online"] = "disabled"
    project: str = "evorl"
    """W&B project."""
    group: str | None = None
    """W&B group; null leaves the run without one."""
    name: str | None = None
    """W&B run name; null takes the run directory's."""


class Sink(Protocol):
    """A reader of the metrics file in a thread or process of its own."""

    def check(self) -> None:
        """Warn, once, when it has failed; never waits."""
        ...

    def close(self, ok: bool) -> None:
        """Let it read to the end, for a second or two; ``ok`` says that the run did not fail."""
        ...


class Recorder:
    """Appends rows to ``metrics.jsonl`` in a run directory, each handed to the system at once.

    ``resume`` is an earlier `state_dict`: the file is cut back to where it was then, so the rows of a run
    that was killed and resumed have no gap and no duplicate. Without it the file starts empty.
    """

    def __init__(self, directory: Path, record: Record, config: Mapping[str, Any], resume: StateDict | None = None):
        state = resume or {"offset": 0, "time": 0.0, "steps": {}}
        self._rows = Lines(directory / "metrics.jsonl", state["offset"])
        self._told: Lines | None = None
        if (told := state.get("told")) is not None:
            self._told = Lines(directory / "population.jsonl", told)
        self._directory = directory
        self._began: float = time.monotonic() - state["time"]
        self._steps: dict[str, int] = dict(state["steps"])
        self._prefixes: dict[str, str] = {}
        self._sinks = _sinks(
            directory, record, config, self._rows.offset, purge=max(self._steps.values(), default=-1) + 1
        )

    @property
    def time(self) -> float:
        """Seconds since the run began, the time between a stop and a resume left out."""
        return time.monotonic() - self._began

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one row: the numbers of these metrics after ``step`` environment steps.

        Numbers that are not finite become null. A full disk costs a warning; the rows wait in memory for space.
        Raises ValueError for an unregistered name, and for a step that is not above the last one of its prefix.
        """
        self._advance(step, {self._prefix(name) for name in values})
        row = {"step": step, "time": round(self.time, 3)}
        row.update((name, value if type(value) is int else float(value)) for name, value in values.items())
        self._rows.append([row])
        for sink in self._sinks:
            sink.check()

    def tell(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Append rows of evaluated individuals to ``population.jsonl``, which begins with the first."""
        if self._told is None:
            self._told = Lines(self._directory / "population.jsonl", 0)
        self._told.append(rows)

    def state_dict(self) -> StateDict:
        """What `resume` needs; the rows so far are on stable storage when it returns, else it raises OSError."""
        state: StateDict = {"offset": self._rows.sync(), "time": self.time, "steps": dict(self._steps)}
        return state if self._told is None else {**state, "told": self._told.sync()}

    def close(self, ok: bool = True) -> None:
        """Finish; ``ok`` tells the sinks that the run did not fail. A sink that hangs costs two seconds."""
        if self._rows.close():
            if self._told is not None:
                self._told.close()
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
            metrics.check([name])
            prefix = self._prefixes[name] = name.partition("/")[0]
        return prefix

    def _advance(self, step: int, prefixes: set[str]) -> None:
        for prefix in prefixes:
            if step <= self._steps.get(prefix, -1):
                raise ValueError(f"step {step} of {prefix}/ does not follow step {self._steps[prefix]}")
        self._steps.update(dict.fromkeys(prefixes, step))


def _sinks(directory: Path, record: Record, config: Mapping[str, Any], offset: int, purge: int) -> list[Sink]:
    from evorl.record.tensorboard import TensorBoard
    from evorl.record.wandb import WandB

    asked: list[tuple[bool, Callable[[], Sink]]] = [
        (record.tensorboard, lambda: TensorBoard(directory, offset, purge)),
        (record.wandb != "disabled", lambda: WandB(directory, record, config)),
    ]
    return [sink for wanted, start in asked if wanted and (sink := _started(start))]


def _started(start: Callable[[], Sink]) -> Sink | None:
    try:
        return start()
    except Exception as error:
        _log.warning("a sink of metrics.jsonl did not start (%s: %s)", type(error).__name__, error)
        return None
