"""Meta-solvers against those of OpenSpiel, on random games."""

from __future__ import annotations

import numpy as np
import pytest

from evorl.ops.payoffs import alpha_rank, alpha_rank_of_players, nash_conv, projected_replicator, two_sided

pyspiel = pytest.importorskip("pyspiel")


def games(count: int, most: int, players: int = 2) -> list[np.ndarray]:
    """Payoffs [players, S_0, ...] of so many games of chance sizes; those of two players are zero-sum."""
    rng = np.random.default_rng(count)
    shapes = [rng.integers(1, most + 1, players) for _ in range(count)]
    drawn = [rng.normal(size=(players, *shape)) for shape in shapes]
    return [two_sided(one[0]) if players == 2 else one for one in drawn]


@pytest.mark.parametrize("players", [2, 3])
def test_projected_replicator_dynamics_are_those_of_openspiel(players: int) -> None:
    from open_spiel.python.algorithms.projected_replicator_dynamics import projected_replicator_dynamics

    for payoff in games(20 if players == 2 else 6, 6, players):
        for iterations, dt, least in ((1, 0.5, 1e-6), (300, 0.01, 1e-6), (100, 0.3, 0.05)):
            theirs = projected_replicator_dynamics([*payoff], prd_iterations=iterations, prd_dt=dt, prd_gamma=least)
            ours = projected_replicator(payoff, iterations, dt, least)
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-9, rtol=0)


def test_nash_conv_is_that_of_openspiel() -> None:
    from open_spiel.python import policy
    from open_spiel.python.algorithms import exploitability

    for k, payoff in enumerate(games(20, 5)):
        mixtures = [np.random.default_rng(k).dirichlet(np.ones(n)) for n in payoff.shape[1:]]
        turns = pyspiel.convert_to_turn_based(pyspiel.create_matrix_game(*payoff))
        table = policy.TabularPolicy(turns)
        for row, state in enumerate(table.states):
            table.action_probability_array[row, : payoff.shape[1 + state.current_player()]] = mixtures[
                state.current_player()
            ]
        assert nash_conv(payoff, mixtures) == pytest.approx(exploitability.nash_conv(turns, table), abs=1e-9)


def test_alpha_rank_is_that_of_openspiel() -> None:
    from open_spiel.python.egt import alpharank

    for k, payoff in enumerate(games(40, 5)):
        square = np.random.default_rng(k).normal(size=(payoff.shape[1],) * 2)
        for alpha, population in ((0.5, 10), (2.0, 5)):
            if len(square) > 1:
                *_, theirs, _, _ = alpharank.compute([square], m=population, alpha=alpha)
                np.testing.assert_allclose(alpha_rank(square, alpha, population), theirs, atol=1e-9, rtol=0)
            if payoff[0].size > 1:
                *_, theirs, _, _ = alpharank.compute([*payoff], m=population, alpha=alpha)
                ours = alpha_rank_of_players(payoff, alpha, population).reshape(-1)
                np.testing.assert_allclose(ours, theirs, atol=1e-9, rtol=0)


def test_alpha_rank_of_strong_selection_is_that_of_openspiel() -> None:
    from open_spiel.python.egt import alpharank

    for payoff in games(20, 4):
        if payoff[0].size > 1:
            *_, theirs, _, _ = alpharank.compute([*payoff], use_inf_alpha=True, inf_alpha_eps=0.01)
            ours = alpha_rank_of_players(payoff, np.inf).reshape(-1)
            np.testing.assert_allclose(ours, theirs, atol=1e-9, rtol=0)
