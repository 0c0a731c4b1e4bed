"""Every evolver of conf/ec on test problems: against pymoo's and cma's.

One objective (sphere, Rosenbrock, Rastrigin; 10 dimensions): the least value found so far, lower is better. Several
(ZDT and DTLZ, with as many variables as their papers give, DTLZ with 3 objectives): the hypervolume that the population
holds, higher is better, as a share of the box from the origin to the references that the program names (ZDT3 reaches
beyond the origin). Populations are 100 with several objectives, else 50 (CMA-ES: 10, as cma's own), everything else is
each one's default (pymoo's NSGA3, which asks for reference directions, has those of ours; map_elites, which asks for
behaviours, has a grid of 10 x 10 over the first two variables), and each judges as many points as the others. Numbers
are medians over the seeds; problems.csv has every curve.

    python benchmarks/ec/problems.py profile=ci|paper [--out DIR]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from benchmarks.ec import figures
from benchmarks.speed.common import ROOT, machine, page, save, versions
from evorl.ec.coevolution import Coevolution
from evorl.ec.core import Evaluation, IndependentEvolution, objectives
from evorl.ec.early_stopping import EarlyStopping
from evorl.ec.league import League
from evorl.ec.nsga3 import directions
from evorl.ec.optuna import Optuna
from evorl.ec.psro import PSRO
from evorl.ec.space import Space
from evorl.mdp.problem import PROBLEMS, Problem
from evorl.ops.pareto import hypervolume

Points = np.ndarray
Run = Iterator[tuple[int, Points]]
"""Evaluations so far, and the values [N, M] to maximise that one would take from it now."""
Contestant = Callable[[Problem, int], Run]

SIZES = {"sphere": 10, "rosenbrock": 10, "rastrigin": 10, "zdt4": 10, "zdt5": 80, "zdt6": 10, "dtlz1": 7, "dtlz7": 22}
REFERENCES = {
    "zdt5": (32.0, 11.0),
    "dtlz1": (50.0,) * 3,
    "dtlz3": (200.0,) * 3,
    "dtlz6": (11.0,) * 3,
    "dtlz7": (1.1, 1.1, 6.6),
}
POINTS = 25
"""On a curve."""


class Profile(NamedTuple):
    seeds: int
    single: int
    """Evaluations with one objective."""
    several: int
    """Evaluations with several."""


PROFILES = {"ci": Profile(5, 5_000, 10_000), "paper": Profile(10, 25_000, 25_000)}
"""Of the paper of NSGA-II: ten runs of 25,000 evaluations each."""


def problems() -> list[Problem]:
    several = {name: 30 if name.startswith("zdt") else 12 for name in PROBLEMS}
    return [Problem(id=name, dimensions=SIZES.get(name, several[name])) for name in PROBLEMS]


# ------------------------------------------------------------------ contestants


def ours() -> dict[str, type[IndependentEvolution]]:
    """The evolvers of conf/ec whose individuals need no critic, no opponents and no training that could stop early.

    Samplers of optuna are left out: they are made for tens of numbers and hundreds of evaluations.
    """
    left_out = (EarlyStopping, Optuna, Coevolution, League, PSRO)
    kinds = {}
    for path in sorted((ROOT / "conf" / "ec").glob("*.yaml")):
        if path.stem != "none":
            module, _, name = yaml.safe_load(path.read_text())["_target_"].rpartition(".")
            kind = getattr(import_module(module), name)
            if issubclass(kind, IndependentEvolution) and not issubclass(kind, left_out):
                kinds[path.stem] = kind
    return kinds


def run_evolver(name: str, kind: type[IndependentEvolution], problem: Problem, seed: int) -> Run:
    size = 4 + int(3 * np.log(problem.dimensions)) if name == "cma_es" else 50 if problem.count == 1 else 100
    low, high = problem.bounds
    grid = {"descriptors": {f"x{k}": (low[k], high[k], 10) for k in range(2)}} if name == "map_elites" else {}
    evolver = kind(population=size, **grid).evolver(Space.box(low, high), seed)
    spent = 0
    while True:
        proposals = evolver.ask()
        values = problem.evaluate(np.array([individual.genes for individual in proposals]))
        evolver.tell(
            [Evaluation(individual, tuple(f)) for individual, f in zip(proposals, values.tolist(), strict=True)]
        )
        spent += len(proposals)
        yield spent, values if problem.count == 1 else objectives(evolver.population)


def pymoos(algorithm: str, problem: Problem, seed: int) -> Run:
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3
    from pymoo.algorithms.soo.nonconvex.de import DE
    from pymoo.algorithms.soo.nonconvex.ga import GA
    from pymoo.algorithms.soo.nonconvex.pso import PSO
    from pymoo.core.problem import Problem as Theirs
    from pymoo.core.termination import NoTermination

    class Same(Theirs):
        def _evaluate(self, x: Points, out: dict[str, Points]) -> None:
            out["F"] = -problem.evaluate(x)

    kind = {"NSGA2": NSGA2, "NSGA3": NSGA3, "GA": GA, "DE": DE, "PSO": PSO}[algorithm]
    size = 50 if problem.count == 1 else 100
    low, high = problem.bounds
    more = {"ref_dirs": directions(problem.count, size)} if algorithm == "NSGA3" else {}
    running = kind(pop_size=size, **more)
    program = Same(n_var=problem.dimensions, n_obj=problem.count, xl=low, xu=high)
    running.setup(program, termination=NoTermination(), seed=seed, verbose=False)
    while True:
        running.next()
        yield running.evaluator.n_eval, -running.pop.get("F")


def pycma(problem: Problem, seed: int) -> Run:
    import cma

    low, high = problem.bounds
    start = np.random.default_rng(seed).uniform(low, high)
    options = {"bounds": [low[0], high[0]], "seed": seed + 1, "verbose": -9}
    running = cma.CMAEvolutionStrategy(start, 0.3 * (high[0] - low[0]), options)
    while True:
        x = running.ask()
        values = problem.evaluate(np.array(x))
        running.tell(x, (-values[:, 0]).tolist())
        yield running.countevals, values


def contestants(problem: Problem) -> dict[str, Contestant]:
    programs: dict[str, Contestant] = {
        name: lambda problem, seed, name=name, kind=kind: run_evolver(name, kind, problem, seed)
        for name, kind in ours().items()
        if problem.count == 1 or kind.several
    }
    for name in ("GA", "DE", "PSO") if problem.count == 1 else ("NSGA2", "NSGA3"):
        programs[f"pymoo {name}"] = lambda problem, seed, name=name: pymoos(name, problem, seed)
    return {**programs, "cma": pycma} if problem.count == 1 else programs


# ------------------------------------------------------------------ measuring


def worth(problem: Problem, values: Points) -> float:
    """Of a set of points, higher is better."""
    if problem.count == 1:
        return float(values.max())
    reference = np.array(REFERENCES.get(problem.id, (1.1,) * problem.count))
    return hypervolume(values, -reference) / float(reference.prod())


def curve(run: Run, problem: Problem, evaluations: int) -> list[float]:
    """What it was worth at each of `POINTS` equal numbers of evaluations; of one objective the best so far."""
    at, best = [], -np.inf
    for spent, values in run:
        while len(at) < POINTS and spent > evaluations * (len(at) + 1) / POINTS:
            at.append(best)
        if len(at) == POINTS:
            return at
        if problem.count == 1:
            best = max(best, worth(problem, values))
        elif evaluations * (len(at) + 1) / POINTS < spent + len(values):  # the last before the next point
            best = worth(problem, values)
    raise AssertionError("a run has no end")


def measure(profile: Profile) -> dict[str, dict[str, Points]]:
    """Curves [S, POINTS] by problem and contestant."""
    by_problem: dict[str, dict[str, Points]] = {}
    for problem in problems():
        began = time.perf_counter()
        budget = profile.single if problem.count == 1 else profile.several
        by_problem[problem.id] = {
            name: np.array([curve(make(problem, seed), problem, budget) for seed in range(profile.seeds)])
            for name, make in contestants(problem).items()
        }
        print(f"  {problem.id}: {time.perf_counter() - began:.1f} s", flush=True)
    return by_problem


# ------------------------------------------------------------------ results


def rows(by_problem: dict[str, dict[str, Points]], names: list[str]) -> list[list[str]]:
    """Medians at the end; the best of a row in bold."""
    table = []
    for problem, curves in by_problem.items():
        sign = -1 if "cma" in curves else 1
        ends = {name: float(np.median(curve[:, -1])) for name, curve in curves.items()}
        shown = {name: f"{sign * end:.3g}" if sign < 0 else f"{end:.4f}" for name, end in ends.items()}
        top = shown[max(ends, key=lambda name: ends[name])]
        cells = [shown.get(name, "") for name in names]
        table.append([problem, *(f"**{cell}**" if cell == top else cell for cell in cells)])
    return table


def write_curves(path: Path, by_problem: dict[str, dict[str, Points]], profile: Profile) -> None:
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["problem", "contestant", "seed", "evaluations", "value"])
        for problem, curves in by_problem.items():
            budget, sign = (profile.single, -1) if "cma" in curves else (profile.several, 1)
            for name, curve in curves.items():
                for (seed, point), value in np.ndenumerate(curve):
                    lines.writerow([problem, name, seed, budget * (point + 1) // POINTS, f"{sign * value:.6g}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in PROFILES])
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    options = parser.parse_args()
    profile = PROFILES[options.profile.partition("=")[2]]
    warnings.simplefilter("ignore")
    by_problem = measure(profile)
    names = list(dict.fromkeys(name for curves in by_problem.values() for name in curves))
    lines = page("Evolvers on test problems", __doc__, ["", *names], rows(by_problem, names))
    facts = {**machine(), "versions": versions("numpy", "pymoo", "cma", "moocore")}
    ends = {
        problem: {name: curve[:, -1].tolist() for name, curve in curves.items()}
        for problem, curves in by_problem.items()
    }
    save(options.out, facts, [*lines, "", "![Convergence](problems.png)"], {"at the end": ends})
    if options.out is not None:
        write_curves(options.out / "problems.csv", by_problem, profile)
        figures.write(options.out)


if __name__ == "__main__":
    main()
