"""TensorBoard sink: a thread that copies the rows of ``metrics.jsonl`` into an event file.

The file also has the layout of the dashboard and the hyper-parameters of the run (`evorl.record.tensorboard_layout`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evorl.record.metrics_tail import Row, follow_rows

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_PERIOD_S = 1.0
_CLOSE_TIMEOUT_S = 2.0
_log = logging.getLogger("evorl")


class TensorBoard:
    """Sink for the rows after byte ``offset``. TensorBoard discards earlier events from step ``purge`` on."""

    def __init__(self, directory: Path, offset: int, purge: int, config: Mapping[str, Any]) -> None:
        self._over, self._ok = threading.Event(), False
        self._thread = threading.Thread(
            target=self._run, args=(directory, offset, purge, config), name="tensorboard", daemon=True
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

    def _run(self, directory: Path, offset: int, purge: int, config: Mapping[str, Any]) -> None:
        try:
            rows = follow_rows(directory / "metrics.jsonl", offset, self._wait)
            write_events(directory, rows, purge, config, lambda: self._ok)
        except Exception as error:
            _log.warning("TensorBoard stopped (%s: %s); metrics.jsonl goes on", type(error).__name__, error)

    def _wait(self) -> bool:
        return self._over.wait(_PERIOD_S)


def write_events(
    directory: Path, rows: Iterable[Row], purge: int, config: Mapping[str, Any], ok: Callable[[], bool]
) -> None:
    """Write these rows to a new event file and flush each of them; ``ok``: at the end, whether the run did not fail."""
    # Imported in the sink's thread: the import takes as long as all other start-up work of a run.
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.summary.writer.record_writer import RecordWriter

    from evorl.record.tensorboard_layout import end_summary, layout_summary, start_summary

    with (directory / _file_name()).open("xb") as file:
        writer = RecordWriter(file)
        for event in (
            Event(wall_time=time.time(), file_version="brain.Event:2"),
            Event(wall_time=time.time(), step=purge, session_log=SessionLog(status=SessionLog.START)),
            Event(wall_time=time.time(), summary=layout_summary()),
            Event(wall_time=time.time(), summary=start_summary(config)),
        ):
            writer.write(event.SerializeToString())
        writer.flush()
        for row in rows:
            writer.write(_event(row).SerializeToString())
            writer.flush()
        if ok():
            writer.write(Event(wall_time=time.time(), summary=end_summary()).SerializeToString())
            writer.flush()


def _event(row: Row) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    values = [Summary.Value(tag=name, simple_value=value) for name, value in row.metrics.items()]
    return Event(wall_time=time.time(), step=row.step, summary=Summary(value=values))


def _file_name() -> str:
    # TensorBoard reads files in the order of their names. Without a host name, because runs may be published.
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"events.out.tfevents.{seconds:010d}.{nanoseconds:09d}"
