"""Run directories that somebody else has damaged or prepared, opened by every command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hostile_runs import base_runs, check, commands, damaged, whole_commands


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return base_runs(tmp_path_factory.mktemp("bases"))


@pytest.mark.fault
@pytest.mark.parametrize("hundred", range(1, 21))
def test_a_damaged_directory_costs_a_line(
    hundred: int, bases: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first hundred are in tests/jobs. Every twentieth is drawn in a report, and trained from."""
    for number in range(100 * hundred, 100 * hundred + 100):
        place = tmp_path / str(number)
        opening = commands if number % 20 else whole_commands
        check(damaged(bases, place, number), opening(place / "run"), capsys)
        shutil.rmtree(place)
