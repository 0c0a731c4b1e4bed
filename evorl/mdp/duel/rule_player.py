"""Rule players: a simple stateless policy for each fighter."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from evorl.mdp.duel.rules import (
    ARCHER,
    BLOCK,
    CHARGE,
    DIRECTIONS,
    KNIGHT,
    ROLL,
    SHOOT,
    STEP,
    STRIKE,
    VOLLEY,
    WAIT,
    Fight,
    Fighter,
    Vector,
)

SLIP = 0.3
"""Probability of a random command instead of the rule's."""
CLOSE = 2.2  # an archer's distance to flee at
NEAR = 4.5  # an archer's distance for a volley
ARRIVING = 2.5  # an arrow's distance for the shield

Command = tuple[int, Vector]


def rule_command(fight: Fight, side: int, draw: np.random.Generator) -> Command:
    """Return the rule player's (skill, heading)."""
    if draw.random() < SLIP:
        return random_command(fight, side, draw)
    return RULES[side](fight)


def random_command(fight: Fight, side: int, draw: np.random.Generator) -> Command:
    """Return a random legal skill in a random direction."""
    skills = [skill for skill, may in enumerate(fight.legal(side)) if may]
    return skills[draw.integers(len(skills))], DIRECTIONS[draw.integers(len(DIRECTIONS))]


def knight(fight: Fight) -> Command:
    """Approach, block when an arrow is near, charge and strike."""
    may, gap, toward = fight.legal(KNIGHT), fight.distance(), direction_toward_foe(fight, KNIGHT)
    if gap <= fight.knight.strike.range and may[STRIKE]:
        return STRIKE, toward
    if may[BLOCK] and gap > ARRIVING and _arrow_near(fight):
        return BLOCK, toward
    if may[CHARGE] and gap <= fight.knight.charge.range and fight.line_is_clear():
        return CHARGE, toward
    return STEP, toward


def archer(fight: Fight) -> Command:
    """Keep away, but within range; shoot when the line of sight is free."""
    may, gap, away = fight.legal(ARCHER), fight.distance(), direction_away_from_foe(fight, ARCHER)
    if gap < CLOSE:
        return (ROLL if may[ROLL] else STEP), away
    if not fight.line_is_clear() or gap > fight.archer.shoot.range - 1:
        return STEP, direction_toward_foe(fight, ARCHER)
    if may[VOLLEY] and gap < NEAR:
        return VOLLEY, away
    if may[SHOOT]:
        return SHOOT, away
    return (STEP if gap < NEAR else WAIT), away


RULES: tuple[Callable[[Fight], Command], Callable[[Fight], Command]] = (knight, archer)


def direction_toward_foe(fight: Fight, side: int) -> Vector:
    """Return the direction whose step ends nearest to the opponent; steps slide around the pillar."""
    fighter, foe = fight.fighters[side], fight.fighters[1 - side]

    def gap(direction: Vector) -> float:
        x, y = _after(fight, fighter, direction)
        return math.hypot(x - foe.x, y - foe.y)

    return min(DIRECTIONS, key=gap)


def direction_away_from_foe(fight: Fight, side: int) -> Vector:
    """Return the direction whose dash ends far from the opponent, but not in a corner."""
    fighter, foe, middle = fight.fighters[side], fight.fighters[1 - side], fight.ground.size / 2

    def worth(direction: Vector) -> float:
        x, y = _after(fight, fighter, direction)
        return math.hypot(x - foe.x, y - foe.y) - 0.3 * math.hypot(x - middle, y - middle)

    return max(DIRECTIONS, key=worth)


def _after(fight: Fight, fighter: Fighter, direction: Vector) -> Vector:
    return fight.slide(fighter.x + 2 * direction[0], fighter.y + 2 * direction[1])


def _arrow_near(fight: Fight) -> bool:
    fighter = fight.fighters[KNIGHT]
    return any(math.hypot(arrow.x - fighter.x, arrow.y - fighter.y) < ARRIVING for arrow in fight.arrows)
