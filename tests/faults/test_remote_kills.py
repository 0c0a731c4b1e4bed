"""Games in other programs that are killed, frozen and cut while a run goes on, beside strangers who talk nonsense."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, fingerprint, go

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "mdp"))

from remote_games import EPISODES, TAG, Records, opened  # noqa: E402

from evorl.mdp.remote import Remote  # noqa: E402
from evorl.mdp.remote.server import SERVERS  # noqa: E402

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1500)]
SLOTS = 16
BREAKING = str(TESTS / "mdp" / "reconnecting_tag.py")


def undisturbed(decisions: int, command: str = TAG) -> list[list[tuple[Any, ...]]]:
    with opened(SLOTS, command) as arena:
        return Records(arena).play(decisions).first(decisions)


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def test_a_hundred_killed_and_frozen_games_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kills come so fast that a battle may be lost many times at one decision, which is not its own fault."""
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0,) * 20)
    draw, done = random.Random(0), 0

    def kill(number: int) -> None:
        nonlocal done
        games = children()
        if number % 40 == 39 and done < 100 and games:
            with suppress(ProcessLookupError):
                os.kill(draw.choice(games), draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))
                done += 1

    decisions = 0
    with opened(SLOTS, processes=3, deadline_s=0.5, start_s=4.0) as arena:
        records = Records(arena)
        while done < 100:
            decisions += 400
            records.play(decisions, kill)
    assert records.failed == 0
    assert records.first(decisions) == undisturbed(decisions)


def test_a_thousand_connections_that_break_lose_only_their_battles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVORL_TOKEN", "secret")
    monkeypatch.setattr("evorl.mdp.remote.battles.PAUSES_S", (0.0,) * 20)
    faults, count = 1000, tmp_path / "count"
    with closing(Remote(listen="127.0.0.1:0", deadline_s=0.5, start_s=20)) as world:
        address = SERVERS[world._settings].address.text
        words = [sys.executable, BREAKING, "8", str(faults), str(count)]
        with subprocess.Popen(words, env={**os.environ, "EVORL_ADDRESS": address}) as game:
            try:
                arena, decisions = world.arena(SLOTS, EPISODES), 0
                records = Records(arena)
                while not count.exists() or int(count.read_text() or 0) < faults:
                    decisions += 200
                    records.play(decisions)
                decisions += 200
                records.play(decisions)
                arena.close()
            finally:
                game.kill()
    assert records.failed == 0
    assert records.first(decisions) == undisturbed(decisions, f"{sys.executable} {BREAKING} 1 0 {count}")


def test_a_thousand_strangers_change_nothing() -> None:
    """Connections that say nothing, half of something, nonsense, or guess the token."""
    decisions, stop = 300, threading.Event()
    with closing(Remote(command=TAG, deadline_s=20.0)) as world, closing(world.arena(SLOTS, EPISODES)) as arena:
        address = SERVERS[world._settings].address
        sent = [0]

        def annoy() -> None:
            draw, held = random.Random(0), list[socket.socket]()
            while not stop.is_set() and sent[0] < 1000:
                with suppress(OSError):
                    one = socket.create_connection((address.host, address.port), timeout=5)
                    data = draw.randbytes(draw.randint(1, 300))
                    hello = b"\x82\xa4type\xa5hello\xa5token\xa1x"
                    nonsense = [b"", data, struct.pack("<I", len(data)) + data, struct.pack("<I", len(hello)) + hello]
                    one.sendall(
                        draw.choice([*nonsense, b"GET / HTTP/1.1\r\n\r\n", b"GET " + data, b"\xff" * 4, b"\x05"])
                    )
                    held.append(one)
                    sent[0] += 1
                while len(held) > 100:
                    held.pop(0).close()
            for one in held:
                one.close()

        thread = threading.Thread(target=annoy)
        thread.start()
        try:
            records = Records(arena).play(decisions)
            while thread.is_alive():
                records.play(max(map(len, records.rows)) + 20)
        finally:
            stop.set()
            thread.join()
    assert sent[0] == 1000
    assert records.first(decisions) == undisturbed(decisions)


WORDS = (*QUICK, "mdp=remote", f"mdp.command='{TAG}'", "budget.steps=6000", "checkpoint.every=1500")


@pytest.mark.parametrize(
    "cluster", [(), ("cluster=processes", "cluster.workers=2", "rl.members=2")], ids=["local", "processes"]
)
def test_a_run_whose_games_are_killed_ends_with_the_same_bits(cluster: tuple[str, ...], tmp_path: Path) -> None:
    chosen = (*WORDS, "budget.steps=20000", *cluster)
    assert go(*chosen, f"hydra.run.dir={tmp_path}/still") == 0
    words = [sys.executable, "-m", "evorl.run", *chosen, f"hydra.run.dir={tmp_path}/killed"]
    killed, draw = 0, random.Random(1)
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True) as run:
        while run.poll() is None:
            time.sleep(draw.uniform(0.2, 0.8))
            if killed < 10 and (games := games_of(run.pid)):
                with suppress(ProcessLookupError):
                    os.kill(draw.choice(games), signal.SIGKILL)
                    killed += 1
    assert run.returncode == 0
    assert killed >= 3
    assert fingerprint(tmp_path / "killed") == fingerprint(tmp_path / "still")


def games_of(pid: int) -> list[int]:
    """The processes of tag among the descendants of a process."""
    found, left = list[int](), [pid]
    while left:
        with suppress(OSError):
            one = left.pop()
            for task in Path(f"/proc/{one}/task").iterdir():
                left += map(int, (task / "children").read_text().split())
            if b"tag.py\0" in Path(f"/proc/{one}/cmdline").read_bytes()[-20:]:
                found.append(one)
    return found


def test_a_killed_run_goes_on_to_the_same_bits_and_leaves_no_game(tmp_path: Path) -> None:
    assert go(*WORDS, f"hydra.run.dir={tmp_path}/still") == 0
    run = [sys.executable, "-m", "evorl.run"]
    directory, begun = f"{tmp_path}/killed", 0
    for _ in range(6):
        words = [f"resume={directory}", f'trust=["{TAG}"]'] if begun else [*WORDS, f"hydra.run.dir={directory}"]
        with subprocess.Popen([*run, *words], stdout=subprocess.DEVNULL) as process:
            before = saved(Path(directory))
            while process.poll() is None and saved(Path(directory)) <= before:
                time.sleep(0.05)
            games = games_of(process.pid)
            begun += 1
            process.kill()
        ends = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in games):
            assert time.monotonic() < ends, "a game outlives its run"
            time.sleep(0.05)
    done = subprocess.run([*run, f"resume={directory}", f'trust=["{TAG}"]'], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert fingerprint(Path(directory)) == fingerprint(tmp_path / "still")


def saved(run: Path) -> int:
    """The number of checkpoints that a run has written so far, by the newest."""
    names = [int(one.name.split("-")[-1]) for one in run.glob("checkpoints/*") if one.name.split("-")[-1].isdigit()]
    return max(names, default=-1)
