"""One process writes a run directory, and who looks whether one does is in nobody's way."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from evorl.record import failure
from evorl.record.lock import RunLocked, is_locked, lock


def test_who_asks_whether_a_run_is_written_refuses_nobody(tmp_path: Path) -> None:
    """It takes the lock for a moment, and a report asks again and again."""
    with lock(tmp_path):
        assert is_locked(tmp_path)
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_locked(tmp_path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(300):
            with lock(tmp_path):
                pass
    finally:
        stop.set()
        asking.join()


def test_a_run_that_is_written_is_refused(tmp_path: Path) -> None:
    with lock(tmp_path), pytest.raises(RunLocked, match=r"^rl: another process is writing"), lock(tmp_path, "rl"):
        pass


def test_a_failure_of_an_earlier_attempt_is_not_taken_for_that_of_this_one(tmp_path: Path) -> None:
    failure.write(tmp_path, ValueError("before"))
    earlier = failure.stamp(tmp_path)
    failure.write(tmp_path, ValueError("now"), earlier)
    failure.write(tmp_path, ValueError("of the same attempt, later"), earlier)
    reasons = {path.name: path.read_text() for path in tmp_path.glob("failure*")}
    assert "ValueError: now" in reasons["failure.json"] and "ValueError: before" in reasons["failure.1.json"]
    assert len(reasons) == 2 and failure.stamp(tmp_path / "nowhere") is None
