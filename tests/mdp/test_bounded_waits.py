"""Waits for a game that have an end of their own send heartbeats until then, so that their worker is not taken for hung
before they tell why they ended."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from remote_games import FAULTY, Records, opened
from test_godot_rl import opened as opened_godot

from evorl.cluster.core import MemberError
from evorl.cluster.processes import Processes
from evorl.mdp.remote import Remote
from evorl.mdp.remote.messages import Unplayable
from evorl.util.seed import Episodes
from evorl.util.stop import pause


@pytest.mark.parametrize("protocol", ["evorl", "godot_rl"])
@pytest.mark.parametrize("command", ["sleep 60", None], ids=["started", "awaited"])
def test_a_wait_for_a_game_to_connect(protocol: Any, command: str | None, beats: list[int], tmp_path: Path) -> None:
    listen = None if command else f"unix:{tmp_path}/game"
    with closing(Remote(protocol=protocol, command=command, listen=listen, start_s=1.0)) as world:
        with pytest.raises(Unplayable, match=r"connected"):
            world.arena(2, Episodes(0, "test"))
        assert len(beats) > 1


def test_a_wait_for_the_rows_of_a_game(beats: list[int], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(2, f"{FAULTY} freeze {tmp_path}/mark 3", deadline_s=2.5) as arena:
        Records(arena).play(5)
    assert "said nothing for 2.5 s" in caplog.text
    assert len(beats) > 1


def test_a_wait_for_a_step_of_a_game_of_godot(beats: list[int], tmp_path: Path) -> None:
    with opened_godot("blind", f"{tmp_path}/mark", slots=3, deadline_s=2.0) as arena:
        assert Records(arena).play(5).failed == 3
    assert len(beats) > 1


def test_a_pause(beats: list[int]) -> None:
    pause(0.01)
    assert beats


class Waits:
    """A member whose game never connects."""

    def __init__(self, index: int) -> None:
        self.arena = Remote(command="sleep 60", start_s=2.0).arena(2, Episodes(0, "test"))


@pytest.mark.fault
def test_a_member_that_waits_for_longer_than_the_deadline_of_workers_tells_its_own_reason() -> None:
    with pytest.raises(MemberError, match="has not connected in 2 s"):
        Processes(workers=1, deadline_s=1.0).spawn(Waits, 1)
