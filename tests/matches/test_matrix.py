"""The command that plays everyone against everyone: its files, going on, and requests that cannot be met."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import QUICK, WORLDS, go

from evorl.evaluate import main
from evorl.matches import records, schedule
from evorl.mdp.pong import Pong
from evorl.ops.proportions import wilson
from evorl.util.errors import BadRequest

SHORT = ("mdp.rounds=2", "mdp.round_steps=40")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short runs of Pong, in one folder: two alike, one with memory, a population, and one of another world."""
    place = tmp_path_factory.mktemp("runs")
    pong = [*QUICK, *WORLDS["pong"], *SHORT, "mdp.opponent=self", "budget.steps=300", "checkpoint.keep=9"]
    several = {
        "a": [*pong, "seed=1", "eval.every=150"],
        "b": [*pong, "seed=2"],
        "lstm": [*pong, "rl.net.lstm=4"],
        "people": [*pong, "ec=sga", "ec.population=4", "ec.lifetime=play", "mdp.opponent=rule", "budget.steps=30000"],
        "cartpole": [*QUICK, *WORLDS["cartpole"], "budget.steps=300"],
        "tall": [*pong, "mdp.bat_height=30"],
    }
    for name, words in several.items():
        last = list({word.partition("=")[0]: word for word in words}.values())
        assert go(*last, f"hydra.run.dir={place / name}") == 0, name
    return place


Matrix = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.matches.judge.RESAMPLES", 10)


@pytest.fixture
def matrix(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Matrix:
    """Play these players, of the folder of runs, with these words; return what matrix.json says."""

    def play(players: str, *words: str, out: str = "out") -> dict[str, Any]:
        named = ",".join(one if one.startswith("rul") else f"{runs}/{one}" for one in players.split())
        capsys.readouterr()
        words = ("matrix=true", f"players=[{named}]", f"out={tmp_path / out}", *words)
        assert (
            main([*words, *(() if any(word.startswith(("games", "width")) for word in words) else ("games=20",))]) == 0
        )
        found: dict[str, Any] = json.loads((tmp_path / out / "matrix.json").read_bytes())
        return found

    return play


def scores(found: dict[str, Any]) -> dict[frozenset[str], float]:
    """The points of the lesser name of each pair."""
    return {
        frozenset((one["a"], one["b"])): one["a_by_side"][0]["points"] + one["a_by_side"][1]["points"]
        if one["a"] < one["b"]
        else one["a_by_side"][0]["games"] * 2 - one["a_by_side"][0]["points"] - one["a_by_side"][1]["points"]
        for one in found["pairs"]
    }


def test_it_writes_everything_and_prints_the_players(
    matrix: Matrix, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = matrix("a b lstm people rule")
    assert [one["name"] for one in found["players"]] == ["a", "b", "lstm", "people", "rule"]
    assert len(found["pairs"]) == 10
    for pair in found["pairs"]:
        for seat in pair["a_by_side"]:
            assert seat["games"] == 10 == seat["wins"] + seat["draws"] + seat["defeats"]
            assert seat["points"] == seat["wins"] + seat["draws"] / 2
    judged = found["judgement"]
    assert sum(judged["nash"]) == pytest.approx(1) and sum(judged["rating"]) == pytest.approx(0, abs=1e-6)
    with (tmp_path / "out" / "matrix.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 20 and {row["games"] for row in rows} == {"20"}
    for row in rows:
        mirrored = next(x for x in rows if (x["player"], x["opponent"]) == (row["opponent"], row["player"]))
        assert float(row["score"]) == pytest.approx(1 - float(mirrored["score"]))
    page = (tmp_path / "out" / "matrix.html").read_text()
    assert "Nash averaging" in page and "people" in page and "<svg" in page
    assert {"matrix.png", "matrix.svg", "ratings.png", "family.png"} <= {x.name for x in (tmp_path / "out").iterdir()}
    assert "Lineage in people" in page
    told = capsys.readouterr().out
    assert ("rating" in told and "matrix.html" in told and "One rating" in told) or "strength" in told


@pytest.mark.slow
def test_ratings_over_steps_of_a_run_whose_checkpoints_play(matrix: Matrix, tmp_path: Path) -> None:
    found = matrix("a@all b rule", "games=4")
    steps = [one["step"] for one in found["players"] if one["name"].startswith("a@")]
    assert len(steps) > 1 and steps == sorted({*steps})
    assert (tmp_path / "out" / "ratings_over_steps.svg").exists()
    page = (tmp_path / "out" / "matrix.html").read_text()
    assert "policies over environment steps" in page
    matrix("b rule", "games=4", out="other")
    assert not (tmp_path / "other" / "ratings_over_steps.svg").exists()


@pytest.mark.slow
def test_a_new_player_adds_its_games_alone(matrix: Matrix, tmp_path: Path) -> None:
    few = matrix("a b")
    lines = (tmp_path / "out" / "games.jsonl").read_bytes()
    many = matrix("a b lstm rule")
    after = (tmp_path / "out" / "games.jsonl").read_bytes()
    assert after.startswith(lines) and after.count(b"\n") == 6
    assert scores(few).items() <= scores(many).items()
    assert scores(matrix("rule lstm b a", out="other")) == scores(many)  # in another order
    assert matrix("a b lstm rule") == many
    assert (tmp_path / "out" / "games.jsonl").read_bytes() == after


@pytest.mark.slow
def test_more_games_go_on(matrix: Matrix, tmp_path: Path) -> None:
    matrix("a b", "games=6")
    more = matrix("a b", "games=30")
    assert more["pairs"] == matrix("a b", "games=30", out="at once")["pairs"]
    assert matrix("a b", "games=6")["pairs"] == more["pairs"]  # what was played counts


def test_what_was_killed_goes_on_with_the_same_games(
    matrix: Matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = matrix("a b lstm")
    add, left = records.Record.add, [1]

    def dies(self: records.Record, *arguments: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        add(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(records.Record, "add", dies)
        with pytest.raises(AssertionError):
            matrix("a b lstm", out="killed")
    games = tmp_path / "killed" / "games.jsonl"
    assert games.read_bytes().count(b"\n") == 1
    with games.open("ab") as file:
        file.write(b'{"a": "half a li')
    caplog.clear()
    assert matrix("a b lstm", out="killed") == whole
    assert not caplog.records  # nothing is missing
    assert games.read_bytes().count(b"\n") == 3


@pytest.mark.slow
def test_workers_play_the_same_games(matrix: Matrix) -> None:
    alone = matrix("a b lstm people rule")
    spread = matrix("a b lstm people rule", "cluster=processes", "cluster.workers=2", out="spread")
    assert spread == alone


def test_pairs_play_until_their_interval_is_narrow(matrix: Matrix) -> None:
    found = matrix("a b rule", "width=0.25")
    for pair in found["pairs"]:
        games = 2 * pair["a_by_side"][0]["games"]
        low, high = wilson(sum(seat["points"] for seat in pair["a_by_side"]), games)
        assert high - low < 0.25 and games % schedule.AT_ONCE == 0
    wanted = schedule.games_wanted(200, 0.25)
    assert (wanted([]), wanted([0.5] * 40), wanted([1.0] * 40), wanted([0.5] * 80)) == (40, 80, 40, 80)


def test_all_checkpoints_and_patterns_are_players(matrix: Matrix, runs: Path) -> None:
    kept = sorted(int(one.name) for one in (runs / "a" / "checkpoints").iterdir() if one.name.isdecimal())
    found = matrix("a@all b@best ?")
    names = [one["name"] for one in found["players"]]
    assert names == [*(f"a@{step}" for step in kept), "b@best", "a", "b"]
    first = {one["name"]: one for one in found["players"]}
    assert first["a"]["fingerprint"] == first[f"a@{kept[-1]}"]["fingerprint"] and first["a"]["step"] == kept[-1]


@pytest.mark.parametrize(
    ("players", "words", "line"),
    [
        ("a cartpole", (), "players: {runs}/cartpole plays Gymnasium, the first player Pong"),
        ("cartpole a", (), "players: {runs}/cartpole: the games of CartPole-v1 have one side, so no opponent"),
        ("a", (), "players: needs two players or more"),
        ("rule", (), "players: needs a run directory, whose world is played"),
        ("a a", (), "players: {runs}/a is named twice"),
        ("a a@last", (), "players: {runs}/a is named twice"),
        ("a b@7", (), "players: {runs}/b@7: '7' is none of latest, last, best"),
        ("a b@bst", (), "players: {runs}/b@bst: 'bst' is none of latest, last, best"),
        ("a nobody", (), "players: {runs}/nobody: no such run directory"),
        ("a rul", (), "players: rul: no such run directory; did you mean rule?"),
        ("a b@snapshot:0", (), "players: {runs}/b@snapshot:0: this run keeps no snapshots; those of ec=league and"),
        ("a b", ("games=7",), "games: must be even, as both players of a pair play each side: 7"),
        ("a b", ("games=8", "width=0.1"), "games: width says how many games are played; leave one of them out"),
        ("a b", ("by=return", "width=0.1"), "width: is of scores, and by=return is not; take games="),
        ("a b", ("run=x",), "run: is for one run; matrix=true takes players=[RUN_DIR,...]"),
        ("a b", ("gmes=8",), "gmes: unknown key; did you mean games?"),
        ("a b", ("width=2",), "width: expected"),
        ("a b", ("cluster=proceses",), "cluster: no choice 'proceses'; did you mean processes?"),
        ("a b", ("cluster.workers=2",), "cluster.workers"),
        ("a b", ("matrix=false",), "players: is for matrix=true"),
    ],
)
def test_a_bad_request_is_one_line(
    players: str, words: tuple[str, ...], line: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = ",".join(one if one.startswith("rul") else f"{runs}/{one}" for one in players.split())
    matrix = () if "matrix=false" in words else ("matrix=true",)
    assert main([f"players=[{named}]", *matrix, f"out={tmp_path / 'out'}", *words]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"evorl: {line.format(runs=runs)}") and told.count("\n") == 1, told
    assert not (tmp_path / "out").exists()


def test_a_hostile_directory_is_refused_by_name(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(place: Path) -> str:
        assert main(["matrix=true", f"players=[{runs / 'a'},{place}]", f"out={tmp_path / 'out'}"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and str(place) in told and not (tmp_path / "out").exists()
        return told

    code = tmp_path / "code"
    shutil.copytree(runs / "b", code)
    config = code / ".hydra" / "config.yaml"
    config.write_text(config.read_text().replace("_target_: evorl.rl.ppo.PPO", "_target_: os.system"))
    assert "os.system" in refused(code) or "os" in refused(code)
    linked = tmp_path / "linked"
    shutil.copytree(runs / "b", linked)
    (linked / ".hydra" / "config.yaml").unlink()
    (linked / ".hydra" / "config.yaml").symlink_to(runs / "b" / ".hydra" / "config.yaml")
    assert "link" in refused(linked)
    damaged = tmp_path / "damaged"
    shutil.copytree(runs / "b", damaged)
    for file in damaged.glob("checkpoints/*/tensors.safetensors"):
        file.write_bytes(b"no tensors")
    refused(damaged)


def test_a_directory_of_other_games_is_refused(
    matrix: Matrix, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    matrix("a b")
    before = {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()}
    for players, word, what in (
        (("a", "b"), "seed=5", "seed"),
        (("a", "b"), "deterministic=true", "deterministic"),
        (("tall", "b"), "seed=0", "world"),
    ):
        words = [f"players=[{runs / players[0]},{runs / players[1]}]", f"out={tmp_path / 'out'}", word]
        assert main(["matrix=true", *words]) == 2
        assert f"holds games of another {what}; choose another directory" in capsys.readouterr().err
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.md").write_text("mine")
    assert main(["matrix=true", f"players=[{runs / 'a'},{runs / 'b'}]", f"out={tmp_path / 'mine'}"]) == 2
    assert "is no matrix of ours" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [b"[]\n", b'{"a": "x"}\n', b'{"a":"x","b":"y","first":3,"points":[1],"lengths":[1]}\n',
     b'{"a":"x","b":"y","first":0,"points":[7],"lengths":[1]}\n', b"\xff\xfe\n"],
)  # fmt: skip
def test_damaged_games_are_refused(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "games.jsonl").write_bytes(text)
    with pytest.raises(BadRequest, match=r"games\.jsonl is damaged"):
        records.Record(tmp_path, {})


def test_films_of_a_world_without_pictures_are_refused_before_a_game(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pong, "draws", False)
    words = ("matrix=true", f"players=[{runs}/a,{runs}/b]", f"out={tmp_path / 'out'}", "video=true", "games=2")
    assert main([*words]) == 2
    assert capsys.readouterr().err == "evorl: video: this world draws no pictures\n"
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_told(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix=true", f"players=[{runs}/a,{runs}/b]", "out=/proc/nowhere", "games=2"]) == 2
    assert capsys.readouterr().err == "evorl: out: cannot make /proc/nowhere: /proc cannot be written\n"


@pytest.mark.slow
def test_films_show_the_closest_and_the_most_one_sided_pair(
    matrix: Matrix, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = matrix("a b rule", "games=4", "video=true")
    assert len(found["pairs"]) == 3
    said = capsys.readouterr().out
    for name in ("closest", "most_one_sided"):
        (film,) = (one for one in (tmp_path / "out").iterdir() if one.stem == name)
        assert f"{name.replace('_', ' ')} pair: {film}" in said and film.stat().st_size > 1000


@pytest.mark.parametrize(("players", "code"), [("a,{0}/b", 0), ("a,{0}/cartpole", 2)])
def test_the_world_that_is_played_is_closed(
    players: str, code: int, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Pong] = []
    monkeypatch.setattr(Pong, "close", lambda world: closed.append(world))
    words = (f"players=[{runs}/{players.format(runs)}]", "games=2", f"out={tmp_path / 'out'}")
    assert main(["matrix=true", *words]) == code
    assert len(closed) == 1
