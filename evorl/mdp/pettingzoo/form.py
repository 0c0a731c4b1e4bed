"""What the agents of an environment observe and do, as the one form that all sides of a game have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Dict

from evorl.mdp.core import Action, Array, Box, Discrete, Input, MultiDiscrete, SideSpec, Spec, heads
from evorl.mdp.forms import Form as ArrayForm
from evorl.mdp.gymnasium import spaces
from evorl.util.errors import BadRequest

MASK, WHO = "action_mask", "agent"


class Agent(NamedTuple):
    """How one agent's observations and actions are converted."""

    name: str
    actions: Any
    """Its action space."""
    action: Action
    """The same as evorl has it."""
    readers: tuple[spaces.Read, ...]
    inner: str | None
    """The part of its observation that is observed; None for the whole, or all but the mask."""
    label: str
    """What messages call it."""

    @property
    def choices(self) -> int:
        """Its number of actions, 0 if they are no single choice."""
        return self.action.n if isinstance(self.action, Discrete) else 0


class Form(NamedTuple):
    """The agents in the order of their sides, and the interface of each side."""

    spec: Spec
    agents: tuple[Agent, ...]
    parts: tuple[tuple[tuple[spaces.Read | None, Input], ...], ...]
    """Of each side, the inputs of all but `who`, with what reads them; None where its agent does not observe one."""
    who: Array
    """Each side's input that tells which agent it is, float32 [P, P]."""
    choices: Array
    """The actions that each side's agent has, bool [P, L]."""

    @property
    def channels_last(self) -> tuple[str, ...]:
        """The inputs that are pictures with channels last in memory, of every agent that observes them."""
        return tuple(
            column[0][1].name
            for column in zip(*self.parts, strict=True)
            if all(read is None or read.channels_last for read, _ in column)
        )

    def state(self, side: int, seen: Any) -> tuple[Array, ...]:
        """The inputs of a side, of an observation of its agent, which they may share; zeros for None.

        Raises `Mismatch`.
        """
        agent = self.agents[side]
        whole = seen if agent.inner is None or seen is None else seen[agent.inner]
        rows: list[Array] = []
        for read, part in self.parts[side]:
            if seen is None or read is None:
                rows.append(np.zeros(part.shape, part.dtype))
            else:
                rows.append(_filled(read(whole, watch=agent.label), part))
        return (*rows, self.who[side]) if len(self.agents) > 1 else tuple(rows)

    def legal(self, side: int, seen: Any, info: Mapping[str, Any]) -> Array | None:
        """Which actions a side may take, bool [L], by its agent's observation or its info; None without masks."""
        if not self.spec.masked:
            return None
        agent = self.agents[side]
        mask = seen.get(MASK) if isinstance(seen, Mapping) else None
        mask = info.get(MASK) if mask is None else mask
        own: Array = self.choices[side]
        if mask is None or not agent.choices:
            return own
        legal = own.copy()
        legal[: agent.choices] = _fit(mask, agent)
        return legal

    def own_action(self, side: int, action: Array) -> Array:
        """Actions of the side's agent, within its own bounds, of actions [..., K] that have room for those of all."""
        own = self.agents[side].action
        if not isinstance(own, Box):
            return action[..., : len(heads(own))]
        size, bounds = len(own.low), self.spec.action
        mine = action[..., :size]
        if isinstance(bounds, Box) and (own.low, own.high) != (bounds.low[:size], bounds.high[:size]):
            low, high = np.array([own.low, own.high])
            return np.asarray(low + (mine + 1) / 2 * (high - low), np.float32)
        return mine


def _filled(value: Array, part: Input) -> Array:
    """An input's value, with zeros where its agent observes less than others."""
    if value.shape == part.shape:
        return value.astype(part.dtype, copy=False)
    row = np.zeros(part.shape, part.dtype)
    row[: len(value)] = value
    return row


def _fit(mask: Any, agent: Agent) -> Array:
    return ArrayForm(f"the mask of {agent.name}", (agent.choices,), np.bool_).fit(mask).astype(np.bool_)


def form_of(id: str, env: Any) -> Form:
    """Return the form of an environment. Raises `BadRequest` if their actions are of different kinds."""
    names = getattr(env, "possible_agents", None)
    if not names:
        raise BadRequest(f"{id} does not list its possible_agents, of which each is a side", "id")
    try:
        parts = [_agent(str(name), env.observation_space(name), env.action_space(name)) for name in names]
    except spaces.Unsupported as error:
        raise BadRequest(f"{id} cannot be used: evorl does not support {error}", "id") from error
    agents = tuple(agent for agent, _ in parts)
    inputs, places = _common_inputs([agent.name for agent in agents], [own for _, own in parts])
    action = _common_action(id, [agent.action for agent in agents])
    who = (Input(WHO, (len(names),)),) if len(names) > 1 else ()
    differ = any(agent.action != action for agent in agents) and not isinstance(action, Box)
    each = tuple(
        SideSpec((*_own_inputs(inputs, own, at), *who), agent.action)
        for (agent, own), at in zip(parts, places, strict=True)
    )
    alike = len({*each}) == 1
    spec = Spec(
        inputs + who, action, players=len(names), masked=isinstance(action, Discrete) or differ,
        who=WHO if who else "", each=() if alike else each,
    )  # fmt: skip
    parts_of_each = tuple(
        tuple((agent.readers[at.index(place)] if place in at else None, entry) for place, entry in enumerate(inputs))
        for agent, at in zip(agents, places, strict=True)
    )
    choices = np.array([_choices(action, agent.action) for agent in agents], np.bool_)
    return Form(spec, agents, parts_of_each, np.eye(len(agents), dtype=np.float32), choices)


def _own_inputs(common: tuple[Input, ...], own: tuple[Input, ...], places: tuple[int, ...]) -> tuple[Input | None, ...]:
    """What an agent sees of each of the inputs of all."""
    by_place = dict(zip(places, own, strict=True))
    return tuple(
        replace(by_place[place], name=entry.name) if place in by_place else None for place, entry in enumerate(common)
    )


def _choices(action: Action, own: Action) -> list[bool]:
    """Of the choices of all heads, those that an agent has; of heads that it lacks the first one."""
    sizes = heads(own)
    return [
        choice < (sizes[head] if head < len(sizes) else 1)
        for head, size in enumerate(heads(action))
        for choice in range(size)
    ]


def _agent(name: str, observed: Any, actions: Any) -> tuple[Agent, tuple[Input, ...]]:
    inner = None
    if isinstance(observed, Dict) and MASK in observed.spaces:
        rest = {key: space for key, space in observed.spaces.items() if key != MASK}
        inner = next(iter(rest)) if len(rest) == 1 else None
        observed = Dict(rest) if inner is None else rest[inner]
    own = spaces.observation(observed)
    readers = tuple(read for _, read in own)
    return Agent(name, actions, spaces.action(actions), readers, inner, f"agent {name}"), tuple(x for x, _ in own)


def _common_inputs(
    agents: Sequence[str], each: list[tuple[Input, ...]]
) -> tuple[tuple[Input, ...], list[tuple[int, ...]]]:
    """The inputs of all agents, and the places of each agent's own among them.

    Single rows of numbers that differ in length are one input, which is filled up with zeros. Others stand side by
    side, those that are the same once.
    """
    if all(own == each[0] for own in each):
        return each[0], [tuple(range(len(own))) for own in each]
    rows = [own[0].shape for own in each if len(own) == 1 and own[0].dtype == "float32" and len(own[0].shape) == 1]
    if len(rows) == len(each):
        return (Input(each[0][0].name, max(rows)),), [(0,) for _ in each]
    common: list[Input] = []
    places = []
    for agent, own in zip(agents, each, strict=True):
        taken = {entry.name for entry in common}
        named = [x if x in common or x.name not in taken else replace(x, name=f"{x.name} of {agent}") for x in own]
        common += [x for x in named if x not in common]
        places.append(tuple(common.index(x) for x in named))
    return tuple(common), places


def _common_action(id: str, each: list[Action]) -> Action:
    """The actions of all agents: of choices the most in each head, of real vectors the longest.

    These are within -1 and 1 if the agents' bounds differ. Raises `BadRequest` for choices beside real vectors.
    """
    if all(action == each[0] for action in each):
        return each[0]
    boxes = [action for action in each if isinstance(action, Box)]
    if boxes and len(boxes) == len(each):
        longest = max(boxes, key=lambda box: len(box.low))
        size = len(longest.low)
        if all((box.low, box.high) == (longest.low[: len(box.low)], longest.high[: len(box.low)]) for box in boxes):
            return longest
        if not np.isfinite([x for box in boxes for x in (*box.low, *box.high)]).all():
            raise BadRequest(f"{id}: its agents have actions of different bounds, some of which are infinite", "id")
        return Box((-1.0,) * size, (1.0,) * size)
    if boxes:
        raise BadRequest(
            f"{id}: its agents have actions of different kinds; give a wrapper that makes them alike", "id"
        )
    counts = tuple(max(column) for column in zip_longest(*map(heads, each), fillvalue=0))
    return Discrete(counts[0]) if len(counts) == 1 else MultiDiscrete(counts)
