"""How the end of a child process is found and told, and how it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from evorl.cluster.processes.fork import exit_reason
from evorl.mdp.football import process as football
from evorl.mdp.remote.process import GameProcess
from evorl.util import parents
from evorl.util.parents import ending, exit_status, kill_group
from evorl.util.poll import readable


@pytest.mark.parametrize(
    ("status", "output", "line"),
    [
        (0, b"", "ended with exit code 0"),
        (3, b"one\n\x1b[31mtwo\n\n", r"ended with exit code 3; it said last: \x1b[31mtwo"),
        (-signal.SIGSEGV, b"\xff", "was killed by SIGSEGV; it said last: \N{REPLACEMENT CHARACTER}"),
        (-(signal.SIGRTMIN + 3), b" \n", f"was killed by signal {signal.SIGRTMIN + 3}"),
    ],
)
def test_an_ending_is_one_line(status: int, output: bytes, line: str) -> None:
    assert ending(status, output) == line


def test_workers_end_by_signals_without_a_name_too() -> None:
    assert exit_reason(-(signal.SIGRTMIN + 3)) == f"was killed by signal {signal.SIGRTMIN + 3}"


def leader(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)


@pytest.mark.parametrize(("command", "status"), [("exit 3", 3), ("kill -9 $$", -signal.SIGKILL)])
def test_the_status_is_that_of_subprocess(command: str, status: int) -> None:
    with leader("sh", "-c", command) as child:
        assert exit_status(child, 30.0) == status == child.wait()
        assert exit_status(child) == status


def test_a_child_that_runs_has_no_status() -> None:
    with leader("sleep", "60") as child:
        assert exit_status(child, 0.01) is None
        kill_group(child)
        assert child.returncode == -signal.SIGKILL


def test_what_an_ended_leader_has_started_is_killed_with_its_group() -> None:
    with leader("sh", "-c", "sleep 60 & echo $!") as child:
        assert child.stdout is not None
        other = os.pidfd_open(int(child.stdout.readline()))
        assert exit_status(child, 30.0) == 0
        kill_group(child)
        assert readable([other], 30.0)
        os.close(other)


def remote_game(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[], object]]:
    game = GameProcess(f"{sys.executable} -c pass", {}, "", 1)
    return game, lambda: game.end(30.0)


def football_game(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Callable[[], object]]:
    monkeypatch.setattr(football, "RUN", "")
    game = football.GameProcess("any")
    return game, lambda: exit_status(game._process, 30.0) is not None and game.ended()


@pytest.mark.parametrize("started", [remote_game, football_game])
def test_the_number_of_a_game_that_has_ended_is_its_own_until_it_is_closed(
    started: Callable[[pytest.MonkeyPatch], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing it killed a group by that number, which could be another's by then."""
    game, end = started(monkeypatch)
    killed = list[int]()
    with closing(game):
        assert str(end()).startswith("ended with exit code 0")
        os.kill(game._process.pid, 0)  # it was not reaped
        monkeypatch.setattr(parents.os, "killpg", lambda pid, number: killed.append(pid))
    game.close()
    assert killed == [game._process.pid]
