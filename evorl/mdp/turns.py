"""Battles of games in moves: in each move some sides decide at once, one side or several.

A side is asked when it is its turn. A battle begins with a state of every side, so a side that has no part in the first
move makes one decision without a choice, in what it sees of the start. So a side decides at least once in every game,
and sees the end of a game before the next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from evorl.mdp.core import Array, Spec, State, Step
from evorl.mdp.random_play import random_action
from evorl.util.seed import generator

IN_TURNS = "a game in turns has no frames in which an action could be repeated"
"""Why it takes no frame skip: a side without a part in the first move would have its first real move forced."""


class Game(Protocol):
    """One episode of a game in moves. Sides are numbers from 0."""

    @property
    def moves(self) -> int:
        """Moves that were made."""
        ...

    @property
    def movers(self) -> Sequence[int]:
        """The sides that decide in the next move; none once the game is over."""
        ...

    def move(self, actions: Mapping[int, Array]) -> None:
        """Make the next move, with an action [K] of each of its movers."""
        ...

    def state(self, side: int) -> State:
        """What a side sees, in arrays that may change with the next move.

        The mask of a side without a choice, if there are masks, is all False.
        """
        ...

    def total(self, side: int) -> float:
        """The rewards of a side since the start."""
        ...

    def truncated(self, side: int) -> bool:
        """Whether a side of a game that is over was cut off before its end."""
        ...

    def result(self, side: int) -> Mapping[str, float]:
        """Return named results of a side, once the game is over."""
        ...

    def close(self) -> None: ...


class RandomPlayer:
    """Takes legal actions with equal chances, from a stream of its own in the episode with this key."""

    def __init__(self, key: int, spec: Spec) -> None:
        self._draw, self._spec = generator("random player", key), spec

    def __call__(self, state: State) -> Array:
        return random_action(self._spec, state.legal, self._draw)


class TurnBattle:
    """A game in moves, as one coroutine for each side in ``players``; ``rule_player`` decides for the others.

    A side that left its game ends with the game. A caller for all sides needs no coroutines: see `Side`.
    """

    def __init__(self, game: Game, players: Sequence[int], rule_player: Callable[[State], Array] | None = None) -> None:
        self.game = game
        self._players, self._rule_player = frozenset(players), rule_player
        self._actions: dict[int, Array] = {}  # of the next move, so far
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.go_on()
        self.controllers: Sequence[Side] = [Side(self, player) for player in players]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.game.close()

    def render(self) -> Array | None:
        draw = getattr(self.game, "render", None)
        return None if draw is None else draw()

    async def act(self, side: int, action: Array) -> None:
        """Decide for a side whose turn it is; return at its next turn, or when the game is over."""
        self.decide(side, action)
        self.go_on()
        await self.turn(side)

    def decide(self, side: int, action: Array) -> None:
        """Decide for a side whose turn it is. The next move is made by `go_on`."""
        if not self.is_asked(side) or not self.game.movers:
            raise RuntimeError(f"side {side} cannot act: it is not its turn")
        self._actions[side] = action

    async def turn(self, side: int) -> None:
        """Wait until it is the side's turn, or the game is over."""
        if not self.is_asked(side):
            self._waiting[side] = asyncio.get_running_loop().create_future()
            await self._waiting[side]

    def is_asked(self, side: int) -> bool:
        """Whether it is the side's turn, or the game is over."""
        return not self.game.movers or (side in self.game.movers and side not in self._actions)

    def go_on(self) -> None:
        """Make moves until a caller's side has to decide, or the game is over."""
        before = self.game.moves
        while (movers := self.game.movers) and len(self._actions) == len(self._players.intersection(movers)):
            actions, self._actions = self._actions, {}
            for side in movers:
                if side not in self._players:
                    actions[side] = self._rule_action(side)
            self.game.move(actions)
        if self.game.moves == before:
            return  # nobody's turn has come
        for side in [side for side in self._waiting if self.is_asked(side)]:
            turn = self._waiting.pop(side)
            if not turn.done():  # cancelled if the battle is being left
                turn.set_result(None)

    def _rule_action(self, side: int) -> Array:
        if self._rule_player is None:
            raise ValueError(f"nobody decides for side {side}")
        return self._rule_player(self.game.state(side))


class Side:
    """A side that the caller decides for.

    It is awaited as any `Controller`. Or the caller calls `decide` for each side that `asked` (a side that has no part
    in the first move is shown its start before), then `TurnBattle.go_on`, then `outcome` of each side that has asked.
    """

    def __init__(self, battle: TurnBattle, side: int) -> None:
        self._battle, self._side = battle, side
        self._waits = side not in battle.game.movers
        self._moves, self._total = 0, 0.0  # at its last decision
        self.state = _kept(_with_choice(battle.game.state(side)))

    async def __call__(self, action: Array) -> Step:
        if self._waits:
            await self._battle.turn(self._side)
        else:
            await self._battle.act(self._side, action)
        step = self.outcome()
        self.state = _kept(self.state)
        return step

    def decide(self, action: Array) -> None:
        """Take an action [K]."""
        if not self._waits:
            self._battle.decide(self._side, action)

    @property
    def asked(self) -> bool:
        """Whether the outcome of its last action is known: it decides again, or the game is over."""
        return self._battle.is_asked(self._side)

    def outcome(self) -> Step:
        """What came of the last action; `state` is then the present one, in arrays that the next move may change."""
        game, side = self._battle.game, self._side
        self._waits = False
        over, truncated = not game.movers, not game.movers and game.truncated(side)
        if not over or truncated:
            self.state = _with_choice(game.state(side))
        total, moves = game.total(side), game.moves
        reward, cost = total - self._total, moves - self._moves
        self._total, self._moves = total, moves
        return Step(np.array([reward], np.float32), over and not truncated, truncated, cost)

    def result(self) -> Mapping[str, float]:
        return self._battle.game.result(self._side)


def _kept(state: State) -> State:
    """A copy of a state: the game may go on before it is read."""
    return State(tuple([x.copy("K") for x in state.inputs]), state.legal)


def _with_choice(state: State) -> State:
    """The state with the first choice legal, if none is."""
    if state.legal is not None and True not in state.legal.tobytes():  # a fifth of what `any` takes
        state.legal[0] = True
    return state
