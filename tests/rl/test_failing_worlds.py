"""Worlds that raise in the middle of a run: what is learned from them, and how they are evaluated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from harness import Alone
from rl_toys import Broken, Game, Games, GameWorld, Pushing, Wandering, episodes

from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step, World, WorldError
from evorl.mdp.gymnasium import Gymnasium
from evorl.nets.policy import Net
from evorl.nets.statistics import Moments
from evorl.rl.actor import Actor
from evorl.rl.dqn import DQN
from evorl.rl.evaluation import EvaluationNoise, play_episodes, play_slots
from evorl.rl.films import film
from evorl.rl.observation_statistics import ObservationStatistics
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.ppo import PPO
from evorl.rl.recorded_episodes import record_episodes
from evorl.rl.vtrace import VTrace
from evorl.util.seed import generator

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("at_once")

# ------------------------------------------------------------------ one state, one value


@dataclass
class Simulator:
    """One state, and the same reward at each step; truncated after ``length``. Actions differ only in what raises."""

    reward: float
    length: int
    raises: Callable[[int, int], bool]  # of the seed, or the simulator's number, and the action
    seed: int = 0
    t: int = 0

    def step(self, action: int) -> bool:
        """Whether the episode was truncated."""
        if self.raises(self.seed, action):
            raise RuntimeError("simulator lost")
        self.t += 1
        return self.t == self.length


def every_tenth() -> Simulator:
    """Reward 1, and each tenth step of all raises: whatever is done, the value is 1 / (1 - gamma)."""
    steps = Counter[str]()

    def raises(seed: int, action: int) -> bool:
        steps["all"] += 1
        return steps["all"] % 10 == 0

    return Simulator(1.0, 3, raises)


def tempting() -> Simulator:
    """Each step costs 1. The first action 1 of an episode raises; else it does what action 0 does."""
    raised = set[int]()

    def raises(seed: int, action: int) -> bool:
        new = action == 1 and seed not in raised
        raised.update([seed] if new else [])
        return new

    return Simulator(-1.0, 5, raises)


class Env(gymnasium.Env[Any, Any]):
    simulator: Simulator

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        s = Env.simulator
        self.own = Simulator(s.reward, s.length, s.raises, seed or 0)
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        over = self.own.step(int(action))
        return np.ones(1, np.float32), self.own.reward, False, over, {}


class Side:
    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator

    @property
    def state(self) -> State:
        return State((np.ones(1, np.float32),))

    async def __call__(self, action: Array) -> Step:
        over = self.simulator.step(int(action[0]))
        return Step(np.array([self.simulator.reward], np.float32), truncated=over)

    def result(self) -> dict[str, float]:
        return {}


@dataclass(frozen=True, kw_only=True)
class Battles(BattleWorld):
    simulator: Any = field(default=None)

    @property
    def spec(self) -> Spec:
        return Spec((Input("one", (1,)),), Discrete(2))

    def reset(self, *players: int, seed: int) -> Alone:
        s = self.simulator
        return Alone(Side(Simulator(s.reward, s.length, s.raises, seed)))


@pytest.fixture(params=["environments", "battles"])
def world_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Simulator], World]]:
    if request.param == "battles":
        yield lambda simulator: Battles(simulator=simulator)
        return
    gymnasium.register("evorl-test/OneState-v0", entry_point=Env)

    def world(simulator: Simulator) -> World:
        monkeypatch.setattr(Env, "simulator", simulator, raising=False)
        return Gymnasium(id="evorl-test/OneState-v0")

    yield world
    del gymnasium.registry["evorl-test/OneState-v0"]


@pytest.mark.slow_cases(but=("battles-0-every_tenth", "environments-0-tempting"))
@pytest.mark.parametrize("simulator", [every_tenth, tempting])
@pytest.mark.parametrize("lstm", [0, 4])
def test_the_value_of_the_only_state_is_a_fixed_point(
    world_of: Callable[[Simulator], World], simulator: Callable[[], Simulator], lstm: int, caplog: Any
) -> None:
    """With V = r / (1 - gamma) all targets are V and all advantages 0: nothing speaks for the action that raises."""
    world, hyper = world_of(simulator()), PPO(net=Net(lstm=lstm, hidden=(4,)), gamma=0.9)
    with closing(world.arena(4, episodes())) as arena:
        learner = hyper.learner(arena.spec, 0, torch.device("cpu"))
        value = simulator().reward * 10
        named = learner.layout.unflatten(learner.theta)
        named["value.weight"].zero_()
        named["value.bias"].fill_(value)
        actor = Actor(arena, learner, 0, 0, hyper.storage(arena.spec, 4))
        taken = set[int]()
        for iteration in range(3):
            _, ended = actor.collect(iteration)
            batch = actor.batch
            _, _, advantage, target = learner._advantages_and_targets(batch, batch.reward)
            assert (batch.reward == simulator().reward).all()
            torch.testing.assert_close(target, torch.full_like(target, value), rtol=1e-5, atol=0)
            torch.testing.assert_close(advantage, torch.zeros_like(advantage), rtol=0, atol=1e-4)
            assert {one.length for one in ended} == {simulator().length}  # broken episodes are none of them
            taken |= set(batch.action.flatten().tolist())
        assert taken == {0, 1} and "simulator lost" in caplog.text


@pytest.mark.slow_cases("battles-3-every_tenth", "environments-3-tempting")
@pytest.mark.parametrize("simulator", [every_tenth, tempting])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_replay_has_the_same_fixed_point(
    world_of: Callable[[Simulator], World], simulator: Callable[[], Simulator], steps: int, caplog: Any
) -> None:
    world, hyper = world_of(simulator()), DQN(slots=3, horizon=8, capacity=1000, gamma=0.9, warm_up=900, batch=4)
    with closing(world.arena(3, episodes())) as arena:
        learner, member = (hyper.learner(arena.spec, 0, torch.device("cpu")) for _ in range(2))
        actor = Actor(arena, member, 0, 0, hyper.storage(arena.spec, 3))
        for iteration in range(6):
            actor.collect(iteration)
            learner.update(actor.batch, 0, iteration)
    replay, value = learner.replay, simulator().reward * 10
    read = replay.read(np.arange(replay.count), replay.count, np.array([0.9]), steps)
    np.testing.assert_allclose(read.reward + read.discount * value, value, rtol=1e-5)
    assert not replay.terminated.any() and "simulator lost" in caplog.text


def test_a_rollout_keeps_nothing_of_an_earlier_batch(world_of: Callable[[Simulator], World], caplog: Any) -> None:
    """No value is asked for at its end. A number that stayed there would be another one after a resume."""
    hyper = VTrace(slots=3, horizon=8, net=Net(hidden=(4,)))
    with closing(world_of(every_tenth()).arena(3, episodes())) as arena:
        learner = hyper.learner(arena.spec, 0, torch.device("cpu"))
        actor = Actor(arena, learner, 0, 0, hyper.storage(arena.spec, 3))
        for iteration in range(2):
            actor.collect(iteration)
            assert actor.batch.value[:-1].all() and not actor.batch.value[-1].any()
    assert "simulator lost" in caplog.text


# ------------------------------------------------------------------ evaluations


def failing(game: type[Game], rate: float = 0.05) -> type[Game]:
    """The game, which fails at some of the tries to act; each slot has its own."""

    class Failing(game):
        def begin(self, slot: int, key: int) -> None:
            super().begin(slot, key)
            self.tries = getattr(self, "tries", 0)

        def step(self, action: Array) -> Step:
            self.tries += 1
            if generator("fails", self.slot, self.tries).random() < rate:
                failures[self.slot] += 1
                raise Broken
            return super().step(action)

    return Failing


failures = Counter[int]()


@pytest.fixture(autouse=True)
def nothing_failed_yet() -> None:
    failures.clear()


def learner_of(game: type[Game], lstm: int = 0) -> PolicyGradient:
    return PPO(net=Net(lstm=lstm, hidden=(8,))).learner(game.spec, 0, torch.device("cpu"))


@pytest.mark.slow_cases(but=("4-True-1", "0-False-None"))
@pytest.mark.parametrize("order", [None, 1])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("lstm", [0, 4])
def test_an_evaluation_has_the_episodes_of_a_world_that_does_not_fail(
    lstm: int, deterministic: bool, order: int | None
) -> None:
    learner = learner_of(Wandering, lstm)
    sound, broken = (GameWorld(game=game, order=order) for game in (Wandering, failing(Wandering)))
    want = play_episodes(learner, sound, 3, 12, deterministic=deterministic)
    assert play_episodes(learner, broken, 3, 12, deterministic=deterministic) == want
    assert sum(failures.values()) > 3


@pytest.mark.parametrize("order", [None, 1])
def test_the_inputs_of_a_broken_episode_count_once(order: int | None) -> None:
    def seen(game: type[Game]) -> dict[str, Any]:
        moments = Moments.of(game.spec.inputs, True)
        assert moments is not None
        arena, learner = Games(game, 5, episodes(), order), learner_of(game)
        noise = EvaluationNoise(arena, 0, deterministic=True)
        play_slots(arena, learner, noise, [3, 2, 0, 4, 1], ObservationStatistics(moments, 5))
        return moments.state_dict()

    assert repr(seen(failing(Wandering))) == repr(seen(Wandering))
    assert sum(failures.values()) > 1


@pytest.mark.parametrize("order", [None, 1])
def test_nothing_of_a_broken_episode_is_recorded(order: int | None) -> None:
    def recorded(game: type[Game]) -> str:
        arena = Games(game, 6, episodes(), order)
        played, fragments = record_episodes(arena, learner_of(game), EvaluationNoise(arena, 5, deterministic=False))
        return repr([played, *fragments])

    assert recorded(failing(Pushing, 0.15)) == recorded(Pushing)
    assert sum(failures.values()) > 1


def test_a_film_shows_an_episode_once() -> None:
    class Drawn(Games):
        def render(self, slot: int = 0) -> Array:
            return np.full((1, 1, 3), self.games[slot].t, np.uint8)

    @dataclass(frozen=True, kw_only=True)
    class Drawable(GameWorld):
        def arena(self, slots: int, episodes: Any) -> Games:
            return Drawn(self.game, slots, episodes)

    def pictures(game: type[Game]) -> list[int]:
        return [int(picture[0, 0, 0]) for picture in film(learner_of(game), Drawable(game=game), 0, 2, 3).frames]

    whole = pictures(Wandering)
    assert pictures(failing(Wandering, 0.3)) == whole == list(range(len(whole))) and failures


class Numbered(gymnasium.Env[Any, Any]):
    """Ten steps; pictures are filled with the number of steps so far. Each of ``fails`` raises once where drawn."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    fails: ClassVar[list[int]] = []

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t += 1
        if self.render_mode and self.fails[:1] == [self.t]:
            raise RuntimeError(f"lost at {self.fails.pop(0)}")
        return np.zeros(1, np.float32), 1.0, self.t == 10, False, {}

    def render(self) -> Any:
        return np.full((1, 1, 3), self.t, np.uint8)


def test_a_film_goes_on_where_the_environment_that_draws_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, "Numbered-v0", gymnasium.envs.registration.EnvSpec("Numbered-v0", Numbered))
    world, learner = Gymnasium(id="Numbered-v0"), PPO(net=Net(hidden=(4,)))

    def pictures(*fails: int) -> list[int]:
        monkeypatch.setattr(Numbered, "fails", [*fails])
        with closing(world.arena(1, episodes())) as arena:
            policy = learner.learner(arena.spec, 0, torch.device("cpu"))
        return [int(picture[0, 0, 0]) for picture in film(policy, world, 0, 0, 1).frames]

    assert pictures(3, 2, 7) == pictures() == list(range(11))
    with pytest.raises(WorldError, match=r"Numbered-v0 failed 3 times in the film of seed .*lost at 3"):
        pictures(5, 4, 3)
