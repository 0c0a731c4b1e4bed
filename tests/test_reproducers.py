"""The parts of the reproducers that need neither hours nor peers."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from forked import evorl
from reproducing import drawn

from evorl.mdp.problem import Problem
from evorl.population.loop import Population

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("speed", "lamarckian", "ec"):
        monkeypatch.syspath_prepend(str(BENCHMARKS / name))


def test_a_curve_has_a_point_for_each_whole_generation(tmp_path: Path) -> None:
    from benchmarks.marvin.generations import curve
    from benchmarks.marvin.walk import POPULATION

    rows = [{"objectives": {"fitness": float(n // POPULATION)}, "step": 10 * n} for n in range(2 * POPULATION + 3)]
    torn = '{"objectives": {"fit'
    (tmp_path / "population.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + torn)
    returns, steps = curve(tmp_path, POPULATION)
    assert returns.tolist() == [0.0, 1.0] and steps.tolist() == [10 * (POPULATION - 1), 10 * (2 * POPULATION - 1)]


def test_a_threshold_is_passed_by_a_mean_and_not_by_a_spike() -> None:
    from benchmarks.marvin.generations import passed

    spike = np.array([0.0] * 8 + [400.0] + [0.0] * 8)
    assert passed(spike, 100) is None
    assert passed(np.arange(20.0), 10.0) == 13  # 9 .. 13 have the mean 11
    assert passed(np.array([5.0]), 1.0) is None


def test_a_median_is_known_where_those_who_are_not_there_lie_above_it() -> None:
    from common import bound

    from benchmarks.marvin import generations

    row = partial(generations.row, population=30, thresholds=(100.0, 200.0))
    there, longer, shorter = np.full(6, 150.0), np.full(9, 0.0), np.full(3, 0.0)
    assert row("ours", [there, there, longer])[3:7] == ["4, 4, > 9", "4", "-", "150"]
    assert row("ours", [there, there, shorter])[3:7] == ["4, 4, > 3", ">= 4", "-", ">= 150"]
    assert row("ours", [there, longer])[4] == ">= 6.5"
    assert row("ours", [there, longer, longer])[3:7] == ["4, > 9, > 9", ">= 9", "-", ">= 300"]
    assert bound([2.0, None, 1.0], [9.0, 2.0, 9.0]) == ""  # who ended when another was there was not there
    assert bound([None, 3.0, 1.0], [2.0, 9.0, 9.0]) == bound([None, 3.0], [2.0, 9.0]) == ">= "


def test_cartpole_is_told_by_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.marvin import cartpole
    from benchmarks.marvin.cartpole import POPULATION, TABLE, analyse, measured
    from evorl.cli.config import experiment_of_words
    from evorl.reproduction.loop import first_job
    from evorl.reproduction.table import Policy, Results

    judged = {"episodes": 30, "return_mean": 900.0, "return_min": 9.0, "return_max": 1000.0}
    monkeypatch.setattr(cartpole, "judge", lambda run, words, film: (judged, None))
    runs = []
    for seed, speed in enumerate((40, 80)):
        place = tmp_path / str(seed)
        place.mkdir()
        returns = [min(speed * n, 1000) for n in range(40) for _ in range(POPULATION)]
        returns[39 * POPULATION + 3] += seed  # the fittest of the last generation, in the better run
        returns += [2000.0] * (POPULATION - 1)  # a generation that has not ended
        rows = [{"id": n, "objectives": {"fitness": x}, "step": 10 * n} for n, x in enumerate(returns)]
        (place / "population.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        runs.append(SimpleNamespace(directory=place))
    assert analyse(Results("ci", [], {})) is None
    found = analyse(Results("ci", runs, {}))
    assert found is not None and found.rows[0][:4] == ["original", "2", "40, 40", "14, 8"]
    fittest = ("individual=783", "episodes=30", "seed=1000000")
    assert found.policies == {"cartpole": Policy(tmp_path / "1", fittest)}
    assert found.notes[0].startswith("That policy on 30 other episodes: a mean return of 900 (9 to 1000).")
    passed = "mean above 475 at generation 11 [8, 14] (14, 8), above 950 at generation 20 [15, 26] (26, 15)"
    assert measured(found.data) == f"2 seeds: {passed}"
    made = experiment_of_words(first_job(TABLE.profiles["paper"].parts[0].words))
    assert made.ec.population == POPULATION and made.mdp.time_limit == 1000 and list(made.rl.net.hidden) == [4]
    assert made.rl.net.activation == "tanh"  # whatever conf/tuned has for CartPole


@pytest.mark.learn
def test_the_best_walk_is_evaluated_and_filmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.marvin import walk

    monkeypatch.setattr(walk, "POPULATION", 2)
    for variant in walk.VARIANTS:
        words = [f"+experiment=marvin/{variant}", "mdp.time_limit=5", "ec.population=2", "budget.steps=30"]
        done = evorl("run", *words, f"hydra.run.dir={tmp_path / 'ci' / 'walk' / variant}", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    monkeypatch.setattr(walk, "AGAIN", ("episodes=2", "seed=1000000"))
    data = drawn("marvin/walk", tmp_path / "ci", tmp_path)["data"]
    assert data["best"]["episodes"] == 2 and data["best"]["seed"] == 1_000_000
    kept = json.loads((tmp_path / "policies" / "walk" / "evaluation.json").read_text())
    assert {name: kept[name] for name in ("return_mean", "seed", "episodes", "individual")} == {
        name: data["best"][name] for name in ("return_mean", "seed", "episodes", "individual")
    }
    assert len(data["runs"]["ours"][0]["returns"]) == 3
    assert (tmp_path / "walk.mp4").stat().st_size > 0


@pytest.mark.learn
def test_both_ends_of_a_front_are_evaluated_again_and_filmed(tmp_path: Path) -> None:
    from benchmarks.lamarckian import nsga2

    place = tmp_path / "ci" / "nsga2" / "0"
    tiny = ["+debug=tiny", "ec.population=2", "ec.train_steps=1", "ec.episodes=1", "mdp.rounds=1"]
    done = evorl("run", "+experiment=lamarckian/nsga2_pong", *tiny, f"hydra.run.dir={place}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = drawn("lamarckian/nsga2", tmp_path / "ci", tmp_path)["data"]
    assert 1 <= len(told["other games"]) <= 2 and told["front"]
    assert all(one["seed"] == nsga2.OTHER for one in told["other games"].values())
    assert all((tmp_path / f"nsga2_{name}.mp4").stat().st_size > 0 for name in nsga2.MANNERS)
    kept = [json.loads(one.read_text()) for one in (tmp_path / "policies").glob("nsga2_*/evaluation.json")]
    assert len(kept) == len(nsga2.MANNERS)
    for one in kept:
        other = told["other games"][str(one["individual"])]
        assert (one["seed"], one["return_mean"]) == (other["seed"], other["return_mean"])


@pytest.mark.slow
def test_the_best_member_of_a_search_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.lamarckian import pbt
    from evorl.reproduction.table import Policy

    monkeypatch.setattr(pbt, "judge", lambda run, words, film: ({"seed": 3, "return_mean": 12.5}, None))
    policies, (told,) = pbt.best_member(tmp_path)
    assert policies == {"pbt_pong": Policy(tmp_path, ("individual=best",))}
    assert told.rows == [["pbt_pong", "3", "12.50"]]
    assert pbt.best_member(tmp_path / "none") == ({}, [])  # measured before searches left their runs


def test_rates_are_those_between_the_first_and_the_last_result() -> None:
    from benchmarks.lamarckian.pbt import rate, row

    ours, theirs = [(5.0, 100, 0.1), (15.0, 2100, 0.8)], [(50.0, 10, 0.2), (60.0, 110, 0.3)]
    assert rate(ours) == 200.0
    assert row("peer", theirs, ours)[1:5] == ["10", "20.0", ">= 60", ">= 4.0"]


OURS = [(5.0, 100, 0.1), (10.0, 2100, 0.8)]


def test_the_time_to_a_fitness_is_that_of_the_first_result_there() -> None:
    from benchmarks.lamarckian.pbt import row

    went_on = [(20.0, 100, 0.5), (50.0, 400, 0.8), (60.0, 500, 0.8), (70.0, 600, 0.9)]
    assert row("peer", went_on, OURS)[3:] == ["50", "5.0", "0.800", "400"]
    assert row("peer", went_on[:2], OURS)[3:] == ["50", "5.0", "0.800", "400"]
    too_few = [(20.0, 100, 0.5), (40.0, 300, 0.79)]
    assert row("peer", too_few, OURS)[3:] == [">= 40", ">= 4.0", "0.790", "300"]
    assert row("peer", went_on, too_few)[4] == "evorl not there"


def test_a_search_of_the_peers_is_over_at_exactly_the_fitness(monkeypatch: pytest.MonkeyPatch) -> None:
    """12 points of 20 ahead are 0.8; Ray Tune, which is not installed here, has no part in that."""
    ray = MagicMock()
    ray.tune.Callback = ray.tune.Stopper = object
    for name in ("ray", "ray.rllib.algorithms.ppo", "ray.rllib.core.rl_module.default_model_config"):
        monkeypatch.setitem(sys.modules, name, ray)
    from tune import Progress, main

    from benchmarks.lamarckian import pbt

    asked = list[dict[str, Any]]()

    def start(python: Path, program: str, settings: str) -> SimpleNamespace:
        asked.append(json.loads(settings))
        return SimpleNamespace(stdout=['{"rows": [[1.0, 8192, 0.5]], "versions": {}}\n'], wait=lambda: 0)

    monkeypatch.setattr(pbt, "start_bound", start)
    assert pbt.peer(pbt.SIZES["ci"], 0) == ([(1.0, 8192, 0.5)], {})
    assert {*asked[0]} == {*signature(main).parameters}
    progress = Progress(time.time(), 1e9, asked[0]["fitness"], asked[0]["rounds"])
    for number, found in enumerate(({}, {"episode_return_mean": 11.99}, {"episode_return_mean": 12.0})):
        assert not progress.over()
        result = {"env_runners": {"num_env_steps_sampled_lifetime": number, **found}}
        progress.on_trial_result(0, [], SimpleNamespace(trial_id="a"), result)
    assert progress.over() and [best for _, _, best in progress.rows] == [0.0, pytest.approx(0.79975), 0.8]


def test_the_page_of_population_based_training_says_what_its_samples_say() -> None:
    from benchmarks.lamarckian.pbt import table

    told = json.loads((BENCHMARKS / "lamarckian" / "results" / "pbt.json").read_text())
    rows = table(told["data"]["runs"])
    assert rows == told["rows"]
    steps, seconds = (rows[-1][column].strip("*") for column in (2, 4))
    page = (BENCHMARKS / "lamarckian" / "README.md").read_text()
    assert f"{steps} times as many" in page and f"{seconds} times as soon" in page


def test_the_page_of_asynchronous_evolution_says_what_its_samples_say() -> None:
    from benchmarks.lamarckian.asynchronous import Size, read, rows

    told = json.loads((BENCHMARKS / "lamarckian" / "results" / "asynchronous.json").read_text())
    assert rows(read(told["data"]["samples"]), Size(**told["data"]["size"])) == told["rows"]


def test_the_page_of_marvin_says_what_its_samples_say() -> None:
    from benchmarks.marvin.generations import row
    from benchmarks.marvin.walk import POPULATION, THRESHOLDS

    told = json.loads((BENCHMARKS / "marvin" / "results" / "walk.json").read_text())
    curves = {name: [np.array(one["returns"]) for one in each] for name, each in told["data"]["runs"].items()}
    assert [row(name, each, POPULATION, THRESHOLDS) for name, each in curves.items()] == told["rows"]


def test_a_median_of_lower_bounds_is_one() -> None:
    from benchmarks.lamarckian.pbt import middle

    assert middle(["12.6", "15.0", "13.1"]) == "13.1"
    assert middle(["12.6", ">= 15.0", "13.1"]) == "13.1"
    assert middle([">= 12.6", "15.0", "13.1"]) == ">= 13.1"
    assert middle(["12.0", "13.0"]) == "12.5" and middle(["12.0", ">= 14.0"]) == ">= 13.0"
    assert middle(["12.0", "evorl not there"]) == "-"


def test_workers_are_busy_from_the_first_beginning_to_the_end_of_so_many() -> None:
    from busy import WORKERS, busy

    times = np.array([[0.0, 1.0], [0.0, 3.0], [1.0, 2.0], [2.0, 9.0], [5.0, 6.0]])
    found = busy(times, 3)  # until 3.0
    assert found["seconds"] == 3.0
    assert found["busy"] == pytest.approx((1 + 3 + 1 + 1) / (WORKERS * 3))


def test_a_threshold_of_a_curve_is_met_at_the_first_evaluation_there() -> None:
    from benchmarks.lamarckian.sampling import threshold_steps
    from evorl.analysis.runs import Series

    steps, values = np.array([10.0, 20.0, 30.0]), np.array([-5.0, -1.0, -3.0])
    curve = Series(steps, steps, values)
    assert threshold_steps(curve, -1.0) == 20.0 and threshold_steps(curve, 0.0) is None


def test_searches_in_generations_count_whole_ones() -> None:
    from benchmarks.lamarckian.asynchronous import Evaluation, Size, busy, curve, summary

    # two workers; generations of two, each of which waits for its slower one
    times = [(3, 1, 0.1), (3, 3, 0.4), (6, 2, 0.2), (6, 3, 0.3), (7, 1, 0.9)]
    found = [Evaluation(at, took, fitness, 100, 1) for at, took, fitness in times]
    assert busy(found, 6.0) == pytest.approx((1 + 3 + 2 + 3) / 12)
    told = summary(found, Size(2, 7.5, 1), whole=True)
    assert told["busy"] == pytest.approx(9 / 12) and told["evaluations per minute"] == pytest.approx(40.0)
    assert told["best"] == 0.9 and told["steps per second"] == pytest.approx(400 / 6)
    assert curve(found, np.array([2.0, 3.0, 6.5, 7.0])).tolist()[1:] == [0.4, 0.4, 0.9]
    assert np.isnan(curve(found, np.array([2.0]))[0])


def test_a_lead_is_that_of_the_same_rounds() -> None:
    from cartpole import row

    own, theirs = [[200, 1.0, 2], [600, 1.0, 2]], [[100, 1.0, 4], [100, 2.0, 4]]
    assert row("peer", theirs, own) == ["peer", "75", "50", "100", "7.00", "25"]


# ------------------------------------------------------------------ each program's own work, made tiny


@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [True, False])
def test_how_busy_workers_are_is_told_of_a_run(asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import busy

    monkeypatch.setattr(busy, "MEAN_S", 0.01)
    monkeypatch.setattr(busy, "POPULATIONS", (4,))
    found = busy.share(4, asynchronous, 8, 0)
    assert 0 < found["busy"] <= 1 and found["seconds"] > 0 and found["variation"] > 0


@pytest.mark.slow
def test_whole_generations_are_weighed_heavier_than_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    import bytes as program

    monkeypatch.setattr(program, "GENERATIONS", 2)
    (size, seeds), (same, whole) = (program.generations([64, 64], 1, by_seed) for by_seed in (True, False))
    assert size == same == 4610 and len(seeds) == len(whole) == 2
    assert seeds[1] < 20_000 and whole[1] > 40 * 4 * size  # the policies of float32 alone


@pytest.mark.slow
@pytest.mark.parametrize("episodes", [1, 3])
def test_the_bare_loop_plays_what_an_evolution_plays(episodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import play

    monkeypatch.setattr("evorl.population.play_evaluator.SLOTS", 4)  # each policy has one row
    monkeypatch.setattr(play, "POPULATION", 4)
    monkeypatch.setattr(play, "GENERATIONS", 1)
    contest = play.contest(1, episodes, play.CARTPOLE)
    assert all(contest[name](0) > 0 for name in ("one task", "bare"))  # it compares the steps itself


@pytest.mark.slow
def test_a_generation_of_ours_beside_evotorch(monkeypatch: pytest.MonkeyPatch) -> None:
    import cartpole

    populations = list[Population]()

    def made(*what: Any) -> Population:
        populations.append(Population(*what))
        return populations[-1]

    monkeypatch.setattr("evorl.population.loop.Population", made)
    monkeypatch.setattr(cartpole, "POPULATION", 4)
    generation = cartpole.ours()
    try:
        assert generation() + generation() == populations[0].steps >= 8
        assert populations[0].evaluations == 8
    finally:
        populations[0].close()


@pytest.mark.slow
def test_zdt1_is_solved_by_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    import zdt1

    monkeypatch.setattr(zdt1, "GENERATIONS", 2)
    seconds, values = zdt1.ours()(0)
    assert seconds > 0 and values.shape == (zdt1.POPULATION, 2)


@pytest.mark.slow
def test_every_evolver_is_on_the_page_of_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import problems

    monkeypatch.setattr(problems, "POINTS", 2)
    whole = problems.problems()
    small = [Problem(id="sphere", dimensions=2), Problem(id="zdt1", dimensions=3)]
    monkeypatch.setattr(problems, "problems", lambda: small)
    profile = problems.Profile(1, 100, 200)
    found = problems.measure(profile)
    evolvers = {path.stem for path in (BENCHMARKS.parent / "conf" / "ec").glob("*.yaml")} - {"none"}
    evolvers -= {one for one in evolvers if one.endswith("_rl")}  # a function has no transitions for a critic
    evolvers -= {"asha", "hyperband"}  # nor training that could be stopped
    evolvers -= {"optuna"}  # made for fewer evaluations
    assert evolvers < {*found["sphere"]} and {"nsga2", "nsga3", "random", "pymoo NSGA3"} <= {*found["zdt1"]}
    header = (BENCHMARKS / "ec" / "results" / "problems.md").read_text().splitlines()[2]
    assert evolvers <= {*header.split(" | ")}
    every = {one.id: found["sphere" if one.count == 1 else "zdt1"] for one in whole}
    problems.draw(tmp_path / "problems.png", every, profile)
    problems.write_curves(tmp_path / "problems.csv", every, profile)
    assert (tmp_path / "problems.png").stat().st_size > 0


@pytest.mark.slow
def test_a_search_without_generations_tells_of_whole_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.lamarckian import asynchronous

    monkeypatch.setattr(asynchronous, "STEPS", 1)  # rounded up to a batch
    monkeypatch.setattr(asynchronous, "EPISODES", 1)
    found = asynchronous.search(asynchronous.Size(2, 0.1, 1), True, 0)
    assert len(found) >= 2 and all(one.steps > 0 and 0 <= one.fitness <= 1 for one in found)
    assert {one.passes for one in found} <= {1, 2, 4, 8, 16}


@pytest.mark.slow
def test_curves_of_sampling_are_read_from_runs(tmp_path: Path) -> None:
    place = tmp_path / "pendulum-ours" / "0"
    done = evorl("run", "mdp=pendulum", "+debug=tiny", "budget.steps=512", f"hydra.run.dir={place}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    drawn("lamarckian/sampling", tmp_path, tmp_path)
    assert "| Pendulum, evorl's settings | 1 | 512 |" in (tmp_path / "sampling.md").read_text()


def test_what_is_trained_is_an_experiment() -> None:
    from benchmarks.lamarckian import sampling
    from benchmarks.marvin import walk
    from evorl.cli.config import experiment_of_words as experiment
    from evorl.reproduction.loop import first_job

    assert all(experiment(first_job(one.words)).ec is None for each in sampling.SWEEPS.values() for one in each)
    assert all(experiment(first_job(one.words)).ec for one in walk.TABLE.profiles["ci"].parts)
