"""The policy of one side of a game alone, of a learner with a network for each side (`evorl.nets.per_side`).

Letters in shapes: B rows, L logits, K action components. A side has the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evorl.inference.module import Answer, Seen
from evorl.mdp.core import Array, Box, Spec, first_choices, heads
from evorl.nets.per_side import MomentsPerSide, Part, PolicyPerSide
from evorl.nets.statistics import Moments
from evorl.rl.network_learner import NetworkLearner
from evorl.util.errors import BadRequest


class OfSide(NamedTuple):
    """What a side's own policy has of the decisions that are made by those of all sides."""

    learner: NetworkLearner[Any]
    """Acts by this side's network alone."""
    policy: PolicyPerSide
    number: int
    """Of its network."""

    def rows(self, inputs: Sequence[Tensor]) -> Array:
        """Which rows it decides, bool [B]."""
        return self.policy.who.masks(inputs)[self.number].numpy()

    def seen(self, seen: Seen) -> Seen:
        """What it sees of what all sides see."""
        inputs = self.policy.parts[self.number].of([torch.from_numpy(x) for x in seen.inputs])
        legal = None if seen.legal is None else seen.legal[:, self._columns]
        return Seen(tuple(x.numpy() for x in inputs), legal, seen.state, seen.noise[:, self._columns])

    def scores(self, scores: Array) -> Array:
        """Its own of the scores [B, L] of all sides."""
        return scores if isinstance(self.policy.spec.action, Box) else scores[:, self._columns]

    @property
    def _columns(self) -> Array:
        """The places of its own logits among those of all sides, or of its own components."""
        whole, own = self.policy.spec.action, self.learner.spec.action
        if isinstance(own, Box):
            return np.arange(len(own.low))
        begins = first_choices(whole)
        return np.concatenate([begin + np.arange(n) for begin, n in zip(begins, heads(own), strict=False)])


def answer_of(answer: Answer, rows: Array) -> Answer:
    """An answer in some rows; its state in all."""
    return Answer(answer.played[rows], None if answer.scores is None else answer.scores[rows], answer.state)


def of_side(learner: NetworkLearner[Any], side: int) -> OfSide:
    """The policy of a side. Raises `BadRequest` for a side that there is not."""
    policy, spec = learner.policy, learner.spec
    assert isinstance(policy, PolicyPerSide)
    if side >= spec.players:
        raise BadRequest(f"the game has the sides 0 to {spec.players - 1}", "side")
    number, part = next((k, part) for k, part in enumerate(policy.parts) if side in part.sides)
    own = Spec(tuple(x for x in part.inputs if x is not None), part.action, spec.rewards, masked=spec.masked)
    alone = replace(learner.hyper, policies="shared").learner(own, learner.seed, torch.device("cpu"))
    assert isinstance(alone, NetworkLearner)
    prefix = f"policies.{number}."
    named = {name: x for name, x in learner.layout.copied(learner.theta).items() if name.startswith(prefix)}
    alone.theta.copy_(alone.layout.flatten({name.removeprefix(prefix): x for name, x in named.items()}))
    if isinstance(learner.moments, MomentsPerSide):
        alone.moments = OwnMoments(own, spec, part, learner.moments.each[number])
    return OfSide(alone, policy, number)


class OwnMoments(Moments):
    """The statistics of a side's own inputs. As for all sides, the row that names the side is not normalised."""

    def __init__(self, own: Spec, spec: Spec, part: Part, moments: Moments) -> None:
        super().__init__(own.inputs, moments.whiten)
        places = [place for place, x in enumerate(part.inputs) if x is not None]
        of_all = moments.state_dict()
        self.load_state_dict({str(mine): of_all[str(places[mine])] for mine in self.running})
        self.players = spec.players
        self.who = [mine for mine, place in enumerate(places) if spec.inputs[place].name == spec.who]

    def normalize(self, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out = list(super().normalize(statistics, inputs))
        for place in self.who:
            out[place] = torch.cat([inputs[place][..., : self.players], out[place][..., self.players :]], -1)
        return tuple(out)
