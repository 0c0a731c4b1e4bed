"""Pong as a battle: the same games as in the arena, and the manners of a battle."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evorl.mdp.core import Array, Step
from evorl.mdp.pong.battle import PongBattle
from evorl.mdp.pong.rules import Behaviour
from evorl.mdp.pong.world import Pong, PongArena
from evorl.util.seed import Episodes

SHORT = Pong(rounds=4, round_steps=150)
Record = list[tuple[Array, np.float32, bool]]


async def play(battle: PongBattle, actions: Array) -> tuple[list[Record], list[dict[str, float]]]:
    """Play an episode; side s takes actions[t, s]. For each side: what it saw, was given, and whether it was over."""

    async def side(seat: int) -> Record:
        controller, record = battle.controllers[seat], []
        for action in actions[:, seat]:
            seen = controller.state.inputs[0]
            step = await controller(np.array([action]))
            record.append((seen, np.float32(step.reward[0]), step.terminated))  # as an engine hands it on
            if step.over:
                break
        return record

    async with battle:
        records = await asyncio.gather(*[side(seat) for seat in range(len(battle.controllers))])
    return list(records), [dict(controller.result()) for controller in battle.controllers]


@pytest.mark.slow_cases("random-points", "self-points")
@pytest.mark.parametrize("weights", [Behaviour(), Behaviour(lazy=0.001, busy=0.3)], ids=["points", "behaviour"])
@pytest.mark.parametrize("opponent", ["rule", "random", "self"])
def test_a_battle_is_the_arenas_episode(opponent: Any, weights: Behaviour) -> None:
    world, episodes, games = replace(SHORT, opponent=opponent, reward=weights), Episodes(11), 5
    share = 2 if opponent == "self" else 1
    slots, rng = games * share, np.random.default_rng(0)
    actions = rng.integers(0, 3, (800, slots, 1))
    arena = world.arena(slots, episodes)
    battles = []
    for game in range(games):
        key = int(episodes(game, 0))
        battles.append(
            asyncio.run(
                play(world.reset(*world.players(key), seed=key), actions[:, game * share : (game + 1) * share, 0])
            )
        )
    assert {"score", "win", "fitness", "lazy", "busy"} == set(battles[0][1][0])
    over = np.zeros(slots, bool)
    for t in range(800):
        now = arena.recv()
        seen = now.inputs[0].copy()
        arena.send(now.slots, actions[t])
        results = dict(arena.recv().results)
        for slot in np.flatnonzero(~over):
            records, ends = battles[slot // share]
            battle_seen, reward, ended = records[slot % share][t]
            np.testing.assert_array_equal(battle_seen, seen[slot])
            assert reward == now.reward[slot, 0] and ended == now.terminated[slot]
            assert not ended or results[slot] == ends[slot % share]
        over |= now.terminated
    assert over.all()


def test_every_state_is_the_arenas() -> None:
    """Not only what players see: bats, ball, velocities, clocks and scores, over a whole episode of both sides."""
    world, episodes = replace(SHORT, opponent="self"), Episodes(2)
    arena = PongArena(world, 2, episodes)
    battle = world.reset(0, 1, seed=int(episodes(0, 0)))

    async def compare() -> int:
        rng, steps = np.random.default_rng(3), 0
        async with battle:
            while not battle.over:
                actions = rng.integers(0, 3, (2, 1))
                for name in arena._match.games.SAVED:
                    ours, theirs = getattr(battle._match.games, name), getattr(arena._match.games, name)
                    np.testing.assert_array_equal(ours, theirs, err_msg=name)
                arena.send(np.arange(2), actions)
                await asyncio.gather(*[side(action) for side, action in zip(battle.controllers, actions, strict=True)])
                steps += 1
        return steps

    assert asyncio.run(compare()) > 50 and arena.recv().terminated.all()


def test_other_sides_are_played_by_the_opponent() -> None:
    actions = np.random.default_rng(0).integers(0, 3, (800, 1))
    key = int(Episodes(1)(0, 0))
    rule, other = (
        asyncio.run(play(replace(SHORT, opponent=who).reset(1, seed=key), actions)) for who in ("rule", "random")
    )
    assert rule[1] == asyncio.run(play(SHORT.reset(1, seed=key), actions))[1]
    assert not all(np.array_equal(a[0], b[0]) for a, b in zip(rule[0][0], other[0][0], strict=False))


def test_controllers_have_the_order_of_the_players() -> None:
    actions = np.random.default_rng(0).integers(0, 3, (800, 2))
    (left, right), ends = asyncio.run(play(SHORT.reset(0, 1, seed=5), actions))
    (first, second), turned = asyncio.run(play(SHORT.reset(1, 0, seed=5), actions[:, ::-1]))
    assert ends == turned[::-1] and ends[0]["score"] == -ends[1]["score"]
    for one, same in ((left, second), (right, first)):
        assert all(np.array_equal(a[0], b[0]) and a[1:] == b[1:] for a, b in zip(one, same, strict=True))
    assert all(a[1] == -b[1] for a, b in zip(left, right, strict=True))


def test_the_first_to_act_waits_for_the_other() -> None:
    async def scene() -> None:
        async with SHORT.reset(0, 1, seed=1) as battle:
            left, right = battle.controllers
            before = left.state.inputs[0]
            first = asyncio.ensure_future(left(np.array([2])))
            await asyncio.sleep(0)
            assert not first.done() and np.array_equal(left.state.inputs[0], before)
            step = await right(np.array([0]))
            assert isinstance(step, Step) and step.cost == 1 and (await first).cost == 1
            moved = left.state.inputs[0] - before
            np.testing.assert_allclose(moved[:2], [4 / 160, -4 / 160], atol=1e-6)

    asyncio.run(scene())


def test_a_side_acts_once_a_step_and_only_inside() -> None:
    async def scene() -> None:
        battle = SHORT.reset(0, 1, seed=1)
        with pytest.raises(RuntimeError, match="cannot act"):
            await battle.controllers[0](np.array([1]))
        async with battle:
            waiting = asyncio.ensure_future(battle.controllers[0](np.array([1])))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="acted already"):
                await battle.controllers[0](np.array([1]))
            with pytest.raises(ValueError, match="not 3"):
                await battle.controllers[1](np.array([3]))
        with pytest.raises(asyncio.CancelledError):  # leaving ends who still waits
            await waiting
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scene())


def test_a_cancelled_side_does_not_harm_the_other() -> None:
    async def scene() -> None:
        async with SHORT.reset(0, 1, seed=1) as battle:
            left, right = battle.controllers
            waiting = asyncio.ensure_future(left(np.array([1])))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert not (await right(np.array([1]))).over

    asyncio.run(scene())


def test_an_episode_that_is_over_takes_no_actions() -> None:
    async def scene() -> None:
        async with replace(SHORT, rounds=1).reset(0, seed=1) as battle:
            while not (await battle.controllers[0](np.array([1]))).over:
                pass
            with pytest.raises(RuntimeError, match="cannot act"):
                await battle.controllers[0](np.array([1]))

    asyncio.run(scene())


@pytest.mark.parametrize("players", [(), (2,), (0, 0), (0, 1, 0), (-1,)])
def test_impossible_players(players: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sides 0 and 1"):
        SHORT.reset(*players, seed=0)


def test_self_play_needs_both_sides() -> None:
    with pytest.raises(ValueError, match="needs both sides"):
        replace(SHORT, opponent="self").reset(0, seed=0)


def test_a_battle_can_be_drawn() -> None:
    battle, arena = SHORT.reset(0, seed=int(Episodes(4)(0, 0))), SHORT.arena(1, Episodes(4))
    assert np.array_equal(battle.render(), arena.render(0))


@pytest.mark.parametrize("opponent", ["rule", "self"])
def test_delayed_games_are_the_same_games(opponent: Any) -> None:
    """Through the asynchronous engine every slot sees the episodes of the lockstep arena, only in its own time."""
    world, slots, steps = replace(SHORT, opponent=opponent, rounds=1), 4, 90
    actions = np.random.default_rng(0).integers(0, 3, (steps, slots, 1))
    lockstep = world.arena(slots, Episodes(6))
    expected: list[list[Any]] = [[] for _ in range(slots)]
    for t in range(steps):
        now = lockstep.recv()
        for slot in range(slots):
            expected[slot].append((now.inputs[0][slot].copy(), now.reward[slot, 0], now.terminated[slot]))
        lockstep.send(now.slots, actions[t])
    arena = replace(world, delay_ms=(0.0, 0.2)).arena(slots, Episodes(6))
    try:
        t = np.zeros(slots, int)
        while (t < steps).any():
            now = arena.recv()
            for slot in now.slots:
                seen, reward, ended = expected[slot][min(t[slot], steps - 1)]
                if t[slot] < steps:
                    np.testing.assert_array_equal(now.inputs[0][slot], seen)
                    assert now.reward[slot, 0] == reward and now.terminated[slot] == ended
            rows = now.slots.copy()
            arena.send(rows, actions[np.minimum(t[rows], steps - 1), rows])
            t[rows] += 1
    finally:
        arena.close()
