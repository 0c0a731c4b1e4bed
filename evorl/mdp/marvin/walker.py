"""Marvin as a gymnasium environment: walk to the right over uneven ground.

Actions are four torques in [-1, 1], as fractions of 80 N m: hip and knee of the rear leg, then of the front leg. The
sign is the direction of the motor. Observations are 24 numbers:

- the trunk's angle, 2 w / 50, 0.3 vx 20 / 50, 0.3 vy 13.3 / 50 where w, vx, vy are its angular and linear velocities;
- for each leg: hip angle, hip speed / 4, knee angle + 1, knee speed / 6, and 1 if shin or foot touch the ground;
- 10 distances to the ground from the trunk's origin, straight down to 1.35 rad forward, as fractions of 5.33 m.

The reward is the increase of 130 x / 30 - 5 |angle|, minus 0.028 for each full torque. If head or torso touch the
ground, or x < 0, the reward is -100 and the episode ends. It also ends 10 columns before the last of the ground's 200
columns.

Physics and constants are those of gymnasium's BipedalWalker-v3 with Marvin's body (`evorl.mdp.marvin.body`). Two more
differences: each episode has a new Box2D world, so that it depends on its seed and actions only; and a foot that slides
from one piece of ground to the next counts as touching without interruption.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from evorl.mdp.core import Array
from evorl.mdp.marvin.body import (
    COLUMNS,
    GOAL,
    HIP_SPEED,
    KNEE_SPEED,
    SCALE,
    STEP,
    TORQUE,
    Body,
    build,
    build_ground,
    new_edge,
    new_world,
    touches,
)

FPS = 50
VIEW = 600, 400  # pixels
PAD = 20  # columns of the ground that are level
LEVEL = VIEW[1] / SCALE / 4  # of the ground at the start
RANGE = 160 / SCALE  # length of the rays, metres
RAYS = np.array([1.5 * n / 10 for n in range(10)])  # rad from straight down
PUSH = 5.0  # N; maximum of the random force at the start
SPEEDS = (HIP_SPEED, KNEE_SPEED) * 2
EFFORT = 0.00035 * TORQUE  # cost of a full torque

_SLOPES = 1 / np.tan(RAYS[1:, None])  # metres down for each metre forward
_REACH = RANGE * np.sin(RAYS[1:])
_AHEAD = int(RANGE / STEP) + 2  # columns that a ray can span
_BEYOND = -1e6  # height beyond the end of the ground


class Walker(gymnasium.Env[Array, Array]):
    """See the module. ``render_mode``: None, "rgb_array" (uint8 [400, 600, 3]) or "human" (a window)."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": FPS}  # noqa: RUF012 (gymnasium's own form)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        leg = [np.inf] * 4 + [1.0]
        high = np.array([np.inf] * 4 + 2 * leg + [1.0] * 10, np.float32)
        self.observation_space = spaces.Box(np.where(np.isinf(high), -high, 0), high)
        self.heights = np.zeros(0)  # heights of the ground's columns and of those beyond its end
        self._columns = np.arange(COLUMNS + _AHEAD) * STEP
        self._edge = new_edge()
        self._world: Any = None
        self._ground: Any = None
        self.body: Body | None = None
        self._potential = 0.0
        self._screen: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.body = self._ground = None  # released before their world
        self._world = new_world()
        self.heights = np.append(terrain(self.np_random), np.full(_AHEAD, _BEYOND))
        self._ground = build_ground(self._world, self.heights[:COLUMNS].tolist(), self._edge)
        self.body = build(self._world, STEP * PAD / 2, LEVEL)
        self.body.trunk.ApplyForceToCenter((self.np_random.uniform(-PUSH, PUSH), 0.0), True)
        seen = self.step(np.zeros(4))[0]
        return seen, {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Raises RuntimeError before the first reset."""
        if self.body is None:
            raise RuntimeError("reset Marvin before its first step")
        effort = self._set_motors(self.body, action)
        self._world.Step(1.0 / FPS, 6 * 30, 2 * 30)
        seen = self._observe(self.body)
        trunk = self.body.trunk
        x = trunk.position.x
        potential = 130 * x / SCALE - 5.0 * abs(trunk.angle)
        reward = potential - self._potential - EFFORT * effort
        self._potential = potential
        fallen = x < 0 or touches(trunk)
        if self.render_mode == "human":
            self.render()
        return seen, -100.0 if fallen else reward, fallen or x > GOAL * STEP, False, {}

    def _set_motors(self, body: Body, action: Array) -> float:
        """Set the motors' torques; return the sum of their absolute values."""
        effort = 0.0
        for joint, speed, torque in zip(body.joints, SPEEDS, action.tolist(), strict=True):
            size = min(abs(torque), 1.0)
            joint.motorSpeed = math.copysign(speed, torque) if torque else 0.0
            joint.maxMotorTorque = TORQUE * size
            effort += size
        return effort

    def _observe(self, body: Body) -> Array:
        trunk = body.trunk
        x, y = trunk.position
        vx, vy = trunk.linearVelocity
        numbers = [trunk.angle, 2 * trunk.angularVelocity / FPS]
        numbers += 0.3 * vx * (VIEW[0] / SCALE) / FPS, 0.3 * vy * (VIEW[1] / SCALE) / FPS
        for side in (0, 2):
            hip, knee = body.joints[side : side + 2]
            numbers += hip.angle, hip.speed / HIP_SPEED, knee.angle + 1.0, knee.speed / KNEE_SPEED
            numbers.append(float(touches(body.legs[side + 1])))
        seen = np.empty(24, np.float32)
        seen[:14] = numbers
        self._measure_rays(x, y, seen[14:])
        return seen

    def _measure_rays(self, x: float, y: float, out: Array) -> None:
        """Write the distances of the rays from (x, y) to the ground, as fractions of their length."""
        column = min(max(int(x / STEP), 0), COLUMNS - 1)
        xs, heights = self._columns[column : column + _AHEAD], self.heights[column : column + _AHEAD]
        part = (x - xs[0]) / STEP
        out[0] = (y - (1 - part) * heights[0] - part * heights[1]) / RANGE
        above = y - (xs - x) * _SLOPES - heights  # [9, columns]: height of each ray above the ground
        first = (above <= 0).argmax(1)  # the first column behind a crossing; 0 if there is none
        after, before = above[_RAY, first], above[_RAY, first - 1]
        crossing = xs[first] - STEP * after / (after - before)
        out[1:] = np.where(first > 0, (crossing - x) / _REACH, 1.0)
        np.clip(out, 0.0, 1.0, out=out)

    def render(self) -> Any:
        """Return the picture, or None if it is shown in a window. Raises RuntimeError before the first reset."""
        from evorl.mdp.marvin import drawing

        if self.body is None:
            raise RuntimeError("reset Marvin before it is drawn")
        surface = drawing.draw(self.body, self.heights[:COLUMNS])
        if self.render_mode == "human":
            self._screen = drawing.show(surface, FPS)
            return None
        return drawing.pixels(surface)

    def close(self) -> None:
        if self._screen is not None:
            from evorl.mdp.marvin import drawing

            drawing.close()
            self._screen = None


_RAY = np.arange(len(_SLOPES))


def terrain(draw: np.random.Generator) -> Array:
    """Return the heights [COLUMNS] of the ground in metres.

    Level for PAD columns, then a damped random walk in which, every 5 to 9 columns, one column repeats the last height.
    """
    heights, height, velocity, patch = [], LEVEL, 0.0, PAD
    for column in range(COLUMNS):
        if patch > 0:
            velocity = 0.8 * velocity + 0.01 * float(np.sign(LEVEL - height))
            if column > PAD:
                velocity += draw.uniform(-1, 1) / SCALE
            height += velocity
        else:
            patch = int(draw.integers(5, 10))
        patch -= 1
        heights.append(height)
    return np.array(heights)
