"""Behaviour-diverse Pong: players of one strength and unlike manners, by NSGA-II.

One search, `evorl.run +experiment=lamarckian/nsga2_pong`, maximises fitness + lazy (share of steps without action) and
fitness + busy (share of steps in which the bat moves); a child begins with its fitter parent's weights and is trained
by PPO. The front is that of all evaluations (60 games each of the deterministic policy, the search's own episodes);
its two ends are judged again on as many other games, and filmed. A search that exists in the folder of runs is not
made again but gone on with.

    python benchmarks/lamarckian/nsga2.py profile=ci|paper [--seed N] [--runs DIR] [--out DIR] [--draw]

``profile=ci`` is a population of 8 with children of 500,000 steps each, some minutes on 2 cores; ``profile=paper`` the
experiment as it is: 30, 1,000,000 steps each, a thousand evaluations. ``--draw`` makes no run and shows the one there
is, as far as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import ROOT, carry_on, judge, machine, of_runs, page, save

from evorl.analysis.figures import render, style
from evorl.analysis.fronts import front_figure
from evorl.analysis.population import LoggedIndividual, PopulationLog, read_population_log
from evorl.analysis.runs import read_run

PROFILES = {"ci": ["ec.population=8", "ec.train_steps=500_000", "budget.steps=43_000_000"], "paper": []}
"""Words beside the experiment's own."""
MANNERS = ("lazy", "busy")
RESULTS = ("fitness", *MANNERS)
OTHER = 1_000_000
"""What is added to the search's seed for the games on which the ends are judged again."""


def ends(front: Sequence[LoggedIndividual]) -> dict[str, LoggedIndividual]:
    """The laziest and the busiest of a front, by what evolved: the best at the first objective and at the second."""
    return {name: max(front, key=lambda one, at=at: [*one.objectives.values()][at]) for at, name in enumerate(MANNERS)}


def row(one: LoggedIndividual, again: dict[str, Any] | None, film: str) -> list[str]:
    numbers = [*one.objectives.values(), *(one.results[name] for name in RESULTS)]
    others = [f"{again[f'{name}_mean']:.3f}" if again else "" for name in RESULTS]
    return [str(one.id), *(f"{x:.3f}" for x in numbers), *others, film]


def report(out: Path | None, facts: dict[str, Any], log: PopulationLog, seed: int) -> None:
    front = [log.individuals[number] for number in log.front]
    again, films = {}, {}
    for name, one in ends(front).items():
        film = f"nsga2_{name}.mp4"
        words = [f"individual={one.id}", f"seed={seed + OTHER}"]
        again[one.id] = judge(log.run.directory, words, out and out / film)
        films[one.id] = f"{films.get(one.id, '')} [film]({film})".strip()  # one may be both ends
    rows = [row(one, again.get(one.id), films.get(one.id, "")) for one in front]
    header = ["individual", *log.names, *RESULTS, *(f"{name}, other games" for name in RESULTS), ""]
    facts = {
        **facts, "seed": seed, "evaluations": len(log.individuals), "steps": f"{log.steps[-1]:,.0f}",
        "seconds of all evaluations": round(sum(one.seconds or 0.0 for one in log.individuals)),
    }  # fmt: skip
    shown = page("Behaviour-diverse Pong", __doc__, header, rows)
    told = [{"id": one.id, **one.objectives, **one.results} for one in front]
    save(out, facts, [*shown, "", "![The front](nsga2_front.png)"], {"front": told, "other games": again})
    if out is not None:
        with style():
            (out / "nsga2_front.png").write_bytes(render(front_figure(log))["png"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in PROFILES])
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--runs", type=Path, help="default runs/nsga2/PROFILE")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    parser.add_argument("--draw", action="store_true", help="make no run")
    options = parser.parse_args()
    profile = options.profile.partition("=")[2]
    place = (options.runs or ROOT / "runs" / "nsga2" / profile).absolute() / f"{options.seed}"
    facts: dict[str, Any] = machine()
    if not options.draw:
        words = ["+experiment=lamarckian/nsga2_pong", f"seed={options.seed}"]
        carry_on(place, words, PROFILES[profile])
    log = read_population_log(read_run(place))
    if log is None:
        raise SystemExit(f"{place} has evaluated nothing yet")
    report(options.out, facts | of_runs([place]), log, options.seed)


if __name__ == "__main__":
    main()
