"""Films at the game's own speed: what is seen when, and whose side is the agent's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pytest
import torch

from evorl.mdp.arena import BattleWorld
from evorl.mdp.begin import begin
from evorl.mdp.core import Array, Discrete, Input, Spec, State, Step, World
from evorl.mdp.duel import Duel
from evorl.mdp.duel.characters import Ground
from evorl.mdp.gymnasium import Gymnasium
from evorl.mdp.pong import Pong
from evorl.nets.policy import Net
from evorl.rl.evaluation import play_episodes
from evorl.rl.films import Film, at_rate, film
from evorl.rl.ppo import PPO
from evorl.util.errors import BadRequest
from evorl.util.seed import Episodes

torch.set_num_threads(1)


@dataclass(frozen=True, kw_only=True)
class Walk(BattleWorld):
    """Decisions of 1, 2 and 3 steps; a picture is filled with the number of steps so far."""

    kind: type[Path]
    step_s: float | None = 0.1

    @property
    def spec(self) -> Spec:
        return Spec(inputs=(Input("where", (1,)),), action=Discrete(2))

    @property
    def seconds_per_step(self) -> float | None:
        return self.step_s

    def reset(self, *players: int, seed: int) -> Path:
        return self.kind()


class Path:
    """Without a clock, and without pictures between decisions."""

    def __init__(self) -> None:
        self.controllers: Sequence[Any] = [self]
        self.decisions = self.steps = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    @property
    def state(self) -> State:
        return State((np.zeros(1, np.float32),))

    async def __call__(self, action: Array) -> Step:
        self.decisions += 1
        for _ in range(self.decisions):
            self.tick()
        return Step(np.zeros(1, np.float32), terminated=self.decisions == 3, cost=self.decisions)

    def tick(self) -> None:
        self.steps += 1

    def render(self) -> Array:
        return np.full((8, 8, 3), self.steps, np.uint8)

    def result(self) -> dict[str, float]:
        return {"fitness": 0.0}


class Offering(Path):
    """With pictures between decisions."""

    on_frame: Callable[[], None] | None = None

    def tick(self) -> None:
        self.steps += 1
        if self.on_frame is not None:
            self.on_frame()


class Clocked(Offering):
    """Step n takes n tenths of a second."""

    @property
    def seconds(self) -> float:
        return 0.1 * sum(range(self.steps + 1))


def played(world: World, **more: Any) -> Film:
    arena = begin(world.evaluation_world(), world.evaluation_world().sides, Episodes(0))
    arena.close()
    learner = PPO(net=Net(hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
    return film(learner, world, 0, 0, 1, **more)


def shown(made: Film) -> list[int]:
    return [int(frame[0, 0, 0]) for frame in made.frames]


def test_pictures_are_seen_at_even_times() -> None:
    def at(*times: float) -> Iterator[tuple[Array, float]]:
        return ((np.array(number), time) for number, time in enumerate(times))

    assert [int(x) for x in at_rate(at(0.0, 0.1, 0.2), 10)] == [0, 1, 2]
    assert [int(x) for x in at_rate(at(0.0, 0.3, 0.3, 0.45), 10)] == [0, 0, 0, 2, 2, 3]
    assert [int(x) for x in at_rate(at(*(k / 100 for k in range(10))), 50)] == [0, 2, 4, 6, 8, 9]
    assert [*at_rate(at(), 10)] == []


def test_a_decision_is_seen_as_long_as_its_steps_take() -> None:
    made = played(Walk(kind=Path))
    assert made.fps == 10 and shown(made) == [0, 1, 1, 3, 3, 3, 6]


def test_a_battle_offers_pictures_between_decisions() -> None:
    made = played(Walk(kind=Offering))
    assert made.fps == 10 and shown(made) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("delay", [None, (0.0, 0.0)])
def test_a_game_that_began_before_its_film_offers_them_too(delay: tuple[float, float] | None) -> None:
    """Results as observations are known from its first state."""
    made = played(Walk(kind=Offering, delay_ms=delay, features=("length",)))
    assert shown(made) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("delay", [None, (0.0, 0.0)])
def test_the_clock_of_a_battle_counts(delay: tuple[float, float] | None) -> None:
    """Also behind a wrapper. Step n begins after 0.1 (1 + ... + n) seconds, and is seen n + 1 tenths."""
    made = played(Walk(kind=Clocked, delay_ms=delay))
    assert shown(made) == [0, 1, 1, 2, 2, 2, *[3] * 4, *[4] * 5, *[5] * 6, 6]


def test_another_speed_is_in_environment_steps() -> None:
    made = played(Walk(kind=Clocked), steps_per_second=25)
    assert made.fps == 25 and shown(made) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("step_s", "fps"), [(None, 30), (1 / 60, 30), (0.001, 50), (0.02, 50), (0.25, 4)])
def test_films_have_no_more_pictures_than_viewers_show(step_s: float | None, fps: float) -> None:
    assert played(Walk(kind=Path, step_s=step_s)).fps == pytest.approx(fps)


def test_a_duel_lasts_as_long_as_it_says() -> None:
    """With a picture for each tick, of 0.1 s by default and 0.25 s here."""
    for dt in (0.1, 0.25):
        world = Duel(ground=Ground(dt=dt, limit=4.0))
        arena = world.arena(1, Episodes(0))
        arena.close()
        learner = PPO(net=Net(hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
        (episode,) = play_episodes(learner, world, 0, 1, deterministic=True)
        made = film(learner, world, 0, 0, 1)
        seconds = (sum(1 for _ in made.frames) - 1) / made.fps
        assert made.fps == pytest.approx(1 / dt)
        assert seconds == pytest.approx(episode.results["seconds"]) and seconds > 1


@pytest.mark.parametrize(
    ("world", "agent"),
    [
        (Duel(side="knight"), "knight (blue)"),
        (Duel(side="archer"), "archer (orange)"),
        (Pong(side="right"), "right (red)"),
        (Pong(side="left"), "left (green)"),
        (Walk(kind=Path), ""),
    ],
)
def test_the_agents_side_is_named(world: World, agent: str) -> None:
    assert played(world).agent == agent


def test_a_side_that_is_drawn_is_that_of_the_episode() -> None:
    world = Pong(side="random", rounds=1, round_steps=5)
    arena = world.arena(1, Episodes(0))
    arena.close()
    learner = PPO(net=Net(hidden=(8,))).learner(arena.spec, 0, torch.device("cpu"))
    names = [film(learner, world, 0, number, 8).agent for number in range(8)]
    keys = Episodes(0, "evaluate", evaluation=True)
    drawn = [world.side_names[world.players(int(keys(number, 0)))[0]] for number in range(8)]
    assert names == drawn and len({*names}) == 2


def test_the_speed_of_environments_of_others_is_their_own() -> None:
    """Gymnasium declares 50 pictures a second of CartPole, and 30 of Pendulum."""
    assert Gymnasium(id="CartPole-v1").seconds_per_step == pytest.approx(0.02)
    assert Gymnasium(id="Pendulum-v1").seconds_per_step == pytest.approx(1 / 30)


@dataclass
class Wrong(Path):
    picture: Array = field(default_factory=lambda: np.zeros((8, 8, 3)))

    def __post_init__(self) -> None:
        super().__init__()

    def render(self) -> Array:
        return self.picture


def test_a_picture_of_another_kind_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"must be uint8 \[H, W, 3\], render\(\) returned float64 \[8, 8, 3\]"):
        [*played(Walk(kind=Wrong)).frames]


def test_without_a_film_battles_are_not_disturbed() -> None:
    world = Walk(kind=Offering)
    arena = world.arena(1, Episodes(0))
    arena.recv()
    assert arena.render() is not None and replace(world).seconds_per_step == 0.1
    arena.close()
