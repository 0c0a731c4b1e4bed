"""Equilibria, exploitability, alpha-rank and cycles: golden numbers, slow definitions, and properties."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog

from evorl.ops.payoffs import (
    alpha_rank,
    alpha_rank_of_players,
    cyclic_share,
    meta_strategy,
    nash,
    nash_averaging,
    nash_conv,
    project,
    projected_replicator,
    two_sided,
)

ROCK_PAPER_SCISSORS = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], np.float64)
UNEVEN = np.array([[0, 0.2, -0.4], [-0.2, 0, 0.6], [0.4, -0.6, 0]])
CLONED = np.array([[0, -1, 1, 1], [1, 0, -1, -1], [-1, 1, 0, 0], [-1, 1, 0, 0]], np.float64)
"""Scissors twice."""


def games(most: int = 6) -> st.SearchStrategy[np.ndarray]:
    """Matrices of small whole numbers: many have equilibria in plenty, and strategies that are alike."""
    shapes = st.tuples(st.integers(1, most), st.integers(1, most))
    return shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=st.integers(-2, 2).map(float)))


# ------------------------------------------------------------------ equilibria


@pytest.mark.parametrize(
    ("advantage", "mixture"),
    [
        (ROCK_PAPER_SCISSORS, (1 / 3, 1 / 3, 1 / 3)),
        (UNEVEN, (1 / 2, 1 / 3, 1 / 6)),
        (CLONED, (1 / 3, 1 / 3, 1 / 6, 1 / 6)),
        (np.zeros((3, 3)), (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_nash_averaging_by_golden_numbers(advantage: np.ndarray, mixture: tuple[float, ...]) -> None:
    p, scores = nash_averaging(advantage)
    assert p == pytest.approx(mixture, abs=1e-12) and scores == pytest.approx(np.zeros(len(p)), abs=1e-12)


def test_nash_averaging_of_who_beats_everybody() -> None:
    advantage = np.array([[0.0, 2.0, 1.0], [-2.0, 0.0, 3.0], [-1.0, -3.0, 0.0]])
    p, scores = nash_averaging(advantage)
    assert p == pytest.approx([1, 0, 0]) and scores == pytest.approx([0, -2, -1])


def test_advantages_of_one_seat_alone_are_refused() -> None:
    with pytest.raises(ValueError, match="antisymmetric"):
        nash_averaging(UNEVEN + 0.1)


@given(games())
def test_nobody_gains_by_leaving_an_equilibrium_and_its_value_is_that_of_a_linear_program(payoff: np.ndarray) -> None:
    p, q, value = nash(payoff)
    assert p.sum() == pytest.approx(1) and q.sum() == pytest.approx(1) and min(p.min(), q.min()) >= 0
    assert (p @ payoff).min() > value - 1e-8 and (payoff @ q).max() < value + 1e-8
    assert nash_conv(two_sided(payoff), (p, q)) == pytest.approx(0, abs=1e-8)
    n, k = payoff.shape
    bounds = np.c_[-payoff.T, np.ones(k)]
    slow = linprog([0] * n + [-1], bounds, [0] * k, [[1] * n + [0]], [1], [(0, None)] * n + [(None, None)])
    assert value == pytest.approx(-slow.fun, abs=1e-8)


@pytest.mark.slow
@given(games(4), st.randoms(use_true_random=False))
def test_no_other_equilibrium_is_more_even(payoff: np.ndarray, random: object) -> None:
    """Mixtures between it and the ends of the set of equilibria, found by linear programs in all directions."""
    p, _, value = nash(payoff)
    n, k = payoff.shape
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    for direction in itertools.product((-1.0, 1.0), repeat=n):
        end = linprog(direction, -payoff.T, [1e-11 - value] * k, [[1] * n], [1], [(0, None)] * n).x
        if end is None:  # the value, rounded, is out of reach
            continue
        for share in (1e-3, 0.1, 0.5):
            other = np.maximum((1 - share) * p + share * end, 0)
            assert -sum(x * math.log(x) for x in other if x > 0) < entropy + 1e-7


@given(st.integers(1, 6).flatmap(lambda n: arrays(np.float64, (n, n), elements=st.integers(-2, 2).map(float))))
def test_where_both_sides_are_alike_they_have_one_mixture_the_same_as_by_the_larger_program(payoff: np.ndarray) -> None:
    advantage = payoff - payoff.T
    p, q, value = nash(advantage)
    assert np.array_equal(p, q) and value == 0
    general, _, moved = nash(advantage + 0.5)  # of which no program knows that the sides are alike
    np.testing.assert_allclose(p, general, atol=1e-7)
    assert moved == pytest.approx(0.5, abs=1e-9)


@given(games(4))
def test_a_copy_of_a_strategy_changes_no_total(payoff: np.ndarray) -> None:
    p, _, value = nash(payoff)
    copied, _, same = nash(np.vstack((payoff, payoff[-1:])))
    assert same == pytest.approx(value, abs=1e-9) and copied[-1] == pytest.approx(copied[-2], abs=1e-7)
    assert p.shape[0] + 1 == copied.shape[0]


# ------------------------------------------------------------------ exploitability


@given(st.integers(2, 3), st.integers(0, 1000))
def test_nash_conv_by_its_definition(players: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 4, players))
    payoff = rng.normal(size=(players, *shape))
    mixtures = [rng.dirichlet(np.ones(n)) for n in shape]

    def earned(k: int, mixed: list[np.ndarray]) -> float:
        joint = itertools.product(*map(range, shape))
        return sum(
            payoff[(k, *choice)] * math.prod(m[c] for m, c in zip(mixed, choice, strict=True)) for choice in joint
        )

    slow = 0.0
    for k in range(players):
        pure = [[*mixtures[:k], np.eye(shape[k])[s], *mixtures[k + 1 :]] for s in range(shape[k])]
        slow += max(earned(k, mixed) for mixed in pure) - earned(k, mixtures)
    assert nash_conv(payoff, mixtures) == pytest.approx(slow, abs=1e-12)


def test_projections() -> None:
    assert project(np.array([0.4, 0.7, 0.6]), 0.2) == pytest.approx([0.2, 0.45, 0.35])
    with pytest.raises(ValueError, match="more than 1"):
        project(np.zeros(3), 0.5)


@given(arrays(np.float64, st.integers(1, 6), elements=st.floats(-3, 3)), st.integers(0, 1000))
def test_no_mixture_is_nearer_than_the_projection(x: np.ndarray, seed: int) -> None:
    least = 0.5 / len(x)
    nearest = project(x, least)
    assert nearest.sum() == pytest.approx(1) and nearest.min() >= least - 1e-12
    other = least + 0.5 * np.random.default_rng(seed).dirichlet(np.ones(len(x)))
    assert np.linalg.norm(nearest - x) <= np.linalg.norm(other - x) + 1e-9


@pytest.mark.slow
def test_projected_replicator_dynamics_by_golden_numbers() -> None:
    mixture, _ = projected_replicator(two_sided(UNEVEN), 50_000, 0.01)
    assert mixture == pytest.approx([0.5001, 0.3357, 0.1642], abs=5e-5)


# ------------------------------------------------------------------ alpha-rank


@pytest.mark.parametrize(
    ("payoff", "alpha", "population", "share"),
    [
        (ROCK_PAPER_SCISSORS, 100.0, 50, (1 / 3, 1 / 3, 1 / 3)),
        (UNEVEN, 1.0, 50, (0.289156, 0.482984, 0.227860)),
        (UNEVEN, 1.0, 5, (0.292894, 0.476195, 0.230911)),
        (UNEVEN, 100.0, 50, (1 / 3, 1 / 3, 1 / 3)),
        (UNEVEN, math.inf, 50, (1 / 3, 1 / 3, 1 / 3)),
        (CLONED, 100.0, 50, (0.4, 0.2, 0.2, 0.2)),
        (UNEVEN, 0.0, 50, (1 / 3, 1 / 3, 1 / 3)),
    ],
)
def test_alpha_rank_by_golden_numbers(
    payoff: np.ndarray, alpha: float, population: int, share: tuple[float, ...]
) -> None:
    assert alpha_rank(payoff, alpha, population) == pytest.approx(share, abs=1e-6)


@given(st.integers(2, 6), st.floats(0.1, 3), st.integers(2, 30), st.integers(0, 1000))
def test_alpha_rank_by_its_definition(n: int, alpha: float, population: int, seed: int) -> None:
    payoff = np.random.default_rng(seed).normal(size=(n, n))
    chain = np.zeros((n, n))
    for resident, mutant in itertools.permutations(range(n), 2):
        u = alpha * (payoff[mutant, resident] - payoff[resident, mutant])
        chain[resident, mutant] = (1 - math.exp(-u)) / (1 - math.exp(-population * u)) / (n - 1)
    np.fill_diagonal(chain, 1 - chain.sum(1))
    share = alpha_rank(payoff, alpha, population)
    assert share @ chain == pytest.approx(share, abs=1e-9) and share.sum() == pytest.approx(1)


def test_players_of_their_own_go_where_neither_deviates() -> None:
    """The prisoners' dilemma: both defect."""
    own = np.array([[3.0, 0.0], [5.0, 1.0]])
    share = alpha_rank_of_players(np.stack((own, own.T)), 10.0)
    assert share == pytest.approx(np.array([[0, 0], [0, 1]]), abs=1e-9)


def test_matching_pennies_goes_round() -> None:
    payoff = two_sided(np.array([[1.0, -1.0], [-1.0, 1.0]]))
    assert alpha_rank_of_players(payoff) == pytest.approx(np.full((2, 2), 0.25))


# ------------------------------------------------------------------ meta-strategies


@pytest.mark.parametrize("payoff", [UNEVEN, 7 * UNEVEN[:2], UNEVEN[:, :2] + 0.3], ids=["symmetric", "wide", "tall"])
def test_meta_strategies_are_mixtures_and_those_of_a_symmetric_game_are_alike(payoff: np.ndarray) -> None:
    for solver in ("nash", "uniform", "prd", "alpha_rank"):
        mixtures = meta_strategy(payoff, solver)
        assert [mixture.shape for mixture in mixtures] == [(n,) for n in payoff.shape]
        assert all(mixture.sum() == pytest.approx(1) and mixture.min() >= 0 for mixture in mixtures)
        assert payoff is not UNEVEN or np.array_equal(*mixtures)
        if solver in ("nash", "prd"):
            least = 1e-9 if solver == "nash" else 0.01 * np.abs(payoff).max()  # in the units of the payoffs
            assert nash_conv(two_sided(payoff), mixtures) < least


def test_the_meta_strategies_of_alpha_rank_are_marginals() -> None:
    payoff = np.random.default_rng(0).normal(size=(4, 3))
    joint = alpha_rank_of_players(two_sided(payoff), math.inf)
    for side, mixture in enumerate(meta_strategy(payoff, "alpha_rank")):
        assert mixture == pytest.approx(joint.sum(1 - side))


def test_a_meta_solver_that_there_is_not() -> None:
    with pytest.raises(ValueError, match="'cfr' is none of nash, uniform, prd, alpha_rank"):
        meta_strategy(UNEVEN, "cfr")  # type: ignore[arg-type]


# ------------------------------------------------------------------ cycles


@pytest.mark.parametrize(
    ("advantage", "share"),
    [(ROCK_PAPER_SCISSORS, 1), (UNEVEN, 6 / 7), (np.sign(np.arange(3)[:, None] - np.arange(3)), 1 / 9)],
)
def test_cyclic_shares_by_golden_numbers(advantage: np.ndarray, share: float) -> None:
    assert cyclic_share(advantage.astype(np.float64)) == pytest.approx(share)


@given(arrays(np.float64, st.integers(2, 8), elements=st.floats(-3, 3)))
def test_what_ratings_explain_has_no_cycle(rating: np.ndarray) -> None:
    assert cyclic_share(rating[:, None] - rating[None]) == pytest.approx(0, abs=1e-12)


def test_noise_alone_has_the_cycles_of_its_number_of_players() -> None:
    rng = np.random.default_rng(0)
    noise = [(x := rng.normal(size=(6, 6))) - x.T for _ in range(2000)]
    assert np.mean([cyclic_share(advantage) for advantage in noise]) == pytest.approx(4 / 6, abs=0.01)
