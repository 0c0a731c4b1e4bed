"""What the agents of an environment observe and do, as the one form that all sides of a game have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Dict

from evorl.mdp.core import Action, Array, Discrete, Input, Spec
from evorl.mdp.forms import Mismatch
from evorl.mdp.gymnasium import spaces
from evorl.util.errors import BadRequest

MASK = "action_mask"


class Agent(NamedTuple):
    """How one agent's observations and actions are converted."""

    name: str
    actions: Any
    """Its action space."""
    readers: tuple[spaces.Read, ...]
    inner: str | None
    """The part of its observation that is observed; None for the whole, or all but the mask."""
    choices: int
    """Its number of actions, 0 if they are no single choice."""


class Form(NamedTuple):
    """The agents in the order of their sides, and the interface of each side."""

    spec: Spec
    agents: tuple[Agent, ...]
    who: Array
    """Each side's input that tells which agent it is, float32 [P, P]."""
    choices: Array
    """The actions that each side's agent has, bool [P, L]."""

    def state(self, side: int, seen: Any) -> tuple[Array, ...]:
        """The inputs of a side, of an observation of its agent; zeros for None. Raises `Mismatch`."""
        agent, parts = self.agents[side], self.spec.inputs[: len(self.agents[side].readers)]
        if seen is None:
            rows = tuple(np.zeros(part.shape, part.dtype) for part in parts)
        else:
            whole = seen if agent.inner is None else seen[agent.inner]
            rows = tuple(_filled(read(whole), part) for read, part in zip(agent.readers, parts, strict=True))
        return (*rows, self.who[side]) if len(self.agents) > 1 else rows

    def legal(self, side: int, seen: Any, info: Mapping[str, Any]) -> Array | None:
        """Which actions a side may take, bool [L], by its agent's observation or its info; None without masks."""
        if not self.spec.masked:
            return None
        agent = self.agents[side]
        mask = seen.get(MASK) if isinstance(seen, Mapping) else None
        mask = info.get(MASK) if mask is None else mask
        own: Array = self.choices[side]
        if mask is None:
            return own
        legal = np.zeros_like(own)
        legal[: agent.choices] = _fit(mask, agent)
        return legal


def _filled(value: Array, part: Input) -> Array:
    """A copy of an input's value, with zeros where its agent observes less than others."""
    if value.shape == part.shape:
        return value.astype(part.dtype)
    row = np.zeros(part.shape, part.dtype)
    row[: len(value)] = value
    return row


def _fit(mask: Any, agent: Agent) -> Array:
    legal = np.asarray(mask)
    if legal.shape != (agent.choices,) or legal.dtype.kind not in "biu":
        raise Mismatch(f"the mask of {agent.name} must be {agent.choices} numbers 0 and 1, not {legal!r:.60}")
    return legal.astype(np.bool_)


def form_of(id: str, env: Any) -> Form:
    """Return the form of an environment. Raises `BadRequest` if its agents have no form in common."""
    names = getattr(env, "possible_agents", None)
    if not names:
        raise BadRequest(f"{id} does not list its possible_agents, of which each is a side", "id")
    try:
        parts = [_agent(str(name), env.observation_space(name), env.action_space(name)) for name in names]
    except spaces.Unsupported as error:
        raise BadRequest(f"{id} cannot be used: evorl does not support {error}", "id") from error
    inputs = _common_inputs(id, [own for _, own, _ in parts])
    action = _common_action(id, [space for *_, space in parts])
    who = (Input("agent", (len(names),)),) if len(names) > 1 else ()
    spec = Spec(inputs + who, action, players=len(names), masked=isinstance(action, Discrete))
    agents = tuple(agent for agent, *_ in parts)
    choices = np.arange(max(agent.choices for agent in agents)) < np.array([[agent.choices] for agent in agents])
    return Form(spec, agents, np.eye(len(agents), dtype=np.float32), choices)


def _agent(name: str, observed: Any, actions: Any) -> tuple[Agent, tuple[Input, ...], Action]:
    inner = None
    if isinstance(observed, Dict) and MASK in observed.spaces:
        rest = {key: space for key, space in observed.spaces.items() if key != MASK}
        inner = next(iter(rest)) if len(rest) == 1 else None
        observed = Dict(rest) if inner is None else rest[inner]
    own = spaces.observation(observed)
    action = spaces.action(actions)
    choices = action.n if isinstance(action, Discrete) else 0
    return Agent(name, actions, tuple(read for _, read in own), inner, choices), tuple(x for x, _ in own), action


def _common_inputs(id: str, each: list[tuple[Input, ...]]) -> tuple[Input, ...]:
    """The inputs of all agents; single rows of numbers that differ in length are filled up with zeros."""
    if all(own == each[0] for own in each):
        return each[0]
    rows = [own[0].shape for own in each if len(own) == 1 and own[0].dtype == "float32" and len(own[0].shape) == 1]
    if len(rows) < len(each):
        raise BadRequest(f"{id}: its agents observe what no network can see alike; give a wrapper that pads", "id")
    return (Input(each[0][0].name, max(rows)),)


def _common_action(id: str, each: list[Action]) -> Action:
    """The actions of all agents; of choices that differ in number the most, of which the others have some masked."""
    if all(action == each[0] for action in each):
        return each[0]
    counts = [action.n for action in each if isinstance(action, Discrete)]
    if len(counts) < len(each):
        raise BadRequest(
            f"{id}: its agents have actions of different kinds; give a wrapper that makes them alike", "id"
        )
    return Discrete(max(counts))
