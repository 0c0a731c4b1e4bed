"""``evorl.evaluate players=[...] matrix=true``: everyone against everyone, and what that says of each.

    python -m evorl.evaluate matrix=true players=[RUN_DIR,RUN_DIR@best,RUN_DIR@STEP,RUN_DIR@all,rule] games=200
    python -m evorl.evaluate matrix=true players=[runs/*] width=0.1 cluster=processes cluster.workers=8

Every pair plays each side equally often, on the same episodes as all other pairs. The same command with the same
out=DIR goes on where it was stopped, and a new player adds its games alone. docs/opponents.md says what the numbers
mean.

Keys of cluster (cluster=processes, cluster.workers=8, ...) are those of evorl.run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from evorl.cli import config
from evorl.cli.repeats import check_chosen_once
from evorl.cluster.core import Cluster
from evorl.record.lock import lock
from evorl.util.errors import BadRequest
from evorl.util.text import as_json, say
from evorl.util.types import Natural

GAMES = 200
"""Of a pair, unless the command says so."""
FEWEST_BY_RETURN = 4
"""Games of a pair: intervals of returns are over episodes, which both games with exchanged sides share."""
PERIOD_S = 5.0
"""Seconds between lines that say how far it is."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The keys of the command line."""

    matrix: bool = True
    """Play everyone against everyone."""
    players: tuple[str, ...]
    """Run directories, or patterns of them: RUN_DIR is its latest checkpoint; others are RUN_DIR@best, RUN_DIR@STEP and
    RUN_DIR@all. rule is the world's own player, sb3:FILE and cleanrl:FILE are policies of other libraries. The world is
    that of the first run."""
    games: Annotated[int, Meta(ge=2)] | None = None
    """Games of each pair, an even number; those of an earlier command count. null is 200."""
    width: Annotated[float, Meta(ge=0.01, lt=1)] | None = None
    """Play each pair until the 95 % interval of its score is narrower than this, in place of games=."""
    by: Literal["points", "return"] = "points"
    """What Nash averaging, alpha-rank, exploitability and cycles are of: points of wins and draws, or returns. Ratings
    are of points."""
    seed: Natural = 0
    """Seed of the episodes and of the policies' noise."""
    deterministic: bool = False
    """Play the most likely action of each policy, instead of drawing it."""
    video: bool = False
    """Write films of the closest and of the most one-sided pair."""
    out: str | None = None
    """Where games, matrix.json, matrix.csv and matrix.html go; null makes matrices/TIME."""
    json: bool = False
    """Print matrix.json once more at the end, on a line."""
    trust: tuple[str, ...] = ()
    """Root modules outside evorl that the runs' configs may import."""


def asks_for_matrix(words: Sequence[str]) -> bool:
    """Return whether these words of ``evorl.evaluate`` ask for a matrix."""
    return any(word.partition("=")[0] in ("matrix", "players") for word in words)


def command(words: Sequence[str]) -> None:
    """Play the missing games, and write and print the results of all. Raises `BadRequest`."""
    if any(word.startswith("run=") for word in words):
        raise BadRequest("is for one run; matrix=true takes players=[RUN_DIR,...]", "run")
    ours = [word for word in words if not word.startswith(("cluster=", "cluster."))]
    request = config.parse_request(Request, ours)
    if not request.matrix:
        raise BadRequest("is for matrix=true", "players")
    games = _games(request)
    check_chosen_once(words)
    cluster = _cluster([word for word in words if word not in ours])
    from evorl.matches import films, records, result
    from evorl.matches import players as listed
    from evorl.matches.judge import judge
    from evorl.matches.schedule import games_wanted, play_missing
    from evorl.opponents.play import Matches

    entry = listed.read(request.players, request.trust)
    with closing(entry.world):
        if request.video and not entry.world.draws:
            raise BadRequest("this world draws no pictures", "video")
        out = records.prepared(request.out or time.strftime("matrices/%Y%m%d-%H%M%S"))
        setting = {"world": entry.keys, "seed": request.seed, "deterministic": request.deterministic}
        with lock(out, "out"):
            record = records.Record(out, setting)
            try:
                if request.by == "return":
                    record.margins_of(entry.players)  # refused before anything is played
                matches = Matches(entry.world, entry.players, request.seed, request.deterministic)
                play_missing(matches, record, games_wanted(games, request.width), cluster, _Progress())
            finally:
                record.close()
            margins = record.margins_of(entry.players) if request.by == "return" else None
            judged = judge(entry.players, record.points, request.seed, margins)
            document = result.document(entry, setting, judged, record)
            result.show(entry, judged, out)
            sys.stdout.flush()
            result.write(out, entry, judged, document)
            if request.video:
                films.write(out, entry, matches, record)
    say(out / "matrix.html")
    if request.json:
        print(as_json(document))


def _games(request: Request) -> int:
    """Games of each pair. Raises `BadRequest` for numbers that do not fit."""
    games = GAMES if request.games is None else request.games
    if request.games is not None and request.width is not None:
        raise BadRequest("width says how many games are played; leave one of them out", "games")
    if games % 2:
        raise BadRequest(f"must be even, as both players of a pair play each side: {games}", "games")
    if request.by == "return" and games < FEWEST_BY_RETURN:
        raise BadRequest(f"by=return needs {FEWEST_BY_RETURN} games of each pair or more", "games")
    if request.by == "return" and request.width is not None:
        raise BadRequest("is of scores, and by=return is not; take games=", "width")
    return games


def _cluster(words: Sequence[str]) -> Cluster:
    with config.opened() as hydra:
        composed = config.resolved(config.compose(hydra, words))
    cluster: Any = config.group_object(composed["cluster"], Cluster, "cluster", ())
    assert isinstance(cluster, Cluster)
    return cluster


class _Progress:
    """Says on stderr how many pairs are done, now and then."""

    def __init__(self) -> None:
        self.began = self.due = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if (time_s := time.monotonic()) >= self.due + PERIOD_S or done == total:
            self.due = time_s
            say(f"played: {done} of {total} pairs, {time_s - self.began:.0f} s", sys.stderr)
