"""Marvin's body in Box2D: a pear-shaped trunk with a big round head on two legs with knees and feet.

It is BipedalWalker with another body. The shapes are evorl's; masses, joints, motors, joint positions and start
height are those of Marvin in github.com/ptyshevs/walking_marvin. Lengths are in pixels, 30 per metre, y up, from the
part's own origin; the body faces right.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any, NamedTuple

from gymnasium.error import DependencyNotInstalled

from evorl.util import command

try:
    with warnings.catch_warnings():
        # Box2D warns about its own types; raised as an error that ends the interpreter
        warnings.simplefilter("ignore", DeprecationWarning)
        Box2D: Any = import_module("Box2D")
except ImportError as error:
    raise DependencyNotInstalled(f"Box2D is not installed: {command.install('box2d')}") from error

SCALE = 30.0  # pixels per metre
LEG = 34.0  # length of a leg part
HIP = -8.0  # y of the hips on the trunk
KNEE = LEG / 3  # distance of the knee from the centres of thigh and shin
HIP_SPEED, KNEE_SPEED = 4.0, 6.0  # rad/s at most
TORQUE = 80.0  # N m at most
HIP_LIMITS, KNEE_LIMITS = (-0.8, 1.1), (-1.6, -0.1)  # rad
DENSITY = 0.5  # kg/m^2, of trunk and legs
FRICTION = 2.5  # of the ground
TRUNK_FRICTION, LEG_FRICTION = 0.1, 0.2
STEP = 14 / SCALE  # metres between two columns of the ground
COLUMNS, GOAL = 200, 190  # columns of the ground; the column at which the walk ends
GROUND, ROBOT = 0x0001, 0x0020  # collision categories: the robot collides with the ground only
LEAN = 0.05  # rad between a leg and the trunk at the start

Point = tuple[float, float]
Polygon = tuple[Point, ...]

HEAD_AT, HEAD_RADIUS = (2.0, 57.0), 26.0
PEAR = ((-17.0, 15.0), (-11.0, 25.5), (-2.0, 30.0), (8.0, 28.5), (18.0, 22.5), (27.0, 16.0), (33.0, 12.5))
"""The torso's outline from below: heights and half widths."""


def _head() -> Polygon:
    angles = [math.pi * (2 * n + 1) / 16 for n in range(16)]
    return tuple(
        (HEAD_AT[0] + HEAD_RADIUS * math.cos(angle), HEAD_AT[1] + HEAD_RADIUS * math.sin(angle)) for angle in angles
    )


TORSO: tuple[Polygon, ...] = tuple(
    ((-wide, low), (wide, low), (wider, high), (-wider, high)) for (low, wide), (high, wider) in pairwise(PEAR)
)
HEAD = _head()
THIGH: Polygon = ((-5, 18), (-8, 12), (-8.1, 2), (-6, -15.5), (6, -15.5), (8.1, 2), (8, 12), (5, 18))
SHIN: Polygon = ((-4.5, 15), (-7.7, 8), (-6.6, -8), (6.6, -8), (7.7, 8), (4.5, 15))
FOOT: Polygon = ((-8, -8), (-11, -17), (23, -17), (23, -12.4), (9, -8))


def metres(polygon: Sequence[Point]) -> list[Point]:
    return [(x / SCALE, y / SCALE) for x, y in polygon]


def _fixtures(pieces: Sequence[Polygon], friction: float) -> list[Any]:
    return [
        Box2D.b2FixtureDef(
            shape=Box2D.b2PolygonShape(vertices=metres(piece)),
            density=DENSITY,
            friction=friction,
            restitution=0.0,
            categoryBits=ROBOT,
            maskBits=GROUND,
        )
        for piece in pieces
    ]


# made once: each fixture definition leaks some bytes
_TRUNK, _THIGH, _SHIN = (
    _fixtures(pieces, friction)
    for pieces, friction in (
        ((*TORSO, HEAD), TRUNK_FRICTION),
        ((THIGH,), LEG_FRICTION),
        ((SHIN, FOOT), LEG_FRICTION),
    )
)


class Body(NamedTuple):
    """Parts and joints, first of the rear leg, then of the front leg: thigh and shin, hip and knee."""

    trunk: Any
    legs: tuple[Any, Any, Any, Any]
    joints: tuple[Any, Any, Any, Any]


def build(world: Any, x: float, ground: float) -> Body:
    """Build Marvin above x, the trunk three leg lengths above the ground (metres)."""
    y = ground + 3 * LEG / SCALE
    trunk = world.CreateDynamicBody(position=(x, y), fixtures=_TRUNK)
    legs: list[Any] = []
    joints: list[Any] = []
    for side in (-1, 1):
        thigh, shin = (
            world.CreateDynamicBody(position=(x, y - (down + HIP) / SCALE), angle=side * LEAN, fixtures=fixtures)
            for down, fixtures in ((LEG / 2, _THIGH), (LEG * 3 / 2, _SHIN))
        )
        joints.append(_joint(world, (trunk, HIP), (thigh, LEG / 2), HIP_LIMITS, 2.0 * side))
        joints.append(_joint(world, (thigh, -KNEE), (shin, KNEE), KNEE_LIMITS, 1.0))
        legs += thigh, shin
    return Body(trunk, (legs[0], legs[1], legs[2], legs[3]), (joints[0], joints[1], joints[2], joints[3]))


def _joint(
    world: Any, upper: tuple[Any, float], lower: tuple[Any, float], limits: tuple[float, float], speed: float
) -> Any:
    """Build a motor joint between two parts, each given with the joint's y on it."""
    return world.CreateRevoluteJoint(
        bodyA=upper[0],
        bodyB=lower[0],
        localAnchorA=(0, upper[1] / SCALE),
        localAnchorB=(0, lower[1] / SCALE),
        enableMotor=True,
        enableLimit=True,
        maxMotorTorque=TORQUE,
        motorSpeed=speed,
        lowerAngle=limits[0],
        upperAngle=limits[1],
    )


def new_edge() -> Any:
    """Return the fixture of one ground segment, for `build_ground`."""
    shape = Box2D.b2EdgeShape(vertices=[(0, 0), (1, 0)])
    return Box2D.b2FixtureDef(shape=shape, friction=FRICTION, categoryBits=GROUND)


def build_ground(world: Any, heights: Sequence[float], edge: Any) -> Any:
    """Build the ground: a static body with an edge between neighbouring columns; heights in metres."""
    ground = world.CreateStaticBody()
    points = [(column * STEP, height) for column, height in enumerate(heights)]
    for ends in pairwise(points):
        edge.shape.vertices = ends
        ground.CreateFixture(edge)
    return ground


def new_world() -> Any:
    return Box2D.b2World()  # gravity (0, -10)


def touches(part: Any) -> bool:
    """Whether a part touches the ground, the only thing it can."""
    return any(edge.contact.touching for edge in part.contacts)
