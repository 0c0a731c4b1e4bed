"""Conformance test of a part of a replay: `check` fills it, samples from it and reports the first broken rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evorl.replay.parts.core import Part
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.util import seed as seeds

T, F = 3, 4  # decisions of a rollout, numbers of a feature vector


class Nonconformity(AssertionError):
    """The part breaks a rule; the message says which."""


def toy_rollouts(first: int, count: int) -> dict[str, Array]:
    """Rollouts whose states say their number, with features that differ from one to the next."""
    number = first + np.arange(count)
    features = [seeds.generator("features", int(n)).standard_normal((T, F)).astype(np.float32) for n in number]
    return {
        "input 0": np.repeat(number, T + 1).reshape(count, T + 1).astype(np.uint8),
        "features": np.array(features, np.float32).reshape(count, T, F),
    }


def encode(rollouts: Columns) -> Array:
    """The features of a network that has moved since, by more in some rollouts than in others."""
    moved: Array = rollouts["features"] + rollouts["input 0"][:, :1, None].astype(np.float32) % 7 / 10
    return moved


def check(make: Callable[[Columns], Part], sizes: tuple[int, ...] = (1, 4, 9), rounds: int = 40) -> None:
    """Raise `Nonconformity`, with one sentence, unless the part that ``make`` makes keeps these rules.

    * It holds at most ``capacity`` rollouts, and those that arrived last.
    * A sample has as many places as were asked for, all of rollouts that it holds.
    * A rollout comes back as it arrived, under its number, and times of arrival and of samples are counted.
    * A sample is a function of the key, the gradient step and what the part holds.
    * A part with a restored state goes on with the same samples, and rollouts of other shapes leave it empty.
    """
    part = make(toy_rollouts(0, 1))
    for step in range(rounds):
        size, arriving = sizes[step % len(sizes)], max(sizes) if step == 0 else sizes[step % len(sizes)]
        part.insert(toy_rollouts(part.count, arriving), step, 1, encode)
        _require(part.held <= part.capacity, f"it holds {part.held} rollouts, with a capacity of {part.capacity}")
        numbers = part.number[: part.held]
        _require(len({*numbers.tolist()}) == part.held, "it holds a rollout twice")
        last = range(part.count - min(arriving, part.capacity), part.count)
        _require({*last} <= {*numbers.tolist()}, "a rollout that arrived just now is not there")
        _check_contents(part, np.arange(part.held))
        twin = _restored(make, part)
        before, places = part.chosen.copy(), part.sample(size, step, 1, encode)
        _require(places.shape == (size,), f"{size} rollouts were asked for, and it gave {len(places)}")
        _require(bool(((places >= 0) & (places < part.held)).all()), "it samples from a place that holds nothing")
        _require(bool((twin.sample(size, step, 1, encode) == places).all()), "the same state gives other samples")
        _require(
            bool((part.chosen - before == np.bincount(places, minlength=part.capacity)).all()), "it miscounts samples"
        )
        error = seeds.generator("error", step).standard_normal((size, T))
        part.learned(places, error)
    other = {**toy_rollouts(0, 1), "input 0": np.zeros((1, T + 5), np.uint8)}
    stranger = make(other)
    stranger.load_state_dict(part.state_dict())
    _require(stranger.count == 0, "it took rollouts of other shapes")


def _check_contents(part: Part, places: Numbers) -> None:
    for name, x in part.rollouts.take(places).items():
        wanted = np.concatenate([toy_rollouts(int(n), 1)[name] for n in part.number[places]])
        _require(bool((x == wanted).all()), f"{name} of a rollout is not what arrived under its number")


def _restored(make: Callable[[Columns], Part], part: Part) -> Part:
    twin = make(toy_rollouts(0, 1))
    twin.load_state_dict(part.state_dict())
    _require(twin.count == part.count, "its state does not bring its rollouts back")
    for name in ("number", "born", "chosen"):
        same = (getattr(twin, name)[: part.held] == getattr(part, name)[: part.held]).all()
        _require(bool(same), f"its state does not bring {name} back")
    return twin


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise Nonconformity(sentence)
