"""Conformance test of a world: `check` plays it and reports the first broken rule in one sentence."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np

from evorl.mdp.battle_arena import BattleArena
from evorl.mdp.begin import begin
from evorl.mdp.core import (
    MDP,
    Battle,
    Controller,
    SavedAtAnyTime,
    Spec,
    State,
    Step,
    World,
)
from evorl.mdp.decision_arrays import BattleForms
from evorl.mdp.forms import Mismatch, check_inputs, check_mask, strict
from evorl.mdp.playthrough import MAX_DECISIONS, Playthrough, Record, check_choices, check_finite
from evorl.mdp.random_play import random_action
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.conformance import require
from evorl.util.seed import Episodes, generator
from evorl.util.text import say

TIMEOUT_S = 30.0
"""Maximum wall time until one side of a battle must return."""


def check(
    world: World, *, slots: int = 4, decisions: int = 100, seed: int = 0, varied: bool = True, lives: bool = False
) -> None:
    """Raise `Nonconformity`, with one sentence, unless the world follows evorl's interface; else print a line.

    Plays random legal actions, keyed by ``seed``, until each of ``slots`` slots has made ``decisions`` decisions and
    an episode has ended. Checks in order:

    * battles can be left early (only for a world written as battles);
    * shapes, dtypes, finite numbers, stacks of frames, masks, ends, results and costs are valid, and float32 can tell
      the numbers of observations apart;
    * the same keys and actions repeat the same episodes;
    * other keys give other episodes (skipped with ``varied=False``, for a world without random numbers);
    * a saved state continues bit for bit in a new arena;
    * closed arenas leave no threads or processes behind.

    With ``lives`` an episode of the learner may be part of a game; then only the game's last one has results.
    An invalid spec raises `WorldError` itself.
    """

    def playthrough(same_actions: bool = False, run: int = seed) -> Playthrough:
        return Playthrough(begin(world, slots, Episodes(run, "conformance")), seed, same_actions, lives)

    with _no_leaks(), _sentences(), strict():
        require(world.repeats, "it says that it does not repeat itself (repeats=false), which this check needs")
        if callable(getattr(world, "reset", None)) and callable(getattr(world, "players", None)) and _of_battles(world):
            asyncio.run(_check_battles(world, Episodes(seed, "conformance")))
        first = playthrough().play(decisions, ends=1)
        sides = getattr(first.arena, "sides", None)
        require(sides == world.sides, f"the arena's sides must be {world.sides}, as the world's are, not {sides}")
        require(first.cost > 0, "environment steps were played and the costs add up to 0")
        again = playthrough().play(decisions)
        other = "with the same key and actions it saw something else, so it draws from more than the episode's seed"
        _check_equal(first.rows, again.rows, other)
        if varied:
            _check_chance(playthrough, seed + 1, decisions)
        _check_resume(playthrough, decisions)
    chance = "other keys, " if varied else ""
    say(f"{type(world).__name__} passes: values, repetition, {chance}resume; {slots} slots, {decisions} decisions each")


# ------------------------------------------------------------------ rules for an arena


def _check_equal(a: list[list[Record]], b: list[list[Record]], what: str) -> None:
    """Raise `Nonconformity` at the first decision in which the two playthroughs differ."""
    for slot, (left, right) in enumerate(zip(a, b, strict=True)):
        for number, (record, other_record) in enumerate(zip(left, right, strict=False)):
            if record != other_record:
                fields = [name for name, x, y in zip(Record._fields, record, other_record, strict=True) if x != y]
                raise Nonconformity(f"slot {slot}, decision {number}: {what} ({', '.join(fields)})")


def _check_chance(playthrough: Callable[..., Playthrough], other: int, decisions: int) -> None:
    first = playthrough(same_actions=True).play(decisions)
    second = playthrough(same_actions=True, run=other).play(decisions)
    cut = [[rows[:decisions] for rows in it.rows] for it in (first, second)]
    require(
        cut[0] != cut[1],
        "the episode keys change nothing: other keys gave the same episodes (varied=False allows it)",
    )
    half = len(cut[0]) // 2
    if half:
        require(cut[0][:half] != cut[0][-half:], "all slots see the same (varied=False allows it)")


def _check_resume(playthrough: Callable[..., Playthrough], decisions: int) -> None:
    """State saved in the middle, restored in a fresh arena, and saved and restored once more: it continues alike."""
    first, second, third = playthrough(), playthrough(), playthrough()
    try:
        state = _save_midway(first, decisions)
        kept = copy.deepcopy(state)
        before, waiting = [len(rows) for rows in first.rows], set(first.waiting)
        last = {slot: first.rows[slot][-1].seen for slot in waiting}
        for _ in range(decisions):
            first.step()
        for restored in (second, third):
            restored.arena.load_state_dict(kept)
            restored.restored = True
            _check_restored(restored, waiting, last)
            kept = copy.deepcopy(restored.arena.state_dict())
        third.rows = [rows[:n] for rows, n in zip(first.rows, before, strict=True)]
        third.play(first.shortest)
        _check_equal(first.rows, third.rows, "an arena restored from a saved state went another way")
    finally:
        for each in (first, second, third):
            each.arena.close()


def _save_midway(playthrough: Playthrough, decisions: int) -> Any:
    """Return the state at the first moment after half the decisions at which it can be saved."""
    every = playthrough.arena.slots
    for _ in range(MAX_DECISIONS):
        playthrough.step()
        if playthrough.shortest > decisions // 2 and (
            len(playthrough.waiting) == every or isinstance(playthrough.arena, SavedAtAnyTime)
        ):
            state = playthrough.arena.state_dict()
            _check_plain(state, "state_dict()")
            return state
    raise Nonconformity("there was no moment at which every slot waited, so its state cannot be saved")


def _check_restored(playthrough: Playthrough, waiting: set[int], last: dict[int, tuple[bytes, ...]]) -> None:
    decisions = playthrough.recv()
    require(playthrough.waiting == waiting, "a restored arena does not return the slots that waited when it was saved")
    require(decisions.cost == 0 and not decisions.results, "a restored arena counts steps or reports results again")
    for slot in sorted(waiting):
        (row,) = playthrough.rows[slot]
        require(row.seen == last[slot], f"slot {slot}: a restored arena shows something else than when it was saved")
        quiet = row.outcome == (bytes(len(row.outcome[0])), False, False)
        require(quiet, f"slot {slot}: a restored arena must show no reward and no end at first")


def _check_plain(value: Any, where: str) -> None:
    """Require nested dictionaries of arrays and JSON scalars, which a checkpoint can store."""
    if isinstance(value, dict):
        for name, inner in value.items():
            require(isinstance(name, str), f"{where} has the key {name!r}, which is no string")
            _check_plain(inner, f"{where}[{name!r}]")
    elif isinstance(value, list):
        for inner in value:
            _check_plain(inner, f"{where}[..]")
    else:
        tensor = type(value).__module__.partition(".")[0] == "torch"
        array = isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        plain = value is None or isinstance(value, bool | int | float | str)
        require(plain or array or tensor, f"{where} holds a {type(value).__name__}, which a checkpoint cannot")


@contextmanager
def _sentences() -> Iterator[None]:
    """Turn data that is not of its declared form into a `Nonconformity`."""
    try:
        yield
    except Mismatch as error:
        raise Nonconformity(str(error)) from None


@contextmanager
def _no_leaks() -> Iterator[None]:
    threads, children = set(threading.enumerate()), set(multiprocessing.active_children())
    yield
    left = [thread.name for thread in set(threading.enumerate()) - threads]
    require(not left, f"closed arenas leave threads behind: {left}")
    left = [str(child.name) for child in set(multiprocessing.active_children()) - children]
    require(not left, f"closed arenas leave processes behind: {left}")


# ------------------------------------------------------------------ rules for a battle


def _of_battles(world: World) -> bool:
    """Whether the world's arena plays its battles. One that can may have another arena with other settings."""
    with closing(world.arena(world.sides, Episodes(0, "conformance"))) as arena:
        return isinstance(arena, BattleArena)


async def _check_battles(world: Any, episodes: Episodes) -> None:
    for number in range(3):
        key = int(episodes(0, number))
        players = world.players(key)
        before = asyncio.all_tasks()
        async with world.reset(*players, seed=key) as battle:
            count = len(battle.controllers)
            require(count == len(players), f"a battle asked for {len(players)} sides has {count} controllers")
            await _act(world, battle, generator("conformance", key), rounds=number)
        for _ in range(3):
            await asyncio.sleep(0)
        left = [repr(task.get_coro()) for task in asyncio.all_tasks() - before]
        require(not left, f"a battle that was left early has tasks that go on: {left}")


async def _act(world: MDP, battle: Battle, draw: np.random.Generator, rounds: int) -> None:
    """``rounds`` times: let every side act and wait for the first to return; then cancel the pending ones."""
    spec = world.spec
    pending: dict[asyncio.Future[Step], Controller] = {}
    for _ in range(rounds):
        for side in battle.controllers:
            if side not in pending.values():
                _check_state(side.state, spec)
                pending[asyncio.ensure_future(side(random_action(spec, side.state.legal, draw)))] = side
        done, _ = await asyncio.wait(pending, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        require(bool(done), f"no side of a battle came back within {TIMEOUT_S:.0f} s")
        steps = [task.result() for task in done]
        for step in steps:
            BattleForms(spec, type(world).__name__).reward(step.reward)
            require(step.cost >= 1, f"a step's cost must be at least 1, not {step.cost}")
        if any(step.over for step in steps):
            break
        for task in done:
            del pending[task]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def _check_state(state: State, spec: Spec) -> None:
    arrays = tuple(np.asarray(value)[None] for value in state.inputs)
    check_inputs("a state's input", arrays, spec, 1)
    check_finite("a state's input", arrays, spec, np.array([0]))
    legal = None if state.legal is None else np.asarray(state.legal)[None]
    check_mask("a state's legal", legal, spec, 1)
    if legal is not None:
        check_choices("a state's legal", legal, spec)
