"""Games in moves as battles: who is asked when, and what a decision brings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
import pytest

from evorl.mdp import check
from evorl.mdp.arena import BattleWorld
from evorl.mdp.core import Array, Discrete, Input, Spec, State
from evorl.mdp.turns import RandomPlayer, TurnBattle
from evorl.util.seed import Episodes, generator

ORDER = ((1,), (0,), (0, 1, 2), (2,), (1, 2), (0,))
"""Who moves. Side 1 begins, and side 2 comes late."""


@dataclass
class Count:
    """Each action adds to the mover's sum; the others see the sums of all. After the last move it is over."""

    key: int = 0
    cut: bool = False
    moves: int = 0
    closed: bool = False
    order: Sequence[Sequence[int]] = ORDER
    sums: Array = field(default_factory=lambda: np.zeros(3, np.float32))

    def __post_init__(self) -> None:
        self.sums[:] = generator("count", self.key).integers(3, size=3)
        self.start = self.sums.copy()

    @property
    def movers(self) -> Sequence[int]:
        return self.order[self.moves] if self.moves < len(self.order) else ()

    def move(self, actions: Mapping[int, Array]) -> None:
        assert sorted(actions) == sorted(self.movers)
        for side, action in actions.items():
            self.sums[side] += action[0]
        self.moves += 1

    def state(self, side: int) -> State:
        return State((self.sums.copy(),), np.array([False, True, True]) & (side in self.movers))

    def total(self, side: int) -> float:
        return float(self.sums[side] - self.start[side])

    def truncated(self, side: int) -> bool:
        return self.cut

    def result(self, side: int) -> Mapping[str, float]:
        return {"fitness": self.total(side)}

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True, kw_only=True)
class Counting(BattleWorld):
    cut: bool = False
    all: bool = True

    @property
    def spec(self) -> Spec:
        return Spec((Input("sums", (3,)),), Discrete(3), players=3, masked=True)

    def players(self, seed: int) -> tuple[int, ...]:
        return (0, 1, 2) if self.all else (2,)

    def reset(self, *players: int, seed: int) -> TurnBattle:
        return TurnBattle(Count(seed, self.cut), players, None if self.all else RandomPlayer(seed, self.spec))


@pytest.mark.parametrize("all", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_conformance(cut: bool, all: bool) -> None:
    check(Counting(cut=cut, all=all), slots=6, decisions=30)


@pytest.mark.parametrize("all", [True, False])
@pytest.mark.parametrize("cut", [True, False])
def test_an_arena_plays_a_game_as_coroutines_of_its_sides_do(cut: bool, all: bool) -> None:
    """Without a delay one coroutine plays all sides; with one, even of no time, each side has its own."""

    def played(world: Counting) -> list[list[bytes]]:
        with closing(world.arena(2 * world.sides, Episodes(3))) as arena:
            seen: list[list[bytes]] = [[] for _ in range(arena.slots)]
            for _ in range(40):
                decisions = arena.recv()
                for slot in decisions.slots.tolist():
                    rows = (*decisions.inputs, decisions.legal, decisions.reward, decisions.terminated)
                    seen[slot] += [x[slot].tobytes() for x in (*rows, decisions.truncated) if x is not None]
                    if decisions.truncated[slot]:
                        seen[slot] += [x[slot].tobytes() for x in decisions.final]
                for slot, result in decisions.results:
                    seen[slot].append(repr(result).encode())
                assert decisions.legal is not None
                arena.send(decisions.slots, 2 * decisions.legal[decisions.slots, 2:].astype(np.int64))
            return seen

    one, several = (played(Counting(cut=cut, all=all, delay_ms=delay)) for delay in (None, (0, 0)))
    short = [min(map(len, pair)) for pair in zip(one, several, strict=True)]
    assert min(short) > 50
    for mine, others, length in zip(one, several, short, strict=True):
        assert mine[:length] == others[:length]


def test_every_side_is_asked_in_its_turn() -> None:
    game = Count()
    battle = TurnBattle(game, (0, 1, 2))

    async def side(seat: int) -> list[tuple[list[bool], float, int, bool]]:
        controller, record = battle.controllers[seat], []
        while not record or not record[-1][-1]:
            legal = controller.state.legal
            assert legal is not None
            step = await controller(np.array([int(legal.nonzero()[0][-1])]))
            record.append((legal.tolist(), float(step.reward[0]), step.cost, step.terminated))
        return record

    async def play() -> list[list[tuple[list[bool], float, int, bool]]]:
        async with battle:
            return list(await asyncio.gather(*map(side, range(3))))

    waits, moves = [True, False, False], [False, True, True]
    assert asyncio.run(play()) == [
        [(waits, 0, 1, False), (moves, 2, 1, False), (moves, 2, 3, False), (moves, 2, 1, True)],
        [(moves, 2, 2, False), (moves, 2, 2, False), (moves, 2, 2, True)],
        [(waits, 0, 2, False), (moves, 2, 1, False), (moves, 2, 1, False), (moves, 2, 2, True)],
    ]
    assert game.closed


def test_the_first_state_is_that_of_the_start() -> None:
    """Also if it is read after other sides have moved, as when a saved episode is replayed."""

    async def scene() -> None:
        async with TurnBattle(Count(), (0, 1, 2)) as battle:
            before = battle.controllers[2].state.inputs[0].copy()
            moved = asyncio.ensure_future(battle.controllers[1](np.array([2])))
            await asyncio.sleep(0)
            assert np.array_equal(battle.controllers[2].state.inputs[0], before)
            moved.cancel()

    asyncio.run(scene())


def test_a_rule_player_decides_for_the_others() -> None:
    """At once, so that the caller is asked for its own turns only; in what it sees of them."""
    battle = TurnBattle(Count(), (2,), RandomPlayer(5, Counting().spec))
    assert battle.game.moves == 2 and battle.game.movers == (0, 1, 2)
    assert battle.controllers[0].state.legal is not None and battle.controllers[0].state.legal.sum() == 2
    sums = {
        tuple(TurnBattle(Count(), (2,), RandomPlayer(key, Counting().spec)).controllers[0].state.inputs[0])
        for key in range(20)
    }
    assert len(sums) == 4
    with pytest.raises(ValueError, match="nobody decides for side 1"):
        TurnBattle(Count(), (2,))


def test_a_game_that_is_over_takes_no_actions() -> None:
    async def scene() -> None:
        async with TurnBattle(Count(order=((0,),)), (0,)) as battle:
            assert (await battle.controllers[0](np.array([1]))).over
            with pytest.raises(RuntimeError, match="side 0 cannot act: it is not its turn"):
                await battle.controllers[0](np.array([1]))

    asyncio.run(scene())
