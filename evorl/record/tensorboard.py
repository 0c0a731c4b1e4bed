"""TensorBoard sink: a thread that copies the rows of ``metrics.jsonl`` into an event file.

Each attempt at a run has a file, named after the time and after the byte of ``metrics.jsonl`` at which it begins. The
thread of a killed run was behind, and TensorBoard may be switched on at a resume. So a file begins at the first row
that the file before lacks, and together they have every row once. A file also has the layout of the dashboard and the
hyper-parameters of the run (`evorl.record.tensorboard_layout`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evorl.record.metrics_tail import Row, follow_rows, parse_row
from evorl.util import run_directory

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_PREFIX = "events.out.tfevents"
_DOTS = 5  # of a file's name: the prefix, seconds, nanoseconds and the byte at which it begins
_HEADER = 4
"""Records before the first row."""
_PERIOD_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_log = logging.getLogger("evorl")


class TensorBoard:
    """Sink for the rows of a run, of which a resume kept so many bytes of ``metrics.jsonl`` and ``seconds`` of time."""

    def __init__(self, directory: Path, kept: int, seconds: float, config: Mapping[str, Any]) -> None:
        self._over, self._ok = threading.Event(), False
        self._thread = threading.Thread(
            target=self._run, args=(directory, kept, time.time() - seconds, config), name="tensorboard", daemon=True
        )
        self._thread.start()

    def check(self) -> None:
        """Do nothing: the thread logs its own warnings."""

    def close(self, ok: bool) -> None:
        """Let the thread read to the end of the file, for at most `_CLOSE_TIMEOUT_S` seconds."""
        self._ok = ok
        self._over.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            _log.warning("TensorBoard's events did not reach the disk in time; metrics.jsonl has every row")

    def _run(self, directory: Path, kept: int, began: float, config: Mapping[str, Any]) -> None:
        try:
            write_events(directory, beginning(directory, kept), began, config, self._wait, lambda: self._ok)
        except Exception as error:
            _log.warning("TensorBoard stopped (%s: %s); metrics.jsonl goes on", type(error).__name__, error)

    def _wait(self) -> bool:
        return self._over.wait(_PERIOD_S)


class Beginning(NamedTuple):
    """Where an event file begins."""

    offset: int
    """Byte of ``metrics.jsonl``; of the first row of its step."""
    purge: int
    """TensorBoard discards events of earlier files from this step on."""


def beginning(directory: Path, kept: int) -> Beginning:
    """Return where the next event file begins: at the first row that the earlier ones lack, or at the last row kept.

    All rows of that step are written again, since TensorBoard discards whole steps.
    """
    start, file_before = _newest_file(directory, kept)
    at, begins = start, Beginning(start, 0)
    with ExitStack() as opened:
        records: Iterator[int] = iter(())
        if file_before:
            records = islice(
                _records(opened.enter_context(run_directory.opened(directory, file_before))), _HEADER, None
            )
        rows = opened.enter_context(run_directory.opened(directory, "metrics.jsonl"))
        for line, end in run_directory.follow_lines(rows, start):
            if at >= kept:
                break
            with suppress(ValueError):
                if (step := parse_row(line).step) != begins.purge or at == start:
                    begins = Beginning(at, step)
                if next(records, None) is None:
                    break
            at = end
    return begins


def _newest_file(directory: Path, kept: int) -> tuple[int, str]:
    """Return the byte of ``metrics.jsonl`` at which the newest event file begins, and its name.

    Files that begin beyond the bytes kept are of rows that are gone. (0, "") without a file, or with one of an earlier
    version, which does not say where it begins.
    """
    for name in reversed(_event_files(directory)):
        *_, offset = name.split(".")
        if name.count(".") != _DOTS or not offset.isdecimal():
            return 0, ""
        if int(offset) < max(kept, 1):
            return int(offset), name
    return 0, ""


def _records(file: int) -> Iterator[int]:
    """Yield the end of each whole record: length, its checksum (12 bytes), the event, and its checksum (4 bytes)."""
    end, size = 0, os.fstat(file).st_size
    while len(head := os.pread(file, 12, end)) == 12:
        end += 12 + int.from_bytes(head[:8], "little") + 4
        if end > size:
            return
        yield end


def write_events(
    directory: Path,
    begins: Beginning,
    began: float,
    config: Mapping[str, Any],
    wait: Callable[[], bool],
    ok: Callable[[], bool],
) -> None:
    """Write rows to a new event file and flush each of them, until ``wait`` says that the run has ended.

    ``began``: when the run would have begun without its pauses. ``ok``: at the end, whether it did not fail.
    """
    # Imported in the sink's thread: the import takes as long as all other start-up work of a run.
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.summary.writer.record_writer import RecordWriter

    from evorl.record.tensorboard_layout import end_summary, layout_summary, start_summary

    with (directory / _file_name(directory, begins.offset)).open("xb") as file:
        writer = RecordWriter(file)
        for event in (
            Event(wall_time=time.time(), file_version="brain.Event:2"),
            Event(wall_time=time.time(), step=begins.purge, session_log=SessionLog(status=SessionLog.START)),
            Event(wall_time=time.time(), summary=layout_summary()),
            Event(wall_time=time.time(), summary=start_summary(config)),
        ):
            writer.write(event.SerializeToString())
        writer.flush()
        for row in follow_rows(directory / "metrics.jsonl", begins.offset, wait):
            writer.write(_event(row, began).SerializeToString())
            writer.flush()
        if ok():
            writer.write(Event(wall_time=time.time(), summary=end_summary()).SerializeToString())
            writer.flush()


def _event(row: Row, began: float) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in row.metrics.items()]
    return Event(wall_time=began + row.time, step=row.step, summary=Summary(value=values))


def _event_files(directory: Path) -> list[str]:
    """Return the names of a run's event files, in the order in which TensorBoard reads them."""
    entries = run_directory.entries(directory)
    return [entry.name for entry in entries if entry.kind == "file" and entry.name.startswith(f"{_PREFIX}.")]


def _file_name(directory: Path, offset: int) -> str:
    """Return a name after all others, also if the clock was set back. Without a host name: runs may be published."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    name = f"{_PREFIX}.{seconds:010d}.{nanoseconds:09d}.{offset}"
    newest = _event_files(directory)[-1:]
    if newest >= [name] and (later := newest[0].split(".")[3]).isdecimal():
        name = f"{_PREFIX}.{int(later) + 1:010d}.{0:09d}.{offset}"
    return name
