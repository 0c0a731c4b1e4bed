"""Restricted play (Jaffe et al. 2012, "Evaluating competitive game balance with restricted play"): who may not use a
skill is an archetype of its fighter, and a table has the knight's win rate between all of them.

The learners are those that judge the balanced game. They have learned with all skills, so an archetype does without
one, and does not make up for it by other habits. A rate near that of the whole fighters says that the skill does not
matter.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.api.runs import RunResult
from evorl.mdp.core import StateDict
from evorl.mdp.duel.rules import ARCHER, BLOCK, CHARGE, KNIGHT, ROLL, SHOOT, STRIKE, VOLLEY
from evorl.ops.student_t import half_width
from evorl.population.balance_evaluator import play_game
from evorl.rl.core import Acting, Decision
from evorl.util import seed as seeds

KNIGHTS = {"knight": None, "without strike": STRIKE, "without charge": CHARGE, "without block": BLOCK}
ARCHERS = {"archer": None, "without shoot": SHOOT, "without volley": VOLLEY, "without roll": ROLL}


class Restricted:
    """A learner on both sides of each game, of which a side may not use a skill."""

    def __init__(self, learner: Acting, forbidden: Sequence[int | None]) -> None:
        """``forbidden``: the skill of each side, or None."""
        self.learner, self.spec, self.forbidden = learner, learner.spec, forbidden

    def carry(self, slots: int) -> Tensor | None:
        return self.learner.carry(slots)

    def act(
        self, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor, carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:  # fmt: skip
        assert legal is not None
        legal = legal.clone()
        for side, skill in enumerate(self.forbidden):
            if skill is not None:
                legal[side::2, skill] = False
        return self.learner.act(inputs, legal, noise, carry, start)


def payoffs(run: Path, individuals: Sequence[int], episodes: int) -> StateDict:
    """The knight's win rates between archetypes, of each individual of a run: [knights, archers, individuals]."""
    rates = [
        [[_rate(run, number, episodes, knight, archer) for number in individuals] for archer in ARCHERS.values()]
        for knight in KNIGHTS.values()
    ]
    return {"knights": [*KNIGHTS], "archers": [*ARCHERS], "rates": rates, "games": episodes // 2}


def _rate(run: Path, individual: int, episodes: int, knight: int | None, archer: int | None) -> float:
    opened = RunResult(run, individual=individual)
    forbidden: list[int | None] = [None, None]
    forbidden[KNIGHT], forbidden[ARCHER] = knight, archer
    torch.set_num_threads(1)
    keys = seeds.Episodes(opened.experiment.seed, "archetypes", evaluation=True)
    world = copy.copy(opened.experiment.mdp)
    result, _ = play_game(world, Restricted(opened.policy.learner, forbidden), keys, episodes, opened.experiment)
    return float(np.mean(result["first_wins"]))


def table(result: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows: the mean over learners, and its 95 % interval where there are several."""
    rows = []
    for name, line in zip(result["knights"], result["rates"], strict=True):
        cells = [f"{np.mean(rates):.2f}" + (f" ± {half_width(rates):.2f}" if len(rates) > 1 else "") for rates in line]
        rows.append([name, *cells])
    return ["the knight wins", *result["archers"]], rows
