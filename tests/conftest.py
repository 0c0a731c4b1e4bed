"""Its place makes tests/harness.py importable from every folder of tests."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from evorl.record import provenance
from evorl.util.heartbeat import send_heartbeat

pytest_plugins = ["affected", "browsing"]
settings.register_profile("unhurried", deadline=None)  # how long an example takes says nothing of whether it is right
settings.load_profile("unhurried")
settings.register_profile("unshrunk", deadline=None, phases=(Phase.explicit, Phase.generate))  # of tests/mutants.py


def pytest_configure(config: pytest.Config) -> None:
    """Other tests than those of a GPU compare bits with the CPU's, and ``device=auto`` would take a GPU.

    pyribs would compile for seconds in every process, for archives of a few cells.
    """
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(tryfirst=True)  # before those that -m leaves out are gone
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``slow_cases(*ids)`` marks these cases of a test as slow, and ``slow_cases(but=ids)`` all others."""
    missing: dict[str, set[str]] = {}
    for item in items:
        for mark in item.iter_markers("slow_cases"):
            assert isinstance(item, pytest.Function)
            case, test = item.callspec.id, item.nodeid.partition("[")[0]
            names = mark.kwargs.get("but", mark.args)
            if (case in names) != ("but" in mark.kwargs):
                item.add_marker("slow")
            missing.setdefault(test, set(names)).discard(case)
    whole_files = not any("::" in arg for arg in config.args)
    if whole_files and (gone := {test: names for test, names in missing.items() if names}):
        raise pytest.UsageError(f"slow_cases names cases that do not exist: {gone}")


def pytest_collection_finish() -> None:
    """What is imported by now stays for all tests: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """What an expression over the test module's names prints in a fresh process, where strings hash otherwise."""

    def ask(expression: str) -> str:
        code = f"from {request.module.__name__} import *; print({expression})"
        env = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
        return done.stdout.strip()

    return ask


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """A run waits for the disk at each checkpoint, and no test cuts the power of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_look_at_the_checkout() -> Iterator[None]:
    """Each run records the commit and the versions of packages, for which it asks git and reads a dozen files."""
    git, versions = cache(provenance.git), cache(provenance.versions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "git", lambda root: copy(git(root)))
        patch.setattr(provenance, "versions", lambda: copy(versions()))
        yield


@pytest.fixture(scope="session", autouse=True)
def absl_leaves_the_stream_of_pytest_open() -> None:
    """Hydra closes all handlers of logs, and absl's closes its stream where that is no longer ``sys.stderr``."""
    from absl import logging

    logging.get_absl_handler().python_handler.stream = sys.__stderr__


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken episodes start again without a pause."""
    monkeypatch.setattr("evorl.mdp.restarts.PAUSES_S", (0.0, 0.0))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder for sockets, whose names must be short."""
    place = Path(tempfile.mkdtemp(prefix="evorl-test-", dir="/tmp"))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def beats() -> Iterator[list[int]]:
    """A number for each heartbeat of this process."""
    numbers: list[int] = []
    token = send_heartbeat.set(lambda: numbers.append(len(numbers)))
    yield numbers
    send_heartbeat.reset(token)
