"""Config of the fighters and the ground: every number is a config value, so that evolution can balance them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from msgspec import Meta

from evorl.util.errors import BadRequest
from evorl.util.types import Fraction, NonNegative, Positive

Arrows = Annotated[int, Meta(ge=1, le=1000)]  # each takes memory and time in every step


@dataclass(frozen=True, kw_only=True)
class Skill:
    """One skill of a fighter. Times in seconds, lengths in field units."""

    cast: Positive
    """Duration; its side cannot decide meanwhile."""
    cooldown: NonNegative = 0.0
    """Time from the end of the cast until the skill can be used again."""
    energy: NonNegative = 0.0
    range: NonNegative = 0.0
    """How far it moves, reaches or flies."""
    damage: NonNegative = 0.0
    """Hit points."""


@dataclass(frozen=True, kw_only=True)
class Character:
    """Config that both fighters have. The skills are the fields of type `Skill`, in their order."""

    health: Positive = 100.0
    energy: Positive = 100.0
    regeneration: NonNegative = 12.0
    """Energy per second."""
    strafe: Fraction = 0.4
    """Share of the walking speed during casts of skills that do not move."""
    wait: Skill = Skill(cast=0.2)
    """Do nothing; always legal."""
    step: Skill = Skill(cast=0.2, range=0.5)
    """Walk in the chosen direction; always legal."""

    without: ClassVar[dict[str, tuple[str, ...]]] = {
        "wait": ("cooldown", "energy", "range", "damage"),
        "step": ("cooldown", "energy", "damage"),
    }
    """Numbers that a skill does not use. Waiting and stepping cost no energy, so that they are always legal."""

    def __post_init__(self) -> None:
        for skill, numbers in self.without.items():
            for number in numbers:
                if value := getattr(getattr(self, skill), number):
                    raise BadRequest(f"{skill} has no {number}; it stays 0, not {value:g}", f"{skill}.{number}")

    @property
    def skills(self) -> tuple[Skill, ...]:
        return tuple(value for each in fields(self) if isinstance(value := getattr(self, each.name), Skill))


@dataclass(frozen=True, kw_only=True)
class Knight(Character):
    """The melee fighter: slow to reach its opponent, strong at close range."""

    health: Positive = 112.0
    strike: Skill = Skill(cast=0.4, cooldown=0.3, energy=12.0, range=1.7, damage=13.0)
    """A blow at the end of the cast, at an opponent within range."""
    charge: Skill = Skill(cast=0.5, cooldown=3.0, energy=30.0, range=4.0, damage=10.0)
    """A dash to the opponent's position at the start; stops at the opponent and damages it."""
    charge_reach: NonNegative = 0.3
    """Distance between the bodies at which a charge hits."""
    block: Skill = Skill(cast=0.6, cooldown=0.8, energy=10.0)
    """Raises the shield, which reduces damage."""
    absorbed: Fraction = 0.85
    """Share of the damage that the shield removes."""

    without: ClassVar = {**Character.without, "block": ("range", "damage")}


@dataclass(frozen=True, kw_only=True)
class Archer(Character):
    """The ranged fighter: little health, strong at a distance."""

    health: Positive = 80.0
    step: Skill = Skill(cast=0.2, range=0.46)
    shoot: Skill = Skill(cast=0.5, cooldown=0.3, energy=10.0, range=7.0, damage=10.0)
    """An arrow at the end of the cast, at the opponent's extrapolated position."""
    volley: Skill = Skill(cast=0.9, cooldown=3.0, energy=35.0, range=6.0, damage=8.0)
    """Several arrows in a fan."""
    volley_arrows: Arrows = 3
    volley_angle: NonNegative = 15.0
    """Degrees between neighbouring arrows."""
    roll: Skill = Skill(cast=0.4, cooldown=2.0, energy=20.0, range=2.4)
    """A dash in the chosen direction, without damage to the archer."""
    arrow_speed: Positive = 40.0
    """Units per second."""
    arrow_radius: NonNegative = 0.1
    """Half an arrow's width."""

    without: ClassVar = {**Character.without, "roll": ("damage",)}


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The square between four walls, with a round pillar in its middle. Lengths in field units."""

    size: Positive = 10.0
    pillar: NonNegative = 0.7
    """Radius of the pillar, which stops fighters and arrows."""
    body: Positive = 0.4
    """Radius of a fighter."""
    dt: Positive = 0.1
    """Simulated seconds per tick: one environment step."""
    storm: NonNegative = 15.0
    """Simulated seconds after which the field burns, so that running away loses against the side that leads."""
    burn: NonNegative = 0.1
    """Share of full health that both fighters then lose per second."""
    limit: Positive = 30.0
    """Simulated seconds after which the fight is a draw."""

    @property
    def steps(self) -> int:
        """Ticks of the longest fight."""
        return max(1, round(self.limit / self.dt))

    def __post_init__(self) -> None:
        if 2 * self.pillar + 6 * self.body > self.size:
            raise BadRequest(f"{self.size} leaves no room around a pillar of radius {self.pillar}", "size")
