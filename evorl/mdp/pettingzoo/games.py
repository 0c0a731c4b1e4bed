"""Episodes of PettingZoo's two interfaces, as games in moves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

import numpy as np

from evorl.mdp.core import Array, State, first_choices
from evorl.mdp.forms import Form as ArrayForm
from evorl.mdp.forms import Mismatch, NoResult
from evorl.mdp.gymnasium import spaces
from evorl.mdp.pettingzoo.form import Form
from evorl.mdp.random_play import random_action
from evorl.util import seed as seeds
from evorl.util.seed import generator, seed31

_REWARD = ArrayForm("the reward", (), np.float64)
PROBED = 30
"""Moves of the episodes that `carries_state_over` compares."""


class EnvGame(ABC):
    """One episode of an environment. Agents come and go; the game is over once none is left."""

    def __init__(
        self, env: Any, form: Form, key: int, results: Sequence[str] = (), done: Callable[[Any], None] | None = None,
        draw: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """``results``: numbers of the infos to report; ``done`` takes the environment back after the episode; ``draw``
        makes one that draws."""
        self.env, self.form, self.key = env, form, key
        self.moves = 0
        self.movers: Sequence[int] = ()
        self._number = {agent.name: side for side, agent in enumerate(form.agents)}
        self._names = [*env.possible_agents]
        self.totals = np.zeros(len(self._names))
        self._cut = np.zeros(len(self._names), np.bool_)
        self._seen: dict[int, Any] = {}  # the last observation of each side
        self._infos: dict[int, Mapping[str, Any]] = {}
        self._results, self._done, self._broken = tuple(results), done, False
        self._draw, self._log = draw, list[Mapping[int, Array]]()
        self._drawn: EnvGame | None = None  # the same episode in an environment that draws
        self._begin(seed31(key))

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Start the episode."""

    @abstractmethod
    def _step(self, actions: dict[int, Any]) -> None:
        """Take the movers' actions, as the environment knows them."""

    def move(self, actions: Mapping[int, Array]) -> None:
        self._broken = True  # until the step has returned
        self._step({side: self._encoded(side, action) for side, action in actions.items()})
        self.moves += 1
        self._broken = False
        self._log.append(actions)
        if self._drawn is not None:
            self._drawn.move(actions)

    def _encoded(self, side: int, action: Array) -> Any:
        agent = self.form.agents[side]
        if agent.choices:  # as below, in a tenth of the time
            return int(action[0]) + int(agent.actions.start)
        return spaces.encode(agent.actions, self.form.own_action(side, action)[None])[0]

    def render(self) -> Array | None:
        """Draw the game: uint8 [H, W, 3]. The first call makes an environment that draws, and repeats the episode."""
        if self._draw is None:
            return None
        if self._drawn is None:
            env = self._draw()
            try:
                drawn = type(self)(env, self.form, self.key)
                for actions in self._log:
                    drawn.move(actions)
            except BaseException:
                close_broken(env)
                raise
            self._drawn = drawn
        return np.asarray(self._drawn.env.render(), np.uint8)

    def state(self, side: int) -> State:
        seen = self._observation(side)
        legal = self.form.legal(side, seen, self._infos.get(side, {}))
        if legal is not None and self.movers and side not in self.movers:  # the state at a truncated end is not masked
            legal = np.zeros_like(legal)
            if len(firsts := first_choices(self.form.spec.action)) > 1:  # every head needs a choice: the first for none
                legal[firsts] = True
        return State(self.form.state(side, seen), legal)

    def _observation(self, side: int) -> Any:
        """What the agent of a side sees; None before it came."""
        return self._seen.get(side)

    def total(self, side: int) -> float:
        return float(self.totals[side])

    def truncated(self, side: int) -> bool:
        return bool(self._cut[side])

    def result(self, side: int) -> Mapping[str, float]:
        info = self._infos.get(side, {})
        for name in self._results:
            if name not in info:
                raise NoResult.named(name, info, self._names[side])
        return {"fitness": self.total(side), **{name: float(info[name]) for name in self._results}}

    def close(self) -> None:
        if self._drawn is not None:
            close_broken(self._drawn.env)  # it may be
        if self._done is not None:
            (close_broken if self._broken else self._done)(self.env)

    def _add(self, rewards: Mapping[Any, Any]) -> None:
        for agent, reward in rewards.items():
            number = float(reward if isinstance(reward, float | int | np.integer) else _REWARD.fit(reward))
            self.totals[self._number[str(agent)]] += number

    def _note_ends(self, terminations: Mapping[Any, Any], truncations: Mapping[Any, Any]) -> None:
        for agent, cut in truncations.items():
            self._cut[self._number[str(agent)]] = bool(cut) and not terminations.get(agent, False)

    def _sides(self, agents: Sequence[Any]) -> list[int]:
        return sorted(self._number[str(agent)] for agent in agents)


class ParallelGame(EnvGame):
    """All agents that are there decide in each move."""

    def _begin(self, seed: int) -> None:
        self._note(*self.env.reset(seed=seed))

    def _step(self, actions: dict[int, Any]) -> None:
        seen, rewards, terminations, truncations, infos = self.env.step(
            {self._names[side]: action for side, action in actions.items()}
        )
        self._add(rewards)
        self._note_ends(terminations, truncations)
        self._note(seen, infos)

    def _note(self, seen: Mapping[Any, Any], infos: Mapping[Any, Any]) -> None:
        self._seen |= {self._number[str(agent)]: observation for agent, observation in seen.items()}
        self._infos |= {self._number[str(agent)]: info for agent, info in infos.items()}
        self.movers = self._sides(self.env.agents)


class TurnGame(EnvGame):
    """One agent decides in each move."""

    def _begin(self, seed: int) -> None:
        self.env.reset(seed=seed)
        self._settle()

    def _step(self, actions: dict[int, Any]) -> None:
        (action,) = actions.values()
        self.env.step(action)
        self._add(self.env.rewards)
        self._settle()

    def _settle(self) -> None:
        """Let agents go whose end has come, until another one decides or none is left."""
        env = self.env
        self._note_ends(env.terminations, env.truncations)
        self._infos |= {self._number[str(agent)]: info for agent, info in env.infos.items()}
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            gone = env.agent_selection
            self._seen[self._number[str(gone)]] = env.observe(gone)
            env.step(None)
        self.movers = self._sides([env.agent_selection]) if env.agents else ()

    def _observation(self, side: int) -> Any:
        agent = self._names[side]
        return self.env.observe(agent) if agent in self.env.agents else self._seen.get(side)


def close_broken(env: Any) -> None:
    """Close an environment that may have failed, and may fail again at that."""
    with suppress(Exception):
        env.close()


def kind_of(env: Any) -> type[EnvGame]:
    """The kind of game that an environment is."""
    from pettingzoo import AECEnv

    return TurnGame if isinstance(env, AECEnv) else ParallelGame


def carries_state_over(form: Form, make: Callable[[], Any]) -> bool:
    """Whether an episode changes the next one of the same environment, by a test with two short episodes.

    Yes for an environment that fails. Raises `Mismatch`.
    """
    with closing(make()) as used, closing(make()) as fresh:
        try:
            _trace(used, form, 0)
            return _trace(used, form, 1) != _trace(fresh, form, 1)
        except Mismatch:
            raise
        except Exception:
            return True  # the run will report it


def _trace(env: Any, form: Form, number: int) -> list[bytes]:
    """What all sides see and get in the episode of this number, of random moves."""
    game, draw = kind_of(env)(env, form, seeds.key("probe", number)), generator("probe", number)
    trace: list[bytes] = []
    while game.movers and game.moves < PROBED:
        states = {side: game.state(side) for side in game.movers}
        trace += [x.tobytes() for state in states.values() for x in state.inputs] + [game.totals.tobytes()]
        game.move({side: random_action(form.spec, state.legal, draw) for side, state in states.items()})
    return trace
