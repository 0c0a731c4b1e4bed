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
from evorl.opponents.grouped_policies import GroupedPolicies
from evorl.rl.network_learner import NetworkLearner

NO_NETWORK = -1
"""The form of the rule player, to whom the world leaves the decision."""


class Deciders:
    """A policy in each of K places. All policies of one form of network decide in one pass (`GroupedPolicies`)."""

    def __init__(self, examples: Sequence[NetworkLearner[Any]], places: int) -> None:
        """``examples``: a learner of each form."""
        self.spec, self.places = examples[0].spec, places
        self.forms = [GroupedPolicies(example, places) for example in examples]
        self._form = np.full(places, NO_NETWORK)
        self._begins = np.ones(places, np.bool_)  # the next decision of a place is its episode's first
        self._carries = [form.learner.carry(places) for form in self.forms]

    def put(self, place: int, form: int, number: int, weights: Sequence[Tensor]) -> None:
        """Let the policy of this number, with these weights, decide in a place; with `NO_NETWORK` the rule player."""
        if self._form[place] not in (form, NO_NETWORK):
            self.forms[self._form[place]].leave(place)
        self._form[place] = form
        if form != NO_NETWORK:
            self.forms[form].put(place, number, weights)

    def renew(self, form: int, number: int, weights: Sequence[Tensor]) -> None:
        """Give the policy of this number new weights, wherever it decides."""
        self.forms[form].renew(number, weights)

    def begin(self, places: Array) -> None:
        """Begin episodes in these places."""
        self._begins[places] = True

    def decide(self, places: Array, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor) -> Array:
        """Return the actions [k, A] of these places, of which and of all others the inputs and the noise are."""
        forms = self._form[places]
        if (forms == forms[0]).all() and forms[0] != NO_NETWORK:
            played = self._decide(int(forms[0]), places, inputs, legal, noise)
        else:
            played = rule_actions(self.spec, len(places))
            for form in {*forms.tolist()} - {NO_NETWORK}:
                mine = forms == form
                played[mine] = self._decide(form, places[mine], inputs, legal, noise)
        self._begins[places] = False
        return played

    def _decide(
        self, form: int, places: Array, inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor
    ) -> Array:
        before = self._carries[form]
        begins = None if before is None else torch.from_numpy(self._begins)
        played, self._carries[form] = self.forms[form].decide(places, inputs, legal, noise, before, begins)
        return played

    def state_dict(self) -> StateDict:
        """The state, without policies."""
        carries = {str(k): x.clone() for k, x in enumerate(self._carries) if x is not None}
        return {"begins": self._begins.copy(), "carries": carries}

    def load_state_dict(self, state: StateDict) -> None:
        """Continue from a state, in which no policy has a place yet."""
        self._form[:] = NO_NETWORK
        for form in self.forms:
            form.clear()
        self._begins[:] = state["begins"]
        for k, before in enumerate(self._carries):
            self._carries[k] = None if before is None else torch.as_tensor(state["carries"][str(k)]).clone()
