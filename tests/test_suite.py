"""The suite of baselines: its arms, its tables of hand-made runs, and the policies that it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_evaluate import evaluate  # noqa: F401

from benchmarks.suite import (
    arms,
    atari,
    baselines,
    evolution,
    more_worlds,
    no_difference,
    off_policy,
    on_policy,
    other_learners,
    tuned,
)
from benchmarks.suite.arms import SB3, WORLDS, Arm, learner
from benchmarks.suite.baselines import OURS, Pair, Scored, joint, plain, verdicts
from benchmarks.suite.published import PUBLISHED, published
from evorl.analysis.runs import RunRecord, Series
from evorl.cli.config import experiment_of_words
from evorl.reproduction.loop import first_job
from evorl.reproduction.papers import PROGRAMS
from evorl.reproduction.parts import Inputs, Sweep
from evorl.reproduction.table import Policy, Results
from evorl.util.errors import BadRequest

TABLES = (on_policy, off_policy, more_worlds, other_learners, tuned, atari, evolution)
PPO, ACROBOT = learner("ppo", "cartpole", 1_000), learner("ppo", "acrobot", 1_000)
RESULTS = [table.__name__.rpartition(".")[2] for table in TABLES]
POLICIES = sorted((PROGRAMS / "suite" / "results" / "policies").glob("*"))


def read(table: str) -> dict[str, Any]:
    """The result of a table of the suite."""
    found: dict[str, Any] = json.loads((PROGRAMS / "suite" / "results" / f"{table}.json").read_text())
    return found


def run(arm: Arm, seed: int, curve: list[float]) -> RunRecord:
    """A run of an arm that has ended, with these evaluations at equal distances."""
    steps = np.arange(1, len(curve) + 1) * arm.steps / len(curve)
    return RunRecord(
        directory=Path(f"runs/{arm.name}/{seed}"), config={"seed": seed}, result={}, seconds=1.0, steps=arm.steps + 8,
        series={baselines.METRIC: Series(steps, steps, np.array(curve))},
    )  # fmt: skip


def told(arm: Arm, curve: list[float]) -> dict[str, Any]:
    """What a peer's program says of such a run, with two episodes in each evaluation."""
    steps = [int(arm.every * (n + 1)) for n in range(len(curve))]
    return {"steps": steps, "returns": [[x - 1, x + 1] for x in curve], "seconds": 2.0, "versions": {"torch": "1"}}


def pair(arm: Arm, mine: list[float], other: list[float]) -> Pair:
    """Runs of both programs with these returns from their beginning to their end."""
    runs = [run(arm, seed, [x] * 10) for seed, x in enumerate(mine)]
    measured = {arm.kept(seed): told(arm, [x] * 10) for seed, x in enumerate(other)}
    return Pair(baselines.ours(arm, runs), baselines.theirs(arm, measured))


# ------------------------------------------------------------------ arms


@pytest.mark.slow
def test_every_arm_composes_and_is_evaluated_ten_times() -> None:
    parts = [part for one in (*TABLES, no_difference) for size in one.TABLE.profiles.values() for part in size.parts]
    sweeps = {part.name: part.words for part in parts if isinstance(part, Sweep)}  # either profile has the same words
    for name, words in sweeps.items():
        made = experiment_of_words(first_job(words))
        assert made.budget.steps == 10 * made.eval.every and made.device == "cpu", name


def test_the_arms_of_a_size_have_names_of_their_own() -> None:
    """Also those of different tables, whose runs and policies share folders."""
    for size in ("ci", "night"):
        parts = [part for one in TABLES for part in one.TABLE.profiles[size].parts]
        names = [part.name for part in parts if isinstance(part, Sweep)]
        assert len(names) == len({*names})


def test_the_tables_draw_no_figure_of_the_same_name() -> None:
    names = []
    for one in TABLES:
        found = one.TABLE.analyse(Results("ci", [run(arm, seed, [1.0] * 10) for arm in one.CI for seed in (0, 1)], {}))
        names += [picture.name for picture in found.pictures]
    assert len(names) == len({*names})


def test_an_arm_can_have_seeds_and_episodes_of_its_own() -> None:
    few = PPO._replace(seeds=(0, 3), episodes=4)
    sweep, *peers = few.parts()
    assert isinstance(sweep, Sweep) and {"seed=0,3", "eval.episodes=4"} <= {*sweep.words}
    assert [one.name for one in peers] == [few.kept(0), few.kept(3)]
    assert arms.sizes([few]).endswith("2 seeds") and arms.sizes([few._replace(seeds=(0,))]).endswith("1 seed")
    assert pair(few, [], [1.0, 2.0, 3.0, 4.0]).other.seeds == [0, 3]


def test_the_text_about_arms_alone_has_their_numbers_of_episodes() -> None:
    assert "by 3 or 20 episodes of the" in baselines.text_alone([PPO._replace(episodes=3), PPO, ACROBOT])
    assert "by 10 episodes of the" in baselines.text_alone([PPO._replace(episodes=10)])


def test_the_published_numbers_are_those_of_the_arms() -> None:
    every = [arm for one in TABLES for arm in (*one.CI, *one.NIGHT)]
    assert {*PUBLISHED} == {(arm.peer, WORLDS[arm.world].gymnasium) for arm in every if arm.peer}
    assert published("ppo", "CartPole-v1") == "500 ± 0 (100k)" and published(None, None) == "-"


def test_half_the_learning_rate_is_half_of_the_tuned_one() -> None:
    for arm, lr in no_difference.ARMS.items():
        assert experiment_of_words([f"mdp={arm.world}", *arm.words]).rl.lr == lr


def test_words_that_would_change_ours_alone_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"^budget\.steps=10: would change evorl's runs alone"):
        arms.play(PPO, 0, Inputs(["budget.steps=10"], Path()))


def test_random_actions_on_cartpole_last_as_long_as_they_are_known_to() -> None:
    found = arms.random_returns("cartpole", Inputs([], Path()))
    assert len(found) == 100 and 18 < np.mean(found) < 28


# ------------------------------------------------------------------ tables


def test_a_curve_has_the_evaluation_nearest_to_each_tenth() -> None:
    assert baselines.resampled(PPO, [100, 210, 950, 1020], [1, 2, 3, 4]) == [1, 2, 2, 2, 2, 3, 3, 3, 3, 4]


def test_the_rows_of_an_arm() -> None:
    mine, other = baselines.rows({PPO: pair(PPO, [0, 1, 2, 3, 4], [100, 101, 102, 103, 104])})
    assert mine == ["ppo, CartPole: evorl", "5", "1,008", "2 [0, 4]", "below", "2 [0, 4]", "below", "-", "1"]
    assert other[:4] == [f"ppo, CartPole: {SB3}", "5", "1,000", "102 [100, 104]"]
    assert other[4:] == ["-", "102 [100, 104]", "-", "500 ± 0 (100k)", "2"]
    only = learner("ppo", "pong", 1_000)
    assert [row[0] for row in baselines.rows({only: pair(only, [0.0, 1.0], [])})] == ["ppo, vector Pong: evorl"]


@pytest.mark.parametrize(("above", "verdict", "gate"), [(0, "lower", "failed"), (1, "higher", "passed")])
def test_an_algorithm_is_judged_over_its_worlds(above: int, verdict: str, gate: str) -> None:
    low, high = [0.0, 1, 2, 3, 4], [10.0, 11, 12, 13, 14]
    sides = (high, low) if above else (low, high)
    random = {"random/cartpole": [0.0], "random/acrobot": [-500.0]}
    found = baselines.joint({arm: pair(arm, *sides) for arm in (PPO, ACROBOT)}, random)
    words = baselines.verdicts(found)
    assert words["ppo"].startswith(f"{verdict} (p = ") and found["ppo"].p < 0.001
    assert baselines.gates(words) == {"ppo: not shown to be lower than the other over its worlds": gate}
    data = {"arms": {PPO.name: {"world": "cartpole"}}, "joint": {"ppo": baselines.plain(found["ppo"], words["ppo"])}}
    assert baselines.measured(data).startswith("ppo over 2 worlds: IQM 0.")
    assert baselines.measured(data).endswith(f"), {words['ppo']}")
    assert baselines.joint({PPO: pair(PPO, *sides)}, {}) == {}  # random actions were not played yet
    assert baselines.verdicts(baselines.joint({PPO: pair(PPO, low, low)}, random))["ppo"].startswith("no difference")


def test_what_looks_lower_without_being_shown_to_be_is_told() -> None:
    pairs = {PPO: pair(PPO, [0.0, 1, 2, 3, 4], [3.5, 4.5, 5, 6, 7])}
    found = baselines.joint(pairs, {"random/cartpole": [0.0]})
    (told,) = baselines.suspects(found, {"ppo": "no difference shown (p = 0.06)"})
    assert told.endswith(f"lies below one half: ppo ({found['ppo'].better.text(2)}).")
    assert not [*baselines.suspects(found, {"ppo": "lower (p = 0.016)"})]
    alike = baselines.joint({PPO: pair(PPO, [0.0, 1, 2], [0.0, 1, 2])}, {"random/cartpole": [0.0]})
    assert not [*baselines.suspects(alike, {"ppo": "no difference shown (p = 1)"})]


@pytest.mark.parametrize("one", [one for one in TABLES if one.TABLE.peers])
def test_every_algorithm_of_a_table_can_be_found_lower(one: Any) -> None:
    """Five seeds beside five on each world are enough for the level, whatever the number of algorithms."""
    for size in (one.CI, one.NIGHT):
        peers = [arm for arm in size if arm.peer]
        random = {f"random/{arm.world}": [-9_999.0] for arm in peers}
        apart = {arm: pair(arm, [0.0, 1, 2, 3, 4], [10.0, 11, 12, 13, 14]) for arm in peers}
        words = baselines.verdicts(baselines.joint(apart, random))
        assert words and all(word.startswith(("lower", "higher")) for word in words.values())


def test_worlds_are_taken_together_by_scaled_returns() -> None:
    random = {"random/cartpole": [20.0], "random/acrobot": [-500.0]}
    best = {arm: pair(arm, [WORLDS[arm.world].target] * 2, [x] * 2) for arm, x in ((PPO, 20.0), (ACROBOT, -500.0))}
    found = baselines.joint(best, random)
    assert [*baselines.together(found, {"ppo": "higher"}).rows] == [
        ["ppo: evorl", "2", "1.00 [1.00, 1.00]", "0.00 [0.00, 0.00]", "1.00 [1.00, 1.00]", "higher"],
        ["ppo: the other", "2", "0.00 [0.00, 0.00]", "1.00 [1.00, 1.00]", "-", "-"],
    ]


def test_a_table_is_made_of_the_runs_there_are() -> None:
    arm = on_policy.CI[0]
    runs = [run(arm, seed, [float(10 * seed)] * 10) for seed in (2, 0, 1, 3)]
    found = on_policy.TABLE.analyse(Results("ci", runs, {}))
    assert found is not None and len(found.rows) == 1 and not found.gates
    (kept,) = found.also
    assert [*kept.rows] == [["ppo_cartpole", "1", "10.00"]]
    assert found.policies == {"ppo_cartpole": Policy(Path("runs/ppo_cartpole/1"))}  # the lower of the two in the middle
    assert on_policy.TABLE.analyse(Results("ci", [], {})) is None
    assert on_policy.TABLE.measured(found.data) == "ppo with nothing beside"
    (again,) = baselines.repeated(found.data).values()
    assert again.sweep == arm.name and again.curves == {seed: [10.0 * seed] * 10 for seed in range(4)}
    assert again.margin == pytest.approx(45.5) and again.read(runs) == again.curves


def test_a_table_of_one_seed_has_numbers_without_intervals() -> None:
    arm = tuned.CI[0]
    found = tuned.TABLE.analyse(Results("ci", [run(arm, 0, [7.0] * 10)], {}))
    assert found is not None and not found.gates
    assert [row[:5] for row in found.rows] == [[f"{arm.title}: evorl", "1", f"{arm.steps + 8:,}", "7", "-"]]
    assert tuned.TABLE.policy_scores is not None and tuned.TABLE.policy_scores(found.data)[arm.name]["iqm"] == 7.0


def test_the_comparison_of_sets_finds_what_was_planted() -> None:
    rng = np.random.default_rng(0)
    same, halved = rng.normal(size=(40, 10)), rng.normal(size=(20, 10)) + 5
    found = no_difference.counts(PPO, same, halved, 5)
    assert found.no_difference >= 95 and found.found == 100
    assert found.equivalent == 100  # CartPole's margin is 45


def test_no_gate_of_the_comparison_is_left_out() -> None:
    told = read("no_difference")
    for name, one in told["data"]["counts"].items():
        times = {"A/A says no difference": one["no_difference"], "half the learning rate is found": one["found"]}
        for what, n in times.items():
            assert told["gates"].pop(f"{name}: {what} 95 times") == ("passed" if n >= 95 else "failed")
    assert not told["gates"]


# ------------------------------------------------------------------ policies


def test_every_arm_of_the_results_keeps_the_policy_of_its_median_run() -> None:
    results = [read(name) for name in RESULTS]
    found = {arm: one for each in results for arm, one in each["data"]["arms"].items()}
    pixels = read("pixels")
    shown = {arm: mean for each in [*results, pixels] for arm, _, mean in each["also"][-1]["rows"]}
    last = {arm: [curve[-1] for curve in one[OURS]["curves"]] for arm, one in found.items()} | pixels["data"]["ends"]
    assert {*last} == {place.name for place in POLICIES}
    for arm, returns in last.items():
        kept = json.loads((PROGRAMS / "suite" / "results" / "policies" / arm / "evaluation.json").read_text())
        ends = sorted(returns)
        assert kept["return_mean"] == ends[(len(ends) - 1) // 2]
        assert f"{kept['return_mean']:.2f}" == shown[arm]


@pytest.mark.parametrize("table", TABLES)
def test_the_numbers_over_worlds_are_those_of_the_kept_samples(table: Any) -> None:
    short = table.__name__.rpartition(".")[2]
    kept = read(short)["data"]
    found = {
        arm: Pair(*(Scored(**kept["arms"][arm.name][name], places=[]) for name in (OURS, SB3)))
        for arm in table.CI
    }  # fmt: skip
    over = joint(found, {f"random/{world}": returns for world, returns in kept["random"].items()})
    told = {name: plain(one, kept["joint"][name]["verdict"]) for name, one in over.items()}
    assert json.loads(json.dumps(told)) == kept["joint"]
    assert verdicts(over) == {name: one["verdict"] for name, one in kept["joint"].items()}
