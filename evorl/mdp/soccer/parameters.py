"""The parameters of soccer: each is a key of ``conf/mdp/soccer.yaml``, and may be a gene."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from evorl.util.errors import BadRequest
from evorl.util.types import Count, Fraction, NonNegative, Positive

STEPS = 2**31  # of a game, a restart or a tackle: far more than anyone plays, and far from the end of int64


@dataclass(frozen=True, kw_only=True)
class Field:
    """Sizes in metres."""

    length: Positive = 40.0
    """From goal line to goal line."""
    width: Positive = 26.0
    """From side line to side line."""
    goal: Positive = 6.0
    """Distance of the posts."""
    margin: NonNegative = 1.0
    """How far players may run beyond the lines."""


@dataclass(frozen=True, kw_only=True)
class Body:
    """What a player can do."""

    radius: Positive = 0.4
    """Metres."""
    speed: Positive = 6.0
    """Full speed in metres per second."""
    inertia: Positive = 0.2
    """Seconds in which 63 % of the way to the wanted velocity is made."""
    reach: Positive = 1.0
    """Metres from the player's centre at which it can kick the ball."""
    shot: Positive = 20.0
    """Metres per second of the ball after a shot."""
    passing: Positive = 10.0
    """Metres per second of the ball after a pass."""
    control: Fraction = 0.2
    """Share of the relative speed that a ball keeps which touches the player."""


@dataclass(frozen=True, kw_only=True)
class Tackle:
    """A run straight ahead that wins the ball from farther away."""

    speed: Positive = 9.0
    """Metres per second."""
    time: NonNegative = 0.4
    """Seconds that it lasts."""
    reach: Positive = 0.9
    """Metres from the player's centre at which it touches the ball."""
    recovery: NonNegative = 0.8
    """Seconds in which the player stands after it."""


@dataclass(frozen=True, kw_only=True)
class Ball:
    """The ball."""

    radius: Positive = 0.15
    """Metres."""
    friction: NonNegative = 0.5
    """Share of its speed that the ball loses per second, as a rate."""


@dataclass(frozen=True, kw_only=True)
class Restart:
    """How play goes on after the ball was out, and at a kick-off."""

    time: NonNegative = 3.0
    """Seconds after which the other team may touch the ball, too."""
    distance: NonNegative = 3.0
    """Metres that the other team keeps from the ball."""
    scatter: NonNegative = 0.5
    """Metres by which the places at a kick-off are off."""


@dataclass(frozen=True, kw_only=True)
class Team:
    """What a team's players have of the common numbers, as factors; 1 is a game of like teams."""

    speed: Positive = 1.0
    """Of ``body.speed``."""
    kick: Positive = 1.0
    """Of ``body.shot`` and ``body.passing``."""


@dataclass(frozen=True, kw_only=True)
class Rewards:
    """Weights of the rewards; those of weight 0 are not computed. Each is zero-sum."""

    goal: float = 1.0
    """Times 1 for a goal, -1 for one of the other team."""
    possession: float = 0.0
    """Per second in which a team touched the ball last, minus the seconds of the other team."""
    progress: float = 0.0
    """Times gamma P' - P, where P is how much nearer the ball is to the middle of the other goal than to that of the
    own one, by the length of the field: 1 in the other goal, and 0 at the end of a game."""
    approach: float = 0.0
    """The same of another P: how much nearer to the ball the team's nearest player is than that of the other team, by
    the half length of the field."""
    gamma: Fraction = 0.99
    """The discount per step in progress and approach; take the learner's, and of a frame skip of n its n-th root, as
    skip_gamma."""

    @property
    def names(self) -> tuple[str, ...]:
        names = tuple(name for name in ("goal", "possession", "progress", "approach") if getattr(self, name))
        return names or ("goal",)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The parameters of a game."""

    team_size: Annotated[int, Meta(ge=1, le=11)] = 2
    """Players of each team."""
    seconds: Positive = 60.0
    """Length of a game."""
    goals: Count | None = None
    """Goals of both teams after which a game ends; null for no such end."""
    dt: Positive = 0.1
    """Seconds of a step."""
    field: Field = Field()
    """Its sizes."""
    body: Body = Body()
    """What a player can do."""
    tackle: Tackle = Tackle()
    """A run straight ahead that wins the ball from farther away."""
    ball: Ball = Ball()
    """What the ball does."""
    restart: Restart = Restart()
    """How play goes on after the ball was out."""
    left: Team = Team()
    """Factors of the left team's own numbers."""
    right: Team = Team()
    """Factors of the right team's own numbers."""
    reward: Rewards = Rewards()
    """Weights of the rewards."""

    def __post_init__(self) -> None:
        """Raises `BadRequest` for steps that cannot be counted, and for lengths that no game can have together."""
        times = {
            "seconds": self.seconds,
            "tackle.time": self.tackle.time,
            "tackle.recovery": self.tackle.recovery,
            "restart.time": self.restart.time,
        }
        for key, time in times.items():
            if not time / self.dt <= STEPS:
                raise BadRequest(f"{time:g} is more than 2^31 steps of dt={self.dt:g} seconds", key)
        if self.field.goal > self.field.width:
            raise BadRequest(f"{self.field.goal:g} is wider than the field, width={self.field.width:g}", "field.goal")
        touches = self.body.radius + self.ball.radius
        for key, reach in {"body.reach": self.body.reach, "tackle.reach": self.tackle.reach}.items():
            if reach <= touches:
                parts = f"body.radius={self.body.radius:g} and ball.radius={self.ball.radius:g}"
                raise BadRequest(f"{reach:g} is within the player, whom the ball touches at {touches:g}: {parts}", key)
        if self.restart.distance > self.field.length / 2:
            most = f"at most half of field.length={self.field.length:g}"
            raise BadRequest(f"{self.restart.distance:g} keeps a team off the field: {most}", "restart.distance")

    @property
    def steps(self) -> int:
        """Steps of a game."""
        return max(1, round(self.seconds / self.dt))

    def in_steps(self, seconds: float) -> int:
        return round(seconds / self.dt)
