"""Who decides in the places of opponents: policies of several forms of network, and the rule player of the world.

Letters in shapes: K places, k of them that decide, A action components.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.core import Array, StateDict
from evorl.mdp.decision_arrays import rule_actions
from evorl.rl.frozen_policies import FrozenPolicies
from evorl.rl.network_learner import NetworkLearner

NO_NETWORK = -1
"""The form of the rule player, to whom the world leaves the decision."""


class Deciders:
    """A policy in each of K places. Each form of network computes all places in one pass, and has its share of them.

    So the bits of a place depend on its own inputs, noise and policy alone.
    """

    def __init__(self, examples: Sequence[NetworkLearner[Any]], places: int) -> None:
        """``examples``: a learner of each form."""
        self.spec, self.places = examples[0].spec, places
        self.forms = [FrozenPolicies(example, places) for example in examples]
        self._form = np.zeros(places, np.int64)
        self._begins = np.ones(places, np.bool_)  # the next decision of a place is its episode's first
        self._carries = [form.carry(places) for form in self.forms]

    def put(self, place: int, form: int, weights: Sequence[Tensor]) -> None:
        """Let the policy with these weights decide in a place; with `NO_NETWORK` the rule player."""
        self._form[place] = form
        if form != NO_NETWORK:
            self.forms[form].put(place, weights)

    def begin(self, places: Array) -> None:
        """Begin episodes in these places."""
        self._begins[places] = True

    def decide(self, places: Array, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor) -> Array:
        """Return the actions [k, A] of these places, of which and of all others the inputs and the noise are."""
        played, forms = rule_actions(self.spec, len(places)), self._form[places]
        for form in np.unique(forms).tolist():
            if form != NO_NETWORK:
                mine = forms == form
                played[mine] = self._decide(form, places[mine], inputs, legal, noise)
        self._begins[places] = False
        return played

    def _decide(
        self, form: int, places: Array, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor
    ) -> Array:
        before = self._carries[form]
        begins = None if before is None else torch.from_numpy(self._begins)
        decision = self.forms[form].act(inputs, legal, noise, before, begins)
        if before is not None and decision.carry is not None:
            after = before.clone()
            after[:, places] = decision.carry[:, places]
            self._carries[form] = after
        played: Array = decision.played.numpy()[places]
        return played

    def state_dict(self) -> StateDict:
        """The state, without policies."""
        carries = {str(k): x.clone() for k, x in enumerate(self._carries) if x is not None}
        return {"begins": self._begins.copy(), "carries": carries}

    def load_state_dict(self, state: StateDict) -> None:
        self._begins[:] = state["begins"]
        for k, before in enumerate(self._carries):
            self._carries[k] = None if before is None else torch.as_tensor(state["carries"][str(k)]).clone()
