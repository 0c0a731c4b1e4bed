"""What a matrix of payoffs says of those who played: equilibria, exploitability, rankings, cycles.

Letters in shapes: K players, S strategies of a player. ``payoff[r, s]`` is what strategy r earns against s. In a game
of K players ``payoff[k]``, shaped [S_0, ..., S_(K-1)], is what player k earns for each joint choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.optimize import linprog, minimize

Array = NDArray[np.float64]
MetaSolver = Literal["nash", "uniform", "prd", "alpha_rank"]
PRD = (4000, 0.05)
"""Iterations of projected replicator dynamics as a meta-solver, and the length of each, for payoffs from -1 to 1."""


# ------------------------------------------------------------------ equilibria of zero-sum games


def nash(payoff: Array) -> tuple[Array, Array, float]:
    """Return the Nash equilibrium of greatest entropy of a zero-sum game [S_0, S_1]: both mixtures and its value.

    A linear program finds a strictly complementary pair of optimal mixtures (Goldman and Tucker 1956). It says which
    strategies some equilibrium plays, and which are best answers to all; what remains is a system of equations.
    """
    if np.array_equal(payoff, -payoff.T):  # one mixture is for both sides, found in a third of the time
        played = _played_by_both(payoff)
        p = _most_even(payoff[:, played], payoff[:, ~played], played, 0.0)
        return p, p, 0.0
    rows, columns, value = _complementary(payoff)
    p = _most_even(payoff[:, columns], payoff[:, ~columns], rows, value)
    q = _most_even(-payoff[rows].T, -payoff[~rows].T, columns, -value)
    return p, q, float(p @ payoff @ q)


def nash_averaging(advantage: Array) -> tuple[Array, Array]:
    """Return the mixture [S] that Nash averaging gives, and the score [S] of each strategy against it.

    Balduzzi et al. 2018, Re-evaluating evaluation, arXiv 1806.02643. ``advantage`` [S, S] is antisymmetric: log-odds of
    winning, or mean margins. The mixture is the equilibrium of greatest entropy, so that copies of a player share its
    weight. Scores are 0 for who is in the mixture, and below for all others. Raises ValueError if it is not
    antisymmetric.
    """
    if not np.array_equal(advantage, -advantage.T):
        raise ValueError("advantages must be antisymmetric: average both seats first")
    p, _, _ = nash(advantage)
    return p, advantage @ p


def _complementary(payoff: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_], float]:
    """The strategies of each side that some equilibrium plays, and the value of the game.

    Of all pairs of optimal mixtures p, q the program takes one that maximises the least of p_i + (v - (M q)_i) and of
    q_j + ((pᵀM)_j - v). That least is positive: of both terms exactly one is 0.
    """
    scale = float(np.abs(payoff).max()) or 1.0
    m, (n, k) = payoff / scale, payoff.shape
    one_n, one_k, no = np.ones((n, 1)), np.ones((k, 1)), np.zeros
    # unknowns: p [n], q [k], v, the least; each row below is at most 0
    bounds = np.block(
        [
            [-m.T, no((k, k)), one_k, no((k, 1))],  # v <= (pᵀM)_j
            [no((n, n)), m, -one_n, no((n, 1))],  # (M q)_i <= v
            [-np.eye(n), m, -one_n, one_n],  # least <= p_i + v - (M q)_i
            [-m.T, -np.eye(k), one_k, one_k],  # least <= q_j + (pᵀM)_j - v
        ]
    )
    sums = np.block([[np.ones((1, n)), no((1, k + 2))], [no((1, n)), np.ones((1, k)), no((1, 2))]])
    x = _optimal(bounds, sums, n + k)
    p, q, v = x[:n], x[n : n + k], float(x[n + k])
    return p > v - m @ q, q > p @ m - v, v * scale


def _played_by_both(payoff: Array) -> NDArray[np.bool_]:
    """The strategies that some equilibrium plays of a game whose sides are alike, so that its value is 0.

    As `_complementary`: the mean of both optimal mixtures is as good for either side.
    """
    m, n = payoff / (float(np.abs(payoff).max()) or 1.0), len(payoff)
    # unknowns: p [n], the least; (M p)_i <= 0, and least <= p_i - (M p)_i
    bounds = np.block([[m, np.zeros((n, 1))], [m - np.eye(n), np.ones((n, 1))]])
    p = _optimal(bounds, np.r_[np.ones(n), 0.0][None], n)[:n]
    return np.asarray(p > -m @ p)


def _optimal(bounds: Array, sums: Array, positive: int) -> Array:
    """The unknowns whose last one is greatest, with ``bounds @ x <= 0`` and ``sums @ x = 1``; the first ones are >= 0.

    Raises ValueError where there are none.
    """
    free = bounds.shape[1] - positive
    solved = linprog(
        np.r_[np.zeros(bounds.shape[1] - 1), -1.0], bounds, np.zeros(len(bounds)), sums, np.ones(len(sums)),
        [(0, None)] * positive + [(None, None)] * free,
    )  # fmt: skip
    if solved.x is None:
        raise ValueError(f"no equilibrium was found: {solved.message}")
    return np.asarray(solved.x)


def _most_even(tight: Array, slack: Array, played: NDArray[np.bool_], value: float) -> Array:
    """The mixture p of greatest entropy over the strategies ``played`` with pᵀ tight = v, and pᵀ slack >= v."""
    p = np.zeros(len(played))
    equal, least = tight[played], slack[played]
    p[played] = _solve(equal)
    if (p @ slack < value - 1e-9 * max(1.0, float(np.abs(slack).max(initial=0)))).any():
        p[played] = _solve(np.concatenate((equal, least[:, _binding(equal, least, value)]), axis=1))
    p = np.maximum(p, 0)
    return np.asarray(p / p.sum())


def _solve(columns: Array) -> Array:
    """The mixture of greatest entropy that has the same payoff in all columns."""
    system = np.vstack((np.c_[columns.T, -np.ones(columns.shape[1])], np.r_[np.ones(len(columns)), 0]))
    p = np.linalg.lstsq(system, np.eye(len(system))[-1], rcond=None)[0][:-1]
    free = null_space(system)[:-1]
    return _ascend_entropy(p, free) if free.size else p


def _binding(equal: Array, least: Array, value: float) -> NDArray[np.bool_]:
    """Which of the bounds pᵀ least >= v hold as equations for the mixture of greatest entropy: their multipliers in the
    dual, where every p = exp(Aᵀλ) is positive, are not 0."""
    constraints = np.concatenate((np.ones((len(equal), 1)), equal, least), axis=1)
    right = np.r_[1.0, np.full(equal.shape[1] + least.shape[1], value)]

    def dual(multiplier: Array) -> tuple[float, Array]:
        p = np.exp(np.minimum(constraints @ multiplier, 50.0))
        return float(p.sum() - right @ multiplier), constraints.T @ p - right

    bounds = [(None, None)] * (1 + equal.shape[1]) + [(0, None)] * least.shape[1]
    options = {"maxiter": 100_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-12}
    solved = minimize(dual, np.zeros(len(right)), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return np.asarray(solved.x[1 + equal.shape[1] :] > 1e-6)


def _ascend_entropy(p: Array, free: Array) -> Array:
    """The point of greatest entropy among p + free y, by Newton's method on the dual, whose points are all positive.

    With free yᵀ the directions, p is exp(-1 - Aᵀλ) for the equations A p = A p0 that leave them: A spans what is
    orthogonal to the directions.
    """
    equations = null_space(free.T).T
    right = equations @ p
    multiplier = equations @ np.log(np.full(len(p), 1 / len(p)))
    for _ in range(200):
        point = np.exp(equations.T @ multiplier)
        gradient = equations @ point - right
        if np.abs(gradient).max() < 1e-15:
            break
        step = np.linalg.lstsq((equations * point) @ equations.T, gradient, rcond=None)[0]
        value, length = point.sum() - right @ multiplier, 1.0
        while length > 1e-12:  # the dual, sum(p) - λᵀ right, is convex
            tried = multiplier - length * step
            if np.exp(equations.T @ tried).sum() - right @ tried <= value + 1e-16:
                break
            length /= 2
        multiplier = multiplier - length * step
    return np.asarray(np.exp(equations.T @ multiplier))


# ------------------------------------------------------------------ exploitability


def nash_conv(payoff: Array, mixtures: Sequence[Array]) -> float:
    """Return the sum over players of what each would gain by its best answer to the mixtures of the others.

    ``payoff`` [K, S_0, ..., S_(K-1)]. In a zero-sum game of two, exploitability is half of it.
    """
    earned = _earned(payoff, mixtures)
    return sum(float(own.max() - mixture @ own) for own, mixture in zip(earned, mixtures, strict=True))


def _earned(payoff: Array, mixtures: Sequence[Array]) -> list[Array]:
    """What each strategy [S_k] of each player k earns against the mixtures of the others."""
    earned = []
    for k, own in enumerate(payoff):
        for mixture in reversed(mixtures[k + 1 :]):
            own = own @ mixture
        for mixture in mixtures[:k]:
            own = (mixture @ own.reshape(len(mixture), -1)).reshape(own.shape[1:])
        earned.append(own)
    return earned


def two_sided(payoff: Array) -> Array:
    """Return the payoffs [2, S_0, S_1] of both players of a zero-sum game."""
    return np.stack((payoff, -payoff))


# ------------------------------------------------------------------ projected replicator dynamics


def projected_replicator(
    payoff: Array, iterations: int = 100_000, dt: float = 1e-3, least: float = 1e-6
) -> list[Array]:
    """Return the mean over time of each player's mixture under projected replicator dynamics.

    Lanctot et al. 2017, A unified game-theoretic approach, arXiv 1711.00832: every player follows
    dπ_s = π_s (u_s - ū) and is projected to the mixtures that give each strategy at least ``least``.
    """
    mixtures = [np.full(n, 1 / n) for n in payoff.shape[1:]]
    sums = [mixture.copy() for mixture in mixtures]
    for _ in range(iterations):
        mixtures = [
            project(mixture + dt * mixture * (u - mixture @ u), least)
            for mixture, u in zip(mixtures, _earned(payoff, mixtures), strict=True)
        ]
        for total, mixture in zip(sums, mixtures, strict=True):
            total += mixture
    return [total / total.sum() for total in sums]


def project(x: Array, least: float = 0.0) -> Array:
    """Return the mixture nearest to x whose parts are at least ``least``."""
    moved, mass = x - least, 1 - len(x) * least
    if mass < 0:
        raise ValueError(f"{len(x)} parts of at least {least:g} are more than 1")
    falling = np.sort(moved)[::-1]
    excess = (np.cumsum(falling) - mass) / np.arange(1, len(x) + 1)
    return np.asarray(np.maximum(moved - excess[falling > excess][-1], 0) + least)


# ------------------------------------------------------------------ alpha-rank


def alpha_rank(payoff: Array, alpha: float = 100.0, population: int = 50) -> Array:
    """Return the share [S] of time that evolution spends at each strategy of a symmetric game of two.

    Omidshafiei et al. 2019, α-rank, arXiv 1903.01373: one population of so many, in which a mutant takes over from the
    residents with the fixation probability of eq. 9 (``alpha`` is the intensity of selection; ``inf`` is its limit).
    Payoffs are margins in [-1, 1]; win rates in [0, 1] need twice the alpha.
    """
    gain = payoff - payoff.T  # [mutant, resident]
    return _stationary(_log_fixation(gain, alpha, population).T)


def alpha_rank_of_players(payoff: Array, alpha: float = 100.0, population: int = 50) -> Array:
    """Return the same share for each joint choice, shaped [S_0, ..., S_(K-1)], of a game [K, S_0, ..., S_(K-1)].

    Every player is a population of its own, and one of them deviates at a time.
    """
    shape = payoff.shape[1:]
    states = np.stack(np.unravel_index(np.arange(np.prod(shape)), shape), -1)  # [N, K]
    differ = states[:, None] != states[None]
    by_one = differ.sum(-1) == 1
    who = differ.argmax(-1)
    flat = payoff.reshape(len(payoff), -1)
    everybody = np.arange(len(states))
    gain = flat[who, everybody[None]] - flat[who, everybody[:, None]]  # [resident, mutant]
    log = np.where(by_one, _log_fixation(gain, alpha, population), -np.inf)
    return _stationary(log).reshape(shape)


def _log_fixation(gain: Array, alpha: float, population: int, smallest: float = 0.01) -> Array:
    """Logarithms of the probabilities that a mutant who earns so much more takes over (eq. 9).

    (1 - e^-u) / (1 - e^-mu), u = α gain, overflows where the mutant is much worse: then e^(-(m - 1) |u|) is taken out.
    The limit of strong selection is 1 - ε, 1/2 or ε for the better, the equal and the worse.
    """
    if np.isinf(alpha):
        return np.asarray(np.log(np.select([gain > 0, gain < 0], [1 - smallest, smallest], 0.5)))
    signed = alpha * gain
    u = np.abs(signed)
    safe = np.where(u > 0, u, 1.0)
    better = np.log(np.expm1(-safe) / np.expm1(-population * safe))
    return np.asarray(
        np.where(u == 0, -np.log(population), np.where(gain > 0, better, better - (population - 1) * safe))
    )


def _stationary(log: Array) -> Array:
    """The stationary distribution of a chain by the logarithms of its rates [from, to]; the diagonal does not matter.

    Grassmann, Taksar and Heyman 1985 subtract nothing, so no digit is lost. In logarithms rates may be as small as
    e^-5000, with which the chain still has one stationary distribution.
    """
    rate = np.array(log, np.float64)
    for k in range(len(rate) - 1, 0, -1):
        rate[:k, k] -= np.logaddexp.reduce(rate[k, :k])
        rate[:k, :k] = np.logaddexp(rate[:k, :k], rate[:k, k, None] + rate[k, :k])
    share = np.zeros(len(rate))
    for k in range(1, len(rate)):
        share[k] = np.logaddexp.reduce(share[:k] + rate[:k, k])
    share = np.exp(share - share.max())
    return np.asarray(share / share.sum())


# ------------------------------------------------------------------ meta-strategies


def meta_strategy(payoff: Array, solver: MetaSolver) -> tuple[Array, Array]:
    """Return the mixture of each side that a meta-solver of PSRO gives for a zero-sum game [S_0, S_1].

    Lanctot et al. 2017, arXiv 1711.00832; Muller et al. 2020, A generalized training approach for multiagent learning,
    arXiv 1909.12823, for α-rank, whose mixtures are the marginals of its joint distribution in the limit of strong
    selection. A symmetric game, whose payoffs are antisymmetric, has the same mixture on both sides. Raises ValueError
    for an unknown solver.
    """
    symmetric = np.array_equal(payoff, -payoff.T)
    match solver:
        case "nash":
            p, q, _ = nash(payoff)
        case "uniform":
            p, q = (np.full(n, 1 / n) for n in payoff.shape)
        case "prd":
            scale = float(np.abs(payoff).max()) or 1.0
            p, q = projected_replicator(two_sided(payoff / scale), *PRD)
        case "alpha_rank" if symmetric:
            p = q = alpha_rank(payoff, np.inf)
        case "alpha_rank":
            joint = alpha_rank_of_players(two_sided(payoff), np.inf)
            p, q = joint.sum(1), joint.sum(0)
        case _:
            raise ValueError(f"{solver!r} is none of {', '.join(get_args(MetaSolver))}")
    return (p, p) if symmetric else (p, q)


# ------------------------------------------------------------------ cycles


def cyclic_share(advantage: Array) -> float:
    """Return the share, from 0 to 1, of the squares of antisymmetric advantages [S, S] that no rating explains.

    Advantages split into grad(r)_ij = r_i - r_j, with r their means, and a rest that is orthogonal to it: 0 where one
    number for each player says it all, 1 for rock, paper, scissors (Balduzzi et al. 2018, Hodge decomposition). Take
    log-odds: signs alone show cycles where there are none. Noise among n equal players comes to (n - 2) / n.
    """
    rating = advantage.mean(1)
    rest = advantage - (rating[:, None] - rating[None])
    whole = float((advantage**2).sum())
    return float((rest**2).sum()) / whole if whole else 0.0
