"""The oracles of deep Q-networks can fail: each mutation here is noticed by one of them."""

from __future__ import annotations

from typing import Any

import pytest
import test_dqn as oracles
from mutating import check_mutation

from evorl.nets import action_values
from evorl.ops import value_distributions
from evorl.replay.samplers.prioritized import Priorities
from evorl.rl import dqn, replay_learner

pytestmark = pytest.mark.slow

STEPS = oracles.check_steps
EPSILON = oracles.check_epsilon
LADDER = oracles.test_slots_have_epsilons_of_their_own
PLAYED = oracles.test_a_minibatch_holds_what_was_played_and_the_masks_that_followed
MEMBERS = oracles.test_members_act_under_one_noise_until_the_next_gradient_step
FOLLOWED = oracles.test_priorities_follow_the_errors_of_the_steps_they_drew
LEARNER = dqn.Learner
MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "the target network chooses": (STEPS, ("double",), LEARNER.target, "if self.hyper.double else", "if False else"),
    "the network values": (STEPS, ("plain",), LEARNER.target, "self.values(theta_target,", "self.values(theta,"),
    "illegal actions in targets": (STEPS, ("plain",), LEARNER.backed_up, "if legal is not None", "if False"),
    "the first reward decides": (STEPS, ("plain",), LEARNER.backed_up, ".sum(1)", "[:, 0]"),
    "the target never follows": (
        STEPS, ("polyak",), LEARNER._step_and_follow, "follow(theta_target, network.theta, self.hyper.tau)", "pass"),
    "it follows one step late": (STEPS, ("plain",), LEARNER.gradient_step, "(number + 1)", "number"),
    "advantages not centred": (
        STEPS, ("dueling",), action_values.ActionValues.forward, "- advantage.mean(2, keepdim=True)", ""),
    "one stream for both": (STEPS, ("dueling",), action_values.ActionValues.forward, "(x[0], x[1])", "(x[0], x[0])"),
    "no weights": (STEPS, ("prioritised",), LEARNER._step, "weight * loss", "loss"),
    "one noise for network and target": (STEPS, ("noisy",), LEARNER.target, "noise[1]", "noise[0]"),
    "one noise for choice and network": (STEPS, ("noisy",), LEARNER.target, "noise[2]", "noise[0]"),
    "noise without a root": (STEPS, ("noisy",), action_values.perturbed, ".abs().sqrt()", ".abs()"),
    "atoms beyond the support lost": (
        STEPS, ("c51",), value_distributions.project, "position.clamp(low, high)", "position"),
    "prioritised by the cross-entropy": (
        STEPS, ("rainbow",), LEARNER.losses, "- entropy(target).mean(-1)", ""),
    "quantiles the wrong way round": (
        STEPS, ("quantiles",), value_distributions.quantile_huber, "error.detach() < 0", "error.detach() > 0"),
    "samples summed": (
        STEPS, ("quantiles",), value_distributions.quantile_huber, ".mean(-1).sum(-1)", ".sum(-1).sum(-1)"),
    "noise that is not even": (EPSILON, (0.3,), LEARNER.decide, "-count * torch", "-torch"),
    "illegal actions at random": (
        EPSILON, (1.0,), LEARNER.decide, "noise.masked_fill(~legal, -math.inf)", "noise"),
    "the greedy policy explores": (EPSILON, (1.0,), LEARNER.decide, "& (noise != 0).any(-1)", ""),
    "one epsilon for all slots": (LADDER, (), LEARNER.decide, "1 + spread[0] *", "1 + 0 * spread[0] *"),
    "members act without noise": (MEMBERS, (), LEARNER.weights, "if self.noise_size", "if False"),
    "masks of another time": (PLAYED, (), replay_learner.ReplayLearner._read, "rows.next_legal)", "rows.legal)"),
    "priorities never change": (
        FOLLOWED, (), Priorities.update, "self._power(priority.reshape(-1))", "np.ones(1)"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, *MUTATIONS[name])
