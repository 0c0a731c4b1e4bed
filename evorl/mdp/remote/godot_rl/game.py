"""One process of a game that speaks the protocol of Godot RL Agents (godot_rl/core/godot_env.py, version 0.7).

A message is JSON, preceded by its length, 4 bytes, little-endian. evorl speaks first: ``handshake``, ``env_info``,
``reset``, then ``action`` for each step.
"""

from __future__ import annotations

import logging
import math
import select
import socket
import sys
import time
from contextlib import suppress
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct

from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete, Spec
from evorl.mdp.remote.address import listener
from evorl.mdp.remote.info import GameInfo
from evorl.mdp.remote.link import Link
from evorl.mdp.remote.messages import MAX_CHOICES, MAX_FRAME, MAX_SIZE, Cut, Nonsense, Unplayable
from evorl.mdp.remote.process import GameProcess
from evorl.mdp.remote.server import Settings
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.seed import key, seed31
from evorl.util.text import printable, say

LOG = logging.getLogger("evorl")
MAJOR, MINOR = "0", "7"
COLOURS = (1, 3, 4)
Size = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]


class _Observation(Struct):
    space: Literal["box", "discrete"]
    size: Size | Annotated[tuple[Size, ...], Meta(min_length=1, max_length=4)]


class _Action(Struct):
    action_type: Literal["discrete", "continuous"]
    size: Size


_Observations: TypeAlias = Annotated[dict[str, _Observation], Meta(max_length=64)]
_Actions: TypeAlias = Annotated[dict[str, _Action], Meta(max_length=256)]


class _EnvInfo(Struct, tag_field="type", tag="env_info"):
    observation_space: list[_Observations] | _Observations  # a single one from older plugins
    action_space: list[_Actions] | _Actions
    n_agents: Annotated[int, Meta(ge=0, le=4096)]
    agent_policy_names: tuple[str, ...] = ()


class _Reset(Struct, tag_field="type", tag="reset"):
    obs: list[dict[str, Any]]


class _Step(Struct, tag_field="type", tag="step"):
    obs: list[dict[str, Any]]
    reward: list[float]
    done: list[bool]


_INFO = msgspec.json.Decoder(_EnvInfo)
_RESET = msgspec.json.Decoder(_Reset)
_STEP = msgspec.json.Decoder(_Step)


class Form(NamedTuple):
    """What every agent of a game sees and does."""

    spec: Spec
    agents: int
    observations: _Observations
    actions: _Actions

    @property
    def info(self) -> GameInfo:
        return GameInfo("the game", self.spec, ("agent",))

    def is_like(self, other: Form) -> bool:
        """Whether another game's agents can take the place of this one's, also by the order of their actions."""
        return self == other and [*self.actions] == [*other.actions]

    def read(self, seen: list[dict[str, Any]]) -> tuple[Array, ...]:
        """The inputs of all agents, each [n, ...]. Raises `Nonsense`."""
        if len(seen) != self.agents:
            raise Nonsense(f"has {self.agents} agents and sent the observations of {len(seen)}")
        rows = [[_input(name, agent.get(name), space) for agent in seen] for name, space in self.observations.items()]
        return tuple(np.stack(each) for each in rows)

    def said(self, actions: Array) -> list[dict[str, Any]]:
        """Actions [n, K] of all agents as a game takes them."""
        return [self._said(action) for action in actions.tolist()]

    def _said(self, action: list[Any]) -> dict[str, Any]:
        said, at = dict[str, Any](), 0
        for name, space in self.actions.items():
            width = 1 if space.action_type == "discrete" else space.size
            said[name] = action[at] if space.action_type == "discrete" else action[at : at + width]
            at += width
        return said


class Game:
    """A started or awaited game. Raises `Unplayable` if none comes, `BadRequest` if its agents cannot be used."""

    def __init__(self, settings: Settings, number: int) -> None:
        self.acting = self.closed = False
        """Whether actions were sent whose outcome was not taken, and whether the game has been ended."""
        self._process: GameProcess | None = None
        address, listens = listener(settings.listen)
        try:
            if settings.command is None:
                say(f"waiting for a game of Godot RL Agents at {address.text}", sys.stderr)
            else:
                values = {**address.values(), "seed": seed31(key("game", number))}
                self._process = GameProcess(settings.command, values, "", number)
            self._link = Link(self._accepted(listens, settings.start_s, address.text))
            self._link.limit = MAX_FRAME
        except BaseException:
            self.close()
            raise
        finally:
            listens.close()
            address.remove()
        try:
            self._send({"type": "handshake", "major_version": MAJOR, "minor_version": MINOR})
            self._send({"type": "env_info"})
            self.form = _form(self._decoded(_INFO, settings.start_s))
        except (Cut, Nonsense) as error:
            why = self.why(error)
            self.close()
            raise Unplayable(f"{self.name} {why}") from None
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return "the game" if self._process is None else self._process.name

    def _accepted(self, listens: socket.socket, start_s: float, address: str) -> socket.socket:
        """The connection of the game. Raises `Unplayable`."""
        ends = time.monotonic() + start_s
        while time.monotonic() < ends:
            if select.select([listens], [], [], 0.1)[0]:
                return listens.accept()[0]
            if self._process is not None and (why := self._process.end()) is not None:
                raise Unplayable(f"{self.name} {why}")
            if self._process is not None:
                self._process.drain()
            heartbeat()
        raise Unplayable(f"no game has connected to {address} in {start_s:g} s (mdp.start_s)")

    # -------------------------------------------------------------- what is said

    def reset(self, deadline_s: float) -> tuple[Array, ...]:
        """Let all agents begin; return their inputs. Raises `Cut`, `Nonsense`."""
        self._send({"type": "reset"})
        return self.form.read(self._decoded(_RESET, deadline_s).obs)

    def act(self, actions: Array) -> None:
        """Send the actions [n, K] of all agents. Raises `Cut`."""
        self.acting = True
        self._send({"type": "action", "action": self.form.said(actions)})

    def outcome(self, deadline_s: float) -> tuple[tuple[Array, ...], Array, Array]:
        """The inputs of all agents after a step, their rewards [n], and whose episodes are over [n].

        Raises `Cut`, `Nonsense`.
        """
        step = self._decoded(_STEP, deadline_s)
        self.acting = False
        if not len(step.reward) == len(step.done) == self.form.agents:
            raise Nonsense(f"has {self.form.agents} agents and sent the rewards or ends of another number")
        if not _fits(reward := np.array(step.reward)):
            raise Nonsense("sent a reward that is not finite")
        return self.form.read(step.obs), reward.astype(np.float32), np.array(step.done, np.bool_)

    def _send(self, message: dict[str, Any]) -> None:
        self._link.send(msgspec.json.encode(message))

    def _decoded(self, decoder: Any, deadline_s: float) -> Any:
        """The game's next message. Raises `Cut`, `Nonsense`."""
        ends = time.monotonic() + deadline_s
        while not (frames := self._link.receive()):
            heartbeat()
            self._link.flush()
            left = ends - time.monotonic()
            if left <= 0:
                raise Cut(f"said nothing for {deadline_s:g} s")
            select.select([self._link.socket], [self._link.socket] if self._link.unsent else [], [], min(left, 0.5))
            if self._process is not None:
                self._process.drain()
        if len(frames) > 1:
            raise Nonsense("sent more than it was asked for")
        try:
            return decoder.decode(frames[0])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Nonsense(f"sent a message that is not of its protocol: {error}") from None

    def why(self, error: Exception) -> str:
        """The message of an error: how the process ended, if it did."""
        end = self._process.end(0.1) if self._process is not None and isinstance(error, Cut) else None
        return end or str(error)

    def close(self) -> None:
        self.closed = True
        if hasattr(self, "_link"):
            with suppress(Cut):
                self._send({"type": "close"})
            self._link.close()
        if self._process is not None:
            self._process.close()


# ------------------------------------------------------------------ spaces


def _form(info: _EnvInfo) -> Form:
    """Raises `BadRequest` for what evorl cannot train."""
    agents, observations, actions = info.n_agents, info.observation_space, info.action_space
    observations = observations if isinstance(observations, list) else [observations] * agents
    actions = actions if isinstance(actions, list) else [actions] * agents
    if not agents or len(observations) != agents or len(actions) != agents:
        raise BadRequest(f"the game has {agents} agents in training mode; at least one must be", "command")
    if len({*info.agent_policy_names}) > 1 or any(seen != observations[0] for seen in observations):
        raise BadRequest(f"the game's agents have several policies ({', '.join(info.agent_policy_names)})", "command")
    if any(made != actions[0] for made in actions):
        raise BadRequest("the game's agents have actions of different forms", "command")
    if odd := [name for name in (*observations[0], *actions[0]) if printable(name) != name]:
        raise BadRequest(f"the game gives the name {odd[0]!r}, which has signs that cannot be printed", "command")
    inputs = tuple(Input(name, _shape(name, space), _dtype(name, space)) for name, space in observations[0].items())
    if not inputs:
        raise BadRequest("the game's agents observe nothing", "command")
    if (size := sum(math.prod(entry.shape) for entry in inputs)) > MAX_SIZE:
        raise BadRequest(f"the game's agents observe {size:,} numbers; {MAX_SIZE:,} may be", "command")
    return Form(Spec(inputs, _action(actions[0])), agents, observations[0], actions[0])


def _action(spaces: _Actions) -> Action:
    kinds, sizes = {space.action_type for space in spaces.values()}, [space.size for space in spaces.values()]
    if len(kinds) != 1:
        raise BadRequest(
            "the game's agents have no actions, or choices beside real numbers; let them have one kind", "command"
        )
    if kinds == {"continuous"}:
        return Box((-1.0,) * sum(sizes), (1.0,) * sum(sizes))
    return Discrete(sizes[0]) if len(sizes) == 1 else MultiDiscrete(tuple(sizes))


def _dimensions(space: _Observation) -> tuple[int, ...]:
    return (space.size,) if isinstance(space.size, int) else space.size


def _is_picture(name: str, space: _Observation) -> bool:
    return space.space == "box" and "2d" in name


def _shape(name: str, space: _Observation) -> tuple[int, ...]:
    size = _dimensions(space)
    if not _is_picture(name, space):
        return size
    return _picture(name, size)


def _picture(name: str, size: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width: plugins tell width, height and channels, newer ones channels first."""
    if len(size) != 3 or not (size[2] in COLOURS or size[0] in COLOURS):
        raise BadRequest(
            f"the game's picture {name} has the size {list(size)}, of which none is 1, 3 or 4 colours", "command"
        )
    return (size[2], size[1], size[0]) if size[2] in COLOURS else (size[0], size[1], size[2])


def _dtype(name: str, space: _Observation) -> str:
    return "uint8" if _is_picture(name, space) else "float32"


def _input(name: str, value: Any, space: _Observation) -> Array:
    """An agent's observation as an array of its form. Raises `Nonsense`."""
    shape = _shape(name, space)
    try:
        if _is_picture(name, space):  # bytes of rows of points, in hexadecimal digits
            channels, height, width = shape
            return np.frombuffer(bytes.fromhex(value), np.uint8).reshape(height, width, channels).transpose(2, 0, 1)
        if space.space == "discrete":
            chosen: Array = np.zeros(shape[0], np.float32)
            chosen[_choice(value, shape[0])] = 1
            return chosen
        numbers = np.asarray(value, np.float64).reshape(shape)
    except (TypeError, ValueError, IndexError) as error:
        raise Nonsense(f"sent an observation {name!r} that is not as its space says: {error}") from None
    if not _fits(numbers):
        raise Nonsense(f"sent an observation {name!r} that is not finite")
    return numbers


def _fits(numbers: Array) -> bool:
    """Whether numbers are finite as float32, too: JSON has larger ones."""
    return bool((np.abs(numbers) <= np.finfo(np.float32).max).all())


def _choice(value: Any, count: int) -> int:
    """One of so many choices. Raises ValueError for another number, TypeError for no number."""
    choice = int(value)
    if choice != value or not 0 <= choice < count:
        raise ValueError(f"{value!r} is none of 0 to {count - 1}")
    return choice
