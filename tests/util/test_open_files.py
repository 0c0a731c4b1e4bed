"""The count of the files that a process may still open."""

from __future__ import annotations

import os
import resource

from evorl.util import descriptors


def test_each_open_file_counts() -> None:
    before, used = descriptors.left(), descriptors.used()
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        assert (descriptors.left(), descriptors.used()) == (before - 5, used + 5)
    finally:
        for file in files:
            os.close(file)
    assert before + used == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_without_any_left() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        assert descriptors.left() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
