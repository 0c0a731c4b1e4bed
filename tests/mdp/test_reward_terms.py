"""Other rewards in training: factors, a potential and results, against slow definitions on the world as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import QUICK, experiment_of, go

from evorl.mdp.conformance import check
from evorl.mdp.core import Discrete, Input, Spec, StepsTogether, WorldError
from evorl.mdp.pong import Pong
from evorl.mdp.random_play import random_action
from evorl.mdp.reward_terms import Rewarded, Terms, features
from evorl.mdp.shaped import Shaped
from evorl.training.train import spec
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, generator

WORLDS: dict[str, tuple[str, ...]] = {
    "truncated and terminated": ("mdp=cartpole", "mdp.time_limit=12"),
    "two sides at their own times": ("mdp=duel", "mdp.side=both", "mdp.ground.limit=3"),
    "two sides together": ("mdp=pong", "mdp.opponent=self", "mdp.rounds=1", "mdp.round_steps=20"),
}
GAMMA = 0.9


def rewarded(name: str, terms: Terms) -> Rewarded:
    return Rewarded(world=experiment_of(*WORLDS[name]).mdp, terms=terms, gamma=GAMMA)


def potential_of(world: Any) -> dict[str, float]:
    places = features(spec(world), world.feature_names)
    return {name: float(np.sin(1 + place)) for name, place in places.items() if place % 3 < 2 and name[-1].isdigit()}


class Slow:
    """What a slot's decisions earn, from the decisions of the plain world, one number after the other."""

    def __init__(self, terms: Terms, places: dict[str, int], rewards: tuple[str, ...]) -> None:
        self.terms, self.places, self.rewards = terms, places, rewards
        self.phi: dict[int, float] = {}

    def potential(self, inputs: tuple[Any, ...], row: int) -> float:
        total = 0.0
        numbers = [float(x) for part in inputs for x in np.asarray(part[row]).ravel()]
        for name, weight in self.terms.potential.items():
            total += weight * numbers[self.places[name]]
        return total

    def reward(self, decisions: Any, slot: int, results: Mapping[str, float] | None) -> list[float]:
        earned = [
            self.terms.weights.get(name, 1.0) * float(r)
            for name, r in zip(self.rewards, decisions.reward[slot], strict=True)
        ]
        if slot in self.phi:
            after = self.potential(decisions.inputs, slot)
            if decisions.terminated[slot]:
                after = 0.0
            elif decisions.truncated[slot]:
                after = self.potential(decisions.final, slot)
            earned[0] += GAMMA * after - self.phi[slot]
            for name, weight in self.terms.results.items():
                earned[0] += 0.0 if results is None else weight * results[name]
        self.phi[slot] = self.potential(decisions.inputs, slot)
        return earned


@pytest.mark.parametrize("name", WORLDS)
def test_rewards_are_those_of_the_definition(name: str) -> None:
    plain = experiment_of(*WORLDS[name]).mdp
    game = spec(plain)
    weights = {reward: 0.5 + number for number, reward in enumerate(game.rewards[:1])}
    terms = Terms(
        weights=weights,
        potential=potential_of(plain),
        results={"length" if "cart" in str(WORLDS[name]) else "fitness": 0.25},
    )
    slow = Slow(terms, features(game, plain.feature_names), game.rewards)
    slots = 2 * plain.sides
    arenas = [world.arena(slots, Episodes(3)) for world in (plain, rewarded(name, terms))]
    draw, ended, cut = generator("reward terms"), 0, 0
    for _ in range(400):
        before, after = (arena.recv() for arena in arenas)
        assert (before.slots == after.slots).all()
        results = dict(before.results)
        for slot in before.slots.tolist():
            expected = slow.reward(before, slot, results.get(slot))
            np.testing.assert_allclose(after.reward[slot], expected, rtol=1e-5, atol=1e-5)
            ended += bool(before.terminated[slot])
            cut += bool(before.truncated[slot])
        legal = [None if before.legal is None else before.legal[slot] for slot in before.slots]
        actions = np.stack([random_action(game, mask, draw) for mask in legal])
        for arena in arenas:
            arena.send(before.slots, actions)
    for arena in arenas:
        arena.close()
    assert ended + cut > 4 and (cut > 0 or "truncated" not in name)


def test_features_have_the_names_of_the_world_and_their_places() -> None:
    cartpole = experiment_of("mdp=cartpole").mdp
    places = features(spec(cartpole), cartpole.feature_names)
    own = {"position": 0, "velocity": 1, "pole_s_angle": 2, "pole_s_angular_velocity": 3}
    assert places == {**{f"observation_{n}": n for n in range(4)}, **own}


def test_a_name_of_several_features_is_none_of_them() -> None:
    """Two inputs have an x, two names are the same key, and one is that of another place."""
    world = Spec((Input("own", (3,)), Input("other", (3,))), Discrete(2))
    names = {"own": ("x", "speed", "own_0"), "other": ("x", "turn-1", "turn 1")}
    assert features(world, names) == {
        "own_0": 0, "own_1": 1, "own_2": 2, "other_0": 3, "other_1": 4, "other_2": 5, "speed": 1,
    }  # fmt: skip


def test_over_an_episode_a_potential_adds_what_it_was_at_its_start() -> None:
    """sum gamma^t (gamma Phi(s') - Phi(s)) = -Phi(s_0) where the episode terminates (Grzes 2017)."""
    terms = Terms(potential={"position": 3.0, "observation_2": -2.0})
    arena = Rewarded(world=experiment_of("mdp=cartpole").mdp, terms=terms, gamma=GAMMA).arena(1, Episodes(5))
    first = arena.recv()
    start = 3.0 * float(first.inputs[0][0, 0]) - 2.0 * float(first.inputs[0][0, 2])
    total, discount = 0.0, 1.0
    while True:
        arena.send(first.slots, np.array([[1]]))
        decisions = arena.recv()
        total, discount = total + discount * (float(decisions.reward[0, 0]) - 1), discount * GAMMA
        if decisions.terminated[0]:
            break
    assert total == pytest.approx(-start, abs=1e-5)


@pytest.mark.parametrize("name", WORLDS)
def test_the_world_still_conforms(name: str) -> None:
    world = rewarded(name, Terms(potential=potential_of(experiment_of(*WORLDS[name]).mdp)))
    check(world)
    arena = world.arena(2 * world.sides, Episodes(0))
    plain = world.world.arena(2 * world.sides, Episodes(0))
    assert isinstance(arena, StepsTogether) == isinstance(plain, StepsTogether)
    arena.close()
    plain.close()


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        ({"weights": {"scoer": 1.0}}, "reward.weights.scoer: unknown key; did you mean reward.weights.score?"),
        ({"potential": {"nothing": 1.0}}, "reward.potential.nothing: unknown key"),
    ],
)
def test_what_the_world_does_not_have_is_refused(terms: dict[str, Any], line: str) -> None:
    with pytest.raises(BadRequest) as refused:
        spec(rewarded("two sides together", Terms(**terms)))
    assert str(refused.value).startswith(line)


def test_a_result_that_the_world_does_not_report_ends_the_run_with_a_line() -> None:
    arena = rewarded("truncated and terminated", Terms(results={"goals": 1.0})).arena(1, Episodes(0))
    with pytest.raises(WorldError, match=r"reward.results: the world has no result goals; it has: length, return"):
        for _ in range(30):
            arena.send(arena.recv().slots, np.array([[0]]))


def test_a_wrong_name_of_a_result_is_refused_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("mdp=pong", "mdp.rounds=1", *QUICK, f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, "+reward.results.scoer=1") == 2
    line = "evorl: reward.results.scoer: unknown key; did you mean reward.results.score?\n"
    assert capsys.readouterr().err == line and not (tmp_path / "run").exists()


def test_the_return_of_an_episode_is_a_result_also_where_the_world_reports_none() -> None:
    world = rewarded("truncated and terminated", Terms(results={"return": 2.0}))
    world.check_results()
    check(world, slots=2, decisions=20)


def test_rewards_around_other_rewards_resume_exactly() -> None:
    inner = Shaped(
        world=Pong(rounds=2, round_steps=30), kind="potential", gamma=0.9,
        reward=lambda inputs: np.asarray(inputs[0][:, 0], float),
    )  # fmt: skip
    check(Rewarded(world=inner, terms=Terms(weights={"score": 2.0}), gamma=0.9), slots=2, decisions=60)


def test_populations_that_only_play_have_no_use_for_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("mdp=cartpole", *QUICK, "+reward.weights.reward=2", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, "ec=sga") == 2
    line = "evorl: reward: is for learners that train by themselves: ec=none, or ec.lifetime=train\n"
    assert capsys.readouterr().err == line and not (tmp_path / "run").exists()
    assert go(*words, "+reward.potential.nothing=1") == 2
    assert capsys.readouterr().err.startswith("evorl: reward.potential.nothing: unknown key")


@pytest.mark.slow
def test_training_sees_them_and_evaluations_do_not(tmp_path: Path) -> None:
    words = ("mdp=cartpole", *QUICK, "budget.steps=512", "eval.every=256")
    assert go(*words, f"hydra.run.dir={tmp_path / 'plain'}") == 0
    assert go(*words, "+reward.weights.reward=3", f"hydra.run.dir={tmp_path / 'three'}") == 0
    rows = {
        name: [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_bytes().splitlines()]
        for name in ("plain", "three")
    }
    first = {name: next(row for row in read if "loss/value" in row) for name, read in rows.items()}
    assert first["three"]["loss/value"] > 4 * first["plain"]["loss/value"]
    evaluated = [row["eval/return_mean"] for row in rows["three"] if "eval/return_mean" in row]
    assert evaluated and all(x == round(x * 2) / 2 for x in evaluated)  # means of two whole numbers
