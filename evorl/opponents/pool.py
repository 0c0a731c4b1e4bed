"""The pool of snapshots: who is in it, how the games against each went, and with which probability each plays next.

Letters in shapes: N snapshots. A score is the share of games that the learner wins, a draw counting one half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evorl.opponents.core import PastSelves
from evorl.ops.matchmaking import pfsp
from evorl.ops.proportions import wilson
from evorl.util.types import StateDict

LATEST = -1
"""The number of the learner's own policy of the last update, as an opponent."""
UNPLAYED = 0.5
"""Score against a snapshot before the first game."""


class Table(NamedTuple):
    """What a member needs to choose opponents: plain arrays, which travel with a call."""

    numbers: NDArray[np.int64]  # [N] of the snapshots; those without a chance may still play games that have begun
    chances: NDArray[np.float64]  # [1 + N] of the latest policy and of each snapshot; they add up to 1
    weights: list[list[Tensor]]  # of each snapshot, as `Learner.weights`


class Game(NamedTuple):
    """A game that ended: the number of the opponent, and the learner's points (1, 0.5 or 0)."""

    opponent: int
    points: float


@dataclass
class Snapshot:
    """A policy that does not change any more."""

    number: int
    step: int  # environment steps that the learner had taken
    weights: list[Tensor]
    games: int = 0  # played against it by the learner
    last: deque[float] = field(default_factory=deque)  # the learner's points in the last games of the window

    @property
    def score(self) -> float:
        return sum(self.last) / len(self.last) if self.last else UNPLAYED


class Pool:
    """The snapshots of one learner. It changes between two batches only: `record`, then `add_if_due`."""

    def __init__(self, config: PastSelves) -> None:
        self.config = config
        self.snapshots: list[Snapshot] = []  # the oldest first
        self.retired: dict[int, Snapshot] = {}  # left the pool, but play games that have begun
        self._next = 0  # number of the next snapshot
        self._due = 0  # environment steps at which it is taken
        self._latest: deque[float] = deque(maxlen=config.window)  # points against the latest policy
        self._won, self._played = 0.0, 0  # against the pool, since the last snapshot was considered

    # -------------------------------------------------------------- choosing

    def table(self) -> Table:
        """The snapshots that may play in the next batch, and how likely each begins a game."""
        held = [*self.snapshots, *self.retired.values()]
        chances = np.zeros(1 + len(held))
        chances[0] = self.config.latest
        chances[1 : 1 + len(self.snapshots)] = (1 - self.config.latest) * self.chances()
        return Table(np.array([one.number for one in held], np.int64), chances, [one.weights for one in held])

    def chances(self) -> NDArray[np.float64]:
        """The probability [N] of each snapshot, of the games that are against the pool."""
        count, explore = len(self.snapshots), self.config.explore
        if self.config.choice == "newest":
            chosen = np.eye(count)[-1]
        elif self.config.choice == "uniform":
            chosen = np.full(count, 1 / count)
        else:
            chosen = pfsp(np.array([one.score for one in self.snapshots]), self.config.choice)
        games = np.array([one.games for one in self.snapshots])
        rarest = games == games.min()
        chances: NDArray[np.float64] = (1 - explore) * chosen + explore * rarest / rarest.sum()
        return chances

    # -------------------------------------------------------------- after a batch

    def record(self, games: Iterable[Game], seated: Iterable[int]) -> None:
        """Count games that ended, in this order; ``seated`` are the opponents of the games that go on."""
        by_number = {one.number: one for one in (*self.snapshots, *self.retired.values())}
        for opponent, points in games:
            if opponent == LATEST:
                self._latest.append(points)
                continue
            snapshot = by_number[opponent]
            snapshot.games += 1
            snapshot.last.append(points)
            if len(snapshot.last) > self.config.window:
                snapshot.last.popleft()
            self._won, self._played = self._won + points, self._played + 1
        kept = {*seated}
        self.retired = {number: one for number, one in self.retired.items() if number in kept}

    def add_if_due(self, weights: Sequence[Tensor], step: int) -> None:
        """Take a snapshot of the learner, which has taken ``step`` environment steps, if one is due."""
        if step < self._due:
            return
        self._due = (step // self.config.snapshot + 1) * self.config.snapshot
        better = self.config.promote is None or wilson(self._won, self._played)[0] > self.config.promote
        self._won, self._played = 0.0, 0
        if self.snapshots and not better:
            return
        self.snapshots.append(Snapshot(self._next, step, [x.detach().cpu().clone() for x in weights]))
        self._next += 1
        while len(self.snapshots) > self.config.capacity:
            oldest = self.snapshots.pop(0)
            self.retired[oldest.number] = oldest

    # -------------------------------------------------------------- reports and state

    def metrics(self) -> dict[str, float]:
        """A few numbers for a row of metrics; `rows` are the whole."""
        played = [one.score for one in self.snapshots if one.last]
        found = {"opponents/size": float(len(self.snapshots))}
        if played:
            found |= {"opponents/score": sum(played) / len(played), "opponents/score_worst": min(played)}
        if self._latest:
            found["opponents/score_latest"] = sum(self._latest) / len(self._latest)
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Each snapshot with its games, the mean score of the window, and its 95 % interval (Wilson)."""
        chances = self.chances() if self.snapshots else np.zeros(0)
        found = []
        for one, chance in zip(self.snapshots, chances.tolist(), strict=True):
            low, high = wilson(sum(one.last), len(one.last))
            about = {"snapshot": one.number, "step": one.step, "games": one.games, "chance": chance}
            found.append({**about, "score": one.score, "low": low, "high": high})
        return found

    def state_dict(self) -> StateDict:
        held = [*self.snapshots, *self.retired.values()]
        return {
            "snapshots": [one.number for one in self.snapshots],
            "held": {
                str(one.number): {
                    "step": one.step, "games": one.games, "last": list(one.last),
                    "weights": {str(k): x.clone() for k, x in enumerate(one.weights)},
                }
                for one in held
            },
            "next": self._next, "due": self._due, "latest": list(self._latest),
            "won": self._won, "played": self._played,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        held = {}
        for name, one in state["held"].items():
            weights = [torch.as_tensor(one["weights"][str(k)]).clone() for k in range(len(one["weights"]))]
            last = deque(map(float, one["last"]))
            held[int(name)] = Snapshot(int(name), int(one["step"]), weights, int(one["games"]), last)
        self.snapshots = [held.pop(number) for number in state["snapshots"]]
        self.retired = held
        self._next, self._due = int(state["next"]), int(state["due"])
        self._latest = deque(map(float, state["latest"]), maxlen=self.config.window)
        self._won, self._played = float(state["won"]), int(state["played"])
