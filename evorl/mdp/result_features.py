"""Results of the game so far, as further numbers of an observation: ``features`` of the config of any world.

Every world has ``return`` and ``length``, and ``return_NAME`` of each named reward: of the side's episode so far, with
the rewards that the world gives its learner. An arena that knows what its games have come to (`ResultsSoFar`) has the
results that it will report, by their names: what they would be if the game ended now. They are a row ``results`` of an
observation, in the order of the config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from evorl.mdp.core import Arena, Array, Decisions, Input, ResultsSoFar, SideSpec, Spec, StateDict, World, WorldError
from evorl.mdp.wrapped_arena import WrappedArena
from evorl.util.errors import BadRequest, nearest

NAME = "results"


def feature_names(world: World) -> Mapping[str, tuple[str, ...]]:
    """What the numbers of a world's observations are called, with those that its config adds."""
    return {**world.feature_names, NAME: world.features} if world.features else world.feature_names


def with_results(spec: Spec, names: Sequence[str]) -> Spec:
    """The interface of a side that sees so many results. Raises `BadRequest`."""
    if len({*names}) < len(names):
        raise BadRequest(f"expected each name once, got {list(names)}", "features")
    if any(entry.name == NAME for entry in spec.inputs):
        raise BadRequest(f"the world has an observation {NAME} of its own", "features")
    seen = Input(NAME, (len(names),))
    each = tuple(SideSpec((*side.inputs, seen), side.action) for side in spec.each)
    return replace(spec, inputs=(*spec.inputs, seen), each=each)


class ResultFeatures(WrappedArena):
    """An arena whose observations have results. B slots, R rewards.

    The first states are received at once, since they say which results there are. Raises `BadRequest` for others.
    """

    def __init__(self, arena: Arena, names: Sequence[str]) -> None:
        super().__init__(arena)
        self.spec, self._names = with_results(arena.spec, names), names
        self._row, self._last = np.zeros((2, arena.slots, len(names)), np.float32)
        self._rewards, self._length = np.zeros((arena.slots, len(arena.spec.rewards))), np.zeros(arena.slots, np.int64)
        self._acted = np.zeros(arena.slots, np.bool_)  # since the arena showed the slot last
        self._shown: tuple[tuple[Array, ...], tuple[Array, ...]] = (), ()  # of the arena within, and with the results
        self._first: Decisions | None = arena.recv()
        known = self._so_far(int(self._first.slots[0]))
        if wrong := [name for name in names if name not in known]:
            listed = f"; there are: {', '.join(known)}"
            raise BadRequest(
                f"no result {wrong[0]} is known during a game{nearest(wrong[0], known) or listed}", "features"
            )

    def _of_world(self, slot: int) -> Mapping[str, float]:
        """The results of the slot's present episode that the world itself knows."""
        return self.arena.results_so_far(slot) if isinstance(self.arena, ResultsSoFar) else {}

    def _so_far(self, slot: int) -> dict[str, float]:
        """The results of the slot's present episode. Rewards and decisions are those of the learner."""
        rewards = self._rewards[slot]
        names = [f"return_{name}" for name in self.spec.rewards]
        general = {"return": float(rewards.sum()), "length": float(self._length[slot])}
        return {**general, **dict(zip(names, rewards.tolist(), strict=True)), **self._of_world(slot)}

    def recv(self) -> Decisions:
        decisions, self._first = self._first or self.arena.recv(), None
        rows, failed = decisions.slots, decisions.failed
        acted = rows[self._acted[rows]]
        self._acted[rows] = False
        self._rewards[acted] += decisions.reward[acted]
        self._length[acted] += 1
        self._rewards[failed], self._length[failed] = 0, 0
        over = acted[decisions.terminated[acted] | decisions.truncated[acted]]
        results = dict(decisions.results)
        for slot in over.tolist():
            # Of a report, what the world also tells during a game: its return and length may have other scales.
            known = self._of_world(slot)
            reported = {name: x for name, x in results.get(slot, {}).items() if name in known}
            self._write(self._last, slot, {**self._so_far(slot), **reported})
        self._rewards[over], self._length[over] = 0, 0
        for slot in rows.tolist():
            self._write(self._row, slot, self._so_far(slot))
        if decisions.inputs is not self._shown[0]:  # readers check what is another tuple than before
            self._shown = decisions.inputs, (*decisions.inputs, self._row)
        return replace(decisions, inputs=self._shown[1], final=(*decisions.final, self._last))

    def _write(self, row: Array, slot: int, known: Mapping[str, float]) -> None:
        """Raises `WorldError` if the world does not report a result any more."""
        for place, name in enumerate(self._names):
            if name not in known:
                raise WorldError(f"mdp.features: slot {slot} has no result {name}; it has: {', '.join(known)}")
            row[slot, place] = known[name]

    def send(self, slots: Array, actions: Array) -> None:
        self._acted[slots] = True
        self.arena.send(slots, actions)

    def state_dict(self) -> StateDict:
        own = {"rewards": self._rewards.copy(), "length": self._length.copy(), "acted": self._acted.copy()}
        return {"arena": self.arena.state_dict(), **own}

    def load_state_dict(self, state: StateDict) -> None:
        self.arena.load_state_dict(state["arena"])
        self._rewards[...], self._length[...], self._acted[...] = state["rewards"], state["length"], state["acted"]
        self._first = None
