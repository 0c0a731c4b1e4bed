"""The pool of opponents: who is in it, how the games against each went, and with which probability each plays next.

Letters in shapes: N opponents. A score is the share of games that the learner wins, a draw counting one half.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evorl.opponents.core import PastSelves, Pooled
from evorl.ops.matchmaking import UNPLAYED, pfsp
from evorl.ops.proportions import wilson
from evorl.util.types import StateDict

LATEST = -1
"""The number of the learner's own policy of the last update, as an opponent."""
RULE = -3
"""The number of the world's rule player."""
RUNS = -4
"""The number of the first policy of another run; those of further ones count down."""
OWN = 0
"""The form of the learner's network; those of other runs may have others."""


class Table(NamedTuple):
    """What a member needs to choose opponents: plain arrays, which travel with a call."""

    numbers: NDArray[np.int64]  # [N] of the opponents; those without a chance may still play games that have begun
    chances: NDArray[np.float64]  # [1 + N] of the latest policy and of each opponent, which add up to 1; or [P, 1 + N]
    # for each side of the learner
    weights: list[Sequence[Tensor]]  # of each opponent, as `Learner.weights`; none of the rule player
    forms: NDArray[np.int64]  # [N] of their networks
    cycle: bool = False  # opponents with a chance come by turns


class Game(NamedTuple):
    """A game that ended: the number of the opponent, and the learner's points (1, 0.5 or 0)."""

    opponent: int
    points: float


@dataclass
class Opponent:
    """A policy that does not change any more, or a rule player."""

    number: int
    name: str
    step: int  # environment steps that it was trained for
    weights: list[Tensor]
    form: int = OWN
    wins: int = 0  # of the learner
    draws: int = 0
    losses: int = 0
    last: deque[float] = field(default_factory=deque)  # the learner's points in the last games of the window

    @property
    def games(self) -> int:
        """Games that the learner has played against it."""
        return self.wins + self.draws + self.losses

    @property
    def score(self) -> float:
        return sum(self.last) / len(self.last) if self.last else UNPLAYED

    @property
    def kind(self) -> str:
        """Whose weight it has a part of."""
        return "past" if self.number >= 0 else "rule" if self.number == RULE else "runs"

    def record(self, points: float, window: int) -> None:
        """Count a game that ended."""
        self.wins, self.losses = self.wins + (points > 0.5), self.losses + (points < 0.5)
        self.draws += points == 0.5
        self.last.append(points)
        if len(self.last) > window:
            self.last.popleft()

    def state_dict(self) -> StateDict:
        return {
            "name": self.name, "step": self.step, "wins": self.wins, "draws": self.draws, "losses": self.losses,
            "last": list(self.last), "weights": {str(k): x.clone() for k, x in enumerate(self.weights)},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.name, self.step = str(state["name"]), int(state["step"])
        self.weights = [torch.as_tensor(state["weights"][str(k)]).clone() for k in range(len(state["weights"]))]
        self.wins, self.draws, self.losses = (int(state[name]) for name in ("wins", "draws", "losses"))
        self.last = deque(map(float, state["last"]))


class Pool:
    """The opponents of one learner. It changes between two batches only: `record`, then `add_if_due`."""

    def __init__(self, config: Pooled, others: Iterable[Opponent] = ()) -> None:
        """``others``: policies of other runs, which stay, as the rule player does."""
        self.config = config
        self.past = config if isinstance(config, PastSelves) else None
        rule = [Opponent(RULE, "rule", 0, [])] if config.rule else []
        self.fixed = [*rule, *others]
        self.snapshots: list[Opponent] = []  # the oldest first
        self.retired: dict[int, Opponent] = {}  # left the pool, but play games that have begun
        self._next = 0  # number of the next snapshot
        self._due = 0  # environment steps at which it is taken, or updates of the learner
        self._latest = Opponent(LATEST, "latest", 0, [])
        self._won, self._played = 0.0, 0  # against the pool, since the last snapshot was considered

    @property
    def present(self) -> list[Opponent]:
        """Who may begin a game."""
        return [*self.fixed, *self.snapshots]

    # -------------------------------------------------------------- choosing

    def table(self) -> Table:
        """The opponents that may play in the next batch, and how likely each begins a game."""
        held = [*self.present, *self.retired.values()]
        latest = 0.0 if self.past is None else self.past.latest
        chances = np.zeros(1 + len(held))
        chances[0] = latest
        chances[1 : 1 + len(self.present)] = (1 - latest) * self.chances()
        numbers, forms = (
            np.array(x, np.int64)
            for x in ([opponent.number for opponent in held], [opponent.form for opponent in held])
        )
        return Table(numbers, chances, [opponent.weights for opponent in held], forms, self.config.choice == "cycle")

    def chances(self) -> NDArray[np.float64]:
        """The probability [N] of each opponent, of the games that are against the pool."""
        present, explore = self.present, self.config.explore
        chosen: NDArray[np.float64]
        match self.config.choice:
            case "newest":
                chosen = np.eye(len(present))[-1]
            case "uniform" | "cycle":
                chosen = np.full(len(present), 1 / len(present))
            case "weights":
                kinds = [opponent.kind for opponent in present]
                weights = np.array([getattr(self.config.weights, kind) / kinds.count(kind) for kind in kinds])
                chosen = weights / weights.sum()
            case "hard" | "even" as weighting:
                chosen = pfsp(np.array([opponent.score for opponent in present]), weighting)
        if self.config.choice == "cycle":
            return chosen
        games = np.array([opponent.games for opponent in present])
        rarest = games == games.min()
        chances: NDArray[np.float64] = (1 - explore) * chosen + explore * rarest / rarest.sum()
        return chances

    # -------------------------------------------------------------- after a batch

    def record(self, games: Iterable[Game], seated: Iterable[int]) -> list[Opponent]:
        """Count games that ended, in this order, and return the opponents that are forgotten.

        ``seated`` are the opponents of the games that go on.
        """
        by_number = {opponent.number: opponent for opponent in (*self.present, *self.retired.values(), self._latest)}
        for number, points in games:
            by_number[number].record(points, self.config.window)
            if number != LATEST:
                self._won, self._played = self._won + points, self._played + 1
        kept = {*seated}
        forgotten = [opponent for number, opponent in self.retired.items() if number not in kept]
        self.retired = {number: opponent for number, opponent in self.retired.items() if number in kept}
        return forgotten

    def add_if_due(self, weights: Sequence[Tensor], step: int, update: int) -> None:
        """Take a snapshot of the learner, after so many environment steps and updates, if one is due."""
        if self.past is None:
            return
        updates = self.past.updates
        now, period = (step, self.past.snapshot) if updates is None else (update, updates)
        if now < self._due:
            return
        self._due = (now // period + 1) * period
        better = self.past.promote is None or wilson(self._won, self._played)[0] > self.past.promote
        self._won, self._played = 0.0, 0
        if self.snapshots and not better:
            return
        copied = [x.detach().cpu().clone() for x in weights]
        self.snapshots.append(Opponent(self._next, f"snapshot {self._next}", step, copied))
        self._next += 1
        while len(self.snapshots) > self.past.capacity:
            oldest = self.snapshots.pop(0)
            self.retired[oldest.number] = oldest

    # -------------------------------------------------------------- reports and state

    def metrics(self) -> dict[str, float]:
        """A few numbers for a row of metrics; `rows` are the whole."""
        played = [opponent.score for opponent in self.present if opponent.last]
        metrics = {"opponents/size": float(len(self.present))}
        if played:
            metrics |= {
                "opponents/score": sum(played) / len(played), "opponents/score_worst": (worst := min(played)),
                "opponents/exploitability": max(0.0, 0.5 - worst),
            }  # fmt: skip
        if self._latest.last:
            metrics["opponents/score_latest"] = self._latest.score
        return metrics

    def rows(self, step: int) -> list[dict[str, Any]]:
        """The table of opponents after so many environment steps: the latest policy, and who may begin a game."""
        table = self.table()
        listed = [*([] if self.past is None else [replace(self._latest, step=step)]), *self.present]
        chances = table.chances[0 if self.past is not None else 1 :].tolist()
        return [row(opponent, step, chance) for opponent, chance in zip(listed, chances, strict=False)]

    def state_dict(self) -> StateDict:
        held = [self._latest, *self.present, *self.retired.values()]
        return {
            "fixed": [opponent.number for opponent in self.fixed],
            "snapshots": [snapshot.number for snapshot in self.snapshots],
            "held": {str(opponent.number): opponent.state_dict() for opponent in held},
            "next": self._next, "due": self._due, "won": self._won, "played": self._played,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError for the state of a pool with another rule player or other runs."""
        if [opponent.number for opponent in self.fixed] != [*state["fixed"]]:
            raise ValueError("the state holds other rule players or runs than the config")
        held = {opponent.number: opponent for opponent in (self._latest, *self.fixed)}
        for name, opponent in state["held"].items():
            held.setdefault(int(name), Opponent(int(name), "", 0, [])).load_state_dict(opponent)
        self._latest, self.fixed = held.pop(LATEST), [held.pop(number) for number in state["fixed"]]
        self.snapshots = [held.pop(number) for number in state["snapshots"]]
        self.retired = held
        self._next, self._due = int(state["next"]), int(state["due"])
        self._won, self._played = float(state["won"]), int(state["played"])


def row(opponent: Opponent, step: int, chance: float | None) -> dict[str, Any]:
    """A row of opponents.jsonl: an opponent's games and the score of the window, with its 95 % interval (Wilson).

    ``chance`` is that of the next game; None if the opponent has left.
    """
    low, high = wilson(sum(opponent.last), len(opponent.last))
    return {
        "step": step, "opponent": opponent.name, "born": opponent.step, "present": chance is not None, "chance": chance,
        "games": opponent.games, "wins": opponent.wins, "draws": opponent.draws, "losses": opponent.losses,
        "score": opponent.score, "low": low, "high": high,
    }  # fmt: skip
