"""A run opens no more files than it may: it raises its soft limit, or is refused with the number before it begins."""

from __future__ import annotations

import os
import resource

import cluster_toys as toys
import pytest

from evorl.cluster.processes import Processes
from evorl.cluster.transport.authentication import SPARE_CONNECTIONS
from evorl.cluster.workers.descriptors import EACH, PLENTY, RESERVE, require_descriptors
from evorl.util.errors import BadRequest

NOW = 40  # open files


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The soft and the hard limit of a process with `NOW` open files."""
    both = [1024, 4096]
    monkeypatch.setattr(os, "listdir", lambda path: ["x"] * NOW)
    monkeypatch.setattr(resource, "getrlimit", lambda what: tuple(both))
    monkeypatch.setattr(resource, "setrlimit", lambda what, new: both.__setitem__(slice(None), new))
    return both


def needed(workers: int) -> int:
    return NOW - 1 + EACH * workers + SPARE_CONNECTIONS + RESERVE


def test_the_soft_limit_is_raised(limits: list[int]) -> None:
    require_descriptors(2)
    assert limits == [4096, 4096]
    limits[:] = [1024, 1 << 20]
    require_descriptors(2)
    assert limits == [PLENTY, 1 << 20]
    require_descriptors(50_000)
    assert limits == [needed(50_000), 1 << 20]
    require_descriptors(2)
    assert limits == [needed(50_000), 1 << 20]


def test_more_than_the_hard_limit_is_refused_with_the_number(limits: list[int]) -> None:
    with pytest.raises(BadRequest, match=f"1000 workers take {needed(1000)} open files, and 4096 are allowed") as error:
        require_descriptors(1000)
    assert error.value.key == "cluster.workers" and limits == [1024, 4096]


def test_no_limit(limits: list[int]) -> None:
    limits[:] = [resource.RLIM_INFINITY] * 2
    require_descriptors(100_000)
    limits[:] = [1024, resource.RLIM_INFINITY]
    require_descriptors(100_000)
    assert limits == [needed(100_000), resource.RLIM_INFINITY]


def test_a_group_is_refused_before_a_process_starts(limits: list[int]) -> None:
    limits[:] = [100, 100]
    with pytest.raises(BadRequest, match=r"2 workers take \d+ open files, and 100 are allowed"):
        Processes(workers=2).spawn(toys.Counter, 2)
