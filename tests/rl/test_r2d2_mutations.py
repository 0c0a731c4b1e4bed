"""The oracles of R2D2 can fail: each mutation here is noticed by one of them."""

from __future__ import annotations

from typing import Any

import pytest
import test_r2d2 as oracles
from mutating import check_mutation

from evorl.ops import rescaling
from evorl.replay import sequences
from evorl.rl import columns, dqn, r2d2

pytestmark = pytest.mark.slow

STEPS = oracles.check_steps
STORED = oracles.check_stored_states
PRIORITIES = oracles.check_priorities
LEARNER = r2d2.Learner
READ = sequences.read_sequences
MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "a gradient through the burn-in": (
        STEPS, ("paper",), LEARNER._step, "self.burnt_in(theta, noise[0]",
        "type(self).burnt_in.__wrapped__(self, leaf, noise[0]"),
    "no burn-in": (
        STEPS, ("paper",), LEARNER._step, "states, self.burnt_in(theta, noise[0], before, carry, prefix))",
        "states, carry)"),
    "the target burns in with the network": (
        STEPS, ("paper",), LEARNER._step, "self.burnt_in(theta_target, noise[1]", "self.burnt_in(theta, noise[1]"),
    "a prefix that is short burns in too long": (
        STEPS, ("a prefix that the ring cuts",), sequences.read_sequences, "size += before >= oldest", "size += 1"),
    "no stored state": (
        STEPS, ("a prefix that the ring cuts",), READ, "carry[prefix[0] % rows]", "0 * carry[prefix[0] % rows]"),
    "the stored state of the first decision": (
        STEPS, ("long",), READ, "carry[prefix[0] % rows]", "carry[numbers % rows]"),
    "an episode begins with the state of the last": (
        STORED, (oracles.Choosing,), columns.TransitionColumns.put, "* ~player.start[:, None, None]", ""),
    "the state after the decision": (
        STORED, (oracles.Choosing,), columns.TransitionColumns.put, "player.carry.numpy()", "decision.carry.numpy()"),
    "the target network chooses": (
        STEPS, ("paper",), LEARNER._step, "values.detach() if self.hyper.double else following", "following"),
    "targets reach one step": (STEPS, ("paper",), READ, "ahead += more", "ahead += more * (k == 0)"),
    "rewards of n - 1 steps": (STEPS, ("paper",), READ, "for k in range(n)", "for k in range(n - 1)"),
    "a termination is bootstrapped": (
        STEPS, ("paper",), READ, "discount[storage.terminated[at[n - 1 :]]] = 0", "pass"),
    "what is beyond the end is learned": (STEPS, ("paper",), LEARNER._step, "(share * loss)", "loss"),
    "sequences count alike": (
        STEPS, ("paper",), LEARNER._step, "shared = (share * loss).sum(0)", "shared = ((share > 0) * loss).mean(0)"),
    "no weights": (STEPS, ("paper",), LEARNER._step, "else batch.weight[0] * shared", "else shared"),
    "targets in returns": (STEPS, ("paper",), dqn.Learner.backed_up, "return self.to_units(", "return ("),
    "c51 in returns": (STEPS, ("c51",), dqn.Learner.backed_up, "places = self.to_units(", "places = ("),
    "h without its linear part": (STEPS, ("paper",), rescaling.rescale, "+ EPSILON * x", ""),
    "the largest error alone": (STEPS, ("paper",), LEARNER._mixed, "(1 - eta)", "0"),
    "the mean over what is not there": (
        STEPS, ("paper",), LEARNER._mixed, "error.sum(0) / present.sum(0)", "error.mean(0)"),
    "illegal actions in targets": (
        STEPS, ("paper",), LEARNER._step, "if batch.legal is None else _at(batch.legal, ahead)", ""),
    "its own priority alone": (PRIORITIES, (), LEARNER._read, "(self.hyper.length + 1) // 2", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, *MUTATIONS[name])
