"""The outcome of an individual as a worker sends it, and as an evolver receives it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from numpy.typing import NDArray

from evorl.ec.core import Evaluation, Evolution, Individual
from evorl.mdp.core import EpisodeFailed
from evorl.rl.core import NotFinite
from evorl.util.errors import BadRequest, reason
from evorl.util.types import StateDict

Array = NDArray[Any]
WITHOUT_RESULT = (NotFinite, EpisodeFailed)
"""What ends the evaluation of an individual, which then has no fitness; the run goes on."""


class IndividualResult(NamedTuple):
    """The outcome of one individual, as a worker sends it: plain data and arrays."""

    objectives: list[float]
    cost: int  # environment steps
    result: dict[str, Array]  # by name, one number per episode [E]
    weights: Array | None  # [D]; None if unchanged
    memory: StateDict | None  # None if unchanged
    failed: str  # the reason if the individual has no objectives, else ""
    seconds: float = 0.0  # wall time; an equal share if several were evaluated together


class TaskResult(NamedTuple):
    """The outcomes of the individuals of one task."""

    each: Sequence[Any]  # an `IndividualResult` each, in order; a plain sequence after it was sent as a message
    seen: StateDict | None = None  # statistics of all observed inputs, if the population shares them


def to_evaluation(individual: Individual, answer: Sequence[Any]) -> tuple[Evaluation, str, float]:
    """Return the evaluation of an individual, the reason of its failure ("" if none) and its wall time in seconds."""
    result = IndividualResult(*answer)
    if result.weights is not None:
        individual = individual._replace(weights=result.weights)
    if result.memory is not None:
        individual = individual._replace(memory=result.memory)
    return Evaluation(individual, tuple(result.objectives), result.cost, result.result), result.failed, result.seconds


def with_seconds(
    evaluate: Callable[[list[Individual]], list[IndividualResult]], individuals: list[Individual]
) -> list[IndividualResult]:
    """Evaluate the individuals; each result holds an equal share of the wall time."""
    began = time.monotonic()
    answers = evaluate(individuals)
    share = (time.monotonic() - began) / len(answers)
    return [answer._replace(seconds=share) for answer in answers]


@contextmanager
def errors_under_ec() -> Iterator[None]:
    """Put the keys of an evolver's errors under ``ec``."""
    try:
        yield
    except BadRequest as error:
        raise error.under("ec") from None


def why(error: Exception) -> str:
    """The cause of an error of `WITHOUT_RESULT` in one line, without the world's traceback."""
    what, _, trace = str(error).partition("\n")
    return f"{what} {reason(error)}" if trace else what


def failed_result(evolution: Evolution, reason: str, cost: int = 0) -> IndividualResult:
    """The result of an individual that failed, with the environment steps that it took as far as they are known."""
    return IndividualResult([math.nan] * len(evolution.objectives), cost, {}, None, None, reason)
