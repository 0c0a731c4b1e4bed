"""Conformance test of evolvers: it asks and tells, and reports the first broken rule.

The evaluations are a toy's: the nearer genes and weights are to 0.4, the better.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evorl.ec.core import Evaluation, Evolver, IndependentEvolution, Individual
from evorl.ec.space import Gene, Space
from evorl.util import seed as seeds
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.conformance import require as require

WEIGHTS = 5  # of an individual
GENES = (
    Gene("lr", 1e-5, 1e-1, log=True),
    Gene("gamma", 0.5, 0.9),
    Gene("kind", choices=("a", "b", "c")),
    Gene("fixed", 2, 2),
)
Evaluate = Callable[[Individual], Evaluation]


def fresh(number: int) -> NDArray[np.float32]:
    """Initial weights [5] of an individual."""
    return seeds.generator("conformance", number).standard_normal(WEIGHTS).astype(np.float32)


SPACES = {
    "genes and weights": Space(GENES, WEIGHTS, fresh, (2, 3)),
    "genes": Space(GENES),
    "weights": Space((), WEIGHTS, fresh, (2, 3)),
}


def check(evolution: IndependentEvolution, spaces: Sequence[str] = tuple(SPACES), evaluations: int = 40) -> None:
    """Raise `Nonconformity`, with one sentence, unless the evolvers of these hyper-parameters keep these rules.

    ``spaces``: those of `SPACES` that they can search. A population of about 6 makes it fast.

    * Individuals have ids of their own, genes within their ranges, finite weights of the space's number in float32,
      parents among those that came before them, and a role.
    * A generation ends when `tell` has received all of it, in any order, with the same result. With ``asynchronous``,
      it proposes an individual for each free slot.
    * An evolver with a restored state goes on with the same proposals, wherever it was saved. The state is plain data.
    * The same seed gives the same proposals, and another seed others.
    * An individual that failed is no parent. When all fail, and when many are equal or infinite, it goes on.
    """
    for asynchronous in (False, True):
        for name in spaces:
            try:
                _check(replace(evolution, asynchronous=asynchronous), SPACES[name], evaluations)
            except AssertionError as error:
                mode = "asynchronous" if asynchronous else "by generations"
                raise Nonconformity(f"searching {name}, {mode}: {error}") from error


def _check(evolution: IndependentEvolution, space: Space, evaluations: int) -> None:
    several = evolution.several

    def evaluate(individual: Individual) -> Evaluation:
        return evaluated(individual, several)

    def fail(individual: Individual) -> Evaluation:
        return evaluate(individual)._replace(objectives=(math.nan,) * (1 + several))

    def tie(individual: Individual) -> Evaluation:
        values = (0.0, 0.0, 0.0, -math.inf, -1e308, 1e308)
        return evaluate(individual)._replace(objectives=(values[individual.id % len(values)],) * (1 + several))

    def fail_often(individual: Individual) -> Evaluation:
        return fail(individual) if individual.id % 3 == 1 else evaluate(individual)

    _check_individuals(evolution.evolver(space, 3).ask(4), space)
    individuals, evolver = drive(evolution.evolver(space, 3), evaluate, evaluations, slots=4)
    for each in (
        individuals,
        *(drive(evolution.evolver(space, 3), outcome, evaluations, slots=3)[0] for outcome in (fail, tie)),
    ):
        _check_individuals(each, space)
    require(len(evolver.population) > 0, "its population is empty after a generation")
    _check_resume(evolution, space, evaluate, evaluations)
    if not evolution.asynchronous:
        _check_order(evolution, space, evaluate, evaluations)
    else:
        require(len(evolution.evolver(space, 3).ask(4)) == 4, "it leaves a slot free")
    _check_seeds(evolution, space, evaluate, evaluations)
    chosen, _ = drive(evolution.evolver(space, 3), fail_often, evaluations, slots=3)
    bad = {individual.id for individual in chosen if individual.id % 3 == 1}
    require(
        not any(bad & {*individual.parents} for individual in chosen),
        "an individual that failed (evorl.ec.core.failed) is a parent",
    )


def _check_individuals(individuals: Sequence[Individual], space: Space) -> None:
    ids = [individual.id for individual in individuals]
    require(len({*ids}) == len(ids), "two individuals have the same id")
    for n, individual in enumerate(individuals):
        genes, weights, who = individual.genes, individual.weights, f"individual {individual.id}"
        shaped = genes.shape == (len(space.genes),) and genes.dtype == np.float64
        require(shaped, f"{who} must have {len(space.genes)} genes in float64, and has {genes.shape} {genes.dtype}")
        require(bool(((genes >= space.low) & (genes <= space.high)).all()), f"{who} has a gene out of its range")
        if space.weights == 0:
            require(weights is None, f"{who} has weights, and the space has none")
        else:
            fine = weights is not None and weights.shape == (space.weights,) and weights.dtype == np.float32
            fine = fine and bool(np.isfinite(np.asarray(weights)).all())
            require(fine, f"{who} lacks {space.weights} finite weights in float32")
        require({*individual.parents} <= {*ids[:n]}, f"{who} has a parent that did not come before it")
        require(bool(individual.role), f"{who} has no role")


def _check_order(evolution: IndependentEvolution, space: Space, evaluate: Evaluate, evaluations: int) -> None:
    proposals = evolution.evolver(space, 3).ask()
    require(len(proposals) > 0, "it proposes nobody at first")
    whole, _ = drive(evolution.evolver(space, 3), evaluate, evaluations, order=lambda waiting: waiting[:])
    for slots in (None, 2, 4):
        other, _ = drive(
            evolution.evolver(space, 3), evaluate, evaluations, slots=slots, order=lambda waiting: waiting[-1:]
        )
        n = min(len(whole), len(other))
        same([x._asdict() for x in whole[:n]], [x._asdict() for x in other[:n]], "the order of telling changes it")


def _check_resume(evolution: IndependentEvolution, space: Space, evaluate: Evaluate, evaluations: int) -> None:
    def resumed(evolver: Evolver) -> Evolver:
        plain(evolver.state_dict())
        restored = evolution.evolver(space, 3)
        restored.load_state_dict(copy.deepcopy(evolver.state_dict()))
        same(restored.state_dict(), evolver.state_dict(), "a restored state is another one")
        return restored

    whole, ended = drive(evolution.evolver(space, 3), evaluate, evaluations, slots=4)
    individuals, other = drive(evolution.evolver(space, 3), evaluate, evaluations, slots=4, after=resumed)
    why = "after its state was saved and restored it goes another way"
    same([x._asdict() for x in individuals], [x._asdict() for x in whole], why)
    same(other.state_dict(), ended.state_dict(), why)


def _check_seeds(evolution: IndependentEvolution, space: Space, evaluate: Evaluate, evaluations: int) -> None:
    def proposals(seed: int) -> list[list[float]]:
        individuals = drive(evolution.evolver(space, seed), evaluate, evaluations, slots=3)[0]
        return [[*x.genes, *(() if x.weights is None else x.weights)] for x in individuals]

    require(proposals(5) == proposals(5), "the same seed gives other proposals")
    require(proposals(5) != proposals(6), "another seed gives the same proposals")


# ------------------------------------------------------------------ what tests of evolvers share


def evaluated(individual: Individual, several: bool = False) -> Evaluation:
    """A sound evaluation, with two objectives if ``several``; the weights come back a little changed, as after
    training."""
    weights = individual.weights
    x = np.concatenate([individual.genes, weights if weights is not None else []])
    f = (float(-np.sum((x - 0.4) ** 2)), float(-np.sum((x + 0.1) ** 2)))
    after = individual if weights is None else individual._replace(weights=weights * np.float32(0.99))
    return Evaluation(after, f[: 1 + several], 10, {"score": np.array([f[0], f[1]])})


def drive(
    evolver: Evolver,
    evaluate: Evaluate,
    evaluations: int = 30,
    slots: int | None = None,
    order: Callable[[list[Individual]], list[Individual]] = lambda waiting: waiting[:1],
    after: Callable[[Evolver], Evolver] = lambda evolver: evolver,
) -> tuple[list[Individual], Evolver]:
    """Run an evolver with so many evaluations in flight; return all individuals that it proposed, and the evolver at
    the end."""
    individuals: list[Individual] = []
    waiting: list[Individual] = []
    count = 0
    while count < evaluations:
        new = evolver.ask(None if slots is None else slots - len(waiting)) if not waiting or slots else []
        individuals, waiting, evolver = individuals + new, waiting + new, after(evolver)
        require(len(waiting) > 0, "it neither proposes nor waits for anybody")
        chosen = order(waiting)
        ids = {individual.id for individual in chosen}
        waiting = [individual for individual in waiting if individual.id not in ids]
        evolver.tell([evaluate(individual) for individual in chosen])
        evolver, count = after(evolver), count + len(chosen)
    return individuals, evolver


def same(a: Any, b: Any, why: str = "they differ") -> None:
    """Require two nested values to be equal to the last bit, NaN included."""
    require(type(a) is type(b), why)
    if isinstance(a, dict):
        require(a.keys() == b.keys(), why)
        for key in a:
            same(a[key], b[key], why)
    elif isinstance(a, list | tuple):
        require(len(a) == len(b), why)
        for x, y in zip(a, b, strict=True):
            same(x, y, why)
    elif isinstance(a, np.ndarray):
        require(a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"), why)
    else:
        require(a == b or (a != a and b != b), why)


def plain(state: Any) -> None:
    """Require a state that a checkpoint can hold: nested, of arrays and JSON scalars."""
    if isinstance(state, dict):
        require(all(isinstance(key, str) for key in state), "its state has a key that is no string")
        state = list(state.values())
    if isinstance(state, list | tuple):
        for part in state:
            plain(part)
    else:
        held = state is None or type(state) in (bool, int, float, str, np.ndarray)
        require(held, f"its state holds a {type(state).__name__}, which a checkpoint cannot")
        require(not isinstance(state, np.ndarray) or state.dtype.kind in "biuf", "its state has an array of objects")
