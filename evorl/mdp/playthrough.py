"""An arena played with random legal actions; each of its decisions is checked and kept for comparison."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, Spec, WorldError, check_name, heads
from evorl.mdp.forms import check_array, check_arrays
from evorl.mdp.random_play import random_action
from evorl.mdp.stacks import check_stacks
from evorl.util.conformance import Nonconformity, require
from evorl.util.seed import generator

MAX_DECISIONS = 100_000
"""Maximum number of decisions of a slot before an episode must end."""


class Record(NamedTuple):
    """One decision of a slot in comparable form."""

    seen: tuple[bytes, ...]
    outcome: tuple[bytes, bool, bool]
    final: tuple[bytes, ...]
    result: tuple[tuple[str, float], ...]


class Playthrough:
    """An arena played with random legal actions; ``same_actions``: the same ones in every slot."""

    def __init__(self, arena: Arena, seed: int, same_actions: bool, lives: bool) -> None:
        self.arena, self.seed, self.same_actions, self.lives = arena, seed, same_actions, lives
        self.rows: list[list[Record]] = [[] for _ in range(arena.slots)]
        self.restored = False  # its first rows go on from another playthrough
        self.waiting: set[int] = set()
        self.ended = self.cost = 0
        self.stacks: dict[tuple[int, int], Array] = {}  # the last ones, by slot and number of the input
        self.reported: set[str] | None = None  # the names of every episode's results

    def play(self, decisions: int, ends: int = 0) -> Playthrough:
        """Play until every slot has seen ``decisions`` states and ``ends`` episodes have ended; then close."""
        try:
            while self.shortest < decisions or self.ended < ends:
                require(
                    self.shortest < MAX_DECISIONS,
                    f"no episode ended in {MAX_DECISIONS} decisions: give it a time limit",
                )
                self.step()
        finally:
            self.arena.close()
        self.arena.close()  # idempotent
        return self

    @property
    def shortest(self) -> int:
        """The least number of states that a slot has seen."""
        return min(map(len, self.rows))

    def step(self) -> None:
        """Answer the slots that wait, then receive the next ones."""
        if self.waiting:
            self._send()
        self.recv()

    def recv(self) -> Decisions:
        """Receive, check and keep rows. Raises `Nonconformity`."""
        decisions = self.decisions = self.arena.recv()
        _check_decisions(decisions, self.arena)
        slots = decisions.slots.tolist()
        require(not self.waiting & set(slots), "a slot that still waits for its answer was returned again")
        results = _results(decisions)
        for slot in slots:
            self._note(slot, results.pop(slot, None))
        require(not results, f"results came for the slots {sorted(results)}, which do not wait")
        self.waiting |= set(slots)
        self.cost += decisions.cost
        return decisions

    def _note(self, slot: int, result: dict[str, float] | None) -> None:
        decisions = self.decisions
        terminated, truncated = bool(decisions.terminated[slot]), bool(decisions.truncated[slot])
        over = terminated or truncated
        if not self.rows[slot] and not self.restored:
            early = over or decisions.reward[slot].any()
            require(not early, f"slot {slot} has a reward or an end before its first action")
        require(over or result is None, f"slot {slot} has an entry in results though its episode did not end")
        why = f"slot {slot} had to start its episode again: its world raised (see the log)"
        require(slot not in decisions.failed, why)
        reported = result is not None or self.lives
        require(not over or reported, f"slot {slot} ended an episode without results")
        if result is not None:
            self.reported = set(result) if self.reported is None else self.reported
            odd = sorted(self.reported ^ set(result))
            require(not odd, f"slot {slot}: the results {odd} are those of some episodes only")
        self.ended += over
        try:
            self._check_stacks(slot, over)
        except WorldError as error:
            raise Nonconformity(f"slot {slot}: {error}") from None
        final = tuple(x[slot].tobytes() for x in decisions.final) if truncated else ()
        outcome = (decisions.reward[slot].tobytes(), terminated, truncated)
        self.rows[slot].append(Record(_seen(decisions, slot), outcome, final, tuple(sorted((result or {}).items()))))

    def _check_stacks(self, slot: int, over: bool) -> None:
        for n, entry in enumerate(self.arena.spec.inputs):
            seen, final = self.decisions.inputs[n][[slot]], self.decisions.final[n][[slot]]
            before = self.stacks.get((slot, n), None if self.restored else seen)
            if entry.stacked and before is not None:
                check_stacks(entry, before, seen, np.array([over or (slot, n) not in self.stacks]))
                if self.decisions.truncated[slot]:
                    check_stacks(entry, before, final, np.array([False]))
            self.stacks[slot, n] = seen

    def _send(self) -> None:
        spec, legal, slots = self.arena.spec, self.decisions.legal, sorted(self.waiting)
        actions = [random_action(spec, None if legal is None else legal[slot], self._draw(slot)) for slot in slots]
        self.arena.send(np.array(slots, np.int64), np.stack(actions))
        self.waiting.clear()

    def _draw(self, slot: int) -> np.random.Generator:
        return generator("conformance", self.seed, 0 if self.same_actions else slot, len(self.rows[slot]))


def _seen(decisions: Decisions, slot: int) -> tuple[bytes, ...]:
    parts = decisions.inputs if decisions.legal is None else (*decisions.inputs, decisions.legal)
    return tuple(part[slot].tobytes() for part in parts)


# ------------------------------------------------------------------ rules for an arena


def _check_decisions(decisions: Decisions, arena: Arena) -> None:
    spec, count = arena.spec, arena.slots
    slots = decisions.slots
    check_array("slots", slots, (len(slots),), "int64")
    check_arrays(decisions, spec, count)
    rising = len(slots) > 0 and slots[0] >= 0 and slots[-1] < count and bool((np.diff(slots) > 0).all())
    require(rising, f"slots must be rising numbers below {count}, not {slots.tolist()}")
    require(np.isfinite(decisions.reward[slots]).all(), "a reward is not finite")
    both = slots[decisions.terminated[slots] & decisions.truncated[slots]]
    require(not len(both), f"the slots {both.tolist()} are terminated and truncated at once")
    odd = sorted(set(decisions.failed) - set(slots.tolist()))
    require(not odd, f"the slots {odd} failed and do not wait")
    cost = decisions.cost
    require(isinstance(cost, int | np.integer) and cost >= 0, f"cost must be a whole number >= 0, not {cost!r}")
    check_finite("inputs", decisions.inputs, spec, slots)
    check_finite("final", decisions.final, spec, slots[decisions.truncated[slots]])
    for name, legal, rows in (
        ("legal", decisions.legal, slots),
        ("final_legal", decisions.final_legal, slots[decisions.truncated[slots]]),
    ):
        if legal is not None:
            check_choices(name, legal[rows], spec)


def check_finite(name: str, arrays: tuple[Array, ...], spec: Spec, slots: Array) -> None:
    """Raise `Nonconformity` unless the rows of these slots in each input [B, ...] are finite."""
    for it, array in zip(spec.inputs, arrays, strict=True):
        require(np.isfinite(array[slots]).all(), f"{name} {it.name!r} is not finite")


def check_choices(name: str, legal: Array, spec: Spec) -> None:
    """Raise `Nonconformity` unless each row of a mask [n, L] allows a choice of each head."""
    for head, mask in enumerate(np.split(legal, np.cumsum(heads(spec.action))[:-1], axis=1)):
        require(mask.any(axis=1).all(), f"{name} leaves no legal choice in head {head}")


def _results(decisions: Decisions) -> dict[int, dict[str, float]]:
    for slot, result in decisions.results:
        for name, value in result.items():
            try:
                check_name(name)
            except WorldError as error:
                raise Nonconformity(f"slot {slot}: {error}") from None
            fine = isinstance(value, int | float | np.number) and np.isfinite(value)
            require(fine, f"slot {slot}: the result {name!r} is not a finite number but {value!r}")
    return dict(decisions.results)
