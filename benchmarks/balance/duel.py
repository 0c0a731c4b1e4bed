"""A duel that a knight wins by 80 to 20 is balanced by a population of learners.

The game is a short duel in a small field (`evorl.run +experiment=balance/duel`); a learner (PPO, one network for both
sides) is trained on both sides of a game, which is then judged by how the learner plays against itself.

1. *start*: fresh learners judge the designer's game.
2. *search*: NSGA-II over four numbers of the fighters, for an even win rate and a small change. A child goes on from
   its parent's network, in its own game. A straight line through all its games (`benchmarks/balance/model.py`) says
   what each number does, and which smallest change is even.
3. *referees*: fresh learners play that game. Learners of the search have learned for longer than fresh ones, so the
   line is moved to the referees' win rate, and gives the balanced game.
4. *judges*: other fresh learners, which took no part so far, judge the balanced game.
5. *archetypes*: of the judges' games, in which a fighter may not use one of its skills.

A win rate is a mean over learners with its 95 % interval (Student's t over learners); a draw is half a win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.balance.model import Floats, Line, fitted, smallest_even, through
from evorl.analysis.figures import style
from evorl.analysis.fronts import front_figure
from evorl.analysis.population import LoggedIndividual, PopulationLog, read_population_log
from evorl.analysis.runs import find_runs, read_runs
from evorl.ops.student_t import half_width
from evorl.reproduction.judging import judge
from evorl.reproduction.parts import Inputs, Measurement, Sweep
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Rows, Table

GAME = "+experiment=balance/duel"
GENES = {
    "knight.health": (56.0, 36.0, 76.0),
    "knight.strike.damage": (13.0, 8.0, 18.0),
    "archer.health": (40.0, 28.0, 60.0),
    "archer.shoot.damage": (10.0, 6.0, 16.0),
}
"""The designer's value, and the range."""
OWN, LOW, HIGH = np.array([*GENES.values()]).T
LENGTH = 55
"""Environment steps of a game, about."""
MARGIN = 0.03
START = (0.75, 0.85)


class Size(NamedTuple):
    """Numbers of learners, and environment steps of each."""

    fresh: int
    """Learners that judge the designer's game, and as many referees."""
    search: int
    judges: int
    population: int
    steps: int
    """Of a fresh learner."""
    child: int
    """Of an individual of the search."""
    episodes: int
    """Two in each game that judges."""
    tested: int
    """Judges of which archetypes play."""
    words: tuple[str, ...] = ()


SIZES = {
    "tiny": Size(2, 6, 2, 3, 256, 256, 8, 1, ("rl.slots=8", "rl.horizon=16", "rl.minibatch=64", "rl.passes=1")),
    "ci": Size(8, 32, 16, 8, 60_000, 40_000, 600, 4),
    "paper": Size(16, 96, 32, 16, 400_000, 200_000, 1600, 8),
}


def fresh(name: str, size: Size, learners: int, seed: int, values: Mapping[str, float]) -> Sweep:
    """Fresh learners in a game with these values of the genes."""
    game = [f"mdp.{gene}={x:.4g}" for gene, x in values.items()]
    own = (f"seed={seed}", f"ec.population={learners}", f"ec.train_steps={size.steps}", f"ec.episodes={size.episodes}")
    return Sweep(name, (GAME, *game, *own, "ec.slots=1", *size.words, budget(learners, size.steps, size.episodes)))


def search(size: Size) -> Sweep:
    genes = [f"+ec.genes.mdp.{name}=[{low},{high}]" for name, (_, low, high) in GENES.items()]
    own = (f"ec.population={size.population}", f"ec.train_steps={size.child}", f"ec.episodes={size.episodes}")
    words = ("seed=1", GAME, "ec=nsga2", "ec.objectives=[evenness,{change:-1}]", *own, "ec.slots=1")
    return Sweep("search", (*words, *genes, *size.words, budget(size.search, size.child, size.episodes)))


def budget(learners: int, steps: int, episodes: int) -> str:
    """That of about so many learners, whose games that judge count, too."""
    return f"budget.steps={round((learners - 0.5) * (steps + episodes // 2 * LENGTH))}"


# ------------------------------------------------------------------ what is read


def log_of(folder: Path) -> PopulationLog:
    (run,) = read_runs(find_runs([folder]))[0]
    log = read_population_log(run)
    assert log is not None
    return log


def win_rates(log: PopulationLog) -> list[float]:
    """The knight's win rate in the games of each learner."""
    return [x for individual in log.individuals if (x := individual.results.get("first_wins")) is not None]


def line_of(log: PopulationLog, games: int) -> Line:
    sound = [individual for individual in log.individuals if individual.results.get("first_wins") is not None]
    genes = [[float(individual.genes[f"mdp.{name}"]) for name in GENES] for individual in sound]
    return fitted(units(np.array(genes)), np.array(win_rates(log)), games)


def units(values: Floats) -> Floats:
    """Values of genes [..., H] from their designer's, in units of their ranges."""
    return np.asarray((values - OWN) / (HIGH - LOW))


def values(x: Floats) -> dict[str, float]:
    """The other way."""
    return dict(zip(GENES, (OWN + x * (HIGH - LOW)).round(3).tolist(), strict=True))


def evened(line: Line) -> dict[str, float]:
    """The values of the smallest change that the line calls even."""
    return values(smallest_even(line, units(LOW), units(HIGH)))


# ------------------------------------------------------------------ what is measured after the search


def judged(inputs: Inputs, name: str, learners: int, seed: int, size: Size, game: Mapping[str, float]) -> list[float]:
    """Train fresh learners in a game; return the knight's win rates."""
    sweep = fresh(name, size, learners, seed, game)
    if not sweep.carry_out(inputs.folder, inputs.words):
        raise SystemExit(1)
    return win_rates(log_of(inputs.folder / name))


def referees(size: Size) -> Measurement:
    def measure(inputs: Inputs) -> dict[str, Any]:
        from benchmarks.balance.archetypes import payoffs  # here: it needs torch

        line = line_of(log_of(inputs.folder.parent / "search"), size.episodes // 2)
        game = evened(line)
        rates = judged(inputs, "referees", size.fresh, 2, size, game)
        moved = through(line, units(np.array([*game.values()])), float(np.mean(rates)), size.episodes // 2)
        balanced = evened(moved)
        judges = judged(inputs, "judges", size.judges, 3, size, balanced)
        (run,) = read_runs(find_runs([inputs.folder / "judges"]))[0]
        tested = [individual.id for individual in log_of(inputs.folder / "judges").individuals][: size.tested]
        return {
            "first": {"game": game, "rates": rates}, "balanced": {"game": balanced, "rates": judges},
            "archetypes": payoffs(run.directory, tested, size.episodes // 2),
            "line": {"intercept": line.intercept, "moved": moved.intercept, "slope": line.slope.tolist(),
                     "half_width": line.half_width.tolist()},
        }  # fmt: skip

    return Measurement("judged", measure)


# ------------------------------------------------------------------ the report


def rates_text(rates: Sequence[float]) -> str:
    half = half_width(rates)
    return f"{np.mean(rates):.3f}" + (f" ± {half:.3f}" if np.isfinite(half) else "")


def analyse(results: Results) -> Analysis | None:
    from benchmarks.balance.archetypes import table  # here: it needs torch

    begun = {name: results.folder / name for name in ("start", "search")}
    if "judged" not in results.measured or not all(place.is_dir() for place in begun.values()):
        return None
    measurement, log = results.measured["judged"], log_of(begun["search"])
    films = films_of_ends(log)
    start, balanced = win_rates(log_of(begun["start"])), measurement["balanced"]
    games = {"designer's": (dict(zip(GENES, OWN, strict=True)), start)} | {
        name: (measurement[key]["game"], measurement[key]["rates"])
        for name, key in (("even in the search", "first"), ("balanced", "balanced"))
    }
    with style():
        drawn = front_figure(log)
    return Analysis(
        header=["game", *GENES, "the knight wins", "learners", "change"],
        rows=[
            [name, *(f"{x:.4g}" for x in game.values()), rates_text(rates), str(len(rates)), f"{distance(game):.3f}"]
            for name, (game, rates) in games.items()
        ],
        also=[effects(measurement["line"]), Rows(*table(measurement["archetypes"])), front_rows(log, films)],
        gates=gates(start, balanced["rates"]),
        notes=[
            "The second table: what a number does to the knight's win rate near an even game, in points for each tenth "
            "of its range, and the change that alone would even the designer's game, as the line says it. The third: "
            "the knight's win rate between archetypes of the balanced game. The last: the front of the search, with a "
            "game of each end in which the individual's learner plays both sides."
        ],
        pictures=[Picture("duel_front", "The front of the search", drawn)],
        files={film.name: film.file for film in films.values()},
        data={
            "start": start, **measurement,
            "search": [{**individual.genes, **individual.results} for individual in log.individuals],
        },
    )  # fmt: skip


def distance(game: Mapping[str, float]) -> float:
    return float(np.sqrt(np.mean(units(np.array([*game.values()])) ** 2)))


def gates(start: Sequence[float], balanced: Sequence[float]) -> dict[str, str]:
    low, high = START
    return {
        f"the designer's game is won by the knight in {low:.0%} to {high:.0%} of the games": _verdict(
            low <= np.mean(start) <= high
        ),
        f"the balanced game is even within {MARGIN:.0%} on average, by judges that took no part": _verdict(
            abs(np.mean(balanced) - 0.5) <= MARGIN
        ),
    }


def _verdict(passed: object) -> str:
    return "passed" if passed else "failed"


def effects(line: Mapping[str, Any]) -> Rows:
    """What each number does."""
    rows = []
    for (name, (own, low, high)), b, half in zip(GENES.items(), line["slope"], line["half_width"], strict=True):
        each = 100 * 0.1 / 4  # points for a tenth of the range: the slope of the logistic curve at 1/2 is 1/4
        alone = own - line["moved"] / b * (high - low) if b else np.nan
        even = f"{alone:.4g}" if low <= alone <= high else "beyond its range"
        interval = "" if half is None else f" ± {each * half:.1f}"  # a file has null for what is not finite
        rows.append([name, f"{each * b:+.1f}{interval}", f"{own:g}", even])
    return Rows(["number", "points for a tenth of its range", "designer's", "even if it alone changed"], rows)


class Film(NamedTuple):
    name: str
    """Under which it is kept."""
    file: Path


def front_of(log: PopulationLog) -> list[LoggedIndividual]:
    """The front, the largest change first."""
    return sorted(
        (log.individuals[row] for row in log.front), key=lambda individual: -(individual.results["change"] or 0.0)
    )


def films_of_ends(log: PopulationLog) -> dict[int, Film]:
    """A game of the most changed individual of the front and of the least changed, by number."""
    members = front_of(log)
    films = {}
    for name, number in {"most_changed": members[0].id, "least_changed": members[-1].id}.items():
        if number not in films:  # a front may have one member
            _, file = judge(log.run.directory, [f"individual={number}", "episodes=2"], film=True)
            assert file is not None
            films[number] = Film(f"duel_{name}{file.suffix}", file)
    return films


def front_rows(log: PopulationLog, films: Mapping[int, Film]) -> Rows:
    names = ("first_wins", "change", "length", "variety")
    cells = [
        [str(individual.id), *(f"{individual.genes[f'mdp.{name}']:.4g}" for name in GENES)]
        + [f"{individual.results[name]:.3g}" for name in names]
        + [f"[film]({films[individual.id].name})" if individual.id in films else ""]
        for individual in front_of(log)
    ]
    return Rows(["individual", *GENES, "the knight wins", *names[1:], ""], cells)


def measured(data: Mapping[str, Any]) -> str:
    start, balanced = data["start"], data["balanced"]["rates"]
    return (
        f"the knight wins {rates_text(start)} of the designer's games ({len(start)} learners) "
        f"and {rates_text(balanced)} of the balanced ones ({len(balanced)} fresh learners)"
    )


def profile(name: str, core_hours: float) -> Profile:
    size = SIZES[name]
    said = (
        f"{size.fresh} learners at the start and as many referees, {size.search} individuals, {size.judges} judges; "
        f"{size.steps:,} steps of a fresh learner"
    )
    return Profile(said, core_hours, [fresh("start", size, size.fresh, 0, {}), search(size), referees(size)])


TABLE = Table(
    title="A duel balanced by learners",
    of="A game from 80:20 to 50:50",
    claim="the balanced game is even within 3 points, judged by fresh learners; no number is published",
    source="Bai et al. 2022, use case",
    about=__doc__,
    profiles={name: profile(name, hours) for name, hours in (("tiny", 0.01), ("ci", 0.5), ("paper", 12))},
    analyse=analyse,
    measured=measured,
)
