"""The oracles of learners with a replay can fail: each mutation here is noticed by one of them."""

from __future__ import annotations

from typing import Any

import pytest
import test_off_policy as oracles
import test_recorded_episodes as recorded
from mutating import check_mutation

from evorl.replay.storage import Replay, Storage
from evorl.rl import ddpg, off_policy, recorded_episodes, sac, separate_updates, td3

pytestmark = pytest.mark.slow

PAPER, CRITIC, ACTOR = (
    oracles.test_it_takes_the_steps_of_the_paper,
    oracles.test_critics_learn_alone_with_a_given_target_policy,
    oracles.test_an_actor_learns_alone_with_a_new_optimiser,
)
PLAYED, RECORDED = oracles.test_a_minibatch_holds_what_was_played, recorded.test_it_records_what_was_played
MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "optimiser of actors not reset, td3": (
        ACTOR, ("td3",), separate_updates._follow_critic, "Adam.of(theta)", "learner.network.optimizer"),
    "optimiser of actors not reset, sac": (
        ACTOR, ("sac",), separate_updates._follow_critic, "Adam.of(theta)", "learner.network.optimizer"),
    "target noise off": (PAPER, ("td3",), td3.Learner.target_action, "h.target_noise * noise", "0 * noise"),
    "target noise off, critic alone": (
        CRITIC, ("td3",), td3.Learner.target_action, "h.target_noise * noise", "0 * noise"),
    "target noise not clipped": (
        PAPER, ("td3, long delay",), td3.Learner.target_action, "-h.target_clip, h.target_clip", "-9, 9"),
    "larger of two critics": (PAPER, ("td3",), td3.Learner.target_value, "amin(0)", "amax(0)"),
    "sign of the actor's loss": (PAPER, ("td3",), ddpg.Learner.actor_loss, "return -value", "return value"),
    "sign of the actor's loss, alone": (ACTOR, ("td3",), ddpg.Learner.actor_loss, "return -value", "return value"),
    "sign of the actor's loss, sac": (PAPER, ("sac",), sac.Learner.actor_loss, "log_prob - value", "log_prob + value"),
    "sign of the entropy, sac": (PAPER, ("sac",), sac.Learner._critic_step, "next_value - bonus", "next_value + bonus"),
    "critic frozen": (
        PAPER, ("td3",), off_policy.OffPolicy.critic_update, "(gradient, critic.phi", "(0 * gradient, critic.phi"),
    "critic frozen, alone": (
        CRITIC, ("td3",), off_policy.OffPolicy.critic_update, "(gradient, critic.phi", "(0 * gradient, critic.phi"),
    "targets frozen": (
        CRITIC, ("td3",), off_policy.OffPolicy.targets_follow,
        "follow(critic.target, critic.phi, self.hyper.tau)", "pass"),
    "another target policy": (
        CRITIC, ("td3",), separate_updates.train_critic, "learner.set_target_policy(target_policy)", "pass"),
    "terminated taken for truncated": (
        PLAYED, (), Storage.read, "np.where(self.terminated[last][:, None], 0, discount)", "discount"),
    "truncated taken for terminated": (
        PLAYED, (), Replay.append, "= new.terminated.reshape(-1)", "= new.done.reshape(-1)"),
    "terminated taken for truncated, whole episodes": (
        RECORDED, (None,), recorded_episodes._Trace.end, "bool(decisions.terminated[slot])", "False"),
    "truncated taken for terminated, whole episodes": (
        RECORDED, (None,), recorded_episodes._Trace.end, "bool(decisions.terminated[slot])", "True"),
    "a cut episode ends with the next one's first state": (
        RECORDED, (None,), recorded_episodes._Trace.end, "for x in decisions.final]", "for x in decisions.inputs]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, *MUTATIONS[name])
