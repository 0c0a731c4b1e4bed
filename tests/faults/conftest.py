"""Runs in processes of their own, of which nothing outlives the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_runs import Run, begin


@pytest.fixture
def run(short_path: Path) -> Iterator[Callable[..., Run]]:
    """Begins the run that some words describe."""
    begun: list[Run] = []

    def beginning(*words: str) -> Run:
        begun.append(begin(short_path / str(len(begun)), *words))
        return begun[-1]

    yield beginning
    for one in begun:
        one.close()
