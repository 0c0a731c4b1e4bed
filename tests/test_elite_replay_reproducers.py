"""The parts of the reproducers of elite replay that need neither hours nor peers."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evorl.analysis.runs import RunRecord, Series

pytestmark = pytest.mark.slow

NOFRAMESKIP = "atari_noframeskip"


def run(world: str, seed: int = 1, steps: float = 100.0, **told: Any) -> RunRecord:
    """A run that has ended, with these series at four steps. ``told``: also the shares of its replay, and the like."""
    config = {
        "seed": seed, "budget.steps": steps, "rl.sampling.uniform": told.pop("uniform", 0.5),
        "rl.sampling.elite": told.pop("elite", 0.0), "rl.replay.elite.strategy": told.pop("strategy", 3),
        "rl.correction": told.pop("correction", "vtrace"), "mdp.game": world, "rl.replay.elite.candidates": 6.0,
        "rl.replay.elite.anneal": 100,
    }  # fmt: skip
    grid = steps * np.arange(1, 5) / 4
    told |= {"optimizer/updates": [0, 60, 100, 120]}
    series = {name: Series(grid, grid, np.array(x, np.float64)) for name, x in told.items()}
    return RunRecord(
        directory=Path("."), config=config, series=series, result={}, seconds=36.0,
        choices={"mdp": {"vector_pong": "pong", "breakout": NOFRAMESKIP, "seaquest": NOFRAMESKIP}.get(world, world)},
    )  # fmt: skip


RETURN, UNIFORM_KL, ELITE_KL, CANDIDATES = (
    "eval/return_mean", "replay/kl_uniform", "replay/kl_elite", "replay/candidates_elite",
)  # fmt: skip
FALLS = [6.0, 3.0, 1.0, 1.0]


def elite_runs(kl: list[float], candidates: list[float] = FALLS) -> list[RunRecord]:
    uniform = [
        run("cartpole", seed, **{RETURN: [0, 0, 1, seed], UNIFORM_KL: [1 + seed / 10] * 4}) for seed in (1, 2, 3)
    ]
    elite = [
        run("cartpole", seed, uniform=0.0, elite=0.5, strategy=strategy,
            **{RETURN: [0, 1, 1, 10 + seed], ELITE_KL: kl, CANDIDATES: candidates})
        for seed, strategy in product((1, 2, 3), (1, 3))
    ]  # fmt: skip
    both = [
        run("cartpole", seed, uniform=0.25, elite=0.25, strategy=strategy,
            **{RETURN: [0] * 4, UNIFORM_KL: [1.0] * 4, ELITE_KL: kl, CANDIDATES: candidates})
        for seed, strategy in product((1, 2, 3), (1, 3))
    ]  # fmt: skip
    return uniform + elite + both


# ------------------------------------------------------------------ sweeps


def test_the_last_job_of_every_sweep_composes() -> None:
    """It is evaluated as often as its world's declaration says."""
    from benchmarks.elite_replay import correction, dqn, elite
    from benchmarks.elite_replay.arms import WORLDS
    from evorl.cli.config import experiment_of_words as experiment

    programs = (elite, correction, dqn)
    sweeps = {each.words: each.name for one in programs for sweeps in one.SWEEPS.values() for each in sweeps}
    for words, name in sweeps.items():
        last = [f"{key}={values.rpartition(',')[2]}" for key, _, values in (word.partition("=") for word in words)]
        made = experiment(last)
        every = {world: one.every for world, one in WORLDS.items() if name.startswith(world)}
        assert made.budget.steps and made.eval.every == (0 if "dqn" in name else every.popitem()[1])


def test_a_run_is_known_by_what_it_chose() -> None:
    from benchmarks.elite_replay.arms import ELITE, UNIFORM, WORLDS, rules, world_of

    assert [world_of(run(name)) for name in WORLDS] == [*WORLDS]
    assert rules(run("cartpole")) == (UNIFORM,)
    assert rules(run("cartpole", uniform=0.0, elite=0.5, strategy=1)) == (ELITE[1],)
    assert rules(run("cartpole", uniform=0.25, elite=0.25)) == (UNIFORM, ELITE[3])


def test_the_seaquest_experiments_are_8_to_2_and_the_others_half() -> None:
    from benchmarks.elite_replay.arms import WORLDS
    from evorl.cli.config import experiment_of_words as experiment

    for world, part in product(("breakout", "seaquest"), ("uniform", "elite_1", "elite_3")):
        made = experiment([f"+experiment={WORLDS[world].experiments}/{part}"])
        shares = made.rl.mix.shares
        assert made.mdp.game == world
        assert shares["queue"] == (0.8 if world == "seaquest" else 0.5)
        assert shares[part.partition("_")[0]] == pytest.approx(1 - shares["queue"])


# ------------------------------------------------------------------ elite


def test_elites_gates_tell_right_from_wrong() -> None:
    from benchmarks.elite_replay.elite import gathered, sampling

    def verdicts(runs: list[RunRecord]) -> set[str]:
        return {*sampling(gathered(runs))[2].values()}

    gates = sampling(gathered(elite_runs([0.1, 0.2, 0.3, 1.0])))[2]
    assert len(gates) == 7 and {*gates.values()} == {"passed"}
    assert verdicts(elite_runs([1.2, 1.2, 1.2, 2.0])) == {"passed", "failed"}  # candidates falls
    assert verdicts(elite_runs([1.2, 1.2, 1.2, 2.0], [6.0, 4.0, 1.0, 1.0])) == {"failed"}  # not linear
    assert verdicts(elite_runs([0.1, 0.2, 0.3, 0.5])) == {"passed", "failed"}  # at the end both are uniform


def test_kl_is_told_until_candidates_is_1_and_after() -> None:
    from benchmarks.elite_replay.elite import gathered, returns, sampling

    found = gathered(elite_runs([0.1, 0.2, 0.3, 0.9]))
    _, data, _ = sampling(found)
    told = data["cartpole"]["elite, strategy 1"]
    assert told["until"]["iqm"] == pytest.approx(0.2) and told["after"]["iqm"] == pytest.approx(0.9)
    assert data["cartpole"]["both, elite, strategy 3"]["until"]["iqm"] == pytest.approx(0.2)
    assert data["cartpole"]["candidates is 1 from step"] == 75
    shown, data = returns(found)
    assert [row[0] for row in shown] == [
        f"CartPole, {name}" for name in ("uniform", "elite, strategy 1", "elite, strategy 3")
    ]
    assert [row[4] for row in shown] == ["-", "above", "above"]
    assert data["cartpole"]["uniform"]["end"]["iqm"] == 2.0 and data["cartpole"]["uniform"]["overall"]["iqm"] == 0.75


def test_elites_pictures_have_the_published_curves() -> None:
    from benchmarks.elite_replay.elite import draw, draw_sampling, gathered, published_alone
    from benchmarks.elite_replay.published import BANDS, SCORES, STEPS

    for world, each in SCORES.items():
        assert {len(x) for x in each.values()} == {len(STEPS[world])} and {*each} == {*BANDS[world]}
        assert all(low < each[name][-1] < high for name, (low, high) in BANDS[world].items())
    found = gathered(elite_runs([0.1, 0.2, 0.3, 0.9]))
    assert [len(axes.lines) for axes in draw(found).axes] == [3, 3, 3]  # CartPole's, then the published games
    (shown,) = draw_sampling(found).axes
    assert len(shown.lines) == 3 + 2 * 2
    ticks = [shown.yaxis.get_major_formatter()(x) for x in shown.get_yticks()]
    assert [float(x) for x in ticks] == pytest.approx(list(shown.get_yticks()))  # plain numbers
    assert published_alone(found) == "; Breakout and Seaquest: the published curves alone, without runs of ours"
    assert published_alone(gathered([run("breakout"), run("seaquest")])) == ""


# ------------------------------------------------------------------ correction


@pytest.mark.parametrize(
    ("none", "expected"), [(-10.0, "passed"), (7.0, "failed"), (11.5, "failed"), (None, "not run")]
)
def test_no_correction_must_be_behind(none: float | None, expected: str) -> None:
    from benchmarks.elite_replay.correction import draw, gathered, rows, verdict

    def ended(correction: str, seed: int, end: float) -> RunRecord:
        return run(
            "vector_pong", seed, 1.2e6, correction=correction, **{RETURN: [-15, 0, 3, end], UNIFORM_KL: [1.0] * 4}
        )

    runs = [ended("vtrace", seed, 10.0 + seed) for seed in (1, 2, 3)]
    runs += [] if none is None else [ended("none", seed, none + seed) for seed in (1, 2, 3)]
    found = gathered(runs)
    shown, data = rows(found)
    assert verdict(data["vector_pong"]) == expected
    assert shown[0][:5] == ["Vector Pong, V-trace", "3", "1,200,000", "12.0 [11.0, 13.0]", "-"]
    assert [len(axes.lines) for axes in draw(found).axes] == [2 if runs[3:] else 1]


# ------------------------------------------------------------------ DQN


@pytest.mark.parametrize("world", ["cartpole", "lunarlander", "pong"])
def test_the_others_have_the_settings_of_the_experiment(world: str) -> None:
    from benchmarks.elite_replay.dqn import cleanrl, sb3
    from evorl.cli.config import experiment_of_words as experiment

    made = experiment([f"+experiment=elite_replay/dqn/{world}"])
    rl = made.rl
    _, _, settings = sb3(world, made, 7)
    given = settings["arguments"]
    assert given["train_freq"] * given["batch_size"] == rl.samples_per_step * rl.horizon**2  # one gradient step
    assert rl.samples_per_step * rl.horizon == rl.batch and rl.slots == 1 and rl.n_step == 1 and not rl.double
    assert given["target_update_interval"] == rl.target_every * rl.horizon
    assert given["exploration_fraction"] * settings["budget"] == rl.epsilon.steps
    program, _, asked = cleanrl(world, made, 7)
    words = dict(zip(asked["words"][::2], asked["words"][1::2], strict=True))
    same = {
        "--learning-rate": "learning_rate", "--buffer-size": "buffer_size", "--batch-size": "batch_size",
        "--train-frequency": "train_freq", "--target-network-frequency": "target_update_interval",
        "--learning-starts": "learning_starts", "--exploration-fraction": "exploration_fraction", "--gamma": "gamma",
        "--start-e": "exploration_initial_eps", "--end-e": "exploration_final_eps",
    }  # fmt: skip
    assert {name: float(words[name]) for name in same} == {name: float(given[key]) for name, key in same.items()}
    assert program == "cleanrl_dqn.py" and asked["program"] == ("dqn_atari" if world == "pong" else "dqn")
    assert (asked["seed"], settings["seed"]) == (7, 7) and words["--total-timesteps"] == str(made.budget.steps)
    assert list(rl.net.hidden) == ([512] if world == "pong" else [120, 84])  # written into CleanRL's programs


def test_a_peers_curve_is_the_mean_of_its_last_100_episodes() -> None:
    from benchmarks.elite_replay.dqn import METRIC, record

    episodes = [[10 * n, float(n)] for n in range(1, 301)]
    told = record({"episodes": episodes, "seconds": 5.0}, seed=2, steps=3000.0, every=500.0)
    series = told.series[METRIC]
    assert series.steps.tolist() == [500, 1000, 1500, 2000, 2500, 3000]
    assert series.values.tolist() == [25.5, 50.5, 100.5, 150.5, 200.5, 250.5]
    assert (told.seed, told.seconds) == (2, 5.0)


def test_dqn_is_beside_the_one_with_its_loss() -> None:
    from benchmarks.elite_replay.dqn import CLEANRL, HUBER, METRIC, SB3, SQUARED, draw, rows

    def ended(end: float) -> list[RunRecord]:
        return [run("cartpole", seed, 2e4, **{METRIC: [0, 1, 2, end + seed]}) for seed in (1, 2, 3)]

    found = {"cartpole": {HUBER: ended(100), SQUARED: ended(50), SB3: ended(90), CLEANRL: ended(90)}}
    shown, data, gates = rows(found)
    assert [row[4] for row in shown] == ["above", "below", "-", "-"]
    assert [*gates.values()] == ["passed", "failed"]
    assert data["cartpole"][HUBER]["end"]["iqm"] == 102.0
    assert [len(axes.lines) for axes in draw(found).axes] == [4]


def test_a_peer_is_asked_with_the_words_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.elite_replay import dqn
    from evorl.reproduction.parts import Inputs

    asked = list[tuple[str, ...]]()

    def answer(python: Path, *words: str) -> dict[str, Any]:
        asked.append(words)
        return {"episodes": [[10, 1.0]], "versions": {}}

    monkeypatch.setattr(dqn, "answer", answer)
    others = dqn.others("ci")
    assert len({one.name for one in others}) == len(others) == 2 * 2 * 3
    found = [one.measure(Inputs(["budget.steps=8000"], Path())) for one in others if "cartpole-2" in one.name]
    assert [words[0] for words in asked] == ["sb3.py", "cleanrl_dqn.py"]
    assert json.loads(asked[0][-1])["budget"] == found[0]["settings"]["budget"] == 8000
    assert found[0]["episodes"] == [[10, 1.0]] and found[0]["settings"]["seed"] == 2
