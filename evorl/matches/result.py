"""What a payoff matrix writes and prints: matrix.json, matrix.csv, matrix.html, pictures, and the table of players."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from evorl import __version__
from evorl.analysis.csv_files import to_csv
from evorl.analysis.payoff_figures import RatingCurve
from evorl.matches.judge import Judgement, sentences
from evorl.matches.players import Entry
from evorl.matches.records import Record, key
from evorl.record import provenance
from evorl.util import run_directory
from evorl.util.text import printable, say

CAPTION = (
    "Scores are shares of points: a win is 1, a draw 1/2. Ratings are Bradley-Terry on Elo's scale, with intervals by "
    "a Bayesian bootstrap of the games of each pair and seat; Glicko-2 stands with 1.96 deviations. A hatched field is "
    "a pair whose interval holds one half. By returns, a payoff is half of what the player of the row earned more in a "
    "game than that of the column, with intervals by Student's t over episodes, and hatched fields hold zero."
)


def document(entry: Entry, setting: Mapping[str, Any], judged: Judgement, record: Record) -> dict[str, Any]:
    """Everything, as plain data."""
    lists = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(judged).items()}
    return {
        "evorl": __version__, **setting, "versions": provenance.versions(),
        "players": [player.record() for player in entry.players], "judgement": lists,
        "pairs": [_pair(entry, record, i, j) for i, j in combinations(range(len(entry.players)), 2)],
        "sentences": _sentences(entry, judged),
    }  # fmt: skip


def _pair(entry: Entry, record: Record, i: int, j: int) -> dict[str, Any]:
    """Wins, draws and defeats of a pair by the side of its first player."""
    names, swapped = key(entry.players[i], entry.players[j])
    points, lengths = np.array(record.points[names]), np.array(record.lengths[names])
    mine = 1 - points if swapped else points
    seats = []
    for side in (0, 1):
        own = mine[(side != swapped) :: 2]
        seats.append(
            {
                "side": side, "games": len(own), "points": float(own.sum()), "wins": int((own > 0.5).sum()),
                "draws": int((own == 0.5).sum()), "defeats": int((own < 0.5).sum()),
            }
        )  # fmt: skip
    return {
        "a": entry.players[i].name, "b": entry.players[j].name, "a_by_side": seats,
        "mean_length": float(lengths.mean()),
    }  # fmt: skip


def _sentences(entry: Entry, judged: Judgement) -> list[str]:
    sides = entry.world.side_names or ("side 0", "side 1")
    return sentences(judged, [player.name for player in entry.players], sides)


def _rows(entry: Entry, judged: Judgement) -> list[dict[str, str]]:
    """The table of players, the best rating first."""
    others = len(entry.players) - 1
    mean, earned = (judged.score.sum(1) - 0.5) / others, judged.payoff.sum(1) / others
    rows = []
    for i in np.argsort(-judged.rating, kind="stable"):
        low, high = judged.rating_bounds[:, i]
        glicko, most = judged.glicko[i], judged.glicko_bounds[1, i]
        worst = int(judged.worst[i])
        rows.append(
            {
                "player": entry.players[i].name, "rating": f"{judged.rating[i]:.0f}",
                "95 % interval": f"{low:.0f} to {high:.0f}", "Glicko-2": f"{glicko:.0f} ± {most - glicko:.0f}",
                "Nash share": f"{judged.nash[i]:.3f}", "alpha-rank": f"{judged.alpha[i]:.3f}",
                "mean score": f"{mean[i]:.3f}",
                **({"mean payoff": f"{earned[i]:+.4g}"} if judged.by == "return" else {}),
                "worst opponent": entry.players[worst].name, "score there": f"{judged.score[i, worst]:.3f}",
                **({"payoff there": f"{judged.payoff[i, worst]:+.4g}"} if judged.by == "return" else {}),
            }
        )  # fmt: skip
    return rows


def show(entry: Entry, judged: Judgement, out: Path) -> None:
    """Print the table of players and the sentences."""
    from evorl.analysis.terminal_tables import print_table

    print_table(f"{out}: {judged.games.sum() // 2:,} games", _rows(entry, judged), sys.stdout)
    for sentence in _sentences(entry, judged):
        say(printable(sentence))


def write(out: Path, entry: Entry, judged: Judgement, whole: Mapping[str, Any]) -> None:
    """Write the files; each is replaced at once or not at all."""
    from evorl.analysis import payoff_figures
    from evorl.analysis.figures import render
    from evorl.analysis.population_figures import lineage_figures

    run_directory.write_json(out, "matrix.json", whole)
    run_directory.replace(out, "matrix.csv", _csv(entry, judged))
    order = np.argsort(-judged.rating, kind="stable")
    names = [entry.players[i].name for i in order]
    square = np.ix_(order, order)
    bounds = np.stack([bound[square] for bound in judged.score_bounds])
    pictures = {
        "matrix": payoff_figures.payoff_figure(names, judged.score[square], bounds),
        "ratings": payoff_figures.ratings_figure(
            names, judged.rating[order], judged.rating_bounds[:, order], judged.nash[order]
        ),
    }
    shown = {
        "Scores of all pairs": pictures["matrix"],
        "Ratings and the mixture of Nash averaging": pictures["ratings"],
    }
    if judged.by == "return":
        bounds = np.stack([bound[square] for bound in judged.payoff_bounds])
        pictures["returns"] = payoff_figures.payoff_figure(names, judged.payoff[square], bounds, by="return")
        shown["Payoffs of all pairs by returns"] = pictures["returns"]
    if curves := _rating_curves(entry, judged):
        levels = {
            player.name: float(rating)
            for player, rating in zip(entry.players, judged.rating, strict=True)
            if player.learner is None
        }
        pictures["ratings_over_steps"] = payoff_figures.ratings_over_steps_figure(curves, levels)
        shown["Ratings of each run's policies over environment steps"] = pictures["ratings_over_steps"]
    runs = dict.fromkeys(player.directory for player in entry.players if player.checkpoint)
    for place, (directory, lineage) in enumerate(lineage_figures(runs).items()):
        pictures["family" if not place else f"family_{place}"] = lineage
        shown[f"Lineage in {Path(directory).name}, of which policies play"] = lineage
    tables = {
        "Players": _rows(entry, judged),
        "Where the players come from": [_origin(player.record()) for player in entry.players],
    }
    facts = f"{len(names)} players · {int(judged.games.sum()) // 2:,} games · evorl {__version__}"
    html = payoff_figures.page(
        f"{entry.world.title}: everyone against everyone",
        facts,
        _sentences(entry, judged),
        shown,
        tables,
        CAPTION,
    )
    run_directory.replace(out, "matrix.html", html.encode())
    for name, figure in pictures.items():
        for suffix, content in render(figure).items():
            run_directory.replace(out, f"{name}.{suffix}", content)


def _rating_curves(entry: Entry, judged: Judgement) -> dict[str, RatingCurve]:
    """The ratings of each run of which policies of different steps play."""
    families: dict[str, list[int]] = {}
    for i, player in enumerate(entry.players):
        if player.learner is not None:
            families.setdefault(player.directory, []).append(i)
    curves = {}
    for family in families.values():
        steps = np.array([entry.players[i].step for i in family])
        if steps.min() < steps.max():
            order = np.array(family)[np.argsort(steps, kind="stable")]
            name = entry.players[family[0]].name
            ordered = [entry.players[i] for i in order]
            alike = all(a.step < b.step or a.fingerprint == b.fingerprint for a, b in pairwise(ordered))
            evolves = run_directory.exists(Path(ordered[0].directory), "population.jsonl")
            curves[name.rpartition("@")[0] or name] = RatingCurve(
                np.sort(steps), judged.rating[order], judged.rating_bounds[:, order], alike and not evolves
            )
    return curves


def _origin(record: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in record.items()}


def _csv(entry: Entry, judged: Judgement) -> bytes:
    """A row for each ordered pair."""
    names = [player.name for player in entry.players]
    rows = []
    for i, j in zip(*np.nonzero(judged.games), strict=True):
        numbers = [judged.score[i, j], *judged.score_bounds[:, i, j], *judged.by_side[:, i, j]]
        numbers += [judged.payoff[i, j], *judged.payoff_bounds[:, i, j]]
        rows.append([names[i], names[j], judged.games[i, j], *(f"{x:.6g}" for x in numbers)])
    header = (
        *("player", "opponent", "games", "score", "low", "high", "score_as_side_0", "score_as_side_1"),
        *("payoff", "payoff_low", "payoff_high"),
    )
    return to_csv(header, rows)
