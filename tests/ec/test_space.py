"""What a coordinate stands for, and how individuals come from one space into another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from evorl.ec.pbt import perturbed
from evorl.ec.space import Gene, Space, Value

LR = Gene("lr", 1e-4, 1e-1, log=True)
N = Gene("n", 1, 9, integer=True)
KIND = Gene("kind", choices=("a", "b", "c"))


@given(
    low=st.floats(-50, 50), width=st.floats(0, 20), log=st.booleans(), at=st.floats(-0.5, 1.5, exclude_max=True),
)  # fmt: skip
def test_an_integer_lies_within_its_range(low: float, width: float, log: bool, at: float) -> None:
    low = abs(low) + 0.01 if log else low
    high = low + width
    if math.ceil(low) > math.floor(high):
        with pytest.raises(ValueError, match="no whole number"):
            Gene("n", low, high, log, integer=True)
        return
    gene = Gene("n", low, high, log, integer=True)
    first, last = gene.bounds
    value = gene.value(first + at * (last - first))
    assert isinstance(value, int) and low <= value <= high
    assert gene.value(gene.coordinate(value)) == value


@given(low=st.floats(-20, 20), width=st.floats(1, 10))
def test_whole_numbers_are_equally_likely_whatever_the_ends(low: float, width: float) -> None:
    gene = Gene("n", low, low + width, integer=True)
    first, last = gene.bounds
    whole = range(math.ceil(low), math.floor(low + width) + 1)
    assert last - first == len(whole)
    assert [gene.value(first + k + 0.5) for k in range(len(whole))] == [*whole]


@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 4), (1, 8), (32, 64), (3, 3), (0.7, 4.2)])
def test_whole_numbers_uniform_in_their_logarithm_have_their_whole_intervals(low: float, high: float) -> None:
    """Against the closed form: of [k - 1/2, k + 1/2] in a uniform logarithm. 1..4 has .50 .23 .15 .11."""
    gene, n = Gene("n", low, high, log=True, integer=True), 40_000
    k = np.arange(math.ceil(low), math.floor(high) + 1)
    share = np.log((k + 0.5) / (k - 0.5)) / math.log((k[-1] + 0.5) / (k[0] - 0.5))
    assert share.sum() == pytest.approx(1)
    x = Space((gene,)).sample(np.random.default_rng(5), n)
    drawn = np.array([gene.value(at) for at in x[:, 0].tolist()])
    seen = np.array([(drawn == one).sum() for one in k])
    assert seen.sum() == n
    if len(k) > 1:
        assert chi2.sf(((seen - n * share) ** 2 / (n * share)).sum(), len(k) - 1) > 0.001


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(("low", "high"), [(1, 2), (1, 64), (7, 7), (100, 100_000)])
def test_every_whole_number_comes_back_from_its_coordinate_and_the_ends_from_beyond(
    low: int, high: int, log: bool
) -> None:
    gene = Gene("n", low, high, log, integer=True)
    space, (first, last) = Space((gene,)), gene.bounds
    for k in {low, low + 1, (low + high) // 2, high - 1, high} & {*range(low, high + 1)}:
        x = gene.coordinate(k)
        assert first < x < last and gene.value(x) == k
        near = [math.log(k + part) if log else k + part for part in (-0.499, 0.499)]
        assert [gene.value(one) for one in near] == [k, k] and all(first < one < last for one in near)
    assert (gene.value(first), gene.value(last), gene.value(first - 9), gene.value(last + 9)) == (low, high, low, high)
    assert space.values(space.coordinates({"n": high + 5}, np.zeros(1))) == {"n": high}
    genes, _ = space.individual(space.vector(np.array([gene.coordinate(high)]), None))
    assert space.values(genes) == {"n": high}


def test_a_mutated_whole_number_moves_by_one_at_least_and_stays_in_its_range() -> None:
    gene = Gene("n", 1, 4, log=True, integer=True)
    moved = {k: [gene.value(perturbed(gene, gene.coordinate(k), f, f > 1)) for f in (0.8, 1.2)] for k in range(1, 5)}
    assert moved == {1: [1, 2], 2: [1, 3], 3: [2, 4], 4: [3, 4]}


# ------------------------------------------------------------------ from one space into another


def moved(values: dict[str, Value], *genes: Gene, otherwise: float = 0.0) -> dict[str, Value]:
    space = Space(genes)
    return space.values(space.coordinates(values, np.full(len(genes), otherwise, np.float64)))


def test_a_value_within_the_new_bounds_stays_and_others_go_to_the_nearest() -> None:
    narrow = (Gene("lr", 1e-3, 1e-2, log=True), Gene("n", 3, 5, integer=True))
    assert moved({"lr": 2e-3, "n": 4}, *narrow) == {"lr": pytest.approx(2e-3), "n": 4}
    assert moved({"lr": 1e-4, "n": 1}, *narrow) == {"lr": pytest.approx(1e-3), "n": 3}
    assert moved({"lr": 1e-1, "n": 9}, *narrow) == {"lr": pytest.approx(1e-2), "n": 5}
    wide = Gene("n", 1, 99, integer=True)
    assert moved({"n": 9}, wide) == {"n": 9}


def test_a_value_stays_where_its_gene_is_counted_otherwise() -> None:
    """Linear where it was logarithmic, whole where it was not, a range where it was a choice."""
    assert moved({"lr": 1e-3}, Gene("lr", 0, 1)) == {"lr": 1e-3}
    assert moved({"n": 3.7}, N) == {"n": 4}
    assert moved({"n": 4}, Gene("n", choices=(2, 4, 8))) == {"n": 4}


def test_a_choice_stays_wherever_it_stands_now_and_one_that_is_gone_takes_the_other_place() -> None:
    now = Gene("kind", choices=("c", "d", "a"))
    assert moved({"kind": "a"}, now, otherwise=1) == {"kind": "a"}
    assert moved({"kind": "c"}, now, otherwise=1) == {"kind": "c"}
    assert moved({"kind": "b"}, now, otherwise=1) == {"kind": "d"}


def test_what_is_no_number_takes_the_other_place_in_a_range() -> None:
    for value in ("whiten", "0.5", True):
        assert moved({"x": value}, Gene("x", 0, 1), otherwise=0.25) == {"x": 0.25}


def test_a_gene_that_is_new_takes_the_other_place_and_one_that_is_gone_is_dropped() -> None:
    assert moved({"lr": 1e-3, "gone": 7}, N, LR, otherwise=6) == {"n": 6, "lr": pytest.approx(1e-3)}
    assert moved({"lr": 1e-3, "kind": "b", "n": 2}, KIND, N) == {"kind": "b", "n": 2}


def test_the_other_place_is_not_written_to() -> None:
    otherwise = np.full(1, 5.0)
    Space((N,)).coordinates({"n": 2}, otherwise)
    assert otherwise == 5.0
