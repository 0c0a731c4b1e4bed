"""How an arena of battles plays a game in moves (`evorl.mdp.turns`): all of its sides in one coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from operator import itemgetter

from evorl.mdp.battle_slots import SlotState
from evorl.mdp.core import State, Step
from evorl.mdp.turns import Side, TurnBattle

Seat = tuple[int, SlotState, Side]
"""A slot, and the side that it decides for."""


async def play_moves(
    battle: TurnBattle,
    waiting: list[Seat],
    ask: Callable[[int, SlotState, State], None],
    ends: Callable[[int, SlotState, Side, Step], bool],
) -> None:
    """Play an episode. The coroutine wakes once per move; one for each side would await two futures per decision.

    ``ask`` shows a slot its state, or takes its action from a replay. ``ends`` writes down what came of an action, and
    returns whether the side's episode is over.
    """
    acted: list[Seat] = []
    for slot, entry, side in waiting:
        ask(slot, entry, side.state)
    while waiting or acted:
        if all(entry.action is None for _, entry, _ in waiting):
            await _first_answer(waiting)
        seats, waiting = waiting, []
        for seat in seats:
            _, entry, side = seat
            if (action := entry.action) is None:
                waiting.append(seat)
                continue
            entry.log += action.tobytes()
            side.decide(action)
            acted.append(seat)
        battle.go_on()
        await asyncio.sleep(0)  # all games move, and then all show their states: what a processor caches is used longer
        seats, acted = acted, []
        for seat in seats:
            slot, entry, side = seat
            if not side.asked:
                acted.append(seat)
            elif not ends(slot, entry, side, side.outcome()):
                ask(slot, entry, side.state)
                waiting.append(seat)
        waiting.sort(key=itemgetter(0))  # the game gets actions in the order of its sides


async def _first_answer(waiting: list[Seat]) -> None:
    """Wait until one of these slots has its action."""
    answer = asyncio.get_running_loop().create_future()
    for _, entry, _ in waiting:
        entry.answer = answer
    await answer
