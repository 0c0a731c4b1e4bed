"""The lock of a run or sweep directory: one process writes it at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evorl.util import run_directory
from evorl.util.errors import BadRequest

FILE_NAME = ".lock"
WAIT_S, ASK_S = 0.2, 0.01
"""How long a lock is waited for, and how often it is asked for: `is_locked` holds it for a moment."""
_log = logging.getLogger("evorl")


class RunLocked(BadRequest):
    """Another process holds the lock of the run directory."""


@contextmanager
def lock(run_dir: Path, key: str = "resume") -> Iterator[None]:
    """Lock a run directory for this process. Raises `RunLocked` (at config key ``key``) if another process holds it.

    The operating system releases the lock when the process ends, however it ends. Raises `BadRequest` if the directory
    cannot be written.
    """
    try:
        descriptor = run_directory.descriptor(run_dir, FILE_NAME, os.O_RDWR | os.O_CREAT)
    except run_directory.Unsafe as error:
        raise error.under(key) from None
    except OSError as error:
        raise BadRequest(f"{run_dir} cannot be written: {error.strerror}", key) from None
    ends = time.monotonic() + WAIT_S
    try:
        try:
            while not _taken(descriptor):
                if time.monotonic() > ends:
                    raise RunLocked(f"another process is writing {run_dir}", key)
                time.sleep(ASK_S)
        except OSError as error:  # some network file systems do not support locks
            _log.warning("%s cannot be locked (%s): make sure that only one process writes it", run_dir, error.strerror)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(run_dir: Path) -> bool:
    """Return whether a process writes this run, without changing the directory.

    Takes a shared lock for a moment, since the operating system offers no query.
    """
    try:
        with run_directory.opened(run_dir, FILE_NAME) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # not a run of evorl, or a file system without locks
        return False
    return False
