"""Behaviour-diverse Pong: players of one strength and unlike manners, by NSGA-II.

One search, `evorl.run +experiment=lamarckian/nsga2_pong`, maximises fitness + lazy (share of steps without action) and
fitness + busy (share of steps in which the bat moves); a child begins with its fitter parent's weights and is trained
by PPO. The front is that of all evaluations (60 games each of the deterministic policy, the search's own episodes);
its two ends are judged again on as many other games, filmed, and kept in `policies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from evorl.analysis.figures import style
from evorl.analysis.fronts import front_figure
from evorl.analysis.population import LoggedIndividual, PopulationLog, read_population_log
from evorl.ops.student_t import t_quantile
from evorl.reproduction.judging import judge
from evorl.reproduction.parts import Sweep
from evorl.reproduction.table import Analysis, Found, Picture, Policy, Profile, Table

EXPERIMENT = ("seed=0", "+experiment=lamarckian/nsga2_pong")
SMALL = ("ec.population=8", "ec.train_steps=500_000", "budget.steps=43_000_000")
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


def analyse(there: Found) -> Analysis | None:
    logs = [log for run in there.runs if (log := read_population_log(run)) is not None]
    return told(logs[0]) if logs else None


def told(log: PopulationLog) -> Analysis:
    seed = int(log.run.seed)
    front = [log.individuals[number] for number in log.front]
    again, films, links, policies = {}, {}, {}, {}
    for name, one in ends(front).items():
        words = (f"individual={one.id}", f"seed={seed + OTHER}")
        again[one.id], film = judge(log.run.directory, words, film=True)
        policies[f"nsga2_{name}"] = Policy(log.run.directory, words)
        films[f"nsga2_{name}.mp4"] = film
        links[one.id] = f"{links.get(one.id, '')} [film](nsga2_{name}.mp4)".strip()  # one may be both ends
    with style():
        drawn = front_figure(log)
    return Analysis(
        header=["individual", *log.names, *RESULTS, *(f"{name}, other games" for name in RESULTS), ""],
        rows=[row(one, again.get(one.id), links.get(one.id, "")) for one in front],
        pictures=[Picture("nsga2_front", "The front", drawn)],
        files=films,
        policies=policies,
        facts={
            "evaluations": len(log.individuals), "steps": f"{log.steps[-1]:,.0f}",
            "seconds of all evaluations": round(sum(one.seconds or 0.0 for one in log.individuals)),
        },
        data={
            "front": [{"id": one.id, **one.objectives, **one.results} for one in front],
            "rounds": int(log.run.config["mdp.rounds"]),
            "other games": {str(number): one for number, one in again.items()},
        },
    )  # fmt: skip


def measured(data: Mapping[str, Any]) -> str:
    """The ranges over the front, of one search, and the fitness of its ends on other games with its interval."""
    front = data["front"]
    spans = {name: [one[name] for one in front] for name in RESULTS}
    ranges = [f"{name} {min(found):.2f} to {max(found):.2f}" for name, found in spans.items()]
    objectives = [*front[0]][1:3]  # after the id
    again = {
        name: data["other games"][str(max(front, key=lambda one, of=of: one[of])["id"])]
        for name, of in zip(MANNERS, objectives, strict=True)
    }
    games = [f"{name} {one['fitness_mean']:.2f} ± {half_width(one, data['rounds']):.2f}" for name, one in again.items()]
    shown = f"{', '.join(ranges)}; fitness of its ends on other games: {', '.join(games)}"
    return f"one search, a front of {len(front)}: {shown}"


def half_width(judged: Mapping[str, Any], rounds: int) -> float:
    """Of the 95 % interval of the mean fitness over games: returns from -rounds to rounds have a fitness of 0 to 1."""
    n = judged["episodes"]
    return t_quantile(n - 1) * judged["return_std"] / math.sqrt(n - 1) / (2 * rounds)  # the deviation divides by n


TABLE = Table(
    title="Behaviour-diverse Pong",
    of="Behaviour-diverse agents for Pong by NSGA-II",
    claim="the front has players of one strength that differ in behaviour; no numbers are published",
    source="Bai et al. 2022, use case",
    about=__doc__,
    profiles={
        "ci": Profile(
            "population 8, children of 500,000 steps, 72 evaluations; one seed", 0.1,
            [Sweep("nsga2", (*EXPERIMENT, *SMALL))],
        ),
        "paper": Profile(
            "population 30, children of 1,000,000 steps, 1,000 evaluations; one seed", 2, [Sweep("nsga2", EXPERIMENT)]
        ),
    },
    analyse=analyse,
    measured=measured,
)  # fmt: skip
