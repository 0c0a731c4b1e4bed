"""Coevolution: each side learns against the other one, and is compared with its own kind alone."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.ec.coevolution import Coevolution, Strategy
from evorl.ec.core import Evaluation
from evorl.ec.space import Gene, Space
from evorl.util.errors import BadRequest

SPACE = Space((Gene("rl.lr", 1e-5, 1e-1, log=True),), 1, lambda number: np.array([number], np.float32))


def told(evolver: Strategy, scores: list[float]) -> list[tuple[str, int]]:
    """A round with these scores; return the role of each member after it, and whose weights it has."""
    asked = evolver.ask()
    evolver.tell([Evaluation(one, (score,)) for one, score in zip(asked, scores, strict=True)])
    assert [evolver.about(one.id)["side"] for one in evolver._queue] == [0] * 5 + [1] * 5
    return [(one.role, int(one.weights[0])) for one in evolver._queue]


def made(**changes: object) -> Strategy:
    return Coevolution(population=10, asynchronous=False, exploit="truncation", **changes).evolver(SPACE, 0)


def test_everybody_plays_all_of_the_other_side_on_its_own() -> None:
    evolver = made()
    for one in evolver.ask():
        side, matches = evolver.about(one.id)["side"], evolver.opponents(one.id)
        assert [match.number for match in matches] == [*range(5, 10)] if side == 0 else [*range(5)]
        for match in matches:
            assert match.policy is not None and match.policy.id == match.number
            assert match.by_side == ((0.2, 0.0) if side == 0 else (0.0, 0.2))


def test_a_member_copies_its_own_side_whatever_the_other_one_scores() -> None:
    after = told(made(), [0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 0.8, 0.7, 0.6, 0.55])
    assert after == [
        ("exploited", 4), *(("goes on", k) for k in range(1, 9)), ("exploited", 5)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "line"),
    [({"population": 5}, "must be even"), ({"opponents": "world"}, "take opponents=population")],
)
def test_what_is_refused(keys: dict[str, object], line: str) -> None:
    with pytest.raises(BadRequest, match=line):
        Coevolution(**keys)
