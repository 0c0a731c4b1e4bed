"""The rules of the duel: a real-time fight in ticks of simulated time, a pure function of seed and commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from evorl.mdp.duel.characters import Archer, Character, Ground, Knight, Skill
from evorl.util.seed import generator

KNIGHT, ARCHER = 0, 1
SKILLS = ("wait", "step", "strike | shoot", "charge | volley", "block | roll")
WAIT, STEP = 0, 1
STRIKE, CHARGE, BLOCK = 2, 3, 4
SHOOT, VOLLEY, ROLL = 2, 3, 4
Vector = tuple[float, float]
DIRECTIONS: tuple[Vector, ...] = tuple((math.cos(k * math.pi / 4), math.sin(k * math.pi / 4)) for k in range(8))
STILL = 0.0, 0.0


@dataclass(slots=True)
class Fighter:
    """The state of one side; times in ticks."""

    character: Character
    skills: tuple[Skill, ...]
    casts: tuple[int, ...]
    cooldowns: tuple[int, ...]
    gain: float  # energy per tick
    x: float
    y: float
    health: float
    energy: float
    ready: list[int] = field(default_factory=lambda: [0] * len(SKILLS))  # first tick at which a skill can be used
    skill: int = WAIT  # the current or last skill
    left: int = 0  # ticks until it ends; the side can decide at 0
    heading: Vector = STILL
    vx: float = 0.0
    vy: float = 0.0
    moved: Vector = STILL  # displacement of the last tick, after collisions
    spent: bool = False  # the current charge has hit
    dealt: float = 0.0
    taken: float = 0.0


@dataclass(slots=True)
class Arrow:
    x: float
    y: float
    vx: float
    vy: float
    left: int
    damage: float


class Fight:
    """Knight (side 0) against archer (side 1). After each `advance` at least one side can decide."""

    def __init__(self, knight: Knight, archer: Archer, ground: Ground, seed: int) -> None:
        self.ground, self.knight, self.archer = ground, knight, archer
        self.limit = ground.steps
        self.tick = 0
        self.arrows: list[Arrow] = []
        self._pending_damage: list[tuple[int, float]] = []
        self._low, self._high, self._half = ground.body, ground.size - ground.body, ground.size / 2
        self._around = ground.pillar + ground.body if ground.pillar else 0.0
        draw = generator("duel", seed, "start")
        left, right = draw.uniform(0.15, 0.25) * ground.size, draw.uniform(0.75, 0.85) * ground.size
        if draw.random() < 0.5:
            left, right = right, left
        low, high = draw.uniform(0.2, 0.8, 2) * ground.size
        self.fighters = (self._fighter(knight, left, float(low)), self._fighter(archer, right, float(high)))

    def _fighter(self, character: Character, x: float, y: float) -> Fighter:
        skills, dt = character.skills, self.ground.dt
        casts = tuple(max(1, round(skill.cast / dt)) for skill in skills)
        cooldowns = tuple(round(skill.cooldown / dt) for skill in skills)
        gain = character.regeneration * dt
        return Fighter(character, skills, casts, cooldowns, gain, x, y, character.health, character.energy)

    @property
    def terminated(self) -> bool:
        return self.fighters[0].health <= 0 or self.fighters[1].health <= 0

    @property
    def over(self) -> bool:
        return self.tick >= self.limit or self.terminated

    def legal(self, side: int) -> list[bool]:
        """Return which skills the side can use now; waiting and stepping are always legal."""
        fighter = self.fighters[side]
        return [
            r <= self.tick and fighter.energy >= s.energy for r, s in zip(fighter.ready, fighter.skills, strict=True)
        ]

    def line_is_clear(self) -> bool:
        """Return whether the pillar does not block the line between the fighters."""
        a, b = self.fighters
        half = self.ground.size / 2
        return _distance_to_segment(a.x, a.y, b.x, b.y, half, half) > self.ground.pillar

    def distance(self) -> float:
        a, b = self.fighters
        return math.hypot(a.x - b.x, a.y - b.y)

    def toward(self, side: int) -> Vector:
        """Return the unit vector from a side to its opponent."""
        fighter, foe, gap = self.fighters[side], self.fighters[1 - side], self.distance()
        return ((foe.x - fighter.x) / gap, (foe.y - fighter.y) / gap) if gap else DIRECTIONS[0]

    def command(self, side: int, skill: int, heading: Vector) -> None:
        """Start a skill with a unit vector as heading. Raises ValueError if it is not legal or the side is busy."""
        fighter = self.fighters[side]
        if fighter.left or fighter.ready[skill] > self.tick or fighter.energy < fighter.skills[skill].energy:
            raise ValueError(f"side {side} cannot use skill {skill} ({SKILLS[skill]}) now")
        chosen = fighter.skills[skill]
        fighter.skill, fighter.left, fighter.heading, fighter.spent = skill, fighter.casts[skill], heading, False
        fighter.energy -= chosen.energy
        if skill > STEP:
            fighter.ready[skill] = self.tick + fighter.casts[skill] + fighter.cooldowns[skill]
        self._set_velocity(side, fighter, chosen)

    def _set_velocity(self, side: int, fighter: Fighter, chosen: Skill) -> None:
        """Set the velocity for this cast: a dash, a walk, or strafing during another skill."""
        pace = fighter.character.strafe * fighter.character.step.range / fighter.casts[STEP]
        if fighter.skill == WAIT:
            pace = 0.0
        elif fighter.skill == STEP or fighter.skill == (CHARGE, ROLL)[side]:
            pace = chosen.range / fighter.left
        if side == KNIGHT and fighter.skill == CHARGE:
            fighter.heading = self.toward(KNIGHT)
        fighter.vx, fighter.vy = pace * fighter.heading[0], pace * fighter.heading[1]

    def advance(self, seen: Callable[[], None] | None = None) -> None:
        """Advance ticks until a side can decide or the fight is over; call ``seen`` after each."""
        while True:
            self._pass_tick()
            if seen is not None:
                seen()
            if not self.fighters[0].left or not self.fighters[1].left or self.over:
                return

    def _pass_tick(self) -> None:
        for side in (KNIGHT, ARCHER):
            self._move(side)
        if self.arrows:
            self.arrows = [arrow for arrow in self.arrows if self._fly(arrow)]
        for side, fighter in enumerate(self.fighters):
            if fighter.left == 1:
                self._finish_cast(side)
        if self._pending_damage:
            for pending in self._pending_damage:
                self._apply_damage(*pending)
            self._pending_damage.clear()
        for fighter in self.fighters:
            fighter.left -= 1
            fighter.energy = min(fighter.character.energy, fighter.energy + fighter.gain)
        self.tick += 1
        if self.tick * self.ground.dt > self.ground.storm:
            self._burn()

    def _burn(self) -> None:
        for fighter in self.fighters:
            full = fighter.character.health
            fighter.health -= self.ground.burn * self.ground.dt * full
            if fighter.health <= 1e-9 * full:  # both fall in the same tick, despite rounding
                fighter.health = 0.0

    # -------------------------------------------------------------- moving

    def _move(self, side: int) -> None:
        fighter, foe = self.fighters[side], self.fighters[1 - side]
        if fighter.vx or fighter.vy:
            x, y = self.slide(fighter.x + fighter.vx, fighter.y + fighter.vy)
            if side == KNIGHT or fighter.skill != ROLL:
                x, y = self._stop(fighter, foe, x, y)
            fighter.moved = x - fighter.x, y - fighter.y
            fighter.x, fighter.y = x, y
        else:
            fighter.moved = STILL
        if side == KNIGHT and fighter.skill == CHARGE and not fighter.spent:
            self._charge(fighter, foe)

    def _stop(self, fighter: Fighter, foe: Fighter, x: float, y: float) -> Vector:
        """Return where a move to (x, y) ends: there, or where the bodies touch."""
        touch = 2 * self.ground.body
        after = math.hypot(x - foe.x, y - foe.y)
        if after >= touch or after >= (before := math.hypot(fighter.x - foe.x, fighter.y - foe.y)):
            return x, y
        return self.slide(foe.x + (fighter.x - foe.x) * touch / before, foe.y + (fighter.y - foe.y) * touch / before)

    def slide(self, x: float, y: float) -> Vector:
        """Return the nearest point to (x, y) inside the walls and outside the pillar."""
        low, high, half = self._low, self._high, self._half
        x = low if x < low else high if x > high else x
        y = low if y < low else high if y > high else y
        dx, dy = x - half, y - half
        gap = math.hypot(dx, dy)
        if gap >= self._around:
            return x, y
        if gap < 1e-9:
            return half + self._around, half
        return half + dx * self._around / gap, half + dy * self._around / gap

    def _charge(self, fighter: Fighter, foe: Fighter) -> None:
        if self.distance() <= 2 * self.ground.body + self.knight.charge_reach:
            self._pending_damage.append((ARCHER, self.knight.charge.damage))
            fighter.spent, fighter.vx, fighter.vy = True, 0.0, 0.0

    # -------------------------------------------------------------- arrows

    def _fly(self, arrow: Arrow) -> bool:
        """Move an arrow by one tick; return whether it still flies."""
        x, y = arrow.x + arrow.vx, arrow.y + arrow.vy
        size, foe = self.ground.size, self.fighters[KNIGHT]
        half = size / 2
        if self.ground.pillar and _distance_to_segment(arrow.x, arrow.y, x, y, half, half) <= self.ground.pillar:
            return False
        if _distance_to_segment(arrow.x, arrow.y, x, y, foe.x, foe.y) <= self.ground.body + self.archer.arrow_radius:
            self._pending_damage.append((KNIGHT, arrow.damage))
            return False
        arrow.x, arrow.y, arrow.left = x, y, arrow.left - 1
        return arrow.left > 0 and 0 <= x <= size and 0 <= y <= size

    def _shoot_arrow(self, fighter: Fighter, skill: int, turn: float) -> None:
        """Shoot an arrow at the opponent's extrapolated position, rotated by the angle ``turn``."""
        foe, chosen, pace = self.fighters[KNIGHT], fighter.skills[skill], self.archer.arrow_speed * self.ground.dt
        flight = self.distance() / pace
        dx, dy = foe.x + foe.moved[0] * flight - fighter.x, foe.y + foe.moved[1] * flight - fighter.y
        angle = math.atan2(dy, dx) + turn
        left = max(1, round(chosen.range / pace))
        self.arrows.append(
            Arrow(fighter.x, fighter.y, pace * math.cos(angle), pace * math.sin(angle), left, chosen.damage)
        )

    # -------------------------------------------------------------- damage

    def _finish_cast(self, side: int) -> None:
        """Apply the effect of a skill at the end of its cast."""
        fighter = self.fighters[side]
        if side == KNIGHT and fighter.skill == STRIKE:
            if self.distance() <= self.knight.strike.range:
                self._pending_damage.append((ARCHER, self.knight.strike.damage))
        elif side == ARCHER and fighter.skill == SHOOT:
            self._shoot_arrow(fighter, SHOOT, 0.0)
        elif side == ARCHER and fighter.skill == VOLLEY:
            count, between = self.archer.volley_arrows, math.radians(self.archer.volley_angle)
            for arrow in range(count):
                self._shoot_arrow(fighter, VOLLEY, (arrow - (count - 1) / 2) * between)

    def _apply_damage(self, side: int, damage: float) -> None:
        """Apply damage, reduced by a block and ignored during a roll."""
        fighter, other = self.fighters[side], self.fighters[1 - side]
        if side == ARCHER and fighter.skill == ROLL:
            return
        if side == KNIGHT and fighter.skill == BLOCK:
            damage *= 1 - self.knight.absorbed
        damage = min(damage, fighter.health)
        fighter.health -= damage
        fighter.taken += damage
        other.dealt += damage


def _distance_to_segment(ax: float, ay: float, bx: float, by: float, px: float, py: float) -> float:
    """Return the distance of the point p from the segment a-b."""
    dx, dy = bx - ax, by - ay
    square = dx * dx + dy * dy
    t = 0.0 if square == 0 else min(1.0, max(0.0, ((px - ax) * dx + (py - ay) * dy) / square))
    return math.hypot(ax + t * dx - px, ay + t * dy - py)
