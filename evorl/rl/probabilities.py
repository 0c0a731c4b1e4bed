"""A policy as probabilities of actions, for what computes with the whole policy instead of playing it."""

from __future__ import annotations

from typing import Any

import torch

from evorl.mdp.core import Array, Discrete
from evorl.nets.distributions import noise_size, parameters
from evorl.rl.network_learner import NetworkLearner
from evorl.util.errors import BadRequest


def action_probabilities(learner: NetworkLearner[Any], inputs: tuple[Array, ...], legal: Array | None) -> Array:
    """Return the probabilities [B, L] of a policy's actions in states, as float64; of action values the greedy policy.

    Raises `BadRequest` for a policy with memory, or of other actions than one choice.
    """
    action = learner.spec.action
    if not isinstance(action, Discrete):
        raise BadRequest("the actions are no single choice, so they have no table of probabilities")
    if learner.carry(1) is not None:
        raise BadRequest("a policy with memory has no probabilities that depend on one state alone")
    seen = tuple(torch.from_numpy(x) for x in inputs)
    mask = None if legal is None else torch.from_numpy(legal)
    if not learner.hyper.policy_head:
        nothing = torch.zeros(len(seen[0]), noise_size(action))
        played = learner.play(seen, mask, nothing, None, None).played[:, 0]
        return torch.nn.functional.one_hot(played, action.n).double().numpy()
    with torch.no_grad():
        theta, *rest = learner.weights()
        out = learner.forward(theta, tuple(rest[len(learner.extra) :]), seen)
        logits = parameters(action, out.raw, out.log_std).double()
        if mask is not None:
            logits = logits.masked_fill(~mask, -torch.inf)
        return logits.softmax(-1).numpy()
