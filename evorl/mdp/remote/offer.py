"""What a game offers, checked, and the rows of its messages as arrays of that form.

Letters in shapes: n rows; R rewards, L entries of the legal mask, K action components, E rows that end, M results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from evorl.mdp.core import (
    Action,
    Array,
    Box,
    Decisions,
    Discrete,
    Input,
    MultiDiscrete,
    Spec,
    WorldError,
    first_choices,
    heads,
)
from evorl.mdp.decision_arrays import action_format
from evorl.mdp.remote.info import GameInfo
from evorl.mdp.remote.messages import MAX_FRAME, Ask, BoxOffer, DiscreteOffer, Hello, InputOffer, Nonsense
from evorl.mdp.remote.truth import every, some
from evorl.mdp.spec import check_result_names
from evorl.util.errors import BadRequest
from evorl.util.text import printable


class Rows(NamedTuple):
    """The rows of one or several `Ask`, as arrays. ``results`` has a row for each one that ends."""

    battle: Array  # uint32 [n]
    side: Array  # uint8 [n]
    cost: Array  # uint32 [n]
    end: Array  # uint8 [n]
    reward: Array  # float32 [n, R]
    inputs: tuple[Array, ...]  # each [n, ...]
    legal: Array | None  # bool [n, L]
    results: Array  # float64 [n, M], 0 in the rows that do not end

    def take(self, which: Array) -> Rows:
        """The rows ``which``, a mask or numbers."""
        inputs = tuple(x[which] for x in self.inputs)
        legal = None if self.legal is None else self.legal[which]
        return Rows(
            self.battle[which], self.side[which], self.cost[which], self.end[which], self.reward[which], inputs, legal,
            self.results[which],
        )  # fmt: skip

    def shows(self, decisions: Decisions, slot: int) -> bool:
        """Whether the first row is the state that a slot shows."""
        same = all(np.array_equal(a[slot], b[0]) for a, b in zip(decisions.inputs, self.inputs, strict=True))
        legal = decisions.legal
        return same and (legal is None or self.legal is None or np.array_equal(legal[slot], self.legal[0]))


class Column(NamedTuple):
    """A field of `Ask`: rows of a shape."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    row_bytes: int

    def read(self, data: memoryview, count: int) -> Array:
        """Return the rows without a copy. Raises `Nonsense` if they have another size."""
        if len(data) != (need := count * self.row_bytes):
            size, rest = divmod(len(data), max(count, 1) * self.dtype.itemsize)
            numbers = f": {size:,} numbers in each row, and {math.prod(self.shape):,} were offered" if not rest else ""
            raise Nonsense(f"sent {len(data):,} bytes as {self.name} of {count} rows, which need {need:,}{numbers}")
        return np.ndarray((count, *self.shape), self.dtype, data)


def column(name: str, dtype: np.dtype[Any], *shape: int) -> Column:
    return Column(name, dtype, shape, math.prod(shape) * dtype.itemsize)


U1, U4, F4, F8 = (np.dtype(name) for name in ("u1", "<u4", "<f4", "<f8"))
BATTLE, SIDE, COST, END = column("battle", U4), column("side", U1), column("cost", U4), column("end", U1)


class Offer:
    """A game's first message as evorl understands it. Raises `Nonsense` for one that contradicts itself."""

    def __init__(self, hello: Hello) -> None:
        self.hello = hello
        _check_names(hello)
        inputs = tuple(_input(each) for each in hello.inputs)
        _unlike("inputs", [each.name for each in inputs])
        _unlike("sides", hello.sides)
        _unlike("rewards", hello.rewards)
        _unlike("results", hello.results)
        for each in hello.inputs:
            _unlike(f"features of the input {each.name!r}", each.features)
        action = _action(hello.action)
        if hello.masked and isinstance(action, Box):
            raise Nonsense("offers masks for actions that are no choices")
        try:
            self.spec = Spec(inputs, action, hello.rewards, len(hello.sides), hello.masked)
            check_result_names(hello.results)
        except (WorldError, BadRequest) as error:
            raise Nonsense(f"offers what evorl cannot use: {error}") from None
        self._inputs = [
            column(f"input {each.name!r}", np.dtype(each.dtype).newbyteorder("<"), *each.shape) for each in inputs
        ]
        self._reward = column("reward", F4, len(hello.rewards))
        self._results = column("results", F8, len(hello.results))
        self._legal = column("legal", U1, sum(heads(action)))
        self._floats = [n for n, each in enumerate(inputs) if each.dtype == "float32"]
        kind, self.width = action_format(action)
        self.sent_dtype = np.dtype("<f4") if kind is np.float32 else np.dtype("<i4")
        self._splits = first_choices(action)
        if hello.battles * len(hello.sides) * self.row_bytes > MAX_FRAME:
            raise Nonsense(
                f"offers {hello.battles} battles at once, whose observations would not fit into {MAX_FRAME:,} bytes"
            )

    @cached_property
    def info(self) -> GameInfo:
        hello, action = self.hello, self.hello.action
        features = {each.name: each.features for each in hello.inputs if each.features and len(each.shape) == 1}
        names = action.names if isinstance(action, DiscreteOffer) else (action.names,) if action.names else ()
        return GameInfo(hello.game, self.spec, hello.sides, features, names, hello.rule, hello.repeats, hello.seconds)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row of `Ask` at most."""
        columns = BATTLE, SIDE, COST, END, self._reward, *self._inputs, self._legal, self._results
        return sum(each.row_bytes for each in columns)

    # -------------------------------------------------------------- rows

    def rows(self, asks: Sequence[Ask]) -> Rows:
        """Return the rows of messages, one after the other. Raises `Nonsense` if a column has not the offered form."""
        ask = asks[0] if len(asks) == 1 else _joined(asks)
        n = len(ask.side)
        if len(ask.inputs) != len(self._inputs):
            raise Nonsense(f"offered {len(self._inputs)} inputs and sent {len(ask.inputs)}")
        end = END.read(ask.end, n)
        results: Array = np.zeros((n, *self._results.shape))
        if some(end) or len(ask.results):
            over = np.flatnonzero(end)
            results[over] = self._results.read(ask.results, len(over))
        inputs = tuple([each.read(data, n) for each, data in zip(self._inputs, ask.inputs, strict=True)])
        legal = None
        if self.spec.masked:
            bits = self._legal.read(ask.legal, n)
            if some(bits > 1):
                raise Nonsense("sent a legal mask that is neither 0 nor 1")
            legal = bits.view(np.bool_)
        elif len(ask.legal):
            raise Nonsense("sent a legal mask, and its offer does not say masked")
        battle, side, cost = BATTLE.read(ask.battle, n), SIDE.read(ask.side, n), COST.read(ask.cost, n)
        return Rows(battle, side, cost, end, self._reward.read(ask.reward, n), inputs, legal, results)

    def faults(self, rows: Rows) -> list[tuple[int, str]]:
        """Return the rows whose content cannot be used, each with the reason."""
        bad, results = np.zeros(len(rows.end), np.bool_), tuple[Array, ...]()
        if some(rows.end):
            bad, results = rows.end > Ask.TRUNCATED, (rows.results,)  # which are 0 in all other rows
        for x in (rows.reward, *results, *(rows.inputs[k] for k in self._floats)):
            if not every(fine := np.isfinite(x)):
                bad |= ~fine.reshape(len(bad), -1).all(1)
        if rows.legal is not None and not every(choice := np.logical_or.reduceat(rows.legal, self._splits, axis=1)):
            bad |= ~choice.all(1) & (rows.end != Ask.TERMINATED)
        return [(row, self._fault(rows, row)) for row in np.flatnonzero(bad).tolist()] if some(bad) else []

    def _fault(self, rows: Rows, row: int) -> str:
        """Say what is wrong with a row, with the names that the game gave."""
        if rows.end[row] > Ask.TRUNCATED:
            return f"an end of {rows.end[row]}; 0 to 2 may be"
        for values, names in ((rows.reward, self.hello.rewards), (rows.results, self.hello.results)):
            for name, value in zip(names, values[row].tolist(), strict=True):
                if not math.isfinite(value):
                    return f"{name} is {value}"
        for k in self._floats:
            place = np.argwhere(~np.isfinite(rows.inputs[k][row]))
            if len(place):
                return f"{_place(self.hello.inputs[k], place[0].tolist())} is {rows.inputs[k][row][tuple(place[0])]}"
        return "no action is legal"


def _joined(asks: Sequence[Ask]) -> Ask:
    """The rows of several messages in one."""
    if any(len(ask.inputs) != len(asks[0].inputs) for ask in asks):
        raise Nonsense("sent different numbers of inputs")
    names = ("battle", "side", "cost", "end", "reward", "legal", "results")
    columns = {name: memoryview(b"".join([getattr(ask, name) for ask in asks])) for name in names}
    inputs = tuple(memoryview(b"".join(each)) for each in zip(*(ask.inputs for ask in asks), strict=True))
    return Ask(heard=asks[-1].heard, inputs=inputs, **columns)


def _place(offered: InputOffer, place: list[int]) -> str:
    if offered.features and place:
        return f"the feature {offered.features[place[0]]!r} of {offered.name}"
    return f"{offered.name}{place}"


def _input(offered: InputOffer) -> Input:
    size = math.prod(offered.shape)
    if size * 4 > MAX_FRAME:
        raise Nonsense(f"offers the input {offered.name!r} of {size:,} numbers")
    if offered.features and offered.shape[:1] != (len(offered.features),):
        raise Nonsense(
            f"names {len(offered.features)} features of the input {offered.name!r} of the shape {list(offered.shape)}"
        )
    return Input(offered.name, offered.shape, offered.dtype)


def _action(offered: DiscreteOffer | BoxOffer) -> Action:
    if isinstance(offered, DiscreteOffer):
        if offered.names and tuple(map(len, offered.names)) != offered.n:
            raise Nonsense(f"offers {list(offered.n)} choices and names {[len(names) for names in offered.names]}")
        return Discrete(offered.n[0]) if len(offered.n) == 1 else MultiDiscrete(offered.n)
    box = Box(offered.low, offered.high)
    box = Box(_inwards(box.low, np.inf), _inwards(box.high, -np.inf))
    if len(box.low) != len(box.high) or not every(np.array(box.low, np.float32) < np.array(box.high, np.float32)):
        raise Nonsense("offers actions whose bounds are not low < high as float32")
    if offered.names and len(offered.names) != len(offered.low):
        raise Nonsense(f"names {len(offered.names)} components of an action of {len(offered.low)}")
    return box


def _inwards(bounds: Sequence[float], inside: float) -> tuple[float, ...]:
    """Return the nearest float32 of bounds that is within; ``inside``: infinite, on that side of them.

    Actions are sent as float32, and the nearest one of a game's 0.1 is more than 0.1.
    """
    exact, near = np.array(bounds), np.array(bounds, np.float32)
    outside = near.astype(np.float64) < exact if inside > 0 else near.astype(np.float64) > exact
    return tuple(np.where(outside, np.nextafter(near, np.float32(inside)), near).tolist())


def _check_names(hello: Hello) -> None:
    """Raise `Nonsense` for a name that would not be printed as it is."""
    names = [hello.game, *hello.sides, *hello.rewards, *hello.results]
    for each in hello.inputs:
        names += [each.name, *each.features]
    for named in hello.action.names:
        names += [named] if isinstance(named, str) else named
    if odd := [name for name in names if printable(name) != name]:
        raise Nonsense(f"gives the name {odd[0]!r}, which has signs that cannot be printed")


def _unlike(what: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise Nonsense(f"gives two of its {what} the same name")
