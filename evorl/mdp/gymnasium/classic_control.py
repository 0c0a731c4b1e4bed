"""Gymnasium's classic control tasks for many episodes at once, in NumPy.

Each task is the published system with gymnasium's constants. For the same seed and actions, states, observations,
rewards and ends are bit-identical to gymnasium's own environment: operations are in the same order, and powers use
the C library's ``pow`` (its last bit can differ from x * x). Constants are 0-d arrays: a Python number would double
the cost of an operation on a row of 16.

Letters in shapes: B episodes, D numbers of state, O of observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evorl.mdp.core import Action, Array, Box, Discrete, Input, Spec
from evorl.mdp.gymnasium.camera import Camera
from evorl.util.types import StateDict

Outcome = tuple[Array, Array, Array]
"""Next state [D, B], reward ([B], or one for all) and terminated [B]."""


@dataclass(frozen=True)
class Simulator:
    """One task. Its first state is uniform in [``low``, ``high``] [D]; ``time_limit`` is the registered limit."""

    action: Action
    observations: int
    low: tuple[float, ...]
    high: tuple[float, ...]
    time_limit: int
    step: Callable[[Array, Array], Outcome]
    """(state [D, B], actions [B, 1]) -> outcome"""
    observe: Callable[[Array, Array], None]
    """Write the observations of a state [D, B] to rows [B, O]."""
    first: str = "float64"
    """Precision of gymnasium's first state and observation."""


def _constant(value: float) -> Array:
    return np.array(value)


_ZERO, _ONE, _TWO, _THREE = map(_constant, (0.0, 1.0, 2.0, 3.0))
_MINUS_ONE = _constant(-1.0)
_PI, _TURN = _constant(math.pi), _constant(2 * math.pi)


def _square(x: Array) -> Array:
    return np.float_power(x, _TWO)


def _clip(x: Array, bounds: tuple[Array, Array]) -> Array:
    return np.minimum(np.maximum(x, bounds[0]), bounds[1])


# ------------------------------------------------------------------ CartPole (Barto, Sutton and Anderson 1983)

_FORCE = np.array([-10.0, 10.0])
_GRAVITY = _constant(9.8)
_TOTAL_MASS = _constant(0.1 + 1.0)
_POLE_MASS = _constant(0.1)
_POLE_MOMENT = _constant(0.1 * 0.5)
_HALF_POLE = _constant(0.5)
_FOUR_THIRDS = _constant(4.0 / 3.0)
_CART_DT = _constant(0.02)
_MAX_POSITION, _MAX_ANGLE = _constant(2.4), _constant(12 * 2 * math.pi / 360)


def _cartpole(state: Array, actions: Array) -> Outcome:
    """State: cart position and velocity, pole angle and velocity; Euler's method."""
    angle, spin = state[2], state[3]
    sin, cos = np.sin(angle), np.cos(angle)
    pushed = (_FORCE[actions[:, 0]] + _POLE_MOMENT * (spin * spin) * sin) / _TOTAL_MASS
    inertia = _HALF_POLE * (_FOUR_THIRDS - _POLE_MASS * (cos * cos) / _TOTAL_MASS)
    angular = (_GRAVITY * sin - cos * pushed) / inertia
    linear = pushed - _POLE_MOMENT * angular * cos / _TOTAL_MASS
    after = state + _CART_DT * np.array((state[1], linear, spin, angular))
    return after, _ONE, (np.abs(after[0]) > _MAX_POSITION) | (np.abs(after[2]) > _MAX_ANGLE)


def _observe_state(state: Array, rows: Array) -> None:
    rows[:] = state.T


# ------------------------------------------------------------------ Pendulum

_SPEED_RANGE = _constant(-8.0), _constant(8.0)
_TORQUE_RANGE = np.array(-2.0, np.float32), np.array(2.0, np.float32)
_TORQUE_GAIN = np.array(3.0, np.float32)
_TORQUE_COST = np.array(0.001, np.float32)
_SPEED_COST = _constant(0.1)
_WEIGHT = _constant(3 * 10.0 / 2.0)
_PENDULUM_DT = _constant(0.05)


def _pendulum(state: Array, actions: Array) -> Outcome:
    """State: angle (0 is upright, not wrapped) and velocity. Torques stay float32, as in gymnasium."""
    angle, speed = state
    torque = _clip(actions[:, 0], _TORQUE_RANGE)
    # C's powf; the power of a float32 array can differ from it in the last bit
    effort = np.array([u**2 for u in torque])
    wrapped = (angle + _PI) % _TURN - _PI
    cost = _square(wrapped) + _SPEED_COST * _square(speed) + _TORQUE_COST * effort
    faster = _clip(speed + (_WEIGHT * np.sin(angle) + _TORQUE_GAIN * torque) * _PENDULUM_DT, _SPEED_RANGE)
    return np.array((angle + faster * _PENDULUM_DT, faster)), -cost, np.zeros(len(torque), bool)


def _observe_pendulum(state: Array, rows: Array) -> None:
    rows[:, 0] = np.cos(state[0])
    rows[:, 1] = np.sin(state[0])
    rows[:, 2] = state[1]


# ------------------------------------------------------------------ MountainCar (Moore 1990)

_PUSH = np.array([-0.001, 0.0, 0.001])
_SLOPE = _constant(-0.0025)
_CAR_SPEEDS = _constant(-0.07), _constant(0.07)
_ROAD = _constant(-1.2), _constant(0.6)
_GOAL = _constant(0.5)


def _mountaincar(state: Array, actions: Array) -> Outcome:
    """State: position and velocity; the left wall stops the car."""
    position, velocity = state
    velocity = _clip(velocity + (_PUSH[actions[:, 0]] + np.cos(_THREE * position) * _SLOPE), _CAR_SPEEDS)
    position = _clip(position + velocity, _ROAD)
    velocity[(position == _ROAD[0]) & (velocity < _ZERO)] = 0.0
    return np.array((position, velocity)), _MINUS_ONE, (position >= _GOAL) & (velocity >= _ZERO)


# ------------------------------------------------------------------ Acrobot (Sutton 1996; equations of the book)

_TORQUES = np.array([-1.0, 0.0, 1.0])
_ACROBOT_DT = 0.2
_ACROBOT_SPEEDS = np.array([[-4 * math.pi], [-9 * math.pi]]), np.array([[4 * math.pi], [9 * math.pi]])


def _acrobot(state: Array, actions: Array) -> Outcome:
    """State: angles of both links (the second relative to the first) and velocities; one Runge-Kutta step."""
    torque = _TORQUES[actions[:, 0]]
    half = _ACROBOT_DT / 2.0
    k1 = _acrobot_slope(state, torque)
    k2 = _acrobot_slope(state + half * k1, torque)
    k3 = _acrobot_slope(state + half * k2, torque)
    k4 = _acrobot_slope(state + _ACROBOT_DT * k3, torque)
    after = state + _ACROBOT_DT / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    _wrap(after[:2])
    after[2:] = _clip(after[2:], _ACROBOT_SPEEDS)
    terminated = -np.cos(after[0]) - np.cos(after[1] + after[0]) > 1.0
    return after, np.where(terminated, 0.0, -1.0), terminated


def _acrobot_slope(state: Array, torque: Array) -> Array:
    """Time derivative [4, B] of the state; both links have mass, length and inertia 1 and their centre at 0.5."""
    first, second, speed1, speed2 = state
    sin, cos = np.sin(second), np.cos(second)
    d1 = 0.25 + (1.25 + cos) + 1.0 + 1.0
    d2 = (0.25 + 0.5 * cos) + 1.0
    phi2 = 0.5 * 9.8 * np.cos(first + second - math.pi / 2.0)
    phi1 = -0.5 * _square(speed2) * sin - speed2 * speed1 * sin + 1.5 * 9.8 * np.cos(first - math.pi / 2) + phi2
    bend = torque + d2 / d1 * phi1 - 0.5 * _square(speed1) * sin - phi2
    acceleration2 = bend / (1.25 - _square(d2) / d1)
    acceleration1 = -(d2 * acceleration2 + phi1) / d1
    return np.array((speed1, speed2, acceleration1, acceleration2))


def _wrap(angles: Array) -> None:
    """Bring finite angles to [-pi, pi] in place by whole turns, added one at a time as gymnasium does."""
    while (over := angles > math.pi).any():
        angles[over] -= 2 * math.pi
    while (under := angles < -math.pi).any():
        angles[under] += 2 * math.pi


def _observe_acrobot(state: Array, rows: Array) -> None:
    rows[:, :4:2] = np.cos(state[:2]).T
    rows[:, 1:4:2] = np.sin(state[:2]).T
    rows[:, 4:] = state[2:].T


# ------------------------------------------------------------------ the engine

SIMULATORS = {
    "CartPole-v1": Simulator(Discrete(2), 4, (-0.05,) * 4, (0.05,) * 4, 500, _cartpole, _observe_state),
    "Pendulum-v1": Simulator(
        Box((-2.0,), (2.0,)), 3, (-math.pi, -1.0), (math.pi, 1.0), 200, _pendulum, _observe_pendulum
    ),
    "MountainCar-v0": Simulator(Discrete(3), 2, (-0.6, 0.0), (-0.4, 0.0), 200, _mountaincar, _observe_state),
    "Acrobot-v1": Simulator(Discrete(3), 6, (-0.1,) * 4, (0.1,) * 4, 500, _acrobot, _observe_acrobot, "float32"),
}

FEATURES: Mapping[str, tuple[str, ...]] = {
    "CartPole-v1": ("position", "velocity", "pole's angle", "pole's angular velocity"),
    "Pendulum-v1": ("cosine", "sine", "angular velocity"),
    "MountainCar-v0": ("position", "velocity"),
    "Acrobot-v1": ("cosine 1", "sine 1", "cosine 2", "sine 2", "angular velocity 1", "angular velocity 2"),
}
ACTIONS: Mapping[str, tuple[str, ...]] = {
    "CartPole-v1": ("left", "right"),
    "Pendulum-v1": ("torque",),
    "MountainCar-v0": ("left", "nothing", "right"),
    "Acrobot-v1": ("-1 N m", "nothing", "1 N m"),
}


class ClassicControlEngine:
    """The `Lockstep` engine of a simulator with B rows. ``make(render_mode=...)`` makes the environment that draws."""

    legal: Array | None = None

    def __init__(self, simulator: Simulator, slots: int, time_limit: int | None, make: Callable[..., Any]) -> None:
        self.spec = Spec((Input("observation", (simulator.observations,)),), simulator.action)
        self.inputs: tuple[Array, ...] = (np.zeros((slots, simulator.observations), np.float32),)
        self.reward = np.zeros(slots)
        self.terminated = self.truncated = np.zeros(slots, bool)
        self.lengths = np.zeros(slots, np.int64)
        self.cost = 0
        self.broken: set[int] = set()
        self._simulator = simulator
        self._limit = np.array(time_limit or simulator.time_limit)
        self._low, self._span = np.array(simulator.low), np.subtract(simulator.high, simulator.low)
        self._state = np.zeros((len(simulator.low), slots))
        self._stopped = np.zeros(slots, np.bool_)
        self._make = make
        self._camera: Camera | None = None

    def step(self, actions: Array) -> None:
        before = self._state
        self._state, self.reward, self.terminated = self._simulator.step(before, actions)
        self.lengths += 1
        self.cost = len(self.lengths)
        if self._stopped.any():
            self._undo_stopped(before)
        self._simulator.observe(self._state, self.inputs[0])
        self.truncated = (self.lengths >= self._limit) & ~self.terminated

    def _undo_stopped(self, before: Array) -> None:
        """Undo the step of the stopped rows."""
        self._state[:, self._stopped] = before[:, self._stopped]
        self.reward, self.terminated = self.reward * ~self._stopped, self.terminated & ~self._stopped
        self.lengths -= self._stopped
        self.cost -= int(self._stopped.sum())

    def reset(self, slots: Array, seeds: list[int]) -> None:
        uniforms = {seed: np.random.Generator(np.random.PCG64(seed)).random(len(self._low)) for seed in set(seeds)}
        draws = np.array([uniforms[seed] for seed in seeds])
        first = (self._low + self._span * draws).astype(self._simulator.first).T
        rows = np.empty((len(slots), self._simulator.observations), np.float32)
        self._simulator.observe(first, rows)
        self.inputs[0][slots] = rows
        self._state[:, slots] = first
        self.lengths[slots] = 0
        self._stopped[slots] = False

    def stop_slot(self, slot: int) -> None:
        """Stop the slot. Its row is still computed with the others; resets are what this saves."""
        self._stopped[slot] = True

    def render(self, slot: int) -> Array | None:
        self._camera = self._camera or Camera(self._make)
        return self._camera.show(self._state[:, slot])

    def state_dict(self) -> StateDict:
        return {"state": self._state.copy(), "inputs": self.inputs[0].copy(), "lengths": self.lengths.copy()}

    def load_state_dict(self, state: StateDict) -> None:
        self._state = np.array(state["state"])
        self.inputs[0][:] = state["inputs"]
        self.lengths = np.array(state["lengths"])

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
