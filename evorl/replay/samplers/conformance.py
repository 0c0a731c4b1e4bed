"""Conformance test of samplers: it draws from a memory round after round and reports the first broken rule.

`check_transitions` is for samplers of transitions and sequences, `check_rollouts` for those of rollouts.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from evorl.mdp.core import Input
from evorl.replay.part import Part
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.replay.samplers.core import Memory, Sampler
from evorl.replay.stacks import put_together, take_apart
from evorl.util import seed as seeds
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.conformance import require as require

T, F = 3, 4  # decisions of a rollout, numbers of a feature vector
INPUTS = (Input("number", (), "uint8"), Input("stack", (3, 2), "uint8", stacked=True))
Make = Callable[[int], Sampler]
"""Makes a sampler for a memory with so many rows."""


# ------------------------------------------------------------------ transitions


class ToyTransitions(Memory):
    """A memory of transitions, with features that differ from one to the next."""

    def current(self, step: int) -> int:
        return self.count - 1

    def features(self, items: Numbers) -> Array:
        return np.array([seeds.generator("features", int(n)).standard_normal((1, F)) for n in items])


def check_transitions(make: Make, sizes: tuple[int, ...] = (1, 4, 9), rounds: int = 24) -> None:
    """Raise `Nonconformity`, with one sentence, unless the sampler that ``make`` makes keeps these rules.

    * A sample has as many transitions as were asked for, all of them such as may be read at that time.
    * A sample is a function of the key, the gradient step, what the memory holds and the sampler's state, however many
      minibatches are drawn at once. Other keys and other steps give other samples.
    * A sampler with a restored state goes on with the same samples.
    * One that weighs has a weight above 0 and up to 1 for each transition.
    """
    rows, new = 64, 10
    sampler, differs = make(rows), {"key": False, "gradient step": False}
    for step in range(rounds):
        count, size = (step + 1) * new, sizes[step % len(sizes)]
        low = max(count - rows + step % 3, 0)  # of a ring that also forgets early
        memory = ToyTransitions(rows, count, low, count - low)
        twin = make(rows)
        twin.load_state_dict(sampler.state_dict())
        drawn = sampler.draw(memory, 1, range(step, step + 2), size)
        require(drawn.shape == (2, size), f"{size} transitions were asked for, and it gave {drawn.shape[-1]}")
        readable = (drawn >= low) & (drawn < count)
        require(bool(readable.all()), "it gives a transition that may not be read")
        repeated = [twin.draw(memory, 1, range(u, u + 1), size)[0] for u in (step, step + 1)]
        require(bool((np.array(repeated) == drawn).all()), "the same state gives other samples")
        for name, (key, first) in (("key", (2, step)), ("gradient step", (1, step + rounds))):
            other = sampler.draw(memory, key, range(first, first + 2), size)
            differs[name] |= bool((other != drawn).any())
        _check_weights(sampler, drawn)
        sampler.learned(drawn, seeds.generator("error", step).random(drawn.shape))
    for name, differed in differs.items():
        require(differed, f"another {name} gives the same samples")


def _check_weights(sampler: Sampler, items: Numbers) -> None:
    weights = sampler.weights(items)
    require((weights is not None) == sampler.weighs, "it has weights and does not say so, or says so and has none")
    if weights is not None:
        require(weights.shape == items.shape, f"it has {weights.size} weights for {items.size} items")
        require(bool(((weights > 0) & (weights <= 1)).all()), "a weight is not above 0 and up to 1")


# ------------------------------------------------------------------ rollouts


def toy_rollouts(first: int, count: int) -> dict[str, Array]:
    """Rollouts of `INPUTS` whose states say their number, with features that differ from one to the next."""
    number = first + np.arange(count)
    draws = [seeds.generator("features", int(n)) for n in number]
    columns = [(draw.standard_normal((T, F)).astype(np.float32), *_toy_stacks(draw)) for draw in draws]
    features, start, stacks = zip(*columns, strict=True)
    return {
        "input 0": np.repeat(number, T + 1).reshape(count, T + 1).astype(np.uint8),
        "input 1": np.stack(stacks), "start": np.stack(start), "features": np.stack(features),
    }  # fmt: skip


def _toy_stacks(draw: np.random.Generator) -> tuple[Array, Array]:
    """Where episodes start [T+1], and stacks [T+1, 3, 2]; the first state may be a later one of its episode."""
    start, frames = draw.random(T + 1) < 0.3, draw.integers(0, 256, (T + 3, 2), np.uint8)
    stacks = [np.stack([frames[2]] * 3) if start[0] else frames[:3]]
    for t in range(1, T + 1):
        new = frames[t + 2]
        stacks.append(np.stack([new] * 3) if start[t] else np.concatenate([stacks[-1][1:], new[None]]))
    return start, np.stack(stacks)


def encode(rollouts: Columns) -> Array:
    """The features of a network that has moved since, by more in some rollouts than in others."""
    moved: Array = rollouts["features"] + rollouts["input 0"][:, :1, None].astype(np.float32) % 7 / 10
    return moved


def check_rollouts(
    make: Make, rows: int, sizes: tuple[int, ...] = (1, 4, 9), rounds: int = 40, compress: bool = False
) -> None:
    """Raise `Nonconformity`, with one sentence, unless a part with the sampler that ``make`` makes keeps these rules.

    * It holds at most ``rows`` rollouts, and those that arrived last.
    * A sample has as many places as were asked for, all of rollouts that it holds.
    * A rollout comes back as it arrived, under its number, and times of arrival and of samples are counted. It arrives
      with its stacks of frames taken apart.
    * A sample is a function of the key, the gradient step and what the part holds.
    * A part with a restored state goes on with the same samples, and rollouts of other shapes leave it empty. A state
      of compressed rollouts fits a part that does not compress, and the other way round.
    * A sampler that weighs has a weight above 0 and up to 1 for each rollout.
    """

    def made(compressed: bool) -> Part:
        part = Part(make(rows), rows, take_apart(toy_rollouts(0, 1), INPUTS))
        if compressed:
            part.rollouts.compress()
        return part

    part = made(compress)
    for step in range(rounds):
        size, arriving = sizes[step % len(sizes)], max(sizes) if step == 0 else sizes[step % len(sizes)]
        part.insert(take_apart(toy_rollouts(part.count, arriving), INPUTS), step, 1, encode)
        require(part.held <= part.capacity, f"it holds {part.held} rollouts, with a capacity of {part.capacity}")
        numbers = part.number[: part.held]
        require(len({*numbers.tolist()}) == part.held, "it holds a rollout twice")
        last = range(part.count - min(arriving, part.capacity), part.count)
        require({*last} <= {*numbers.tolist()}, "a rollout that arrived just now is not there")
        _check_contents(part, np.arange(part.held))
        twin = _restored(made(not compress), part)
        before, places = part.chosen.copy(), part.sample(size, step, 1, encode)
        require(places.shape == (size,), f"{size} rollouts were asked for, and it gave {len(places)}")
        require(bool(((places >= 0) & (places < part.held)).all()), "it samples from a place that holds nothing")
        require(bool((twin.sample(size, step, 1, encode) == places).all()), "the same state gives other samples")
        require(
            bool((part.chosen - before == np.bincount(places, minlength=part.capacity)).all()), "it miscounts samples"
        )
        error = seeds.generator("error", step).standard_normal((size, T))
        _check_weights(part.sampler, places)
        part.sampler.learned(places, error)
    other = {**toy_rollouts(0, 1), "input 0": np.zeros((1, T + 5), np.uint8)}
    stranger = Part(make(rows), rows, other)
    stranger.load_state_dict(part.state_dict())
    require(stranger.count == 0, "it took rollouts of other shapes")


def _check_contents(part: Part, places: Numbers) -> None:
    for name, x in put_together(part.rollouts.take(places), INPUTS).items():
        wanted = np.concatenate([toy_rollouts(int(n), 1)[name] for n in part.number[places]])
        require(bool((x == wanted).all()), f"{name} of a rollout is not what arrived under its number")


def _restored(twin: Part, part: Part) -> Part:
    twin.load_state_dict(part.state_dict())
    require(twin.count == part.count, "its state does not bring its rollouts back")
    for name in ("number", "born", "chosen"):
        same = (getattr(twin, name)[: part.held] == getattr(part, name)[: part.held]).all()
        require(bool(same), f"its state does not bring {name} back")
    return twin
