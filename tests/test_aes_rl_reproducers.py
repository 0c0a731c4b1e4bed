"""The parts of AES-RL's reproducers that need no hours: scores, gates, schedules, and the commands of the sweeps."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from forked import evorl
from harness import ROOT
from reproducing import drawn

from evorl.analysis.runs import RunRecord, Series

pytestmark = pytest.mark.slow


def run(steps: list[float], returns: list[float], **config: Any) -> RunRecord:
    series = Series(np.array(steps), np.array(steps), np.array(returns))
    return RunRecord(directory=Path("."), config=config, series={"eval/return_mean": series}, seconds=1800.0)


# ------------------------------------------------------------------ scores


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    from evorl.reproduction.scores import iqm, score

    assert iqm([1.0, 2.0, 3.0, 4.0, 100.0]) == 3.0
    assert iqm([-50.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 900.0]) == 3.5
    one = score([1.0, 2.0, 3.0, 4.0, 100.0])
    assert one.iqm == 3.0 and 1.0 <= one.low < 3.0 < one.high <= 100.0
    assert str(one).startswith("3 [") and str(score([7.0])) == "7"


def test_an_interval_resamples_within_each_world() -> None:
    from evorl.reproduction.scores import score

    assert score([1.0, 1.0], [9.0, 9.0]) == (5.0, 5.0, 5.0)
    assert np.isnan(score([7.0])[1:]).all() and score([7.0]).iqm == 7.0


def test_an_interval_covers_the_mean_as_often_as_it_says() -> None:
    from evorl.reproduction.scores import scores

    rng = np.random.default_rng(1)
    found = scores([rng.standard_normal((20, 200))])
    covered = np.mean([one.low <= 0 <= one.high for one in found])
    assert 0.85 <= covered <= 0.98


def test_a_return_is_that_of_the_first_evaluation_there() -> None:
    from evorl.reproduction.scores import at, core_hours, curve

    one = run([5_000, 10_016, 15_008], [1.0, 2.0, 6.0])
    assert [at(one, step) for step in (5_000, 10_000, 15_000)] == [1.0, 2.0, 6.0]
    assert at(one, 15_000, last=2) == 4.0 and at(one, 15_000, last=10) == 3.0
    assert np.isnan(at(one, 20_000)) and np.isnan(at(RunRecord(directory=Path("."), config={}), 1))
    assert np.isnan(at(run([20_000], [5.0]), 5_000))  # evaluated more rarely than asked for
    grid, band = curve([one, run([5_000, 15_000], [3.0, 8.0])], 20_000)
    assert grid.tolist() == [5_000, 15_000] and band[:, 0].tolist() == [2.0, 7.0]
    assert core_hours([one, run([1], [1.0], **{"cluster.workers": 3})]) == 2.0


# ------------------------------------------------------------------ gates


RIGHT = {
    "TD3": {30_000: [2440, 2100, 1900, 1500, 900], 40_000: [2807, 2500, 2400, 1900, 1700]},
    "AES-RL": {40_000: [3675, 3000, 2500, 1600, 1400]},
    "CEM-RL": {20_000: [-251, -200, 0, 50, 100], 50_000: [823, 700, 600, 500, 200]},
    "CEM": {40_000: [10, 20, -5, 0, 100]},
    "AES-RL, none trained": {40_000: [0, 100, -100, 50, 299]},
}
WRONG = {
    "TD3": {30_000: [-100] * 5, 40_000: [1000] * 5},
    "AES-RL": {40_000: [500] * 5},
    "CEM-RL": {20_000: [250] * 5, 50_000: [200] * 5},
    "CEM": {40_000: [0, 0, 0, 0, 400]},
    "AES-RL, none trained": {40_000: [301, 0, 0, 0, 0]},
}


@pytest.mark.parametrize(("returns", "expected"), [(RIGHT, "passed"), (WRONG, "failed"), ({}, "not run")])
def test_the_gates_tell_right_from_wrong(returns: dict[str, dict[int, list[int]]], expected: str) -> None:
    from benchmarks.aes_rl.gates import HALFCHEETAH
    from evorl.reproduction.verdicts import verdict

    arrays = {name: {step: np.array(x, float) for step, x in each.items()} for name, each in returns.items()}
    beside = "AES-RL: at least 0.6 of TD3"
    found = {gate.what: verdict(gate, arrays) for gate in HALFCHEETAH}
    assert {kind for what, kind in found.items() if not what.startswith(beside)} == {expected}
    assert next(kind for what, kind in found.items() if what.startswith(beside)) == expected


def test_intervals_are_compared() -> None:
    from evorl.reproduction.verdicts import compared

    assert [compared(3, 4, 1, 2), compared(1, 2, 3, 4), compared(1, 3, 2, 4)] == ["above", "below", "overlaps"]
    assert compared(np.nan, np.nan, 1, 2) == "-"


# ------------------------------------------------------------------ schedules


@pytest.mark.parametrize(
    ("workers", "barrier", "none"),
    [(2, (1.75, 1.72, 1.69), 2.0), (3, (2.50, 2.54, 2.48), 3.0), (5, (5.00, 4.57, 4.16), 5.0),
     (8, (5.00, 4.91, 4.33), 7.9)],
)  # fmt: skip
def test_the_simulation_has_the_speedups_of_our_model(workers: int, barrier: tuple[float, ...], none: float) -> None:
    from benchmarks.aes_rl.simulation import REFERENCE, Shape, asynchronous, synchronous

    for variation, expected in zip((0.0, 0.5, 1.0), barrier, strict=True):
        shape = Shape(variation=variation)
        assert synchronous(REFERENCE, shape, workers).speedup == pytest.approx(expected, rel=0.025)
        assert asynchronous(REFERENCE, shape, workers).speedup == pytest.approx(none, rel=0.02)


def test_a_critic_bounds_the_asynchronous_search_and_stops_the_synchronous_one() -> None:
    from benchmarks.aes_rl.simulation import Shape, Stages, asynchronous, synchronous

    stages = Stages(train=5.0, play=1.0, critic=0.5, mean=0.5)
    many = asynchronous(stages, Shape(), 64)
    assert many.per_second == pytest.approx(2.0) and many.busy < 0.2
    assert synchronous(stages, Shape(), 64).per_second == pytest.approx(10 / (5 + 5 + 1))
    alone = asynchronous(stages, Shape(), 1)
    assert alone.busy == 1.0 and alone.per_second == pytest.approx(1 / (0.5 + 2.5 + 1 + 0.5))


JOBS = [
    {"kind": "random", "gradient_steps": 0, "step": 100, "worker": 0, "began": 0.0, "trained": 0.0, "ended": 1.0},
    {"kind": "critic", "gradient_steps": 200, "step": 100, "worker": 0, "began": 2.0, "trained": 4.0, "ended": 4.0},
    {"kind": "trained", "gradient_steps": 100, "step": 200, "worker": 0, "began": 4.0, "trained": 7.0, "ended": 8.0},
    {"kind": "evolved", "gradient_steps": 0, "step": 300, "worker": 1, "began": 2.0, "trained": 2.0, "ended": 4.0},
    {"kind": "mean", "gradient_steps": 0, "step": 300, "worker": 1, "began": 4.0, "trained": 4.0, "ended": 9.0},
]


def test_what_workers_did_is_read_from_the_journal() -> None:
    from benchmarks.aes_rl.time_efficiency import measure, stages_of

    assert measure(JOBS, workers=2) == (100 / 5, (4 + 5) / 10, 100 / 100)
    assert stages_of(JOBS, length=100.0, population=10) == (30.0, 1.5, 1.0, 5.0)


def test_the_table_of_hopper_says_how_long_episodes_are_and_how_busy_workers() -> None:
    from benchmarks.aes_rl.time_efficiency import UNLIKE_HEADER, lengths, measure, unlike_rows

    steps = lengths([*JOBS, {"kind": "evolved", "step": 330}])
    assert steps == [100, 100, 100, 30]
    shown = unlike_rows({"AES-RL": [(measure(JOBS, workers=2), steps)]})
    assert shown == [["AES-RL", "30 to 100", "20", "90 %", "1.0"]] and len(shown[0]) == len(UNLIKE_HEADER)


def test_the_table_of_time_has_a_row_for_each_number_of_workers() -> None:
    from benchmarks.aes_rl.simulation import REFERENCE, Shape, asynchronous, synchronous
    from benchmarks.aes_rl.time_efficiency import SIMULATED, Measured, draw, rows

    simulate = {"synchronous": synchronous, "asynchronous": asynchronous}
    outcomes = {(mode, n): f(REFERENCE, Shape(), n) for mode, f in simulate.items() for n in SIMULATED}
    found = {("synchronous", 1): [Measured(10.0, 0.5, 6.0), Measured(12.0, 0.52, 6.2)]}
    shown = rows(found, outcomes, 200.0)
    assert shown[0] == ["1", "11 ± 13", "51 ± 13 %", "6.1", "-", "-", "-", "57", "100%", "57", "100%"]
    assert [row[0] for row in shown] == [str(n) for n in SIMULATED]
    rate, busy = draw(found, outcomes, 200.0).axes
    assert len(rate.lines) == len(busy.lines) == 4  # measured and simulated, of both modes


# ------------------------------------------------------------------ sweeps


def programs() -> dict[str, Any]:
    from benchmarks.aes_rl import performance, rules, time_efficiency

    return {"performance": performance, "rules": rules, "time_efficiency": time_efficiency}


@pytest.mark.parametrize("profile", ["ci", "paper"])
@pytest.mark.parametrize("name", ["performance", "rules", "time_efficiency"])
def test_the_first_seed_of_every_sweep_composes(name: str, profile: str) -> None:
    from evorl.cli.config import experiment_of_words as experiment

    for sweep in programs()[name].SWEEPS[profile]:
        choices = [_values(word) for word in sweep.words]
        for chosen in list(product(*choices))[::7]:
            made = experiment(list(chosen))
            assert made.budget.steps is not None


def _values(word: str) -> list[str]:
    key, _, value = word.partition("=")
    return [word] if "[" in value else [f"{key}={one}" for one in value.split(",")][: 1 if key == "seed" else None]


def test_every_algorithm_meets_every_world_in_the_papers_sweeps() -> None:
    from benchmarks.aes_rl.family import TITLES, WORLDS
    from benchmarks.aes_rl.performance import SWEEPS

    words = [word for sweep in SWEEPS["paper"] for word in sweep.words]
    for name, world in product(TITLES, WORLDS):
        published = any(f"aes_rl/as_published/{name}_{world}" in word.partition("=")[2].split(",") for word in words)
        assert published != (name in ("sac", "cem"))
    assert "mdp=" + ",".join(WORLDS) in words and "+experiment=aes_rl/sac,aes_rl/cem" in words


AES_RL = {  # what the authors' files of AES-RL say of a world
    "halfcheetah": {"ec": {"scale": 2000}},
    "hopper": {"ec": {"scale": 600}},
    "walker2d": {"ec": {"scale": 800}},
    "swimmer": {"ec": {"scale": 48, "trained_share": 0.1}},
    "ant": {"ec": {"scale": 960}},
    "humanoid": {"ec": {"scale": 960}, "rl": {"lr": "3e-4", "net": {"hidden": [256, 256]}}},
}


def test_a_published_experiment_is_an_algorithm_a_world_and_its_scale() -> None:
    """And nothing else, so that all files of a world differ in the algorithm alone."""
    from benchmarks.aes_rl.family import WORLDS
    from benchmarks.aes_rl.performance import PUBLISHED

    base = "experiment/aes_rl/as_published"
    cases = list(product([*PUBLISHED, "p_cem_rl_parallel"], WORLDS))
    for name, world in cases:
        found = yaml.safe_load((ROOT / "conf" / base / f"{name}_{world}.yaml").read_text())
        assert found.pop("defaults") == [f"/{base}/{name}", f"/{base}/world/{world}", "_self_"]
        assert found == (AES_RL[world] if name == "aes_rl" else {})
    files = {path.stem for path in (ROOT / "conf" / base).glob("*.yaml")}
    assert files == {*(f"{name}_{world}" for name, world in cases), *(name for name, _ in cases)}


def test_the_parallel_critic_as_published_differs_from_the_serial_one_in_two_keys() -> None:
    from evorl.cli.config import experiment_of_words as experiment

    serial, parallel = (
        experiment([f"+experiment=aes_rl/as_published/{name}_hopper"]) for name in ("p_cem_rl", "p_cem_rl_parallel")
    )
    assert serial.ec is not None and parallel == replace(
        serial, ec=replace(serial.ec, parallel_critic=True, critic_ratio=None)
    )


# ------------------------------------------------------------------ tables


def test_performance_is_drawn_from_the_runs_that_are_there(tmp_path: Path) -> None:
    words = ["+experiment=aes_rl/td3", "rl.net.hidden=[4]", "budget.steps=64", "eval.every=32", "eval.episodes=1"]
    words += ["mdp.time_limit=8", "rl.warm_up=16", "rl.batch=4", "rl.samples_per_step=4"]
    place = tmp_path / "ci" / "halfcheetah" / "0"
    done = evorl("run", *words, f"hydra.run.dir={place}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = drawn("aes_rl/performance", tmp_path / "ci", tmp_path)
    assert told["data"]["table"]["halfcheetah"]["TD3"]["steps"] == 64 and set(told["gates"].values()) == {"not run"}
    assert told["rows"][0][:3] == ["HalfCheetah, TD3", "1", "64"] and told["made_of"] is None  # some runs are missing


def test_cem_is_also_compared_at_the_end_of_its_longer_runs() -> None:
    from benchmarks.aes_rl.performance import GRADIENT_FREE, cases, gathered, rows

    def made(rl: str, ec: str, budget: float, steps: list[float]) -> RunRecord:
        one = run(steps, [float(n) for n in range(len(steps))], **{"budget.steps": budget})
        choices = {"mdp": "swimmer", "rl": rl, "ec": ec}
        return RunRecord(directory=Path("."), config=one.config, series=one.series, choices=choices, seconds=3600.0)

    runs = [made("td3", "cem", 60_000, [20_000, 40_000, 60_000]), made("td3", "none", 20_000, [5_000, 20_000])]
    found = gathered(runs, "ci")
    assert [(name, steps) for _, name, _, steps in cases(found, "ci")] == [
        ("TD3", 20_000), ("CEM", 20_000), (GRADIENT_FREE, 60_000),
    ]  # fmt: skip
    shown, data = rows(found, "ci")
    assert [row[0] for row in shown] == ["Swimmer, TD3", "Swimmer, CEM", f"Swimmer, {GRADIENT_FREE}"]
    assert data["swimmer"][GRADIENT_FREE]["returns"] == [2.0]


def test_rules_have_a_row_for_each_pair() -> None:
    from benchmarks.aes_rl.rules import MEAN, VARIANCE, draw, rows

    runs = [
        run([5_000, 20_000], [0.0, float(n)], **{
            "ec.mean_rule": mean, "ec.variance_rule": variance, "budget.steps": 20_000, "seed": n, "rl.net.hidden": [4],
        })
        for mean, variance, n in product(MEAN, VARIANCE, (1, 2))
    ]  # fmt: skip
    shown, data = rows(runs, "ci")
    assert len(shown) == 8 and {row[4] for row in shown} == {"1, 2"} and data[0]["iqm"] == 1.5
    assert [len(axes.lines) for axes in draw(runs).axes] == [len(MEAN)] * len(VARIANCE)


def test_an_algorithm_is_named_by_what_its_run_chose() -> None:
    from benchmarks.aes_rl.family import UNTRAINED, algorithm

    def named(rl: str, ec: str, **config: Any) -> str:
        return algorithm(SimpleNamespace(choices={"rl": rl, "ec": ec}, config=config))

    assert [named("sac", "none"), named("td3", "p_cem_rl")] == ["SAC", "P-CEM-RL"]
    assert named("td3", "aes_rl", **{"ec.trained_share": 0}) == UNTRAINED
