"""What counts as silence of a game, where evorl does something else in between."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from remote_games import FAULTY, TAG, Records, opened

from evorl.mdp.remote.messages import Unplayable
from evorl.mdp.remote.server import MAX_STRANGERS

AWAY_S = 0.5


def test_a_silent_battle_costs_no_connection_that_speaks_when_evorl_listens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Between any two words of the other battle, evorl computes for longer than the deadline, as in an evaluation."""
    mark, naps = tmp_path / "mark", 0

    def compute(number: int) -> None:
        nonlocal naps
        if mark.exists() and naps < 6:
            naps += 1
            time.sleep(AWAY_S)

    with opened(4) as arena:
        undisturbed = Records(arena).play(60)
    with opened(4, f"{FAULTY} hush {mark}", deadline_s=0.4) as arena:
        records = Records(arena).play(60, compute)
    assert naps == 6
    assert "said nothing for 0.4 s of this battle: 1 of 2 battles are played again" in caplog.text
    assert len(caplog.messages) == 1
    assert records.first(60) == undisturbed.first(60)


def test_a_game_that_freezes_before_it_has_heard_all_answers_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One side waits for evorl, and evorl for the word that no other row comes."""
    with opened(2) as arena:
        undisturbed = Records(arena).play(60)
    with opened(2, f"{FAULTY} half {tmp_path / 'mark'} 41", deadline_s=0.5) as arena:
        records = Records(arena).play(60)
    assert "has not said for 0.5 s that it has heard all answers (heard)" in caplog.text
    assert records.rows[0][:60] == undisturbed.rows[0][:60] and records.together[:40] == undisturbed.together[:40]


def test_a_game_that_never_says_that_it_heard_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0, 0.0))
    with (
        opened(2, f"{FAULTY} deaf -", deadline_s=0.3) as arena,
        pytest.raises(Unplayable, match=r"has not said for 0\.3 s that it has heard all answers"),
    ):
        Records(arena).play(20)


def test_connections_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    with opened(8, f"{FAULTY} exit {tmp_path / 'mark'}", processes=2) as arena:
        Records(arena).play(60)
        assert (tmp_path / "mark").exists()
        rooms = arena._battles._rooms  # type: ignore[attr-defined]
        assert len(rooms) == 2 and {*rooms} == {*arena._battles._room.tolist()}  # type: ignore[attr-defined]


def test_no_game_is_late_that_came_while_evorl_did_not_listen(caplog: pytest.LogCaptureFixture) -> None:
    """Several at once; the connection of each was ready in time."""
    with opened(4, TAG, processes=3, start_s=2.0) as arena:
        arena._battles.poll()  # type: ignore[attr-defined]  # starts the second and the third
        time.sleep(2.5)
        Records(arena).play(20)
    assert not caplog.messages


def test_strangers_that_are_pushed_out_by_others_are_no_longer_read(caplog: pytest.LogCaptureFixture) -> None:
    """They speak, and more than may be held come, before evorl looks again."""
    with opened(2) as arena, ExitStack() as held:
        server = arena._battles._server  # type: ignore[attr-defined]
        visit = (server.address.host, server.address.port)
        first = [held.enter_context(socket.create_connection(visit)) for _ in range(MAX_STRANGERS)]
        server.poll(0)
        for stranger in first:
            stranger.sendall(b"\x05")
        second = [held.enter_context(socket.create_connection(visit)) for _ in range(MAX_STRANGERS)]
        server.poll(0)
        assert len(second) == len(server._strangers) == MAX_STRANGERS
        assert caplog.messages[-1].endswith("it came when there were too many")
        Records(arena).play(5)
