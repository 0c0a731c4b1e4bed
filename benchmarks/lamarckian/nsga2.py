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
from evorl.reproduction.table import Analysis, Picture, Policy, Profile, Results, Table

EXPERIMENT = ("seed=0", "+experiment=lamarckian/nsga2_pong")
SMALL = ("ec.population=8", "ec.train_steps=500_000", "budget.steps=43_000_000")
MANNERS = ("lazy", "busy")
RESULTS = ("fitness", *MANNERS)
OTHER = 1_000_000
"""What is added to the search's seed for the games on which the ends are judged again."""


def ends(front: Sequence[LoggedIndividual]) -> dict[str, LoggedIndividual]:
    """The laziest and the busiest of a front, by what evolved: the best at the first objective and at the second."""
    return {
        name: max(front, key=lambda individual, at=at: [*individual.objectives.values()][at])
        for at, name in enumerate(MANNERS)
    }


def row(individual: LoggedIndividual, other_games: dict[str, Any] | None, film: str) -> list[str]:
    numbers = [*individual.objectives.values(), *(individual.results[name] for name in RESULTS)]
    others = [f"{other_games[f'{name}_mean']:.3f}" if other_games else "" for name in RESULTS]
    return [str(individual.id), *(f"{x:.3f}" for x in numbers), *others, film]


def analyse(results: Results) -> Analysis | None:
    logs = [log for run in results.runs if (log := read_population_log(run)) is not None]
    return analysis_of(logs[0]) if logs else None


def analysis_of(log: PopulationLog) -> Analysis:
    seed = int(log.run.seed)
    front = [log.individuals[number] for number in log.front]
    games, films, links, policies = {}, {}, {}, {}
    for name, individual in ends(front).items():
        words = (f"individual={individual.id}", f"seed={seed + OTHER}")
        games[individual.id], film = judge(log.run.directory, words, film=True)
        policies[f"nsga2_{name}"] = Policy(log.run.directory, words)
        films[f"nsga2_{name}.mp4"] = film
        link = links.get(individual.id, "")  # an individual may be both ends
        links[individual.id] = f"{link} [film](nsga2_{name}.mp4)".strip()
    with style():
        drawn = front_figure(log)
    return Analysis(
        header=["individual", *log.names, *RESULTS, *(f"{name}, other games" for name in RESULTS), ""],
        rows=[row(individual, games.get(individual.id), links.get(individual.id, "")) for individual in front],
        pictures=[Picture("nsga2_front", "The front", drawn)],
        files=films,
        policies=policies,
        facts={
            "evaluations": len(log.individuals), "steps": f"{log.steps[-1]:,.0f}",
            "seconds of all evaluations": round(sum(individual.seconds or 0.0 for individual in log.individuals)),
        },
        data={
            "front": [{"id": individual.id, **individual.objectives, **individual.results} for individual in front],
            "rounds": int(log.run.config["mdp.rounds"]),
            "other games": {str(number): game for number, game in games.items()},
        },
    )  # fmt: skip


def measured(data: Mapping[str, Any]) -> str:
    """The ranges over the front, of one search, and the fitness of its ends on other games with its interval."""
    front = data["front"]
    spans = {name: [individual[name] for individual in front] for name in RESULTS}
    ranges = [f"{name} {min(values):.2f} to {max(values):.2f}" for name, values in spans.items()]
    objectives = [*front[0]][1:3]  # after the id
    by_end = {
        name: data["other games"][str(max(front, key=lambda individual, of=of: individual[of])["id"])]
        for name, of in zip(MANNERS, objectives, strict=True)
    }
    games = [
        f"{name} {game['fitness_mean']:.2f} ± {half_width(game, data['rounds']):.2f}" for name, game in by_end.items()
    ]
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
