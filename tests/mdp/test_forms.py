"""Data that is not of its declared form is refused, wherever a world's data is written into arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, VectorEnv

import evorl.mdp
from evorl.mdp import forms
from evorl.mdp.arena import BattleWorld
from evorl.mdp.conformance import Nonconformity
from evorl.mdp.core import Discrete, Input, Spec, State, Step
from evorl.mdp.forms import Form, Mismatch
from evorl.mdp.gymnasium import Gymnasium, spaces
from evorl.training.train import spec as spec_of_world
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

ID = "evorl-test/Shown-v0"
BYTES = gym_spaces.Box(0, 255, (6, 6, 3), np.uint8)
FOUR = gym_spaces.Box(-1, 1, (4,), np.float32)
NESTED = gym_spaces.Dict(a=FOUR, b=gym_spaces.Tuple((gym_spaces.Discrete(3), FOUR)))


class Shown(gymnasium.Env[Any, Any]):
    """Shows, at decision n of an episode of three steps, what ``show(n)`` returns."""

    action_space = gym_spaces.Discrete(2)
    observation_space: gym_spaces.Space[Any] = FOUR
    show: Callable[[int], Any] = staticmethod(lambda n: np.zeros(4))
    outcome: Callable[[], tuple[Any, ...]] = staticmethod(lambda: (1.0, False))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.n = 0
        return type(self).show(0), {}

    def step(self, action: Any) -> Any:
        self.n += 1
        reward, terminated = type(self).outcome()
        return type(self).show(self.n), reward, terminated, self.n == 3, {}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Gymnasium]:
    registered = gymnasium.envs.registration.EnvSpec(ID, Shown)
    monkeypatch.setitem(gymnasium.registry, ID, registered)

    def make(space: Any, show: Callable[[int], Any], **given: Any) -> Gymnasium:
        monkeypatch.setattr(Shown, "observation_space", space)
        monkeypatch.setattr(Shown, "show", staticmethod(show))
        return Gymnasium(id=ID, **given)

    return make


def seen(world: Gymnasium, decisions: int = 0) -> list[Any]:
    arena = world.arena(2, Episodes(0))
    try:
        for _ in range(decisions):
            arena.send(np.arange(2), np.zeros((2, 1), np.int64))
        return [x[1].tolist() for x in arena.recv().inputs]
    finally:
        arena.close()


ZEROS = np.zeros(4, np.float32)
REFUSED = {
    "float picture": (BYTES, np.full((6, 6, 3), 0.5, np.float32), "uint8 [6, 6, 3] from 0 to 255", "float32 [6, 6, 3]"),
    "270": (BYTES, np.full((6, 6, 3), 270), "uint8 [6, 6, 3] from 0 to 255", "numbers from 270 to 270"),
    "-1": (BYTES, np.full((6, 6, 3), -1), "uint8 [6, 6, 3] from 0 to 255", "numbers from -1 to -1"),
    "one frame": (gym_spaces.Box(0, 255, (4, 6, 6), np.uint8), np.ones((1, 6, 6), np.uint8), "[4, 6, 6]", "[1, 6, 6]"),
    "plane": (
        gym_spaces.Box(0, 255, (1, 6, 6), np.uint8),
        np.ones((6, 6), np.uint8),
        "uint8 [1, 6, 6]",
        "uint8 [6, 6]",
    ),
    "one of four": (FOUR, np.ones(1, np.float32), "float32 [4]", "float32 [1] with numbers from 1 to 1"),
    "number": (FOUR, 0.5, "float32 [4]", "float64 [] with numbers from 0.5 to 0.5"),
    "row": (FOUR, np.ones((1, 4), np.float32), "float32 [4]", "float32 [1, 4]"),
    "words": (FOUR, ["1", "2", "3", "4"], "float32 [4]", "<U1 [4]"),
    "nothing": (FOUR, None, "float32 [4]", "None"),
    "complex": (FOUR, np.ones(4, complex), "float32 [4]", "complex128 [4]"),
    "float flat bytes": (gym_spaces.Box(0, 255, (4,), np.uint8), np.ones(4), "uint8 [4]", "float64 [4]"),
    "wide integer": (gym_spaces.Box(-5, 5, (1,), np.int8), np.array([200]), "int8 [1] from -128 to 127", "200"),
    "below": (gym_spaces.Discrete(5), -1, "int64 [] from 0 to 4", "numbers from -1 to -1"),
    "above": (gym_spaces.Discrete(5, start=1), 6, "int64 [] from 1 to 5", "numbers from 6 to 6"),
    "float choice": (gym_spaces.Discrete(5), 1.0, "int64 [] from 0 to 4", "float64 []"),
    "float vector for a choice": (gym_spaces.Discrete(4), ZEROS, "int64 [] from 0 to 3", "float32 [4]"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("decision", [0, 1, 3])
def test_what_is_not_of_its_space_is_refused_at_every_decision(case: str, decision: int, world: Any) -> None:
    space, value, declared, came = REFUSED[case]
    fine = space.sample()
    bad = world(space, lambda n: value if n == decision else fine)
    with pytest.raises(Mismatch) as caught:
        seen(bad, 3)
    text = str(caught.value)
    assert text.startswith(f"{ID}, slot 0, seed ") and "the input 'observation' is declared" in text
    assert declared in text and came in text and "\n" not in text
    if decision == 0:
        with pytest.raises(BadRequest, match=r"mdp\.id: .*the input 'observation' is declared"):
            spec_of_world(bad)
    with pytest.raises(Nonconformity, match="the input 'observation' is declared"):
        evorl.mdp.check(bad, varied=False, decisions=8)


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (FOUR, [0, 0.5, 1, -1], [0, 0.5, 1, -1]),
        (FOUR, (True, False, 1, 0), [1, 0, 1, 0]),
        (FOUR, np.array([0, 1, -1, 0]), [0, 1, -1, 0]),
        (FOUR, np.array([0.1, 2, 3, 4]), np.float32([0.1, 2, 3, 4]).tolist()),  # float64, out of loose bounds
        (gym_spaces.Box(0, 1, (), np.float32), 0.5, [0.5]),
        (gym_spaces.Box(0, 1, (1,), np.float32), 0.5, [0.5]),
        (gym_spaces.Box(0, 1, (), np.float32), np.array([0.5]), [0.5]),
        (gym_spaces.Box(0, 255, (3,), np.uint8), [0, 255, 7], [0, 255, 7]),
        (gym_spaces.Discrete(3), np.array([2]), [0, 0, 1]),
        (gym_spaces.Discrete(3), np.int8(2), [0, 0, 1]),
        (gym_spaces.Discrete(2), True, [0, 1]),
    ],
)
def test_what_loses_nothing_is_taken(space: Any, value: Any, expected: Any, world: Any) -> None:
    assert seen(world(space, lambda n: value), 3) == [expected]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": ZEROS}, "lacks 'b/0'"),
        ({"a": ZEROS, "b": (1,)}, "lacks 'b/1'"),
        ({"a": ZEROS, "b": (1, ZEROS), "c": 1}, "has 'c', which"),
        ({"a": ZEROS, "b": (1, ZEROS, 2)}, "has 'b/2', which"),
        ({"a": ZEROS, "b": (3, ZEROS)}, "the input 'b/0' is declared int64 [] from 0 to 2"),
        (ZEROS, "lacks 'a'"),
    ],
)
def test_parts_of_an_observation_are_those_of_its_space(value: Any, words: str, world: Any) -> None:
    fine = {"a": ZEROS, "b": (1, ZEROS)}
    assert seen(world(NESTED, lambda n: fine))[0] == [0] * 4
    for decision in (0, 3):
        with pytest.raises(Mismatch) as caught:
            seen(world(NESTED, lambda n, bad=decision: value if n == bad else fine), 3)
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ((None, False), "the reward is declared float64 [], and the world gave None"),
        ((np.ones(2), False), "the reward is declared float64 [], and the world gave float64 [2]"),
        (("1", False), "the reward is declared float64 [], and the world gave <U1 []"),
        ((1.0, None), "terminated is declared bool [], and the world gave None"),
        ((1.0, 0.5), "terminated is declared bool [], and the world gave float64 []"),
        ((1.0, 2), "terminated is declared bool [], and the world gave int64 []"),
    ],
)
def test_rewards_and_ends_are_checked(outcome: Any, words: str, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fine = world(FOUR, lambda n: ZEROS)
    monkeypatch.setattr(Shown, "outcome", staticmethod(lambda: outcome))
    with pytest.raises(Mismatch) as caught:
        seen(fine, 1)
    assert words in str(caught.value)


@pytest.mark.parametrize("reward", [2, np.float32(2), np.array([2.0]), np.array(2)])
def test_any_single_number_is_a_reward(reward: Any, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shown, "outcome", staticmethod(lambda: (reward, np.array([False]))))
    arena = world(FOUR, lambda n: ZEROS).arena(1, Episodes(0))
    arena.send(np.arange(1), np.zeros((1, 1), np.int64))
    assert arena.recv().reward.tolist() == [[2.0]]
    arena.close()


# ------------------------------------------------------------------ numbers that float32 cannot tell apart


def stamps(start: float, step: float) -> Callable[[int], Any]:
    clock = iter(range(10**6))
    return lambda n: np.array([0.25 * n, start + step * next(clock)])


TWO = gym_spaces.Box(-np.inf, np.inf, (2,), np.float64)


@pytest.mark.parametrize("step", [1e-3, 0.02, 1.0, 10.0])
def test_time_stamps_are_told_once(step: float, world: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "_WARNED", set())
    for _ in range(2):
        seen(world(TWO, stamps(1.7e9, step)), 60)
    (told,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert f"{ID}: the input 'observation' has numbers that float32" in told.getMessage()
    assert "(170000" in told.getMessage()
    with pytest.raises(Nonconformity, match="the input 'observation' has numbers that float32"):
        evorl.mdp.check(world(TWO, stamps(1.7e9, step)), varied=False)


@pytest.mark.parametrize(
    "show",
    [
        stamps(0.0, 1e-3),
        stamps(1.7e9, 1e4),
        lambda n: np.array([1e9, 1 / 3]),  # constants
        lambda n: np.array([1.0 + np.exp(-n), 0.1 + 0.2 * (n % 2) - 0.2 * (n % 2)]),  # comes to rest; rounding
    ],
)
def test_numbers_that_float32_holds_are_not_told(show: Any, world: Any, caplog: Any) -> None:
    seen(world(TWO, show), 100)
    assert not caplog.records


def test_a_number_that_comes_to_rest_is_not_told(caplog: Any) -> None:
    form = Form("x", (1,), np.float64)
    for n in range(200):
        form.fit(np.array([1 + np.exp(-n / 3)]), watch="world")
    assert not caplog.records


# ------------------------------------------------------------------ vector environments


class Rows(VectorEnv[Any, Any, Any]):
    """All rows show ``seen``; with autoreset disabled or in the same step."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012 (as gymnasium declares it)
    single_observation_space = FOUR
    single_action_space = gym_spaces.Discrete(2)

    def __init__(self, num_envs: int, seen: Any, reward: Any = None) -> None:
        self.num_envs, self.seen = num_envs, seen
        self.reward = np.zeros(num_envs) if reward is None else reward
        self.action_space = gym_spaces.MultiDiscrete([2] * num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self.seen, {}

    def step(self, actions: Any) -> Any:
        ends = np.zeros(self.num_envs, bool)
        return self.seen, self.reward, ends, ends, {}


@pytest.mark.parametrize(
    ("seen", "reward", "words"),
    [
        (np.zeros((4, 2)), None, "declared float32 [2, 4], and the world gave float64 [4, 2]"),
        (np.zeros(4), None, "declared float32 [2, 4], and the world gave float64 [4]"),
        (np.zeros((2, 4), complex), None, "declared float32 [2, 4], and the world gave complex128 [2, 4]"),
        (np.zeros((2, 4)), np.zeros(1), "the reward is declared float64 [2], and the world gave float64 [1]"),
        (np.zeros((2, 4)), 1.0, "the reward is declared float64 [2], and the world gave float64 []"),
    ],
)
def test_rows_of_a_vector_environment_are_checked(seen: Any, reward: Any, words: str) -> None:
    from evorl.mdp.gymnasium.vector_env import VectorEnvRows

    rows = VectorEnvRows(Rows(2, seen, reward), 2, None)
    with pytest.raises(Mismatch) as caught:
        rows.reset(0, np.ones(2, bool))
        rows.step(np.zeros((2, 1), np.int64))
    assert words in str(caught.value) and str(caught.value).startswith("Rows, all 2 slots")


def test_final_observations_of_rows_are_checked_where_an_episode_ended() -> None:
    from evorl.mdp.gymnasium.vector_env import VectorEnvRows

    env: Any = Rows(3, np.zeros(3, int))
    env.single_observation_space = gym_spaces.Discrete(2, start=5)
    rows = VectorEnvRows(env, 3, None)
    (final,) = rows.final({"final_obs": np.array([0, 6, 5])}, np.array([1, 2]))  # row 0 has not ended
    assert final.tolist() == [[0, 1], [1, 0]]
    some = np.array([None, 6, 5], object)
    assert rows.final({"final_obs": some}, np.array([1, 2]))[0].tolist() == [[0, 1], [1, 0]]
    with pytest.raises(Mismatch, match="from 5 to 6"):
        rows.final({"final_obs": np.array([0, 6, 5])}, np.array([0]))


# ------------------------------------------------------------------ battles


@dataclass(frozen=True, kw_only=True)
class Plain(BattleWorld):
    """One decision, whose state and reward a test chooses."""

    inputs: Any = (np.zeros(4, np.float32), np.zeros((1, 2, 2), np.uint8))
    legal: Any = None
    masked: bool = False
    reward: Any = (1.0, 2.0)

    @property
    def spec(self) -> Spec:
        inputs = (Input("x", (4,)), Input("eye", (1, 2, 2), "uint8"))
        return Spec(inputs, Discrete(3), rewards=("a", "b"), masked=self.masked)

    def reset(self, *players: int, seed: int) -> Any:
        return Once(self)


class Once:
    def __init__(self, world: Plain) -> None:
        self.world, self.controllers = world, [self]

    async def __aenter__(self) -> Once:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    @property
    def state(self) -> State:
        return State(self.world.inputs, self.world.legal)

    async def __call__(self, action: Any) -> Step:
        return Step(self.world.reward, truncated=True)

    def result(self) -> dict[str, float]:
        return {}


PLAIN = Plain()
X, EYE = PLAIN.inputs


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (replace(PLAIN, inputs=(X[:1], EYE)), "the input 'x' is declared float32 [4], and the world gave float32 [1]"),
        (replace(PLAIN, inputs=(0.5, EYE)), "the input 'x' is declared float32 [4]"),
        (replace(PLAIN, inputs=(X, EYE + 0.5)), "the input 'eye' is declared uint8 [1, 2, 2] from 0 to 255"),
        (replace(PLAIN, inputs=(X, EYE.astype(int) + 270)), "numbers from 270 to 270"),
        (replace(PLAIN, inputs=(X, EYE[0])), "and the world gave uint8 [2, 2]"),
        (replace(PLAIN, inputs=(X,)), "the spec declares 2 inputs, and the state has 1"),
        (replace(PLAIN, legal=np.ones(3, bool)), "the state has a legal mask"),
        (replace(PLAIN, masked=True), "the state has no legal mask"),
        (replace(PLAIN, masked=True, legal=np.ones(1, bool)), "the legal mask is declared bool [3]"),
        (replace(PLAIN, masked=True, legal=np.array([0.3, 1, 1])), "the legal mask is declared bool [3]"),
        (replace(PLAIN, reward=1.0), "the reward is declared float32 [2], and the world gave float64 []"),
        (replace(PLAIN, reward=None), "the reward is declared float32 [2], and the world gave None"),
        (replace(PLAIN, reward=np.ones(1)), "the reward is declared float32 [2], and the world gave float64 [1]"),
    ],
)
def test_states_and_rewards_of_a_battle_are_checked(world: Plain, words: str) -> None:
    arena = world.arena(1, Episodes(0))
    try:
        with pytest.raises(Mismatch) as caught:
            arena.recv()
            arena.send(np.arange(1), np.zeros((1, 1), np.int64))
            arena.recv()
        assert words in str(caught.value) and str(caught.value).startswith("Plain, slot 0, key ")
    finally:
        arena.close()


def test_a_state_of_other_dtypes_that_loses_nothing_is_taken() -> None:
    world = replace(PLAIN, inputs=([0, 1, 2, 3], EYE.astype(int) + 255), masked=True, legal=[1, 0, 1])
    arena = world.arena(1, Episodes(0))
    d = arena.recv()
    assert d.inputs[0].tolist() == [[0, 1, 2, 3]] and d.inputs[1].max() == 255 and d.legal is not None
    assert d.legal.tolist() == [[True, False, True]]
    arena.send(np.arange(1), np.zeros((1, 1), np.int64))
    assert arena.recv().reward.tolist() == [[1, 2]]
    arena.close()


def test_a_batch_of_one_is_no_batch_of_none() -> None:
    (part,) = spaces.observation(FOUR)
    assert part[1](np.zeros((1, 4)), (1,)).shape == (1, 4)
    with pytest.raises(Mismatch):
        part[1](np.zeros((1, 4)))
