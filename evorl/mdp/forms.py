"""Whether data of a world, or for a policy, has its declared form. NumPy would convert or broadcast most other data in
silence.

The shape must be the declared one; only a single number may have the shape () or (1,). Where floats are declared,
integers and booleans will do. Where integers are declared, floats are refused, and so are integers out of range. A mask
is boolean, or integers 0 and 1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

import numpy as np

from evorl.mdp.core import Array, Decisions, Spec, WorldError, heads
from evorl.util.errors import Failure, nearest_or_all

LOG = logging.getLogger("evorl")
_KINDS = {"f": "fiub", "i": "iub", "u": "iub", "b": "biu"}
"""Kind of a declared dtype -> the kinds of data that it takes."""


class Mismatch(WorldError, Failure):
    """Data of a world, or for a policy, does not have its declared form. The message is one line."""


class NoResult(Mismatch):
    """The last info of an episode has no number under a name that ``mdp.results`` asks for."""

    @classmethod
    def named(cls, name: str, info: Mapping[str, Any], of: str) -> Self:
        """The error for a name that the last info ``of`` an environment, or of an agent, does not have."""
        names = sorted(map(str, info)) or ["nothing"]
        return cls(f"the last info of {of} has no {name!r}{nearest_or_all(name, names)}")


class Form:
    """The declared form of one array. ``bounds`` are the least and the greatest value.

    In messages it is ``name``, and ``giver`` is who gave what does not fit.
    """

    def __init__(
        self, name: str, shape: tuple[int, ...], dtype: Any, bounds: tuple[float, float] | None = None,
        giver: str = "the world",
    ) -> None:  # fmt: skip
        self.name, self.shape, self.dtype, self.giver = name, shape, np.dtype(dtype), giver
        self._kinds = _KINDS[self.dtype.kind]
        self._bounds = bounds
        if self.dtype.kind in "iu" and bounds is None:
            self._bounds = int(np.iinfo(self.dtype).min), int(np.iinfo(self.dtype).max)
        elif self.dtype.kind == "b":
            self._bounds = 0, 1
        self._always = bounds is not None  # whether data of the declared dtype may be out of range, too
        self._number = int(np.prod(shape)) == 1
        self._resolution = Resolution(name) if self.dtype.kind in "fiu" and self.dtype.itemsize > 1 else None
        watched = self._resolution is not None and self.dtype != np.float32
        self._exact = None if self._always or watched else self.dtype  # arrays of it fit if their shape does

    def named(self, name: str) -> Form:
        """Return this form under another name."""
        return self._with(name, self.giver)

    def given_by(self, giver: str) -> Form:
        """Return this form of data that another one gives."""
        return self._with(self.name, giver)

    def _with(self, name: str, giver: str) -> Form:
        return Form(name, self.shape, self.dtype, self._bounds if self._always else None, giver)

    def fit(self, value: Any, batch: tuple[int, ...] = (), watch: str = "") -> Array:
        """Return a value [*batch, *shape] as an array. Raises `Mismatch` if it does not have the declared form.

        ``watch``: the world's name, if successive values are those of one slot. A warning then names the inputs whose
        values float32 cannot distinguish.
        """
        if not batch and self.fits(value):
            same: Array = value  # as below, in a third of the time; most data is like this
            return same
        x = value if type(value) is np.ndarray else as_array(value)
        shape = (*batch, *self.shape)
        if x.shape != shape and not (self._number and x.shape in (batch, (*batch, 1))):
            raise self._mismatch(x, batch)
        if (x.dtype != self.dtype or self._always) and self._loses(x):
            raise self._mismatch(x, batch)
        if watch and self._resolution is not None and x.dtype.itemsize > 2 and x.dtype != np.float32:
            self._resolution.see(x, watch)
        return x if x.shape == shape else x.reshape(shape)

    def fits(self, value: Any) -> bool:
        """Whether a value is an array [*shape] of just the declared dtype, all of whose numbers are allowed."""
        return type(value) is np.ndarray and value.dtype is self._exact and value.shape == self.shape

    def _loses(self, x: Array) -> bool:
        """Whether the kind of the numbers, or one of them, is not as declared."""
        if x.dtype.kind not in self._kinds:
            return True
        if self._bounds is None or not x.size or (not self._always and np.can_cast(x.dtype, self.dtype)):
            return False
        low, high = self._bounds
        if x.ndim == 0:
            return not low <= x.item() <= high
        return bool(x.min() < low or x.max() > high)

    def _mismatch(self, x: Array, batch: tuple[int, ...]) -> Mismatch:
        low, high = self._bounds or (None, None)
        within = "" if low is None or self.dtype.kind == "b" else f" from {low:g} to {high:g}"
        declared = f"{self.dtype} {[*batch, *self.shape]}{within}"
        return Mismatch(f"{self.name} is declared {declared}, and {self.giver} gave {_described(x)}")


def as_array(value: Any) -> Array:
    """Return data as an array; one of objects without a shape where it is ragged, which fits no form."""
    if hasattr(value, "detach"):  # a tensor of PyTorch, which may have a gradient, or be on a GPU
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except ValueError:  # a ragged list
        return np.empty((), object)


def _described(x: Array) -> str:
    if x.dtype == object:
        return f"{x[()]!r}" if x.shape == () and x[()] is not None else "None, or no array"
    numbers = x.size and x.dtype.kind in "biuf"
    extent = f" with numbers from {_short(x.min())} to {_short(x.max())}" if numbers else ""
    return f"{x.dtype} {list(x.shape)}{extent}"


def _short(number: Any) -> str:
    return f"{float(number):.6g}"


def check_arrays(decisions: Decisions, spec: Spec, slots: int) -> None:
    """Raise `Mismatch` unless the arrays of an arena with so many slots have the shapes and dtypes of its spec."""
    check_array("reward", decisions.reward, (slots, len(spec.rewards)), "float32")
    check_array("terminated", decisions.terminated, (slots,), "bool")
    check_array("truncated", decisions.truncated, (slots,), "bool")
    check_inputs("inputs", decisions.inputs, spec, slots)
    check_inputs("final", decisions.final, spec, slots)
    check_mask("legal", decisions.legal, spec, slots)
    if decisions.final_legal is not None:
        check_mask("final_legal", decisions.final_legal, spec, slots)


def check_inputs(name: str, arrays: tuple[Array, ...], spec: Spec, slots: int) -> None:
    """Raise `Mismatch` unless these are the arrays [B, ...] of the spec's inputs for B = slots."""
    if len(arrays) != len(spec.inputs):
        raise Mismatch(f"{name} has {len(arrays)} arrays, the spec has {len(spec.inputs)}")
    for entry, array in zip(spec.inputs, arrays, strict=True):
        check_array(f"{name} {entry.name!r}", array, (slots, *entry.shape), entry.dtype)


def check_mask(name: str, legal: Array | None, spec: Spec, slots: int) -> None:
    """Raise `Mismatch` unless this is a legal mask [B, L] of the spec, or None if it declares none."""
    if (legal is not None) != spec.masked:
        raise Mismatch(f"{name} and the spec's masked={spec.masked} contradict each other")
    if legal is not None:
        check_array(name, legal, (slots, sum(heads(spec.action))), "bool")


def check_array(name: str, array: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Raise `Mismatch` unless an array has exactly this shape and dtype."""
    form = (getattr(array, "shape", None), str(getattr(array, "dtype", type(array).__name__)))
    if form != (shape, dtype):
        raise Mismatch(f"{name} must be {dtype} {list(shape)}, not {form[1]} {list(form[0] or ())}")


# ------------------------------------------------------------------ numbers that float32 cannot tell apart

_STRICT: ContextVar[bool] = ContextVar("strict", default=False)
_WARNED: set[tuple[str, str]] = set()


@contextmanager
def strict() -> Iterator[None]:
    """Raise `Mismatch` where `Resolution` would only warn."""
    token = _STRICT.set(True)
    try:
        yield
    finally:
        _STRICT.reset(token)


class Resolution:
    """Watches the first values of an input for changes that are lost in float32, such as those of time stamps.

    Warns once if at least half of the changes of a number (`CHANGES` or more) vanish, and all its values lie within
    256 steps of float32. So a number that comes to rest causes no warning, and rounding in float64 is no change.
    """

    VALUES = 512
    CHANGES = 8

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen = 0
        nothing: Array = np.zeros(0)
        self._last: Array = nothing
        self._low: Array = nothing
        self._high: Array = nothing
        self._changed: Array = nothing
        self._lost: Array = nothing

    def see(self, x: Array, world: str) -> None:
        """Look at the next value of a world. Raises `Mismatch` instead of a warning within `strict`."""
        if self._seen >= self.VALUES:
            return
        present = x.astype(np.float64).ravel()
        if self._seen == 0:
            self._low, self._high = present.copy(), present.copy()
            self._changed, self._lost = np.zeros((2, present.size), np.int64)
        else:
            self._compare(present, world)
        self._seen, self._last = self._seen + 1, present

    def _compare(self, present: Array, world: str) -> None:
        before = self._last
        with np.errstate(over="ignore", invalid="ignore"):  # others refuse what is not finite
            changed = np.abs(present - before) > np.abs(present) * 2.0**-46
            lost = changed & (present.astype(np.float32) == before.astype(np.float32))
            self._changed += changed
            self._lost += lost
            np.minimum(self._low, present, out=self._low)
            np.maximum(self._high, present, out=self._high)
            step = np.spacing(np.maximum(np.abs(self._low), np.abs(self._high)).astype(np.float32))
            narrow = self._high - self._low < 256 * step
        for place in np.flatnonzero(
            lost & narrow & (self._changed >= self.CHANGES) & (2 * self._lost >= self._changed)
        ):
            self._seen = self.VALUES
            return _report(
                world,
                self._name,
                f"{self._name} has numbers that float32, in which policies compute, cannot tell apart "
                f"({float(before[place])!r} and {float(present[place])!r}): subtract a constant there",
            )


def _report(world: str, name: str, text: str) -> None:
    if _STRICT.get():
        raise Mismatch(text)
    if (world, name) not in _WARNED:
        _WARNED.add((world, name))
        LOG.warning("%s: %s", world, text)
