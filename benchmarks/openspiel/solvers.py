"""What a matrix of payoffs says, by `evorl.ops.payoffs` and by OpenSpiel's Python: numbers and time.

Nash averaging, alpha-rank of a symmetric game and NashConv of random mixtures, on random games of 2 to 8 strategies of
each player. A quarter of those of Nash averaging have copies of players, and a quarter few different payoffs, so that
many equilibria are there to choose from. Between both libraries stands the largest difference of any number of any
game, and the share of games in which none is above 1e-9. OpenSpiel's Nash averaging is a convex program that cvxpy
solves to a tolerance. A row of its own has the same program with a tolerance of 1e-14. The most that anybody gains
against a mixture, which is 0 in an equilibrium, says how exact each is.

A time is processor time of a game of 64 strategies of each player, the median of the samples, in which both take turns.

    python benchmarks/openspiel/solvers.py [--out benchmarks/openspiel/results] [--games 1000] [--samples 5]

OpenSpiel's Nash averaging needs cvxpy (pip install cvxpy).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partialmethod
from typing import Any, NamedTuple
from unittest.mock import patch

import cvxpy
import numpy as np
import pyspiel
from numpy.typing import NDArray
from open_spiel.python import policy
from open_spiel.python.algorithms import exploitability
from open_spiel.python.algorithms.nash_averaging import nash_averaging as nash_averaging_of_openspiel
from open_spiel.python.egt import alpharank

from benchmarks.speed.common import alternate, arguments, machine, median, page, save, versions
from evorl.ops.payoffs import alpha_rank, nash_averaging, nash_conv, two_sided
from evorl.util.seed import generator

Array = NDArray[np.float64]
EQUAL, AIM, LARGE = 1e-9, 10.0, 64
TIGHT = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-14)
"""Of Clarabel, cvxpy's solver of such programs."""
SELECTION = {"alpha": 1.0, "m": 50}
"""Of alpha-rank: OpenSpiel's overflows with its own alpha of 100."""


class Game(NamedTuple):
    payoff: Array
    mixtures: list[Array]
    """Of NashConv."""


class Solver(NamedTuple):
    game: Callable[[int, int], Game]
    """Of a number and of so many strategies."""
    ours: Callable[[Game], Array]
    theirs: Callable[[Game], Array]
    """Of what `prepared` returns."""
    prepared: Callable[[Game], Any] = lambda game: game


def drawn(number: int, size: int) -> Game:
    rng = generator("games", number, size)
    mixtures = [rng.dirichlet(np.ones(size)) for _ in range(2)]
    return Game(rng.normal(size=(size, size)), mixtures)


def antisymmetric(number: int, size: int) -> Game:
    payoff, mixtures = drawn(number, size)
    if number % 4 == 1:  # every player has a copy, but perhaps the last
        half = np.arange(size) // 2
        payoff = payoff[np.ix_(half, half)]
    elif number % 4 == 2:
        payoff = payoff.round()
    return Game(payoff - payoff.T, mixtures)


def matrix_game(payoff: Array) -> Any:
    return pyspiel.create_matrix_game(payoff, -payoff)


def turns_and_policy(game: Game) -> Any:
    """The game in turns, as OpenSpiel's NashConv needs it, and the mixtures as a policy."""
    turns = pyspiel.convert_to_turn_based(matrix_game(game.payoff))
    table = policy.TabularPolicy(turns)
    for row, state in enumerate(table.states):
        table.action_probability_array[row] = game.mixtures[state.current_player()]
    return turns, table


def tight(prepared: Any) -> Array:
    solve = partialmethod(cvxpy.Problem.solve, solver=cvxpy.CLARABEL, **TIGHT)
    with patch.object(cvxpy.Problem, "solve", solve):
        return np.asarray(nash_averaging_of_openspiel(prepared)[0][:, 0])


SOLVERS = {
    "Nash averaging": Solver(
        antisymmetric,
        lambda game: nash_averaging(game.payoff)[0],
        lambda prepared: nash_averaging_of_openspiel(prepared)[0][:, 0],
        lambda game: matrix_game(game.payoff),
    ),
    "Nash averaging, tolerance 1e-14": Solver(
        antisymmetric, lambda game: nash_averaging(game.payoff)[0], tight, lambda game: matrix_game(game.payoff)
    ),
    "alpha-rank": Solver(
        drawn,
        lambda game: alpha_rank(game.payoff, SELECTION["alpha"], int(SELECTION["m"])),
        lambda game: alpharank.compute([game.payoff], **SELECTION)[2],
    ),
    "NashConv": Solver(
        drawn,
        lambda game: np.array(nash_conv(two_sided(game.payoff), game.mixtures)),
        lambda prepared: np.array(exploitability.nash_conv(*prepared)),
        turns_and_policy,
    ),
}


def compared(solver: Solver, games: int) -> dict[str, float]:
    """The largest difference of all games; of Nash averaging also the most that is gained against either mixture."""
    found: dict[str, list[float]] = {"difference": []}
    for number in range(games):
        game = solver.game(number, 2 + number % 7)
        ours, theirs = solver.ours(game), solver.theirs(solver.prepared(game))
        found["difference"].append(float(np.abs(ours - theirs).max()))
        if solver.game is antisymmetric:
            for name, mixture in (("gained of ours", ours), ("gained of theirs", theirs / theirs.sum())):
                found.setdefault(name, []).append(float((game.payoff @ mixture).max()))
    equal = float((np.array(found["difference"]) <= EQUAL).mean())
    return {"games": games, "equal": equal, **{name: max(each) for name, each in found.items()}}


def timed(solver: Solver, samples: int) -> dict[str, list[float]]:
    """Processor seconds of both for each of so many large games."""

    def seconds(solve: Callable[[Any], Array], prepared: Callable[[Game], Any]) -> Callable[[int], float]:
        def once(number: int) -> float:
            game = prepared(solver.game(4 * number, LARGE))
            began = time.process_time()
            solve(game)
            return time.process_time() - began

        return once

    both = {"evorl": seconds(solver.ours, lambda game: game), "OpenSpiel": seconds(solver.theirs, solver.prepared)}
    for once in both.values():
        once(0)
    return alternate(both, range(samples))


def row(name: str, found: dict[str, float], times: dict[str, list[float]]) -> list[str]:
    ours, theirs = (median(times[library]) for library in ("evorl", "OpenSpiel"))
    gained = [f"{found[key]:.0e}" if key in found else "" for key in ("gained of ours", "gained of theirs")]
    return [
        name, f"{found['games']:,}", f"{found['difference']:.1e}", f"{found['equal']:.1%}", *gained,
        f"{1000 * ours:.2f}", f"{1000 * theirs:.0f}", f"{theirs / ours:,.0f}", f"{AIM:.0f}",
    ]  # fmt: skip


def main() -> None:
    args = arguments(__doc__, games=1000, samples=5)
    facts = machine() | {name: versions(name)[name] for name in ("open_spiel", "cvxpy")}
    header = [
        "", "games", "largest difference", "equal to 1e-9", "gained against ours", "against theirs",
        "evorl, ms", "OpenSpiel, ms", "times as fast", "aim",
    ]  # fmt: skip
    rows, data = [], {}
    for name, solver in SOLVERS.items():
        found, times = compared(solver, args.games), timed(solver, args.samples)
        rows.append(row(name, found, times))
        data[name] = {"largest": found, "seconds": times}
        save(args.out, facts, page("What payoffs say, beside OpenSpiel", __doc__, header, rows), {"solvers": data})


if __name__ == "__main__":
    main()
