"""The directory of a payoff matrix: what was played, so that the same command goes on and new players add their rows.

``setting.json`` says which game, ``games.jsonl`` holds a line for each pair that was played. A pair is known by the
fingerprints of its players, so names and places may change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from evorl.record.json_lines import JsonLinesFile
from evorl.util import run_directory
from evorl.util.errors import BadRequest, wrong_data
from evorl.util.names import check_can_be_made, check_names_directory

if TYPE_CHECKING:
    from evorl.matches.players import Player
    from evorl.opponents.play import Outcome

SETTING, GAMES = "setting.json", "games.jsonl"


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """Games of a pair, from ``first`` on. The player a has the lesser fingerprint."""

    a: str
    b: str
    first: int
    points: list[float]
    """Of player a."""
    lengths: list[int]
    margins: list[float] = []
    """Half of what player a earned more than the other, against the rule player what it earned; none in games that an
    older version played."""


class Record:
    """All games in a directory that were played, and the file that new ones go to."""

    def __init__(self, directory: Path, setting: dict[str, Any]) -> None:
        """Raises `BadRequest` if the directory holds games of another setting."""
        self.directory = directory
        if run_directory.exists(directory, SETTING):
            _check_setting(directory, setting)
        else:
            run_directory.write_json(directory, SETTING, setting)
        self.points: dict[tuple[str, str], list[float]] = {}
        self.lengths: dict[tuple[str, str], list[int]] = {}
        self.margins: dict[tuple[str, str], list[float]] = {}
        if run_directory.exists(directory, GAMES):
            with wrong_data(lambda why: BadRequest(f"{directory / GAMES} is damaged: {why}", "out")):
                for text in run_directory.lines(directory, GAMES):
                    self._add(msgspec.json.decode(text, type=Line))
        self._file = JsonLinesFile(directory, GAMES, _whole(directory))

    def _add(self, line: Line) -> None:
        pair = line.a, line.b
        points, lengths = self.points.get(pair, []), self.lengths.get(pair, [])
        margins = line.margins or [math.nan] * len(line.points)
        if not 0 <= line.first <= len(points) or not len(line.points) == len(line.lengths) == len(margins):
            raise ValueError(f"games of {line.a} and {line.b} do not follow one another")
        if not all(0 <= x <= 1 for x in line.points):
            raise ValueError(f"points of {line.a} and {line.b} are not between 0 and 1")
        self.points[pair] = points[: line.first] + line.points
        self.lengths[pair] = lengths[: line.first] + line.lengths
        self.margins[pair] = self.margins.get(pair, [])[: line.first] + margins

    def add(self, outcome: Outcome, pair: tuple[str, str]) -> None:
        """Keep the games of a pair, by its fingerprints, also after a power cut."""
        line = Line(*pair, outcome.pair.first, outcome.points, outcome.lengths, outcome.margins)
        self._add(line)
        self._file.append([msgspec.structs.asdict(line)])
        self._file.sync()

    def margins_of(self, players: Sequence[Player]) -> dict[tuple[str, str], list[float]]:
        """The margins of the games so far of all pairs of these players.

        Raises `BadRequest` where games of an older version have none.
        """
        names = {key(*pair)[0] for pair in combinations(players, 2)}
        found = {name: self.margins.get(name, []) for name in names}
        if any(math.isnan(x) for margins in found.values() for x in margins):
            raise BadRequest(
                f"{self.directory} has games of a version that kept no returns; choose another directory", "out"
            )
        return found

    def close(self) -> None:
        self._file.close()


def key(a: Player, b: Player) -> tuple[tuple[str, str], bool]:
    """The fingerprints of a pair in the order in which it plays, and whether they are the other way round.

    The rule player is always b.
    """
    swapped = a.learner is None or (b.learner is not None and b.fingerprint < a.fingerprint)
    return ((b.fingerprint, a.fingerprint) if swapped else (a.fingerprint, b.fingerprint)), swapped


def prepared(out: str) -> Path:
    """Make the directory. Raises `BadRequest` unless it is new, empty, or that of a matrix."""
    check_names_directory(out, "a directory with the games, matrix.json and pictures", "out")
    place = Path(out)
    check_can_be_made(place, [place.absolute(), *place.absolute().parents], "out")
    if place.exists() and any(place.iterdir()) and not run_directory.exists(place, SETTING):
        raise BadRequest(f"{place} exists and is no matrix of ours; choose another directory", "out")
    place.mkdir(parents=True, exist_ok=True)
    return place


def _check_setting(directory: Path, setting: dict[str, Any]) -> None:
    try:
        known = run_directory.read_json(directory, SETTING)
    except (OSError, ValueError) as error:
        raise BadRequest(f"cannot read {directory / SETTING}: {error}", "out") from None
    ours = msgspec.json.decode(msgspec.json.encode(setting))
    if not isinstance(known, dict):
        raise BadRequest(f"{directory / SETTING} holds no setting", "out")
    if other := [name for name in ours if known.get(name) != ours[name]]:
        raise BadRequest(f"{directory} holds games of another {' and '.join(other)}; choose another directory", "out")


def _whole(directory: Path) -> int:
    """The bytes of the complete lines of games: a killed matrix may have left part of one."""
    if not run_directory.exists(directory, GAMES):
        return 0
    with run_directory.opened(directory, GAMES) as file:
        return max((end for _, end in run_directory.follow_lines(file, 0)), default=0)
