"""Rewards that are sums of a world's, from the definition, and in whole runs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from harness import QUICK, experiment_of, fingerprint, go, newest, rows
from hypothesis import given
from hypothesis import strategies as st
from test_football_engine import stand_in as stand_in
from tiny import Walk

from evorl.api.runs import load
from evorl.matches.players import read
from evorl.mdp.begin import begin
from evorl.mdp.conformance import check
from evorl.mdp.core import Array, Discrete, Input, Spec, World
from evorl.mdp.football import Football
from evorl.mdp.random_play import random_action
from evorl.mdp.reward_terms import Rewarded, TermRewards, Terms
from evorl.opponents.play import Matches, Pair
from evorl.util.seed import Episodes, generator

GAMMA = 0.9
NAMES = "abcdef"
DECISIONS = 60
"""Of each slot, in worlds."""


# ------------------------------------------------------------------ from the definition


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]], dict[str, float]]:
    """A world's rewards, disjoint sums of some of them, and weights of some."""
    rewards = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True))
    places = draw(st.lists(st.integers(-1, 2), min_size=len(rewards), max_size=len(rewards)))  # -1: in no sum
    sums: dict[str, tuple[str, ...]] = {}
    for name, place in draw(st.permutations([*zip(rewards, places, strict=True)])):
        if place >= 0:
            sums[f"sum{place}"] = (*sums.get(f"sum{place}", ()), name)
    if sums and draw(st.booleans()):  # a sum may have the name of one of its own
        parts = sums.pop(next(iter(sums)))
        sums[parts[0]] = parts
    weights = draw(st.dictionaries(st.sampled_from(rewards), st.floats(-2, 2)))
    return tuple(rewards), sums, weights


@given(cases(), st.integers(0, 2**31), st.integers(0, 4))
def test_a_reward_of_training_is_the_weighted_sum_of_its_own(
    case: tuple[tuple[str, ...], dict[str, tuple[str, ...]], dict[str, float]], seed: int, rows: int
) -> None:
    rewards, sums, weights = case
    earned = np.random.default_rng(seed).normal(size=(rows, len(rewards))).astype(np.float32)
    terms = Terms(weights=weights, sums=sums)
    own = Spec((Input("x", (1,)),), Discrete(2), rewards)
    made = TermRewards(Rewarded(world=Walk(), terms=terms, gamma=GAMMA), own)

    names: list[str] = []
    for reward in rewards:  # where the first of a sum stands, the sum stands, and the others nowhere
        name = next((name for name, parts in sums.items() if reward in parts), reward)
        if name not in names:
            names.append(name)
    assert made.spec(own) == Spec(own.inputs, own.action, tuple(names)) == terms.spec(own)

    got = made.own(earned)
    assert got.shape == (rows, len(names))
    for row in range(rows):
        for place, name in enumerate(names):
            expected = 0.0
            for reward in sums.get(name, (name,)):
                expected += weights.get(reward, 1.0) * float(earned[row, rewards.index(reward)])
            assert got[row, place] == pytest.approx(expected, abs=1e-9)


# ------------------------------------------------------------------ in worlds


SOCCER = (
    *("mdp=soccer", "mdp.seconds=2"),
    *("mdp.reward.possession=0.2", "mdp.reward.progress=0.3", "mdp.reward.approach=0.4"),
)
WORLDS: dict[str, tuple[tuple[str, ...], Terms]] = {
    "all, in battles": (
        ("mdp=duel", "mdp.side=both", "mdp.ground.limit=3"),
        Terms(
            weights={"win": 0.5}, sums={"all": ("win", "damage")},
            potential={"fight_0": 2.0}, results={"fitness": 0.25},
        ),
    ),
    "repeated actions": (
        (*SOCCER, "mdp.frame_skip=[1,3]"),
        Terms(sums={"most": ("goal", "approach", "possession")}, results={"win": 1.0}),
    ),
    "not side by side": (
        (*SOCCER, "mdp.opponent=self"),
        Terms(
            weights={"approach": -2.0}, sums={"far": ("approach", "goal"), "near": ("progress",)},
            potential={"game_3": 1.0}, results={"score": 3.0},
        ),
    ),
    "without the first": (SOCCER, Terms(sums={"shaped": ("progress", "approach")}, potential={"game_1": 1.0})),
}  # fmt: skip


def world_of(name: str) -> World:
    if name == "football":
        return Football(engine="gfootball", observation="simple115", time_limit=12, rewards=("scoring", "checkpoints"))
    made: World = experiment_of(*WORLDS[name][0]).mdp
    return made


def terms_of(name: str) -> Terms:
    return Terms(sums={"both": ("checkpoints", "scoring")}) if name == "football" else WORLDS[name][1]


def played(world: World) -> tuple[tuple[str, ...], list[Array], list[list[dict[str, float]]]]:
    """The names of its rewards; of each slot its first rewards [DECISIONS, K], and the results of its episodes."""
    slots = 2 * world.sides
    earned: list[list[Array]] = [[] for _ in range(slots)]
    results: list[list[dict[str, float]]] = [[] for _ in range(slots)]
    with closing(begin(world, slots, Episodes(3))) as arena:
        while min(map(len, earned)) < DECISIONS:
            now = arena.recv()
            for slot, result in now.results:
                if len(earned[slot]) < DECISIONS:
                    results[slot].append(result)
            actions = []
            for slot in now.slots.tolist():
                earned[slot].append(now.reward[slot].astype(np.float64))
                draw = generator("reward sums", slot, len(earned[slot]))
                actions.append(random_action(arena.spec, None if now.legal is None else now.legal[slot], draw))
            arena.send(now.slots, np.stack(actions))
        return arena.spec.rewards, [np.stack(each[:DECISIONS]) for each in earned], results


@pytest.mark.slow_cases("repeated actions")
@pytest.mark.parametrize("name", [*WORLDS, "football"])
def test_sums_change_neither_the_sum_of_all_rewards_nor_the_world_s_results(name: str, stand_in: None) -> None:
    """Beside the same terms without sums, in the same games: also the potential and the results are in the sum."""
    world, terms = world_of(name), terms_of(name)
    plain, summed = (
        played(Rewarded(world=world, terms=each, gamma=GAMMA)) for each in (replace(terms, sums={}), terms)
    )
    assert summed[2] == plain[2] and all(map(len, plain[2])) and len(summed[0]) < len(plain[0])
    for before, after in zip(plain[1], summed[1], strict=True):
        np.testing.assert_allclose(after.sum(1), before.sum(1), atol=1e-5)
        for place, own in enumerate(summed[0]):
            parts = [plain[0].index(part) for part in terms.sums.get(own, (own,))]
            np.testing.assert_allclose(after[:, place], before[:, parts].sum(1), atol=1e-5)
    assert np.concatenate(plain[1]).any()


@pytest.mark.slow_cases(but=("all, in battles",))
@pytest.mark.parametrize("name", ["all, in battles", "not side by side"])
def test_the_world_still_conforms(name: str) -> None:
    check(Rewarded(world=world_of(name), terms=terms_of(name), gamma={"all": GAMMA, "far": GAMMA}))


# ------------------------------------------------------------------ in runs


DUEL = (*QUICK, "mdp=duel", "mdp.ground.limit=5")
SUMS = "+reward.sums={all:[damage,win]}"


def test_a_run_has_one_head_for_a_sum_and_resumes_exactly(tmp_path: Path) -> None:
    plain, whole, part = (tmp_path / name for name in ("plain", "whole", "part"))
    words = (*DUEL, SUMS, "+reward.potential={fight_0:1}", "rl.gamma={all:0.9}")
    assert go(*DUEL, "budget.steps=600", f"hydra.run.dir={plain}") == 0
    assert go(*words, "budget.steps=1200", f"hydra.run.dir={whole}") == 0
    assert go(*words, "budget.steps=600", f"hydra.run.dir={part}") == 0
    stop = newest(part)["run"]["steps"]
    assert go(f"resume={part}", "budget.steps=1200") == 0
    assert fingerprint(part, aside=[stop]) == fingerprint(whole, aside=[stop]) and newest(part)["run"]["steps"] > stop
    heads = [newest(one)["run"]["learner"]["policy"]["value.weight"].shape[0] for one in (plain, whole)]
    assert heads == [2, 1]
    names = [{name for row in rows(one) for name in row} for one in (plain, whole)]
    assert {"train/return_damage", "train/return_win"} <= names[0]
    assert "train/return" in names[1] and not any(name.startswith("train/return_") for name in names[1])


def test_what_reads_a_policy_knows_its_rewards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Evaluations, matches with a run without sums, new runs that begin from it, and pools of opponents."""
    summed, plain = tmp_path / "summed", tmp_path / "plain"
    assert go(*DUEL, SUMS, "budget.steps=300", f"hydra.run.dir={summed}") == 0
    assert go(*DUEL, "budget.steps=300", f"hydra.run.dir={plain}") == 0
    with load(summed) as run:
        assert run.policy.spec.rewards == ("all",)
        evaluated, last = run.evaluate(), rows(summed)[-1]
    assert {name: last[f"eval/{name}"] for name in evaluated if name != "fitness"} == {
        name: x for name, x in evaluated.items() if name != "fitness"
    }

    entry = read([str(summed), str(plain)])
    (outcome,) = Matches(entry.world, entry.players, 0, False).play([Pair(0, 1, 0, 2)])
    assert len(outcome.points) == 2

    more = (*DUEL, "budget.steps=300", f"hydra.run.dir={tmp_path / 'more'}")
    capsys.readouterr()
    for words, line in (
        ([f"init={summed}"], f"init: the policy of {summed} does not fit: "),
        (
            ["opponents=past", f"opponents.runs=[{summed}]"],
            f"opponents.runs: {summed}: it has learned from other reward.sums: all, not damage, win",
        ),
        (
            ["opponents=past", f"opponents.runs=[{plain}]", SUMS],
            f"opponents.runs: {plain}: it has learned from other reward.sums: damage, win, not all",
        ),
    ):
        assert go(*more, *words) == 2
        assert capsys.readouterr().err.startswith(f"evorl: {line}") and not (tmp_path / "more").exists()
    assert go(*more, SUMS, f"init={summed}", "opponents=past", f"opponents.runs=[{summed}]") == 0


@pytest.mark.slow  # as the run above does
def test_a_population_learns_from_sums(tmp_path: Path) -> None:
    """With a reward that evolves, and discounts by the names of sums."""
    words = (
        *QUICK,
        "mdp=pong",
        "mdp.rounds=1",
        "mdp.round_steps=40",
        "rl.gamma={points:0.9}",
        "ec.reward.kind=potential",
    )
    evolved = ("ec=pbt", "ec.population=2", "ec.train_steps=128", "ec.episodes=1", "+ec.genes.rl.lr=[0.001,0.01]")
    whole = ("+reward.sums={points:[score]}", "budget.steps=600", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, *evolved, *whole) == 0
    with load(tmp_path / "run") as run:
        assert run.policy.spec.rewards == ("points",) and run.evaluate()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["+reward.sums={all:[damage,wn]}"], "reward.sums.all: no reward wn; did you mean win?"),
        (["+reward.sums={all:[health]}"], "reward.sums.all: no reward health; there are: damage, win"),
        (["+reward.sums={all:[]}"], "reward.sums.all: a sum needs rewards, as in [progress, approach]"),
        (["+reward.sums={all:win}"], "reward.sums.all: expected a list [str, ...], got 'win'"),
        (["+reward.sums={a:[win],b:[win]}"], "reward.sums.b: win is in a already, and a reward counts once"),
        (["+reward.sums={a:[win,win]}"], "reward.sums.a: win is in a already, and a reward counts once"),
        (
            ["+reward.sums={win:[damage]}"],
            "reward.sums.win: the world has a reward of this name, which is not in the sum",
        ),
        (["+reward.sums={return_x:[win]}"], "reward.sums.return_x: 'return_x' is a metric of every run; "),
        (["+reward.sum={a:[win]}"], "reward.sum: unknown key; did you mean reward.sums?"),
        ([SUMS, "+reward.weights={all:2}"], "reward.weights.all: unknown key; there are: damage, win"),
        ([SUMS, "rl.gamma={damage:0.9,win:0.9}"], "rl.gamma.damage: unknown key; there are: all"),
        (
            [SUMS, "rl.gamma={win:0.9}", "+reward.potential={fight_0:1}"],
            "rl.gamma.win: unknown key; there are: all",
        ),
    ],
)
def test_what_is_refused(words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(*DUEL, *words, "budget.steps=300", f"hydra.run.dir={tmp_path / 'run'}") == 2
    said = capsys.readouterr().err
    assert said.startswith(f"evorl: {line}") and said.count("\n") == 1, said
    assert not (tmp_path / "run").exists()
