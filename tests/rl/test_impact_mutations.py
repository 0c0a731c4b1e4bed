"""The oracle of IMPACT can fail: each mutation here is noticed by it."""

from __future__ import annotations

from typing import Any

import pytest
import test_impact as oracles
from mutating import check_mutation

from evorl.ops import losses
from evorl.rl import impact

pytestmark = pytest.mark.slow

STEPS, STANDS = oracles.test_gradient_steps_equal_the_oracle, oracles.test_the_target_stands_still_until_it_is_due
LEARNER = impact.Learner
MUTATIONS: dict[str, tuple[Any, tuple[Any, ...], Any, str, str]] = {
    "the ratio to the worker alone": (
        STEPS, ("plain",), LEARNER.loss, "torch.maximum(then.log_prob, worker - math.log(self.hyper.worker_clip))",
        "worker"),
    "the ratio to the target alone": (
        STEPS, ("each clip",), LEARNER.loss, "torch.maximum(then.log_prob, worker - math.log(self.hyper.worker_clip))",
        "then.log_prob"),
    "the cap the wrong way round": (STEPS, ("each clip",), LEARNER.loss, "worker - math", "worker + math"),
    "never clipped": (STEPS, ("each clip",), losses.clipped_surrogate, "surrogate.clamp(max=bound)", "surrogate"),
    "the first reward's advantage": (STEPS, ("each clip",), LEARNER.loss, "advantage.sum(-1)", "advantage[..., 0]"),
    "targets of the present network": (
        STEPS, ("plain",), LEARNER.loss, "self._targets(then,", "self._targets(decided,"),
    "the target never moves": (
        STEPS, ("plain",), LEARNER._copy_and_optimise, "theta_target.copy_(network.theta)", "pass"),
    "the target follows late": (
        STANDS, (), LEARNER._due_step, "self.gradient_steps %", "(self.gradient_steps + 1) %"),
    "V-trace's own advantage": (
        STEPS, ("each clip",), LEARNER._targets, "return target, target - value", "return target, _"),
    "no bootstrap at ends": (
        STEPS, ("plain",), LEARNER._targets, 'torch.where(done.unsqueeze(-1), columns["final_value"], then.value[1:])',
        "then.value[1:]"),
    "one clip for both": (STEPS, ("each clip",), LEARNER._targets, "self.hyper.c_bar", "self.hyper.rho_bar"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutation_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, *MUTATIONS[name])
