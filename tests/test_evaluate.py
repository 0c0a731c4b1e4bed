"""Judging a run again: the bits that the run recorded, films, and requests that cannot be met."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import QUICK, WORLDS, go, newest, rows

from evorl.cli import config
from evorl.evaluate import main
from evorl.export import main as export
from evorl.mdp.core import World
from evorl.mdp.pong import Pong
from evorl.play import main as play
from evorl.report import main as report
from evorl.rl.core import Episode, Learner
from evorl.rl.evaluation import evaluate_policy, play_episodes
from evorl.rl.films import InRows, chosen, film
from evorl.training.train import device
from evorl.util.seed import Episodes

CASES = {
    "cartpole": WORLDS["cartpole"],
    "pendulum-lstm": (*WORLDS["pendulum"], "rl.net.lstm=8"),
    "pong-self": (*WORLDS["pong"], "mdp.opponent=self"),
    "duel-lstm": (*WORLDS["duel"], "rl.net.lstm=8", "mdp.delay_ms=[0,1]"),
}
EVAL = "eval/"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of each case, all in one folder; each was evaluated four times."""
    place = tmp_path_factory.mktemp("runs")
    for name, words in CASES.items():
        usual = [*QUICK, *words, "eval.every=400", "checkpoint.keep=9", "eval.episodes=3", "budget.steps=1600"]
        usual = list({word.partition("=")[0]: word for word in usual}.values())
        assert go(*usual, f"hydra.run.dir={place / name}") == 0
    return place


@pytest.fixture
def evaluate(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command with words; return its report."""

    def report(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert main([*words, "json=true"]) == 0, capsys.readouterr().err
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    return report


def recorded(run: Path) -> dict[int, dict[str, float]]:
    """The evaluations in metrics.jsonl by step."""
    found = rows(run)
    return {
        row["step"]: {name.removeprefix(EVAL): x for name, x in row.items() if name.startswith(EVAL)}
        for row in found
        if "eval/return_mean" in row
    }


def learner_of(run: Path) -> tuple[Learner, World]:
    experiment = config.experiment_of_run(run)
    arena = experiment.mdp.evaluation_world().arena(1, Episodes(0))
    learner = experiment.rl.learner(arena.spec, 99, device("cpu"))
    arena.close()
    learner.load_policy(newest(run)["run"]["learner"])
    return learner, experiment.mdp


# ------------------------------------------------------------------ the same bits


@pytest.mark.slow_cases(but=("cartpole", "duel-lstm"))
@pytest.mark.parametrize("case", CASES)
def test_every_checkpoint_is_evaluated_as_the_run_evaluated_it(case: str, runs: Path, evaluate: Any) -> None:
    run = runs / case
    evaluated = recorded(run)
    assert len(evaluated) >= 3
    for step, numbers in evaluated.items():
        report = evaluate(f"run={run}", f"checkpoint={step}")
        assert {name: report[name] for name in numbers} == numbers
        assert (report["step"], report["seed"], report["episodes"]) == (step, 0, 3)


@pytest.mark.slow_cases(but=("cartpole", "duel-lstm"))
@pytest.mark.parametrize("case", CASES)
def test_latest_and_best_are_those_of_the_result(case: str, runs: Path, evaluate: Any) -> None:
    result = json.loads((runs / case / "result.json").read_bytes())
    latest, best = evaluate(f"run={runs / case}"), evaluate(f"run={runs / case}", "checkpoint=best")
    assert {**result["eval"], "fitness": result["fitness"]} == {
        name: latest[name] for name in (*result["eval"], "fitness")
    }
    by = "highest evaluation"
    assert {"fitness": best["fitness"], "step": best["step"], "selected_by": by} == result["best"]
    assert best["fitness"] >= latest["fitness"]
    assert evaluate(f"run={runs / case}", "checkpoint=last") == latest


def test_it_is_pure_and_other_seeds_differ(runs: Path, evaluate: Any) -> None:
    word = f"run={runs / 'cartpole'}"
    first = evaluate(word, "seed=3", "episodes=10")
    assert evaluate(word, "seed=3", "episodes=10") == first
    other = evaluate(word, "seed=4", "episodes=10")
    assert other["return_mean"] != first["return_mean"]
    assert other["stochastic_return_mean"] != first["stochastic_return_mean"]


def test_evaluating_draws_nothing_from_what_came_before(runs: Path) -> None:
    learner, world = learner_of(runs / "pendulum-lstm")
    first = evaluate_policy(learner, world, 0, 3)
    play_episodes(learner, world, 8, 5, deterministic=False)
    np.random.seed(1)
    assert evaluate_policy(learner, world, 0, 3) == first


def test_a_run_that_moved_is_evaluated_the_same(runs: Path, tmp_path: Path, evaluate: Any) -> None:
    shutil.copytree(runs / "cartpole", tmp_path / "elsewhere")
    one, two = evaluate(f"run={runs / 'cartpole'}"), evaluate(f"run={tmp_path / 'elsewhere'}")
    assert {**one, "run": ""} == {**two, "run": ""}


def test_statistics_are_those_of_the_episodes(runs: Path) -> None:
    """More episodes than slots, so that some slots play twice; each in its own right."""
    learner, world = learner_of(runs / "cartpole")
    episodes = play_episodes(learner, world, 0, 70, deterministic=True)
    assert len(episodes) == 70
    returns = [episode.ret for episode in episodes]
    metrics = evaluate_policy(learner, world, 0, 70)
    assert metrics["eval/return_mean"] == np.mean(returns) and metrics["eval/return_std"] == np.std(returns)
    assert (metrics["eval/return_min"], metrics["eval/return_max"]) == (min(returns), max(returns))
    assert metrics["eval/length_mean"] == np.mean([episode.length for episode in episodes])


def test_evaluation_leaves_the_policy_as_it_was(runs: Path) -> None:
    learner, world = learner_of(runs / "pendulum-lstm")
    before = learner.state_dict()
    evaluate_policy(learner, world, 0, 3)
    after = learner.state_dict()
    assert all((after["policy"][name] == x).all() for name, x in before["policy"].items())
    assert (after["moments"]["0"]["mean"] == before["moments"]["0"]["mean"]).all()


def test_a_run_of_a_gpu_is_evaluated_where_there_is_none(
    runs: Path, tmp_path: Path, evaluate: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    run = Path(shutil.copytree(runs / "cartpole", tmp_path / "cartpole"))
    stored = run / ".hydra" / "config.yaml"
    stored.write_text(stored.read_text().replace("device: auto", "device: cuda"))
    assert config.experiment_of_run(run).device == "cuda"
    assert evaluate(f"run={run}") == evaluate(f"run={runs / 'cartpole'}", "device=cpu")
    assert main([f"run={run}", "device=cuda"]) == 2
    assert capsys.readouterr().err.startswith("evorl: device: no CUDA device here")


def test_a_world_whose_judge_gives_the_learner_both_sides(
    tmp_path: Path, evaluate: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evorl.mdp.duel.world.Duel.evaluation_world", lambda world: world)
    run = tmp_path / "run"
    assert go(*QUICK, *WORLDS["duel"], "mdp.side=both", "budget.steps=600", f"hydra.run.dir={run}") == 0
    word = () if find_spec("imageio_ffmpeg") is None else ("video=true",)
    report = evaluate(f"run={run}", *word)
    assert report["fitness"] == json.loads((run / "result.json").read_bytes())["fitness"]
    assert len([*run.glob("videos/*")]) == len(word)


# ------------------------------------------------------------------ films


@pytest.mark.slow_cases(but=("pong-self",))
@pytest.mark.parametrize("case", ["cartpole", "pong-self"])
def test_a_film_can_be_played(case: str, runs: Path, evaluate: Any) -> None:
    pytest.importorskip("imageio_ffmpeg")
    if case == "cartpole":
        pytest.importorskip("pygame")
    report = evaluate(f"run={runs / case}", "video=true", "episodes=1")
    (film,) = (runs / case / "videos").iterdir()
    import imageio_ffmpeg

    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(film))
    assert film.stem == str(report["step"])
    if case == "cartpole":
        assert frames == report["length_mean"] + 1  # the same episode: each decision, and the end
    else:  # two rounds of at most 100 steps, in which rounding may lead elsewhere
        assert 5 < frames <= 2 * 100 + 1
    rate = 50 if case == "cartpole" else 30  # gymnasium's own; that of Pong
    assert seconds == pytest.approx(frames / rate, rel=0.1)


def test_a_film_is_of_the_episode_that_was_evaluated(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes 0 to 4 of two slots: each has as many pictures as it had decisions, and the end."""
    pytest.importorskip("pygame")
    monkeypatch.setattr("evorl.rl.evaluation.SLOTS", 2)
    learner, world = learner_of(runs / "cartpole")
    episodes = play_episodes(learner, world, 0, 5, deterministic=True)
    lengths = [
        sum(1 for _ in film(learner, world, 0, number, 5, steps_per_second=30.0).frames) - 1 for number in range(5)
    ]
    assert lengths == [episode.length for episode in episodes]
    assert len({*lengths}) > 2


def test_games_of_two_sides_are_filmed_as_they_were_evaluated(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(rules: Any, games: Any, game: int) -> Any:
        return np.full((8, 8, 3), [0, *games.score[:, game]], np.uint8)

    monkeypatch.setattr("evorl.mdp.pong.world.draw_game", score)
    monkeypatch.setattr("evorl.rl.evaluation.SLOTS", 4)
    learner, world = learner_of(runs / "pong-self")
    episodes = play_episodes(learner, world, 3, 6, deterministic=True)
    for number, episode in enumerate(episodes):
        *_, last = film(learner, world, 3, number, 6).frames
        assert abs(int(last[0, 0, 1]) - int(last[0, 0, 2])) == abs(episode.results["score"])
    assert len({episode.results["score"] for episode in episodes}) > 1


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_a_row_has_the_same_bits_alone_as_among_others(rows: int, runs: Path) -> None:
    """Pendulum's policy has a state and real numbers as actions, so any other rounding shows."""
    learner, _ = learner_of(runs / "pendulum-lstm")
    many = torch.randn(rows, 3, generator=torch.Generator().manual_seed(1))
    noise, start = torch.zeros(rows, 1), torch.ones(rows, dtype=torch.bool)
    with torch.inference_mode():
        every = learner.act((many,), None, noise, learner.carry(rows), start)
        for row in range(rows):
            alone = InRows(learner, rows, row)
            one = alone.act((many[row : row + 1],), None, noise[:1], alone.carry(1), start[:1])
            assert torch.equal(one.action[0], every.action[row]) and torch.equal(one.carry[:, 0], every.carry[:, row])


def test_films_of_the_best_and_the_median_episode(runs: Path, evaluate: Any) -> None:
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    pytest.importorskip("pygame")
    run = runs / "cartpole"
    report = evaluate(f"run={run}", "video=[best,median]", "episodes=5")
    films = {film.stem: imageio_ffmpeg.count_frames_and_secs(str(film))[0] for film in run.glob("videos/*-*")}
    learner, world = learner_of(run)
    lengths = sorted(one.length for one in play_episodes(learner, world, 0, 5, deterministic=True))
    step = report["step"]
    assert films == {f"{step}-best": lengths[-1] + 1, f"{step}-median": lengths[2] + 1}
    assert report["return_max"] == lengths[-1]  # CartPole pays 1 for each step


def test_the_numbers_of_best_and_median_episodes() -> None:
    def played(*scores: float, **results: list[float]) -> list[Episode]:
        each = [{name: x[i] for name, x in results.items()} for i in range(len(scores))]
        return [Episode(score, 1, (score,), result) for score, result in zip(scores, each, strict=True)]

    assert chosen(("best", "median"), played(3, 9, 1, 9, 4)) == {"best": 1, "median": 4}
    assert chosen(("median",), played(8, 2, 6, 4)) == {"median": 3}  # the lower one of two
    assert chosen(("best",), played(3, 9, fitness=[1.0, 0.0])) == {"best": 0}


@pytest.mark.slow
@pytest.mark.parametrize("world", ["halfcheetah", "bipedalwalker"])
def test_a_film_of_an_environment_that_others_draw(world: str, tmp_path: Path, capsys: Any) -> None:
    """MuJoCo draws with the library EGL; where that is missing it is said, and nothing is written."""
    for needed in ("imageio_ffmpeg", "pygame", "mujoco" if world == "halfcheetah" else "Box2D"):
        pytest.importorskip(needed)
    run = tmp_path / "run"
    assert go(*QUICK, f"mdp={world}", "mdp.time_limit=20", "budget.steps=128", f"hydra.run.dir={run}") == 0
    capsys.readouterr()
    code = main([f"run={run}", "video=true", "episodes=1"])
    films = [*run.glob("videos/*")]
    if code == 2 and world == "halfcheetah":
        assert "cannot be drawn here: " in capsys.readouterr().err and films == []
    else:
        assert code == 0 and len(films) == 1 and films[0].stat().st_size > 1000


@pytest.mark.parametrize("delay", [None, (0.0, 0.0)])
def test_the_last_picture_is_how_the_game_ended(
    delay: tuple[float, float] | None, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of Pong in arrays and as battles: after the last round, with the score that is reported."""

    def rounds_and_score(rules: Any, games: Any, game: int) -> Any:
        return np.full((8, 8, 3), [games.round[game], *games.score[:, game]], np.uint8)

    for module in ("pong.world", "pong.battle"):
        monkeypatch.setattr(f"evorl.mdp.{module}.draw_game", rounds_and_score)
    learner, trained = learner_of(runs / "pong-self")
    evaluated = trained.evaluation_world()
    assert isinstance(evaluated, Pong)
    world = replace(evaluated, delay_ms=delay)
    *_, before, last = (frame[0, 0].tolist() for frame in film(learner, world, 0, 0, 1).frames)
    (episode,) = play_episodes(learner, world, 0, 1, deterministic=True)
    assert (before[0], last[0]) == (world.rounds - 1, world.rounds)
    assert abs(last[1] - last[2]) == abs(episode.results["score"]) and last[1] + last[2] > before[1] + before[2]


def test_the_last_picture_of_a_duel_is_of_its_end(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evorl.mdp.duel.world.draw_fight", lambda fight: np.full((8, 8, 3), fight.over, np.uint8))
    learner, world = learner_of(runs / "duel-lstm")
    *before, last = (bool(frame.any()) for frame in film(learner, world, 0, 0, 1).frames)
    assert last and not any(before)


def test_a_world_without_pictures_says_so(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from evorl.mdp.pong.world import PongArena

    monkeypatch.setattr(PongArena, "render", lambda *_: None)
    shutil.copytree(runs / "pong-self", tmp_path / "run", ignore=shutil.ignore_patterns("videos"))
    assert main([f"run={tmp_path / 'run'}", "video=true", "episodes=1"]) == 2
    assert capsys.readouterr().err == "evorl: video: this world draws no pictures\n"
    assert not (tmp_path / "run" / "videos").exists()


def test_a_film_of_a_world_that_never_draws_is_refused_before_an_episode(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(Pong, "draws", False)
    monkeypatch.delattr("evorl.rl.evaluation.play_episodes")
    assert main([f"run={runs / 'pong-self'}", "video=true"]) == 2
    assert capsys.readouterr().err == "evorl: video: this world draws no pictures\n"


def test_without_pygame_there_is_one_clear_line(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    shutil.copytree(runs / "cartpole", tmp_path / "run")
    assert main([f"run={tmp_path / 'run'}", "video=true", "episodes=1"]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1 and "pygame" in err and "install" in err


# ------------------------------------------------------------------ requests that cannot be met


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["run=nowhere"], "nowhere: no such run directory"),
        ([], "run"),
        (["run={run}", "checkpoint=lates"], "did you mean latest?"),
        (["run={run}", "checkpoint=7"], "none of latest, last, best, "),
        (["run={run}", "episodes=0"], "episodes"),
        (["run={run}", "episode=5"], "did you mean episodes?"),
        (["run={run}", "video=perhaps"], "video"),
        (["run={run}", "fps=-1", "video=true"], "fps: expected"),
        (["run={run}", "fps=5"], "fps: is of films; add video=true"),
        (["run={run}", "run={run}2"], "evorl: run: is given twice, as "),
        (["run={run}", "seed=-1"], "seed"),
    ],
)
def test_a_bad_request_is_one_line(words: list[str], line: str, runs: Path, capsys: Any) -> None:
    assert main([word.format(run=runs / "cartpole") for word in words]) == 2
    seen = capsys.readouterr()
    assert seen.out == "" and len(seen.err.splitlines()) == 1 and line in seen.err


@pytest.mark.parametrize(("which", "line"), [("latest", "no checkpoint"), ("best", "evaluated nothing")])
def test_a_run_without_checkpoints(which: str, line: str, runs: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copytree(runs / "cartpole", tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert main([f"run={tmp_path / 'run'}", f"checkpoint={which}"]) == 2
    assert line in capsys.readouterr().err


def test_a_damaged_checkpoint_is_refused_by_name_and_passed_over_as_latest(
    runs: Path, tmp_path: Path, evaluate: Any, capsys: Any
) -> None:
    run = Path(shutil.copytree(runs / "cartpole", tmp_path / "run"))
    *_, before, newest_step = sorted(int(path.name) for path in (run / "checkpoints").glob("[0-9]*"))
    (run / "checkpoints" / str(newest_step) / "state.json").write_bytes(b"{}")
    assert evaluate(f"run={run}")["step"] == before
    assert main([f"run={run}", f"checkpoint={newest_step}"]) == 2
    assert "state.json" in capsys.readouterr().err


def test_nothing_is_written_but_a_film(runs: Path, evaluate: Any) -> None:
    before = {path: path.stat().st_mtime_ns for path in (runs / "duel-lstm").rglob("*")}
    evaluate(f"run={runs / 'duel-lstm'}")
    assert {path: path.stat().st_mtime_ns for path in (runs / "duel-lstm").rglob("*")} == before


def test_who_plays_both_sides_in_training_is_evaluated_against_the_rule_player(runs: Path) -> None:
    _, world = learner_of(runs / "pong-self")
    assert isinstance(world, Pong) and world.evaluation_world() == replace(world, opponent="rule")


# ------------------------------------------------------------------ export


@pytest.mark.slow_cases(but=("duel-lstm", "cartpole"))
@pytest.mark.parametrize("name", [*CASES])
def test_an_exported_policy_is_a_small_run_of_the_same_bits(
    name: str, runs: Path, tmp_path: Path, evaluate: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "kept" / name
    first = evaluate(f"run={runs / name}", "checkpoint=best", "seed=5", "episodes=4", f"export={place}")
    assert [one.name for one in place.parent.iterdir()] == [name]
    again = evaluate(f"run={place}")
    assert {**again, "run": name} == first
    kept = json.loads((place / "evaluation.json").read_text())
    assert {key: kept[key] for key in first} == first and {"torch", "kernels"} <= {*kept["made"]}
    assert evaluate(f"run={place}", "checkpoint=best", "seed=7") != again
    state = newest(place)["run"]["learner"]
    assert "policy" in state and not any("optimizer" in key for key in state)

    assert go(f"resume={place}", "budget.steps=9999") == 2
    assert f"resume: {place} holds only a policy; init={place} starts a new run from it" in capsys.readouterr().err
    assert go(f"replay={place}") == 2
    assert capsys.readouterr().err == f"evorl: replay: {place} holds only a policy\n"
    words = {word.partition("=")[0]: word for word in (*QUICK, *CASES[name])}.values()
    assert go(*words, f"init={place}", "init_optimizer=true", f"hydra.run.dir={tmp_path / 'new'}") == 2
    assert not (tmp_path / "new").exists()
    assert f"init_optimizer: {place} holds no state of this optimiser" in capsys.readouterr().err
    assert report([str(place), f"out={tmp_path / 'report'}"]) == 2
    assert f"{place} holds only a policy, and no records to report" in capsys.readouterr().err
    assert main([f"run={place}", f"export={place}"]) == 2
    assert f"export: {place} is not empty, and nothing is ever overwritten" in capsys.readouterr().err
    for words, why in (("export=", "needs a directory"), ("export=.", "the working directory cannot be replaced")):
        assert main([f"run={place}", words]) == 2
        assert f"evorl: export: {why}" in capsys.readouterr().err


def test_an_export_that_fails_leaves_nothing(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluate: Any
) -> None:
    def full(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("evorl.jobs.exported.run_directory.write_json", full)
    assert main([f"run={runs / 'cartpole'}", f"export={tmp_path / 'kept'}"]) == 1
    assert not [*tmp_path.iterdir()]
    monkeypatch.undo()
    (tmp_path / "kept").mkdir()  # an empty directory is as good as none
    evaluate(f"run={runs / 'cartpole'}", f"export={tmp_path / 'kept'}")
    assert (tmp_path / "kept" / "evaluation.json").exists()


def test_a_signal_waits_until_a_policy_is_exported(runs: Path, tmp_path: Path) -> None:
    program = """
import os, signal, sys
from evorl import __main__
from evorl.util import run_directory

write = run_directory.write_json
def interrupted(*words):
    os.kill(os.getpid(), signal.SIGTERM)
    write(*words)
run_directory.write_json = interrupted
sys.exit(__main__.main(sys.argv[1:]))
"""
    words = ["evaluate", f"run={runs / 'cartpole'}", "episodes=1", f"export={tmp_path / 'kept'}"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.returncode == 143 and "evorl: ended by SIGTERM" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert main([f"run={tmp_path / 'kept'}", "episodes=1"]) == 0


def test_an_exported_policy_starts_another_run(runs: Path, tmp_path: Path, evaluate: Any) -> None:
    told = evaluate(f"run={runs / 'cartpole'}", f"export={tmp_path / 'kept'}")
    words = [*QUICK, *CASES["cartpole"], "eval.episodes=3", "budget.steps=64", "rl.lr=1e-12"]
    usual = list({word.partition("=")[0]: word for word in words}.values())
    assert go(*usual, f"init={tmp_path / 'kept'}", f"hydra.run.dir={tmp_path / 'new'}") == 0
    assert evaluate(f"run={tmp_path / 'new'}")["return_mean"] == told["return_mean"]


def test_the_numbers_are_printed_once_and_as_json_when_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main([f"run={runs / 'cartpole'}", "episodes=1"]) == 0
    plain = capsys.readouterr().out.splitlines()
    assert main([f"run={runs / 'cartpole'}", "episodes=1", "json=true"]) == 0
    *table, last = capsys.readouterr().out.splitlines()
    assert table == plain and not any("{" in line for line in plain)
    names = [name for name, value in json.loads(last).items() if isinstance(value, float)]
    assert [line.split()[0] for line in plain if line.startswith("  ")] == names


@pytest.mark.parametrize("name", ["x.onnx", "policies/x.pt", "X.ZIP"])
def test_export_makes_no_directory_with_the_name_of_a_file(
    name: str, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([f"run={runs / 'cartpole'}", f"export={name}"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evorl: export: {Path(name).name} looks like a file, and this makes a directory with ")
    assert err.endswith(f": export={Path(name).with_suffix('')}\n") and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("command", "words", "code"),
    [
        (main, (), 0),
        (main, ("individual=3",), 2),
        (export, ("out={}/policy.onnx",), 0),
        (export, ("out={}/policy.onnx", "side=1"), 2),
        (play, (), 0),
        (play, ("checkpoint=7",), 2),
    ],
)
def test_a_command_closes_the_world_that_it_opened(
    command: Any, words: tuple[str, ...], code: int, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A world may have games in other programs, sockets, and files of them."""
    closed: list[World] = []
    monkeypatch.setattr(Pong, "close", lambda world: closed.append(world))
    monkeypatch.setattr("evorl.play._serve", lambda *_: None)
    assert command([f"run={runs / 'pong-self'}", *(word.format(tmp_path) for word in words)]) == code
    assert len(closed) == 1
