"""Games in other programs: whole episodes, what they may do wrong, and what comes of it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from remote_games import EPISODES, FAULTY, TAG, Records, opened

import evorl.mdp
from evorl.mdp.conformance import Nonconformity
from evorl.mdp.remote import Remote
from evorl.mdp.remote.address import listener
from evorl.mdp.remote.battles import AWAY_S, HearingClock
from evorl.mdp.remote.messages import Hello, Unplayable
from evorl.mdp.remote.offer import Offer
from evorl.mdp.remote.process import CLIENTS
from evorl.mdp.remote.server import SERVERS
from evorl.util.errors import BadRequest

DECISIONS = 120
SLOTS = 8


@pytest.fixture(scope="module")
def undisturbed() -> list[list[tuple[Any, ...]]]:
    with opened(SLOTS) as arena:
        return Records(arena).play(DECISIONS).first(DECISIONS)


@pytest.mark.slow_cases(but=("{'processes': 3}",))
@pytest.mark.parametrize(
    "keys",
    [{"processes": 3}, {"opponent": "game"}, {"opponent": "game", "side": "runner"}],
    ids=str,
)
def test_it_conforms(keys: dict[str, Any]) -> None:
    with closing(Remote(command=TAG, **keys)) as world:
        evorl.mdp.check(world, slots=6, decisions=30)


def test_the_number_of_processes_changes_nothing(undisturbed: list[Any]) -> None:
    with opened(SLOTS, processes=3) as arena:
        assert Records(arena).play(DECISIONS).first(DECISIONS) == undisturbed


def test_a_game_that_connects_by_itself_over_a_unix_socket(
    undisturbed: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"unix:{tmp_path}/game"
    monkeypatch.setenv("EVORL_TOKEN", "secret")
    environment = {**os.environ, "EVORL_ADDRESS": address, "EVORL_TOKEN": "secret"}
    waits = [
        "bash",
        "-c",
        f"while ! [ -S {tmp_path}/game ]; do sleep 0.02; done; exec {sys.executable} {CLIENTS}/python/tag.py",
    ]
    with subprocess.Popen(waits, env=environment) as game:
        with opened(SLOTS, command=None, listen=address) as arena:
            assert oct(os.stat(f"{tmp_path}/game").st_mode & 0o777) == "0o600"
            assert Records(arena).play(DECISIONS).first(DECISIONS) == undisturbed
        assert game.wait(10) == 0
    assert not (tmp_path / "game").exists()


@pytest.mark.slow_cases(but=("exit", "nan"))
@pytest.mark.parametrize(
    "fault",
    [
        "exit", "cut", "freeze", "nan", "short", "reward", "twice", "no choice", "failed", "unknown battle",
        "unknown side", "bomb", "garbage", "unknown type", "late hello",
    ],
)  # fmt: skip
def test_a_failure_of_a_game_that_repeats_itself_changes_nothing(
    fault: str, undisturbed: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(SLOTS, f"{FAULTY} '{fault}' {tmp_path}/mark", deadline_s=1.0) as arena:
        records = Records(arena).play(DECISIONS)
    assert (tmp_path / "mark").exists()
    assert records.first(DECISIONS) == undisturbed
    assert records.failed == 0
    assert "battles are played again up to where they were" in caplog.text


def test_a_game_that_speaks_in_pieces_is_seen_as_a_whole() -> None:
    """Else it would depend on chance which side is seen before another."""
    with opened(2) as arena:
        whole = Records(arena).play(60)
    with opened(2, f"{FAULTY} pieces -") as arena:
        pieces = Records(arena).play(60)
    assert pieces.together == whole.together
    assert {len(slots) for slots in whole.together} == {1, 2}
    assert pieces.first(60) == whole.first(60)


SENTENCES = {
    "exit": "ended with exit code 3; it said last: the engine has no licence",
    "cut": "closed the connection",
    "freeze": "said nothing for 1 s",
    "nan": "sent a row that cannot be used: the feature 'ahead' of view is nan",
    "short": r"sent \d+ bytes as input 'view' of 1 rows, which need \d+: 3 numbers in each row, and 4 were offered",
    "reward": "reward is inf",
    "twice": "asked for a side that waits for an answer already",
    "no choice": "no action is legal",
    "failed": "gave up: the ball is lost",
    "unknown battle": "spoke of a battle that was not begun",
    "unknown side": "spoke for side 7; it has 2",
    "bomb": "announced a message of 4,294,967,280 bytes; 1 to 67,108,864 may be",
    "garbage": "sent a message that is no message of the protocol: ",
    "unknown type": "sent a message that is no message of the protocol: Invalid value 'exec' - at `\\$.type`",
    "late hello": "sent a message that is no message of the protocol: Invalid value 'hello' - at `\\$.type`",
}


@pytest.mark.slow_cases(but=("exit", "nan", "bomb", "twice"))  # there is a fuzz test
@pytest.mark.parametrize("fault", SENTENCES)
def test_a_failure_that_repeats_itself_ends_the_run_with_one_line(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0, 0.0))
    with opened(2, f"{FAULTY} '{fault}' -", deadline_s=1.0) as arena, pytest.raises(Unplayable) as caught:
        Records(arena).play(DECISIONS)
    line = str(caught.value)
    assert "\n" not in line
    assert re.match(
        rf"tag: the battle of slot 0 with the episode key \d+ was lost \d+ times; at last .*{SENTENCES[fault]}", line
    )


@pytest.mark.slow_cases(but=("exit", "failed"))
@pytest.mark.parametrize("fault", ["exit", "nan", "garbage", "failed"])
def test_a_game_that_does_not_repeat_itself_loses_its_last_decisions(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(SLOTS, f"{FAULTY} '{fault}' {tmp_path}/mark 100 mortal") as arena:
        records = Records(arena).play(DECISIONS)
    lost = 2 if fault in ("nan", "failed") else SLOTS
    assert records.failed == lost
    assert f"{lost // 2} of {SLOTS // 2} battles begin anew" in caplog.text


HELLOS = {
    "hello": "Object contains unknown field `color`",
    "same names": "gives two of its sides the same name",
    "token": "has not the token of these games",
    "protocol": "speaks protocol 99, and evorl speaks 1",
    "mute": "has not connected in 1 s",
}


@pytest.mark.parametrize("fault", HELLOS)
def test_a_game_that_is_not_let_in_ends_the_run_with_one_line(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    start_s = 1.0 if fault == "mute" else 30.0  # the others connect, be it late on a busy machine
    with pytest.raises(Unplayable) as caught, opened(2, f"{FAULTY} '{fault}' -", start_s=start_s):
        pass
    assert "\n" not in str(caught.value)
    assert HELLOS[fault] in caplog.text + str(caught.value)


@pytest.mark.slow_cases(but=("37",))
@pytest.mark.parametrize("decisions", [1, 37])
def test_a_saved_arena_goes_on_in_another_process(decisions: int, undisturbed: list[Any]) -> None:
    with opened(SLOTS) as arena:
        records = Records(arena).play(decisions)
        state, waiting, had = arena.state_dict(), set(records.waiting), [len(rows) for rows in records.rows]
    with opened(SLOTS, processes=2) as arena:
        arena.load_state_dict(state)
        later = Records(arena)
        later.recv()
        assert later.waiting == waiting
        for rows, seen in zip(later.rows, records.rows, strict=True):
            assert [row[0] for row in rows] == [seen[-1][0]] * len(rows)
        later.rows = [seen[:n] for seen, n in zip(records.rows, had, strict=True)]
        assert later.play(DECISIONS).first(DECISIONS) == undisturbed


def test_a_saved_arena_of_a_game_that_does_not_repeat_itself_begins_its_episodes_anew() -> None:
    command = f"{FAULTY} none - 0 mortal"
    with opened(SLOTS, command) as arena:
        records = Records(arena).play(20)
        state, waiting = arena.state_dict(), set(records.waiting)
    assert state["lengths"].any() and not len(state["actions"])  # which nobody could send again
    with opened(SLOTS, command) as arena:
        arena.load_state_dict(state)
        later = Records(arena)
        later.recv()
        assert later.waiting == waiting
        assert later.failed == 0
        later.play(40)
        assert later.failed == SLOTS


def test_a_game_that_only_says_that_it_repeats_itself_is_found_out(tmp_path: Path) -> None:
    with opened(SLOTS) as arena:
        Records(arena).play(20)
        state = arena.state_dict()
    state["digests"] = state["digests"] + 1
    with opened(SLOTS) as arena, pytest.raises(Unplayable, match="the same seed and actions led to another state"):
        arena.load_state_dict(state)


def test_an_evaluation_plays_in_the_processes_of_training() -> None:
    with closing(Remote(command=TAG)) as world, closing(world.arena(4, EPISODES)) as training:
        records = Records(training).play(10)
        pids = _children()
        with closing(world.arena(4, EPISODES)) as evaluation:
            Records(evaluation).play(10)
        assert _children() == pids
        records.play(20)


def test_another_world_with_the_same_keys_may_be_closed_at_once(undisturbed: list[Any]) -> None:
    world, other = Remote(command=TAG), Remote(command=TAG)
    before = _children()
    arena = world.arena(SLOTS, EPISODES)
    records = Records(arena).play(10)
    assert other.spec == arena.spec
    other.close()
    assert records.play(DECISIONS).first(DECISIONS) == undisturbed
    assert len(_children() - before) == 1
    arena.close()
    world.close()
    assert not _children() - before


def test_processes_end_with_their_world() -> None:
    before = _children()
    with opened(4, processes=2) as arena:
        Records(arena).play(3)
        assert len(_children() - before) == 2
    assert not _children() - before


def _children() -> set[int]:
    """Processes that this one has started and that still run."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in path.read_text().split()}


def test_a_game_names_its_numbers_and_choices() -> None:
    """In exported files, and for `reward.potential`."""
    with closing(Remote(command=TAG)) as world:
        assert world.feature_names == {"view": ("ahead", "aside", "time left", "rest")}
        assert [len(names) for names in world.action_names] == [8, 4] and world.action_names[1][3] == "dash"
        assert not world.draws  # so no film is suggested


@pytest.mark.parametrize(
    ("action", "names"),
    [
        ({"kind": "box", "low": [-1, -1], "high": [1, 1], "names": ["gas", "wheel"]}, (("gas", "wheel"),)),
        ({"kind": "box", "low": [-1], "high": [1]}, ()),
        ({"kind": "discrete", "n": [2], "names": [["stay", "go"]]}, (("stay", "go"),)),
        ({"kind": "discrete", "n": [2]}, ()),
    ],
)
def test_names_are_those_of_the_offer(action: dict[str, Any], names: tuple[tuple[str, ...], ...]) -> None:
    """Features of a picture or a table are names of its rows, and not of its numbers."""
    inputs = [
        {"name": "view", "shape": [2], "features": ["near", "far"]},
        {"name": "map", "shape": [1, 4, 4], "dtype": "uint8", "features": ["height"]},
        {"name": "rest", "shape": [3]},
    ]
    hello = {"type": "hello", "protocol": 1, "token": "", "game": "it", "inputs": inputs, "action": action}
    offer = Offer(msgspec.convert(hello, Hello, strict=False))
    assert offer.info.feature_names == {"view": ("near", "far")} and offer.info.action_names == names


def test_a_port_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadRequest, match=rf"listen: cannot listen at 127.0.0.1:{port}: Address already in use"):
            Remote(command=None, listen=f"127.0.0.1:{port}").arena(2, EPISODES)


def test_a_unix_socket_that_a_killed_evorl_has_left_is_used_again(tmp_path: Path) -> None:
    path, busy = str(tmp_path / "game"), "cannot listen at unix:.*: Address already in use"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    _, listens = listener(f"unix:{path}")
    with listens, pytest.raises(BadRequest, match=busy):
        listener(f"unix:{path}")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(BadRequest, match=busy):
        listener(f"unix:{tmp_path}/file")
    assert (tmp_path / "file").read_text() == "kept"


def test_what_a_game_printed_before_it_ended_is_shown_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the traceback of a row that its client refuses."""
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0, 0.0))
    said = "ended with exit code 1; it said last: ValueError: input 'view' has 4 numbers, and a row had 3"
    with opened(2, f"{FAULTY} shape -") as arena, pytest.raises(Unplayable, match=said):
        Records(arena).play(DECISIONS)
    (shown,) = [text for text in caplog.messages if "printed at its end" in text]
    assert "Traceback (most recent call last)" in shown and "tag.py" in shown and shown.count("\n") <= 40


def test_a_check_of_a_game_that_does_not_repeat_itself_says_so() -> None:
    with closing(Remote(command=f"{FAULTY} none - 0 mortal")) as world, pytest.raises(Nonconformity) as caught:
        evorl.mdp.check(world)
    assert str(caught.value) == "it says that it does not repeat itself (repeats=false), which this check needs"


def test_who_connects_is_told_and_so_is_how_few_their_battles_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVORL_TOKEN", "t" * 16)
    few = pytest.raises(Unplayable, match=r"no further game has connected to .*: 1 battles wait, and the 1 connected")
    with closing(Remote(listen="127.0.0.1:0", start_s=2.0)) as world:
        address = SERVERS[world._settings].address
        environment = {**os.environ, "EVORL_ADDRESS": address.text}
        one = "import evorl_client, tag; evorl_client.Client({**tag.OFFER, 'battles': 1}, tag.Tag).run()"
        words = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(CLIENTS / 'python')!r}); {one}"]
        with subprocess.Popen(words, env=environment) as game, few:
            try:
                with closing(world.arena(4, EPISODES)) as arena:
                    Records(arena).play(1_000_000)
            finally:
                game.kill()
    assert "tag has connected; 1 games play 1 battles at once\n" in capsys.readouterr().err


@pytest.mark.slow_cases("")
@pytest.mark.parametrize("token", [None, ""])
def test_nobody_connects(
    token: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EVORL_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("EVORL_TOKEN", token)
    began = time.monotonic()
    late = pytest.raises(Unplayable, match=r"no game has connected to 127.0.0.1:\d+ in 0.5 s \(mdp.start_s\)")
    with closing(Remote(listen="127.0.0.1:0", start_s=0.5)) as world, late:
        world.arena(2, EPISODES)
    assert time.monotonic() - began < 5
    assert re.search(r"waiting for games at 127.0.0.1:\d+; their token is \w{32}\n", capsys.readouterr().err)


def test_actions_must_be_for_slots_that_wait() -> None:
    with opened(2) as arena:
        Records(arena).recv()
        arena.send(np.array([0]), np.zeros((1, 2), np.int64))
        with pytest.raises(ValueError, match="slot 0 does not wait"):
            arena.send(np.array([0]), np.zeros((1, 2), np.int64))


def games() -> list[int]:
    """The processes that this one has started to play."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in children if b"tag.py" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_silent_game_is_noticed_while_others_keep_evorl_busy(undisturbed: list[Any]) -> None:
    """Each wait is short then, and they add up to the deadline."""
    waits = 0

    def stop(number: int) -> None:
        nonlocal waits
        waits = number
        if number == 3:
            os.kill(games()[0], signal.SIGSTOP)
        assert number < 20_000

    with opened(SLOTS, processes=2, deadline_s=0.5) as arena:
        records = Records(arena).play(DECISIONS, stop)
    assert waits > 3 and records.first(DECISIONS) == undisturbed


def test_only_what_could_be_heard_is_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 100.0
    monkeypatch.setattr("evorl.mdp.remote.battles.time.monotonic", lambda: moment)
    clock = HearingClock()
    begun = clock()
    moment += 60  # evorl computes
    assert clock() - begun == pytest.approx(AWAY_S)
    clock.allow(2.0)
    moment += 2
    assert clock() - begun == pytest.approx(AWAY_S + 2)
    clock.allow(2.0)
    moment += 60  # evorl is stopped while it waits
    assert clock() - begun == pytest.approx(2 * AWAY_S + 4)
    for _ in range(100):
        moment += AWAY_S / 2
        clock()
    assert clock() - begun == pytest.approx(2 * AWAY_S + 4 + 50 * AWAY_S)
