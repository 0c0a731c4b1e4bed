"""The gymnasium world: episode ends, exact resume, evorl's simulators against gymnasium's environments."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import msgspec
import numpy as np
import pytest
import yaml
from gymnasium import spaces as gym_spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from harness import go
from hydra.utils import get_class

from evorl.mdp.core import (
    Arena,
    Array,
    Box,
    Decisions,
    Discrete,
    Input,
    MultiDiscrete,
    StoppableSlots,
    WorldError,
    heads,
)
from evorl.mdp.gymnasium import Gymnasium, spaces
from evorl.mdp.gymnasium.classic_control import SIMULATORS, ClassicControlEngine
from evorl.mdp.gymnasium.env_per_slot import EnvPerSlot
from evorl.mdp.lockstep import Lockstep
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes, Keys, seed31

pytestmark = pytest.mark.usefixtures("at_once")
CONF = Path(__file__).parents[2] / "conf" / "mdp"
FILES = sorted(path.stem for path in CONF.glob("*.yaml") if "gymnasium" in path.read_text())
SCRIPT = "evorl-test/Script-v0"


class Script(gymnasium.Env[Array, int]):
    """Episode e lasts 1 + 3e mod 5 steps and ends terminated, truncated or both; it shows (e, step, last action).

    Seed 2e begins episode e, no seed the episode after the last one.
    """

    observation_space = gym_spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gym_spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        self.episode = self.episode + 1 if seed is None else seed // 2
        self.time = 0
        return np.array([self.episode, 0.0, -1.0]), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == 1 + 3 * self.episode % 5
        kind = self.episode % 3
        seen = np.array([self.episode, self.time, action], np.float64)
        return seen, self.episode + self.time / 10 - action, over and kind != 1, over and kind != 0, {}


class Fragile(Script):
    """Breaks at the second step of one episode, or at its reset, as often as it is told."""

    breaks: tuple[str, int] = ("step", 0)
    victim = 10

    def fail(self, where: str) -> None:
        kind, times = type(self).breaks
        if kind == where and times and self.episode == type(self).victim:
            type(self).breaks = kind, times - 1
            raise RuntimeError("the engine fell off")

    def reset(self, **given: Any) -> tuple[Array, dict[str, Any]]:
        seen = super().reset(**given)
        self.fail("reset")
        return seen

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self.time == 1:
            self.fail("step")
        return super().step(action)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    gymnasium.register(SCRIPT, entry_point=Script)
    gymnasium.register("evorl-test/Fragile-v0", entry_point=Fragile)
    yield
    for id in (SCRIPT, "evorl-test/Fragile-v0"):
        del gymnasium.registry[id]


class Numbered(Episodes):
    """Keys whose 31-bit seed is twice (10 slot + episode)."""

    def __call__(self, slot: Any, episode: Any) -> Keys:
        return np.asarray((10 * np.asarray(slot, np.uint64) + np.asarray(episode, np.uint64)) << np.uint64(34))


def script(slots: int = 2, **given: Any) -> Arena:
    return Gymnasium(**{"id": SCRIPT, **given}).arena(slots, Numbered(0))


def play(arena: Arena, actions: Any) -> Decisions:
    arena.send(np.arange(arena.slots), np.asarray(actions).reshape(arena.slots, -1))
    return arena.recv()


def sampled(arena: Arena, rng: np.random.Generator) -> Array:
    match arena.spec.action:
        case Box(low, _):
            return rng.uniform(-2.5, 2.5, (arena.slots, len(low))).astype(np.float32)
        case action:
            return rng.integers(heads(action), size=(arena.slots, len(heads(action))))


def record(d: Decisions) -> dict[str, Any]:
    """Everything a decision says, `final` where it is valid."""
    return {
        "inputs": [each.copy() for each in d.inputs],
        "final": [each[d.truncated].copy() for each in d.final],
        **{name: getattr(d, name).copy() for name in ("slots", "reward", "terminated", "truncated")},
        "results": d.results,
        "cost": d.cost,
    }


def rollout(arena: Arena, steps: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [record(arena.recv())] + [record(play(arena, sampled(arena, rng))) for _ in range(steps)]


def same(some: Any, others: Any) -> None:
    np.testing.assert_equal(some, others)


# ------------------------------------------------------------------ ends


def test_two_slots_equal_the_table_written_by_hand() -> None:
    """Slot 0 plays episodes 0 (1 step, terminated), 1 (4 steps, truncated); slot 1 10 (1, truncated), 11 (4, both)."""
    arena = script()
    first = arena.recv()
    same(first.inputs[0], [[0, 0, -1], [10, 0, -1]])
    same((first.reward, first.terminated, first.truncated), ([[0], [0]], [False, False], [False, False]))
    assert first.inputs[0].dtype == np.float32 and first.cost == 0
    table = [
        # actions, next inputs, rewards, terminated, truncated, one-step target with V(s) = 100 e + step, gamma 1
        ([1, 2], [[1, 0, -1], [11, 0, -1]], [-0.9, 8.1], [1, 0], [0, 1], [-0.9, 8.1 + 1001]),
        ([3, 0], [[1, 1, 3], [11, 1, 0]], [-1.9, 11.1], [0, 0], [0, 0], [-1.9 + 101, 11.1 + 1101]),
        ([0, 1], [[1, 2, 0], [11, 2, 1]], [1.2, 10.2], [0, 0], [0, 0], [1.2 + 102, 10.2 + 1102]),
        ([2, 2], [[1, 3, 2], [11, 3, 2]], [-0.7, 9.3], [0, 0], [0, 0], [-0.7 + 103, 9.3 + 1103]),
        ([1, 3], [[2, 0, -1], [12, 0, -1]], [0.4, 8.4], [0, 1], [1, 0], [0.4 + 104, 8.4]),
    ]
    for actions, inputs, reward, terminated, truncated, target in table:
        d = play(arena, actions)
        same(d.inputs[0], inputs)
        np.testing.assert_allclose(d.reward[:, 0], reward, rtol=1e-6)
        same((d.terminated, d.truncated), (np.array(terminated, bool), np.array(truncated, bool)))
        after = np.where(d.truncated[:, None], d.final[0], d.inputs[0])
        value = np.where(d.terminated, 0, 100 * after[:, 0] + after[:, 1])
        np.testing.assert_allclose(d.reward[:, 0] + value, target, rtol=1e-6)
        assert d.cost == 2
    assert [(slot, result["length"]) for slot, result in d.results] == [(0, 4), (1, 4)]
    np.testing.assert_allclose([result["return"] for _, result in d.results], [-1, 39])


Transition = tuple[float, ...]


def act(seen: Array) -> Array:
    """A policy that looks: so a wrong observation makes wrong transitions."""
    return np.asarray((seen[:, 0] + seen[:, 1] + 2 * seen[:, 2]) % 4, np.int64)


def moves(before: Array, actions: Array, reward: Array, terminated: Array, truncated: Array, after: Array) -> list[Any]:
    columns = (before, actions, np.round(reward, 4), terminated, truncated & ~terminated, after)
    return [tuple(np.hstack([np.atleast_1d(c[slot]) for c in columns]).tolist()) for slot in range(len(before))]


def ours(steps: int) -> set[Transition]:
    arena, found = script(), set[Transition]()
    seen = arena.recv().inputs[0].copy()
    for _ in range(steps):
        actions = act(seen)
        d = play(arena, actions)
        over = d.terminated | d.truncated
        # where an episode terminated, the state it ended in is nobody's business: nothing is bootstrapped from it
        after = np.where(d.truncated[:, None], d.final[0], np.where(over[:, None], 0, d.inputs[0]))
        found.update(moves(seen, actions, d.reward[:, 0], d.terminated, d.truncated, after))
        seen = d.inputs[0].copy()
    return found


def theirs(steps: int, mode: AutoresetMode) -> set[Transition]:
    envs = SyncVectorEnv([lambda: gymnasium.make(SCRIPT)] * 2, autoreset_mode=mode)
    seen, _ = envs.reset(seed=[0, 20])
    found, resetting = set[Transition](), np.zeros(2, bool)
    for _ in range(steps):
        actions = act(seen)
        shown, reward, terminated, truncated, info = envs.step(actions)
        over = terminated | truncated
        after = shown.copy()
        for slot in np.flatnonzero(over):
            if mode is AutoresetMode.SAME_STEP:
                after[slot] = info["final_obs"][slot]
        after[terminated] = 0
        now = moves(seen, actions, reward.astype(np.float32), terminated, truncated, after)
        found.update(now[slot] for slot in np.flatnonzero(~resetting))
        if mode is AutoresetMode.NEXT_STEP:
            resetting = over  # their next step ignores the action and resets
        if mode is AutoresetMode.DISABLED and over.any():
            shown, _ = envs.reset(options={"reset_mask": over})
        seen = shown.copy()
    envs.close()
    return found


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_transitions_are_those_of_gymnasium_in_each_autoreset_mode(mode: AutoresetMode) -> None:
    """The same number of steps is not the same number of transitions, so each contains what the other saw first."""
    a, b = ours(12), theirs(24, mode)
    assert a <= b and theirs(12, mode) <= ours(12) and len(a) == 24


def test_slots_do_not_depend_on_each_other() -> None:
    few, many = (Gymnasium(id="LunarLander-v3").arena(slots, Episodes(3)) for slots in (2, 4))
    rng = np.random.default_rng(0)
    for _ in range(150):
        actions = sampled(many, rng)
        wide, narrow = play(many, actions), play(few, actions[:2])
        same(wide.inputs[0][:2], narrow.inputs[0])
        same([r for r in wide.results if r[0] < 2], narrow.results)
    few.close()
    many.close()


# ------------------------------------------------------------------ options


@pytest.mark.slow_cases(but=("Acrobot-v1", "CartPole-v1", ""))
@pytest.mark.parametrize("id", ["", *SIMULATORS])
def test_a_stopped_slot_is_not_stepped_and_does_not_affect_others(id: str) -> None:
    arena, other = (Gymnasium(id=id).arena(3, Episodes(0)) if id else script(slots=3) for _ in range(2))
    assert isinstance(arena, StoppableSlots)
    arena.stop_slot(1)
    rng = np.random.default_rng(0)
    first = arena.recv().inputs[0][1].copy()
    for n in range(600 if id else 20):
        actions = sampled(arena, rng)
        now, then = play(arena, actions), play(other, actions)
        assert now.cost == 2 and now.reward[1] == 0 and not now.terminated[1] and not now.truncated[1]
        same(now.inputs[0][1], first)
        for some, all_ in ((now.inputs[0], then.inputs[0]), (now.reward, then.reward), (now.truncated, then.truncated)):
            same(some[[0, 2]], all_[[0, 2]])
        assert now.results == [one for one in then.results if one[0] != 1], n


def test_frame_skip_repeats_adds_and_stops_at_the_end() -> None:
    arena = script(frame_skip=3)
    d = play(arena, [0, 0])  # episodes 0 and 10 last one step
    assert d.cost == 2 and [r["length"] for _, r in d.results] == [1, 1]
    d = play(arena, [1, 1])  # steps 1, 2, 3 of 4
    np.testing.assert_allclose(d.reward[:, 0], [0.6, 30.6], rtol=1e-6)
    assert d.cost == 6 and not d.results
    d = play(arena, [1, 1])
    assert d.cost == 2 and [r["length"] for _, r in d.results] == [4, 4]


class Scales(gymnasium.Env[Any, Any]):
    """Multiplies the array of its action in place by 5; the reward is what it was given."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = gym_spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym_spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.total = render_mode, 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.total = 0.0
        return np.zeros(1, np.float32), {}

    def step(self, action: Array) -> Any:
        given = float(action[0])
        self.total += given
        action *= 5
        return np.full(1, self.total, np.float32), given, False, False, {}

    def render(self) -> Any:
        return np.full((1, 1, 3), round(100 * self.total), np.uint8)


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_an_environment_may_write_into_its_action(frame_skip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        gymnasium.registry, "evorl-test/Scales-v0", gymnasium.envs.registration.EnvSpec("evorl-test/Scales-v0", Scales)
    )
    arena = Gymnasium(id="evorl-test/Scales-v0", frame_skip=frame_skip).arena(2, Episodes(0))
    for decisions in (1, 2):
        d = play(arena, [0.25, 0.125])
        same(d.reward[:, 0], [0.25 * frame_skip, 0.125 * frame_skip])
        picture = arena.render(1)
        assert picture is not None
        same(picture.max(), round(12.5 * frame_skip * decisions))
    arena.close()


def test_the_time_limit_counts_repeats() -> None:
    arena = script(frame_skip=2, time_limit=3)
    play(arena, [0, 0])
    play(arena, [0, 0])
    d = play(arena, [0, 0])
    same(d.truncated, [True, True])  # episode 11 would have terminated a step later
    same(d.final[0][:, 1], [3, 3])
    assert [r["length"] for _, r in d.results] == [3, 3]


@pytest.mark.parametrize(
    ("world", "steps", "length"),
    [
        (Gymnasium(id="Pendulum-v1"), 30, 30),
        (Gymnasium(id="Pendulum-v1"), 300, 200),  # as registered
        (Gymnasium(id="Pendulum-v1", time_limit=20), 30, 20),
        (Gymnasium(id="Pendulum-v1", frame_skip=4), 30, 30),  # environments of their own
        (Gymnasium(id="Pendulum-v1", frame_skip=4), 300, 200),
    ],
)
def test_a_cap_shortens_episodes_and_never_lengthens_them(world: Gymnasium, steps: int, length: int) -> None:
    arena = world.capped(steps).arena(2, Episodes(0))
    decisions = arena.recv()
    while not decisions.results:
        decisions = play(arena, [0, 0])
    assert [result["length"] for _, result in decisions.results] == [length, length] and decisions.truncated.all()
    arena.close()


@pytest.mark.parametrize(
    ("words", "decisions"),
    [
        ({}, 200),
        ({"time_limit": 50}, 50),
        ({"frame_skip": 3}, 67),
        ({"kwargs": {"max_episode_steps": 50}, "frame_skip": 4}, 13),
    ],
)
def test_the_longest_episode_is_as_long_as_it_says(words: dict[str, Any], decisions: int) -> None:
    world = Gymnasium(id="Pendulum-v1", **words)
    assert world.longest_episode == decisions
    arena = world.arena(1, Episodes(0))
    for n in range(1, decisions + 1):
        arena.send(np.zeros(1, np.int64), np.zeros((1, 1), np.float32))
        ended = arena.recv().truncated[0]
        assert bool(ended) == (n == decisions)
    arena.close()


def test_two_limits_are_refused() -> None:
    with pytest.raises(BadRequest, match=r"max_episode_steps of mdp\.kwargs is the limit already") as refused:
        Gymnasium(id="Pendulum-v1", time_limit=10, kwargs={"max_episode_steps": 50})
    assert refused.value.key == "time_limit"


def test_capped_refuses_other_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadRequest, match="max_episode_steps is a keyword"):
        Gymnasium(id="CartPole-v1", kwargs={"max_episode_steps": 9}).capped(3)
    spec = gymnasium.registry["Pendulum-v1"]
    twice = gymnasium.wrappers.MaxAndSkipObservation.wrapper_spec(skip=2)
    monkeypatch.setitem(gymnasium.registry, "Pendulum-v1", replace(spec, additional_wrappers=(twice,)))
    with pytest.raises(BadRequest, match="additional wrappers"):
        Gymnasium(id="Pendulum-v1", frame_skip=2).capped(3)


def test_scale_and_clip_change_only_the_learners_rewards() -> None:
    raw, shaped = script(), script(reward_scale=0.5, reward_clip=(-0.5, 3.0))
    rng = np.random.default_rng(0)
    for _ in range(20):
        actions = sampled(raw, rng)
        a, b = play(raw, actions), play(shaped, actions)
        same(b.reward, np.clip(a.reward * np.float32(0.5), -0.5, 3.0))
        assert a.results == b.results
    scaled = script(reward_scale=-2.0)
    np.testing.assert_allclose(play(scaled, [1, 2]).reward[:, 0], [1.8, -16.2], rtol=1e-6)


def test_nan_rewards_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(self: Script, action: int) -> Any:
        return np.array([np.nan, np.inf, 0.0]), float("nan"), False, False, {}

    monkeypatch.setattr(Script, "step", step)
    d = play(script(), [0, 0])
    same(d.inputs[0][0], [np.nan, np.inf, 0])
    assert np.isnan(d.reward).all()


def test_impossible_requests() -> None:
    with pytest.raises(ValueError, match="reward_clip"):
        Gymnasium(id="CartPole-v1", reward_clip=(1.0, 1.0))
    arena = script()
    arena.send(np.array([0]), np.array([[0]]))
    with pytest.raises(ValueError, match="all 2 slots"):
        arena.recv()


# ------------------------------------------------------------------ simulators


@pytest.mark.slow_cases(but=("CartPole-v1", "Pendulum-v1"))
@pytest.mark.parametrize("id", SIMULATORS)
def test_simulators_have_the_bits_of_gymnasium(id: str) -> None:
    """State, observation, reward and ends of every step, in float64, over several episodes of each of 7 slots."""
    engine = ClassicControlEngine(SIMULATORS[id], 7, None, Gymnasium(id=id).make)
    arena, episodes = Lockstep(engine, 7, Episodes(7)), Episodes(7)
    envs = [gymnasium.make(id) for _ in range(7)]
    episode = [0] * 7
    for slot, env in enumerate(envs):
        same(arena.recv().inputs[0][slot], env.reset(seed=seed31(int(episodes(slot, 0))))[0])
    rng = np.random.default_rng(1)
    for _ in range(620):
        actions = sampled(arena, rng)
        d = play(arena, actions)
        rewards = np.broadcast_to(engine.reward, 7)
        for slot, env in enumerate(envs):
            action = actions[slot] if isinstance(arena.spec.action, Box) else int(actions[slot, 0])
            seen, reward, terminated, truncated, _ = env.step(action)
            assert (rewards[slot], d.terminated[slot]) == (reward, terminated)
            assert d.truncated[slot] == (truncated and not terminated)
            if terminated or truncated:
                same(d.final[0][slot], seen)
                episode[slot] += 1
                seen, _ = env.reset(seed=seed31(int(episodes(slot, episode[slot]))))
            same(d.inputs[0][slot], seen)
            same(engine.state_dict()["state"][:, slot], np.asarray(env.unwrapped.state, np.float64))
    assert min(episode) >= 1


def test_a_car_that_climbs_the_hill() -> None:
    """Random actions never end a MountainCar episode early: pushing along the velocity does."""
    world = Gymnasium(id="MountainCar-v0")
    pair = [world.arena(3, Episodes(0)), Lockstep(EnvPerSlot(world.make, 3), 3, Episodes(0))]
    done = 0
    for _ in range(300):
        actions = np.where(pair[0].recv().inputs[0][:, 1] < 0, 0, 2)
        a, b = (record(play(arena, actions)) for arena in pair)
        same(a, b)
        done += int(a["terminated"].sum())
    assert done >= 3


@pytest.mark.slow_cases(but=("17-MountainCar-v0", "17-Acrobot-v1", "17-CartPole-v1", "17-Pendulum-v1"))
@pytest.mark.parametrize("id", SIMULATORS)
@pytest.mark.parametrize("limit", [None, 17])
def test_both_engines_give_the_same_arena(id: str, limit: int | None) -> None:
    world = Gymnasium(id=id, time_limit=limit, reward_scale=0.1, reward_clip=(-0.5, 0.5))
    assert world.simulated
    simulated = world.arena(4, Episodes(2))
    stepped = Lockstep(EnvPerSlot(world.make, 4), 4, Episodes(2), 0.1, (-0.5, 0.5))
    assert simulated.spec == stepped.spec
    same(rollout(simulated, 210), rollout(stepped, 210))


def test_unusual_options_leave_the_simulator() -> None:
    assert not Gymnasium(id="Pendulum-v1", kwargs={"g": 9.81}).simulated
    assert not Gymnasium(id="CartPole-v1", frame_skip=2).simulated
    heavy = Gymnasium(id="Pendulum-v1", kwargs={"g": 100.0}).arena(1, Episodes(0))
    light = Gymnasium(id="Pendulum-v1").arena(1, Episodes(0))
    assert (play(heavy, [[0.0]]).inputs[0] != play(light, [[0.0]]).inputs[0]).any()


# ------------------------------------------------------------------ exact resume


def plain(state: Any) -> bool:
    """Nothing but what a checkpoint may hold."""
    if isinstance(state, dict):
        return all(isinstance(key, str) and plain(value) for key, value in state.items())
    if isinstance(state, np.ndarray):
        return state.dtype.kind in "biuf"
    return isinstance(json.dumps(state), str)


@pytest.mark.slow_cases("BipedalWalker-v3-60-60")
@pytest.mark.parametrize(
    ("world", "before", "after"),
    [
        (Gymnasium(id="CartPole-v1"), 75, 80),
        (Gymnasium(id="Pendulum-v1"), 210, 200),
        (Gymnasium(id="Acrobot-v1", time_limit=30), 30, 40),  # stands at a first state, which is kept in float32
        (Gymnasium(id="LunarLander-v3"), 120, 120),
        (Gymnasium(id="BipedalWalker-v3", frame_skip=2), 60, 60),
        (Gymnasium(id="HalfCheetah-v5", time_limit=50), 70, 70),
        (Gymnasium(id="Humanoid-v5"), 30, 30),
        (Gymnasium(id=SCRIPT, frame_skip=2), 0, 10),
    ],
    ids=lambda value: value.id if isinstance(value, Gymnasium) else None,
)
def test_a_loaded_state_goes_on_exactly(world: Gymnasium, before: int, after: int) -> None:
    going, fresh = (world.arena(3, Numbered(4) if world.id == SCRIPT else Episodes(4)) for _ in range(2))
    rollout(fresh, 5, seed=9)
    rollout(going, before)
    state = going.state_dict()
    assert plain(state)
    fresh.load_state_dict(state)
    d = fresh.recv()
    same(d.inputs, going.recv().inputs)
    assert not d.reward.any() and not d.terminated.any() and not d.truncated.any() and not d.results and d.cost == 0
    same(rollout(fresh, after, seed=1)[1:], rollout(going, after, seed=1)[1:])
    same(fresh.state_dict(), going.state_dict())
    going.close()
    fresh.close()


def test_loading_refuses_what_does_not_repeat_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    arena = script(3)
    play(arena, [0, 0, 0])
    state = arena.state_dict()
    with pytest.raises(ValueError, match="3 slots"):
        script(2).load_state_dict(state)
    step = Script.step
    monkeypatch.setattr(Script, "step", lambda self, action: (step(self, action)[0] + 1, 0.0, False, False, {}))
    play(arena, [0, 0, 0])
    monkeypatch.setattr(Script, "step", step)
    with pytest.raises(WorldError, match="another state"):
        script(3).load_state_dict(arena.state_dict())


def test_the_action_log_is_as_long_as_the_longest_episode() -> None:
    engine = EnvPerSlot(Gymnasium(id=SCRIPT).make, 2)
    arena = Lockstep(engine, 2, Numbered(0))
    for _ in range(200):
        play(arena, [0, 0])
        assert engine.state_dict()["lengths"] == engine.lengths.tolist()
        assert len(engine._log) <= 5


# ------------------------------------------------------------------ failures


@pytest.mark.parametrize("times", [1, 2])
def test_a_broken_episode_begins_again_under_its_key(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "breaks", ("step", times))
    monkeypatch.setattr(Script, "step", lambda self, action: Script_step(self, action, length=3))
    arena = script(id="evorl-test/Fragile-v0")
    for _ in range(times):
        play(arena, [1, 1])
        d = play(arena, [2, 2])
        assert d.failed == [1] and not d.terminated.any() and not d.truncated.any()
        same(d.inputs[0][1], [10, 0, -1])
        assert d.reward[1, 0] == 0.0 and d.cost == 1 and not [r for r in d.results if r[0] == 1]
        d = play(arena, [0, 0]) if times == 1 else d
    while not (ended := [result for slot, result in d.results if slot == 1]):
        d = play(arena, [0, 0])
    assert ended[0]["length"] == 3 and ended[0]["return"] == pytest.approx(30.6)


def Script_step(self: Script, action: int, length: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
    """A script whose episodes all terminate after so many steps."""
    self.time += 1
    seen = np.array([self.episode, self.time, action], np.float64)
    return seen, self.episode + self.time / 10, self.time == length, False, {}


def test_a_failed_reset_leaves_the_last_step_of_the_episode_before_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "breaks", ("reset", 1))
    monkeypatch.setattr(Fragile, "victim", 1)
    sound, fragile = script(), script(id="evorl-test/Fragile-v0")
    for _ in range(8):
        same(record(play(fragile, [0, 3])), record(play(sound, [0, 3])))
    assert Fragile.breaks == ("reset", 0)


@pytest.mark.parametrize("where", ["step", "reset"])
def test_the_third_failure_of_one_key_ends_the_world(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "breaks", (where, 3))
    monkeypatch.setattr(Script, "step", lambda self, action: Script_step(self, action, length=9))

    def until_it_ends() -> None:
        arena = script(id="evorl-test/Fragile-v0")
        for _ in range(6):
            play(arena, [0, 0])

    with pytest.raises(WorldError, match=r"Fragile-v0 failed 3 times in the episode of slot 1 with seed 20") as caught:
        until_it_ends()
    assert str(caught.value).rstrip().endswith("RuntimeError: the engine fell off")
    monkeypatch.setattr(Fragile, "breaks", (where, 2))
    until_it_ends()


@pytest.mark.parametrize("times", [2, 3])
def test_an_environment_that_fails_in_its_replay_is_replayed_again(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Script, "step", lambda self, action: Script_step(self, action, length=9))
    arena, other = (script(id="evorl-test/Fragile-v0") for _ in range(2))
    for _ in range(4):
        play(arena, [1, 2])
    state = arena.state_dict()
    monkeypatch.setattr(Fragile, "breaks", ("step", times))
    if times == 3:
        with pytest.raises(WorldError, match=r"slot 1 with seed 20(?s:.*)the engine fell off"):
            other.load_state_dict(state)
        return
    other.load_state_dict(state)
    for _ in range(8):
        same(record(play(other, [0, 1])), record(play(arena, [0, 1])))


# ------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    ("given", "key", "words"),
    [
        ({"id": "Cartpole-v1"}, "id", "did you mean CartPole-v1"),
        ({"id": "HalfCheetah-v9"}, "id", "did you mean HalfCheetah-v5"),
        ({"id": "HalfCheetah-v3"}, "id", "did you mean HalfCheetah-v5"),
        ({"id": "Pusher-v4"}, "id", "did you mean Pusher-v5"),
        ({"id": "no_such_module:Thing-v0"}, "id", "No module named 'no_such_module'"),
        ({"id": ".:"}, "id", "does not run here"),
        ({"id": ""}, "id", "not registered"),
        ({"id": "LunarLander-v3", "kwargs": {"gravitas": 1}}, "kwargs", "gravitas"),
        ({"id": "LunarLander-v3", "kwargs": {"gravity": 5.0}}, "kwargs", "gravity"),
    ],
)
def test_bad_requests_name_the_key_and_the_remedy(given: dict[str, Any], key: str, words: str) -> None:
    with pytest.raises(BadRequest, match=words) as caught:
        Gymnasium(**given).ready()
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("id", "module", "extra"),
    [("Hopper-v5", "mujoco", "mujoco"), ("BipedalWalker-v3", "Box2D", "box2d"), ("ALE/Pong-v5", "ale_py", "atari")],
)
def test_a_missing_extra_says_how_to_install_it(
    id: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    for name in [name for name in sys.modules if name.startswith(f"gymnasium.envs.{extra}")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(BadRequest, match=rf"pip install 'evorl-suite\[{extra}\]'.* -e '\.\[{extra}\]'"):
        Gymnasium(id=id).ready()
    assert go("mdp=gymnasium", f"mdp.id={id}", f"hydra.run.dir={tmp_path / 'run'}") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("evorl: mdp.id: ") and f"pip install 'evorl-suite[{extra}]'" in line
    assert not [*tmp_path.iterdir()]


def test_ready_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Gymnasium(id="HalfCheetah-v5").ready()  # MuJoCo 4 finds an outdated attribute in its model
    assert not list(tmp_path.iterdir())


def test_a_space_without_a_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Script, "observation_space", gym_spaces.Text(5))
    with pytest.raises(BadRequest, match="observation space"):
        Gymnasium(id=SCRIPT).ready()
    monkeypatch.setattr(Script, "observation_space", gym_spaces.Discrete(3))
    monkeypatch.setattr(Script, "action_space", gym_spaces.Box(0, 9, (2,), np.int64))
    with pytest.raises(BadRequest, match="action space"):
        Gymnasium(id=SCRIPT).ready()


# ------------------------------------------------------------------ configs


def conf(name: str) -> dict[str, Any]:
    chosen: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    base = conf("gymnasium") if chosen.pop("defaults", None) else {}
    return {**base, **chosen}


def test_no_environment_is_the_default() -> None:
    assert conf("gymnasium")["id"] == "???"


def test_words_of_an_environment_keep_their_types() -> None:
    pendulum = msgspec.convert({"id": "Pendulum-v1", "kwargs": {"g": 9.81, "render_mode": None}}, Gymnasium)
    assert pendulum.kwargs == {"g": 9.81, "render_mode": None}


def test_all_files_are_found() -> None:
    assert len(FILES) == 20


@pytest.mark.slow_cases("atari")
@pytest.mark.parametrize("name", [name for name in FILES if name != "gymnasium"])  # which names no world
def test_the_world_of_each_file_plays(name: str) -> None:
    given = conf(name)
    world = msgspec.convert(given, get_class(given.pop("_target_")))
    world.ready()
    arena = world.arena(2, Episodes(0))
    played = rollout(arena, 25)
    for each, spec in zip(played[-1]["inputs"], arena.spec.inputs, strict=True):
        assert each.shape == (2, *spec.shape) and each.dtype == spec.dtype and np.isfinite(each).all()
    same(played, rollout(world.arena(2, Episodes(0)), 25))
    arena.close()


# ------------------------------------------------------------------ spaces and pictures


def parts(space: Any) -> tuple[tuple[Input, ...], Callable[[Any], list[Any]]]:
    found = spaces.observation(space)
    return tuple(part for part, _ in found), lambda seen: [read(seen) for _, read in found]


def test_nested_observations_are_several_inputs() -> None:
    space = gym_spaces.Dict(
        position=gym_spaces.Box(-1, 1, (2, 3), np.float64),
        more=gym_spaces.Tuple([gym_spaces.Discrete(3, start=5), gym_spaces.Box(0, 255, (8, 6, 3), np.uint8)]),
    )
    inputs, read = parts(space)
    expected = {Input("position", (2, 3)), Input("more/0", (3,)), Input("more/1", (3, 8, 6), "uint8")}
    assert set(inputs) == expected
    image = np.arange(144, dtype=np.uint8).reshape(8, 6, 3)
    values = dict(zip(inputs, read({"position": np.ones((2, 3)), "more": (6, image)}), strict=True))
    same(values[Input("more/0", (3,))], [0, 1, 0])
    assert values[Input("more/1", (3, 8, 6), "uint8")][2, 4, 5] == image[4, 5, 2]


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (gym_spaces.Discrete(4), Input("observation", (4,))),
        (gym_spaces.Box(0, 255, (9, 7), np.uint8), Input("observation", (1, 9, 7), "uint8")),
        (gym_spaces.Box(0, 255, (4, 84, 84), np.uint8), Input("observation", (4, 84, 84), "uint8")),
        (gym_spaces.Box(0, 255, (128,), np.uint8), Input("observation", (128,))),
        (gym_spaces.Box(0, 1, (), np.float32), Input("observation", (1,))),
    ],
)
def test_observation_forms(space: Any, expected: Input) -> None:
    inputs, read = parts(space)
    assert inputs == (expected,)
    row = np.zeros(expected.shape, expected.dtype)
    row[...] = read(space.sample())[0]


@pytest.mark.parametrize(
    ("space", "form", "actions", "first"),
    [
        (gym_spaces.Discrete(3, start=-1), Discrete(3), [[0], [2]], -1),
        (gym_spaces.MultiDiscrete([2, 3], start=[1, 5]), MultiDiscrete((2, 3)), [[0, 2], [1, 1]], [1, 7]),
        (gym_spaces.MultiBinary((2, 2)), MultiDiscrete((2, 2, 2, 2)), [[0, 1, 1, 0]], [[0, 1], [1, 0]]),
        (gym_spaces.Box(-1, 2, (2, 1), np.float64), Box((-1, -1), (2, 2)), [[0.5, 1.5]], [[0.5], [1.5]]),
    ],
)
def test_action_forms(space: Any, form: Any, actions: Any, first: Any) -> None:
    assert spaces.action(space) == form
    given = np.array(actions, np.float32 if isinstance(form, Box) else np.int64)
    encoded = spaces.encode(space, given)
    assert len(encoded) == len(actions) and all(map(space.contains, encoded))
    same(encoded[0], first)
    assert not isinstance(encoded[0], np.ndarray) or not np.shares_memory(encoded[0], given)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_actions_lie_within_bounds_that_are_no_float32_numbers(dtype: Any) -> None:
    """0.1 as float32 is more than 0.1, 0.7 less."""
    space = gym_spaces.Box(np.array([-0.1, -0.7], dtype), np.array([0.1, 0.7], dtype), dtype=dtype)
    box = spaces.action(space)
    assert isinstance(box, Box)
    ends = np.array([box.low, box.high, [0.05, -0.25]], np.float32)
    encoded = spaces.encode(space, ends)
    assert all(map(space.contains, encoded))
    np.testing.assert_allclose(np.stack(encoded).astype(np.float64), ends, rtol=1e-3)
    if dtype is np.float64:
        same((encoded[0][0], encoded[1][0]), (-0.1, 0.1))
    same(encoded[2], np.array([0.05, -0.25], np.float32).astype(dtype))


def test_a_space_without_numbers_is_no_action() -> None:
    with pytest.raises(spaces.Unsupported, match="Box"):
        spaces.action(gym_spaces.Box(-1, 1, (0,), np.float32))


def test_both_engines_draw_the_same_pictures() -> None:
    world = Gymnasium(id="CartPole-v1")
    pair = [world.arena(2, Episodes(0)), Lockstep(EnvPerSlot(world.make, 2), 2, Episodes(0))]
    rng = np.random.default_rng(0)
    for _ in range(40):
        actions = sampled(pair[0], rng)
        drawn = [(play(arena, actions), arena.render(1))[1] for arena in pair]
        same(*drawn)
    assert drawn[0] is not None and drawn[0].dtype == np.uint8 and drawn[0].shape == (400, 600, 3)
    assert len(np.unique(drawn[0])) > 2
    for arena in pair:
        arena.close()


def test_a_camera_follows_the_slot_it_is_asked_for() -> None:
    arena = Gymnasium(id="LunarLander-v3", frame_skip=2).arena(2, Episodes(0))
    rng = np.random.default_rng(0)
    first = [arena.render(slot) for slot in (0, 1)]
    for _ in range(10):
        play(arena, sampled(arena, rng))
    later = [arena.render(slot) for slot in (0, 1, 0)]
    same(later[0], later[2])
    assert not np.array_equal(later[0], later[1]) and not np.array_equal(first[0], later[0])
    arena.close()


def test_a_world_that_draws_nothing() -> None:
    assert script().render(0) is None


def test_drawing_without_pygame_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(BadRequest, match=r"pip install 'evorl-suite\[video\]'") as refusal:
        Gymnasium(id="CartPole-v1").arena(1, Episodes(0)).render()
    assert "gymnasium[" not in str(refusal.value)  # one way, not two


def test_classic_control_runs_without_importing_gymnasium() -> None:
    """Start-up time counts: a run of CartPole needs our simulator alone."""
    code = (
        "import sys; import numpy as np;"
        "from evorl.mdp.gymnasium.world import Gymnasium; from evorl.util.seed import Episodes;"
        "world = Gymnasium(id='CartPole-v1'); world.ready(); arena = world.arena(2, Episodes(0));"
        "arena.send(arena.recv().slots, np.zeros((2, 1), np.int64)); assert 'gymnasium' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=CONF.parents[1])


# ------------------------------------------------------------------ one environment a slot, in gymnasium's vector API


class Echo(gymnasium.Env[Any, Any]):
    """Shows what it was made to do; every fourth step ends, and every action it is given is kept."""

    observation_space = gym_spaces.Dict(
        did=gym_spaces.Box(-np.inf, np.inf, (4,), np.float64), time=gym_spaces.Discrete(5, start=1)
    )
    done: list[Any]

    def __init__(self, action_space: Any) -> None:
        self.action_space = action_space
        self.done = []

    def seen(self, action: Any) -> dict[str, Any]:
        return {"did": np.resize(np.asarray(action, np.float64), 4), "time": 1 + len(self.done) % 4}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.seen(seed), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.done.append(action)
        return self.seen(action), 1.0, len(self.done) % 4 == 0, False, {"a word": "that nobody reads"}


@pytest.mark.parametrize(
    "space",
    [
        gym_spaces.Discrete(3, start=-1),
        gym_spaces.MultiDiscrete([2, 3], start=[1, 5]),
        gym_spaces.MultiBinary((2, 2)),
        gym_spaces.Box(-1, 2, (2, 1), np.float32),
    ],
    ids=lambda space: type(space).__name__,
)
def test_every_kind_of_action_reaches_its_own_slot(space: Any) -> None:
    made: list[Echo] = []

    def make() -> Echo:
        made.append(Echo(space))
        return made[-1]

    gymnasium.register("evorl-test/Echo-v0", entry_point=lambda: make())
    try:
        arena = Lockstep(
            EnvPerSlot(lambda: gymnasium.make("evorl-test/Echo-v0", disable_env_checker=True), 3), 3, Numbered(0)
        )
    finally:
        del gymnasium.registry["evorl-test/Echo-v0"]
    rng = np.random.default_rng(0)
    for time in range(1, 6):
        actions = np.clip(sampled(arena, rng), -1, 2)
        d = play(arena, actions)
        encoded = spaces.encode(space, actions)
        for slot, env in enumerate(made):
            same(env.done[-1], encoded[slot])
            assert type(env.done[-1]) is type(encoded[slot])
            after = (20 * slot + 2) if time == 4 else encoded[slot]  # episode (slot, 1) began, with its own seed
            seen = dict(zip([part.name for part in arena.spec.inputs], d.inputs, strict=True))
            same(seen["did"][slot], np.resize(np.asarray(after, np.float32), 4))
            same(seen["time"][slot].argmax(), time % 4)
    arena.close()


def test_sync_vector_env_breaks_other_slots_on_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gymnasium's own stops halfway: slot 0 has stepped, slot 2 has not, and nothing says who broke."""
    monkeypatch.setattr(Fragile, "breaks", ("step", 1))
    monkeypatch.setattr(Script, "step", lambda self, action: Script_step(self, action, length=9))
    envs: Any = SyncVectorEnv([Fragile] * 3, autoreset_mode=AutoresetMode.DISABLED)
    envs.reset(seed=[0, 20, 40])
    envs.step(np.zeros(3, np.int64))
    with pytest.raises(RuntimeError) as caught:
        envs.step(np.zeros(3, np.int64))
    assert str(caught.value) == "the engine fell off"
    assert [env.time for env in envs.envs] == [2, 1, 1]
    monkeypatch.setattr(Fragile, "breaks", ("step", 1))
    arena = script(3, id="evorl-test/Fragile-v0")
    play(arena, [0, 0, 0])
    d = play(arena, [0, 0, 0])
    same(d.inputs[0][:, 1], [2, 0, 2])
    assert d.failed == [1] and not d.truncated.any()


def test_a_wrong_observation_shape_is_refused_with_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Script.step

    def short(self: Script, action: int) -> Any:
        seen, *rest = step(self, action)
        return (seen[:2] if self.episode == 10 else seen), *rest

    monkeypatch.setattr(Script, "step", short)
    arena = script()
    with pytest.raises(
        WorldError, match=r"slot 1, seed 20: the input 'observation' is declared float64 \[3\], and .* float64 \[2\]"
    ):
        play(arena, [0, 0])
