"""`evorl.play`: games in real time between a person's keys and a policy, and what the page asks for."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from harness import QUICK, WORLDS, experiment_of, go, start
from PIL import Image

from evorl.human.game import Games, Score
from evorl.human.page import GameServer
from evorl.play import film_writer, main
from evorl.rl.core import Episode
from evorl.training.train import spec
from evorl.util.errors import BadRequest
from evorl.util.loopback import running

PATIENCE_S = 60


def games_of(*words: str, film: Any = None) -> Games:
    experiment = experiment_of(*words)
    learner = experiment.rl.learner(spec(experiment.mdp), 1, torch.device("cpu"))
    return Games(experiment.mdp, learner, 3, film)


@contextmanager
def going(games: Games) -> Iterator[GameServer]:
    """The games in their thread, and their server."""
    thread = Thread(target=games.run)
    with running(GameServer(games, "a <run>")) as server:
        thread.start()
        try:
            yield server
        finally:
            games.stopped.set()
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def ask(server: GameServer, name: str, **query: object) -> tuple[bytes, dict[str, Any]]:
    """The body of an answer, and the state in it."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{server.url}{name}?{urlencode(query)}", timeout=PATIENCE_S) as answer:
        return answer.read(), json.loads(answer.headers.get("X-State") or "{}")


def until(server: GameServer, wanted: Any) -> dict[str, Any]:
    """The first state that fulfils this."""
    number, ends = -1, time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        _, state = ask(server, "frame", after=number)
        number = state["number"]
        if number >= 0 and wanted(state):
            return state
    raise AssertionError("it did not come")


@pytest.mark.slow_cases("duel")
@pytest.mark.parametrize(
    "words",
    [("mdp=pong", "mdp.rounds=1", "mdp.round_steps=30"), ("mdp=duel", "mdp.ground.limit=10")],
    ids=["pong", "duel"],
)
def test_a_game_is_played_to_its_end_and_counted(words: tuple[str, ...]) -> None:
    films: list[tuple[int, int]] = []
    games = games_of(*words, "rl=ppo", film=lambda frames, game: films.append((game, sum(1 for _ in frames))))
    games.choose(speed=10.0)
    with going(games) as server:
        picture, state = ask(server, "frame", after=-1)
        assert np.array(Image.open(BytesIO(picture))).shape[2] == 3
        assert state["choices"] == {"side": 0, "opponent": "policy", "speed": 10.0}
        state = until(server, lambda state: sum(state["scores"]["policy"][k] for k in ("won", "lost", "drawn")))
        assert "return" in state["scores"]["policy"]["last"]
        last = until(server, lambda state: state["over"] and state["score"] != 0)
        assert last["score"] == state["scores"]["policy"]["last"]["return"]
    assert films[0][0] == 0 and films[0][1] > 5


def test_films_of_a_further_session_are_further_files(tmp_path: Path) -> None:
    world = experiment_of("mdp=pong").mdp
    for session in range(2):
        write = film_writer(tmp_path, 500, world)
        for game in range(2):
            write(((np.full((32, 32, 3), 90 * session + game, np.uint8), at) for at in (0.0, 0.1)), game)
    names = sorted(path.stem for path in (tmp_path / "videos").iterdir())
    assert names == [f"person-500-{number}" for number in range(4)]


def test_a_game_that_was_over_before_its_first_picture_has_no_film(tmp_path: Path) -> None:
    film_writer(tmp_path, 500, experiment_of("mdp=pong").mdp)(iter(()), 0)
    assert not (tmp_path / "videos").exists()


@pytest.mark.parametrize("skip", [1, 4])
def test_a_film_with_repeated_actions_has_the_speed_of_the_game(skip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def written(path: Path, frames: Iterator[Any], fps: float) -> Path:
        seen.append(sum(1 for _ in frames) / fps)
        return path

    monkeypatch.setattr("evorl.record.video.write_video", written)
    monkeypatch.setattr("evorl.util.run_directory.make_folder", lambda *_: None)
    words = ("mdp=pong", "mdp.rounds=1", "mdp.round_steps=20", f"mdp.frame_skip={skip}", "rl=ppo")
    games = games_of(*words, film=film_writer(Path("none"), 0, experiment_of(*words).mdp))
    games.choose(speed=10.0)
    with going(games) as server:
        until(server, lambda state: state["over"])
    assert seen[0] == pytest.approx(20 / 30, abs=4 / 30)


def heights(games: Games) -> list[float]:
    """Of both bats in the newest picture: the middle of the pixels that differ from the field's, from above."""
    assert games.newest is not None
    field = games.newest.picture[34:194].astype(int)
    middles = []
    for column in (18, 141):
        strip = np.abs(field[:, column] - field[:, 60]).sum(-1)
        middles.append(float(np.flatnonzero(strip).mean()) if strip.any() else -1.0)
    return middles


def test_keys_move_the_persons_bat() -> None:
    games = games_of("mdp=pong", "mdp.rounds=50", "rl=ppo")
    games.choose(speed=10.0)
    with going(games) as server:
        seen = []
        for order, key in enumerate(["ArrowUp", "ArrowDown", "ArrowUp"], 1):
            ask(server, "keys", held=key, order=order)
            assert games.held == {key}
            number = games.newest.number if games.newest else 0
            until(server, lambda state, number=number: state["number"] > number + 80)
            seen.append(heights(games)[0])
        assert seen[0] < 30 and seen[1] > 130 and seen[2] < 30
        ask(server, "keys", held="ArrowDown", order=1)  # it was sent before, and comes late
        assert games.held == {"ArrowUp"}
        ask(server, "keys", held="", order=9)
        assert games.held == frozenset()


def test_another_side_or_opponent_begins_a_new_game() -> None:
    games = games_of("mdp=pong", "mdp.rounds=50", "rl=ppo")
    games.choose(speed=10.0)
    with going(games) as server:
        until(server, lambda state: state["number"] > 5)
        ask(server, "choose", side=1)
        ask(server, "choose", opponent="rule")
        state = until(server, lambda state: state["choices"]["opponent"] == "rule" and state["score"] == 0)
        assert state["choices"] == {"side": 1, "opponent": "rule", "speed": 10.0}
        for wrong, why in (({"side": 2}, b"side"), ({"opponent": "x"}, b"opponent"), ({"speed": 99}, b"speed")):
            assert ask(server, "choose", **wrong)[0].startswith(why)
        assert ask(server, "choose", side="x")[0] and ask(server, "frame", after="x")[0]
        assert games.choices.side == 1


def test_the_game_waits_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.human.game.AWAY_S", 0.2)
    games = games_of("mdp=pong", "mdp.rounds=50", "rl=ppo")
    with going(games) as server:
        until(server, lambda state: state["number"] > 3)
        time.sleep(0.6)
        assert games.newest is not None
        number = games.newest.number
        time.sleep(0.4)
        assert games.newest.number == number
        until(server, lambda state: state["number"] > number + 3)


def test_the_page_tells_the_keys_of_each_side_and_takes_no_script_from_a_name() -> None:
    with GameServer(games_of("mdp=pong", "rl=ppo"), "</script><script>alert(1)") as server:
        page = server.page.decode()
    assert page.count("</script>") == 1 and "ArrowUp" in page and "left (green)" in page


def test_scores_count_wins_and_draws() -> None:
    score = Score()
    shaped = ((-1.0, 1.0), (1.0, 0.0), (1.0, 0.5))  # returns that say something else than who won
    for ret, results in (*((ret, {}) for ret in (1.0, -2.0, 0.0)), *((ret, {"win": win}) for ret, win in shaped)):
        score.add(Episode(ret, 1.0, (ret,), results))
    assert (score.won, score.lost, score.drawn) == (2, 2, 2)


@pytest.mark.parametrize(("others", "won", "lost"), [(-5.0, 1, 0), (0.0, 0, 1)])
def test_without_a_winner_the_greater_return_has_won(others: float, won: int, lost: int) -> None:
    score = Score()
    score.add(Episode(-1.0, 1.0, (-1.0,), {}), others)
    assert (score.won, score.lost, score.drawn) == (won, lost, 0)
    score.add(Episode(-1.0, 1.0, (-1.0,), {"win": 1.0}), others)
    assert score.won == won + 1


@pytest.mark.parametrize("opponent", ["policy", "rule"])
def test_returns_are_compared_with_those_of_a_policy(opponent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[float, float | None]] = []
    monkeypatch.setattr(Score, "add", lambda self, episode, others=None: told.append((episode.ret, others)))
    games = games_of("mdp=pong", "mdp.rounds=1", "rl=ppo")
    games.choose(speed=10.0, opponent=opponent)
    with going(games) as server:
        until(server, lambda _: told)
    mine, others = told[0]
    assert mine != 0 and others == (-mine if opponent == "policy" else None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for name in ("pong", "cartpole"):
        assert go(*QUICK, *WORLDS[name], "budget.steps=256", "eval.episodes=1", f"hydra.run.dir={place / name}") == 0
    return place


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no run directory given"),
        (["run=nowhere"], "run: "),
        (["run=cartpole"], "run: the games of CartPole-v1 have one side"),
        (["run=pong", "side=2"], "side: is from 0 to 1"),
        (["run=pong", "speed=0"], "speed: "),
        (["run=pong", "opponent=me"], "opponent: "),
        (["run=pong", "checkpoint=3"], "checkpoint: "),
    ],
)
def test_a_bad_request_is_one_line(
    words: list[str], why: str, runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(runs)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("evorl: ") and err.count("\n") == 1 and why in err


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_stopped_and_finishes_its_film(
    number: signal.Signals, runs: Path, tmp_path: Path
) -> None:
    process = start(f"run={runs / 'pong'}", "film=true", "speed=2", entry="play", cwd=tmp_path)
    try:
        ends, text = time.monotonic() + PATIENCE_S, ""
        while "http://" not in text and time.monotonic() < ends:
            time.sleep(0.1)
            text = (tmp_path / "out").read_text()
        url = next(word for word in text.split() if word.startswith("http://127.0.0.1:"))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        shown = -1
        for _ in range(3):
            with opener.open(f"{url}frame?after={shown}", timeout=PATIENCE_S) as answer:
                shown = json.loads(answer.headers["X-State"])["number"]
        assert shown > 0
    finally:
        os.killpg(process.pid, number)  # all processes of the terminal, as Ctrl-C does
        assert process.wait(PATIENCE_S) == 128 + number
    (film,) = [line.split()[1] for line in (tmp_path / "out").read_text().splitlines() if line.startswith("video: ")]
    assert Path(film).stat().st_size > 0 and not [*Path(film).parent.glob(".*")]


def test_a_world_without_pictures_or_sides_is_refused() -> None:
    with pytest.raises(BadRequest, match="one side"):
        games_of("mdp=cartpole", "rl=ppo")
