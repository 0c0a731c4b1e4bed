"""IMPACT: gradient steps against a slow float64 oracle, its target network, states, and learning."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Chain, Pushing, Wandering
from test_vtrace import SMALL, Oracle, advance, playing
from torch import Tensor, nn

from evorl.mdp.core import Box
from evorl.nets.policy import Net
from evorl.ops.returns import gae
from evorl.record.metrics import check
from evorl.replay.samplers.circular import CircularKeys
from evorl.replay.samplers.nearest import NearestRollouts
from evorl.replay.samplers.prioritized import PrioritizedRollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.rl.impact import Impact
from evorl.rl.rollout_replay import LossInputs, rollouts
from evorl.util.seed import generator

torch.set_num_threads(1)
BUFFER = RolloutSamplers(circular=CircularKeys(batches=2, passes=3))
QUICK: dict[str, Any] = {**SMALL, "fill_in": 0, "lr": 3e-2}
CLIPS: dict[str, Any] = {"rho_bar": 1.1, "c_bar": 0.9, "clip": 0.05, "worker_clip": 1.05, "lam": 0.8}


class ImpactOracle(Oracle):
    """The gradient step in float64, with the target network that algorithm 1 has at that step."""

    def __init__(self, learner: Any) -> None:
        super().__init__(learner)
        self.steps, circular = 0, self.h.replay.circular
        self.every = self.h.target_every or circular.batches * circular.passes

    def step(self, rows: dict[str, np.ndarray], fresh: int, weights: Any) -> dict[str, Tensor]:
        if self.steps % self.every == 0:
            self.target = deepcopy(self.policy)
        self.steps += 1
        size = len(rows["reward"])
        weights = np.ones(size) if weights is None else weights
        terms = [self.rollout({k: torch.from_numpy(x[i]) for k, x in rows.items()}) for i in range(size)]
        found = {
            name: self.over([(w, t[name]) for w, t in zip(weights, terms, strict=True)])
            for name in ("loss/policy", "loss/value", "entropy")
        }
        found["policy/clip_fraction"] = torch.cat([t["clipped"] for t in terms]).mean()
        found["policy/kl_target"] = torch.cat([t["far"] for t in terms]).mean()
        found["loss/total"] = (
            found["loss/policy"] + self.h.critic_coef * found["loss/value"] - self.h.entropy_coef * found["entropy"]
        )
        self.optimizer.zero_grad()
        found["loss/total"].backward()
        found["optimizer/grad_norm"] = nn.utils.clip_grad_norm_(self.policy.parameters(), self.h.max_grad_norm)
        self.optimizer.step()
        return found

    def seen(self, policy: Any, row: dict[str, Tensor]) -> tuple[list[Tensor], list[Any], Tensor]:
        """Log-probabilities and distributions of each decision, and values [T+1, R]."""
        inputs = tuple(row[f"input {i}"].double() for i in range(len(self.spec.inputs)))
        if "carry" in row:
            out = policy(tuple(x[:, None] for x in inputs), row["carry"][:, None].double(), row["start"][:, None])
            out = out._replace(raw=out.raw[:, 0], value=out.value[:, 0])
        else:
            out = policy(inputs)
        log_prob, chances = [], []
        for t in range(len(row["reward"])):
            heads = self.distributions(self.numbers(out, t), row["legal"][t] if "legal" in row else None)
            chosen = row["action"][t].double() if isinstance(self.spec.action, Box) else row["action"][t]
            log_prob.append(sum(one.log_prob(x) for one, x in zip(heads, chosen, strict=True)))
            chances.append(heads)
        return log_prob, chances, out.value

    def rollout(self, row: dict[str, Tensor]) -> dict[str, Tensor]:
        h, worker = self.h, row["log_prob"].double()
        now, chances, value = self.seen(self.policy, row)
        with torch.no_grad():
            then, past, stale = self.seen(self.target, row)
            pairs = [zip(*heads, strict=True) for heads in zip(past, chances, strict=True)]
            far = [sum(torch.distributions.kl_divergence(p, q) for p, q in heads) for heads in pairs]
        advantage = self.advantages(row, stale, [float((x - m).exp()) for x, m in zip(then, worker, strict=True)])
        surrogate, clipped = [], []
        for t, a in enumerate(advantage.sum(-1)):
            ratio = min(float((worker[t] - then[t]).exp()), h.worker_clip) * (now[t] - worker[t]).exp()
            kept = ratio.clamp(1 - h.clip, 1 + h.clip)
            surrogate.append(torch.minimum(ratio * a, kept * a))
            clipped.append(float(kept * a < ratio * a))
        error = stale[:-1] + advantage - value[:-1]
        entropy = torch.stack([sum(one.entropy() for one in heads) for heads in chances])
        return {
            "loss/policy": -torch.stack(surrogate), "entropy": entropy, "clipped": torch.tensor(clipped),
            "far": torch.tensor(far),
            "loss/value": error.square().mean(-1) if h.reduction == "mean" else error.square().sum(-1),
        }  # fmt: skip

    def advantages(self, row: dict[str, Tensor], value: Tensor, ratio: list[float]) -> Tensor:
        """V-GAE [T, R]: differences of later decisions of the episode, each times the product of the traces between."""
        h, gamma, lam = self.h, self.of("gamma"), self.of("lam")
        done, length = row["done"].tolist(), len(ratio)
        found = torch.zeros(length, len(gamma), dtype=torch.float64)
        for t in range(length):
            trace = torch.ones_like(gamma)
            for i in range(t, length):
                following = row["final_value"][i].double() if done[i] else value[i + 1]
                delta = min(h.rho_bar, ratio[i]) * (row["reward"][i].double() + gamma * following - value[i])
                found[t] += trace * delta
                trace = trace * gamma * lam * min(h.c_bar, ratio[i])
                if done[i]:
                    break
        return found


WEIGHED: dict[str, Any] = {
    "sampling": {"circular": 0.5, "prioritized": 0.5},
    "replay": RolloutSamplers(prioritized=PrioritizedRollouts(capacity=20)),
}
CASES: dict[str, tuple[Impact, Any]] = {
    "plain": (Impact(**QUICK, replay=BUFFER), Chain),
    "each clip": (Impact(**QUICK, **CLIPS, replay=BUFFER, entropy_coef=0.1), Wandering),
    "sums": (Impact(**QUICK, **CLIPS, replay=BUFFER, reduction="sum", max_grad_norm=40.0), Wandering),
    "per reward": (Impact(**QUICK, gamma={"b": 0.5, "a": 0.9}, critic_coef=0.3, target_every=1), Wandering),
    "box": (Impact(**QUICK, **CLIPS, target_every=5), Pushing),
    "lstm": (Impact(**{**QUICK, "net": Net(hidden=(6,), lstm=5)}, **CLIPS), Wandering),
    "prioritized": (Impact(**QUICK, **CLIPS, **WEIGHED), Wandering),
}


@pytest.mark.slow_cases("plain", "per reward", "prioritized")
@pytest.mark.parametrize("case", CASES)
def test_gradient_steps_equal_the_oracle(case: str) -> None:
    hyper, game = CASES[case]
    learner, actor = playing(hyper, game)
    learner.theta.add_(torch.from_numpy(generator("moved").standard_normal(len(learner.theta))).float() * 0.1)
    oracle, seen = ImpactOracle(learner), []

    def learn(minibatch: Any, usual: Any = learner._learn) -> Any:
        want, got = oracle.step(minibatch.rollouts, 0, minibatch.weights), usual(minibatch)
        for name in {*want} & {*got}:
            assert float(got[name]) == pytest.approx(float(want[name].detach()), rel=1e-3, abs=1e-5), name
        seen.append(got)
        return got

    learner._learn = learn
    for iteration in range(6):
        actor.collect(iteration)  # under weights that the learner has left
        check(learner.update(actor.batch, 0, iteration).metrics)
    assert len(seen) >= 6 and learner.gradient_steps == len(seen)
    assert max(float(x["policy/kl"]) for x in seen) > 1e-5
    if hyper.clip < 0.1:
        assert any(0 < float(x["policy/clip_fraction"]) < 1 for x in seen)
    for name, x in oracle.policy.named_parameters():
        mine = learner.layout.unflatten(learner.theta)[name].double()
        torch.testing.assert_close(mine, x.detach(), rtol=2e-3, atol=2e-4, msg=f"{name} of {case}")


def test_on_policy_it_is_the_policy_gradient_with_gae() -> None:
    """Where worker, target and present policy are one, the ratio is 1 and the advantage that of GAE."""
    learner, actor = playing(Impact(**QUICK, gamma=0.9, lam=0.7), Wandering)
    actor.collect(0)
    columns = {k: learner._tensor(k, x) for k, x in rollouts(actor.batch).items()}
    now, lam = learner._decided(learner.theta, (), columns), learner.coefficients.lam
    target, advantage = learner._targets(now, columns, learner.gamma, lam)
    following = torch.where(columns["done"].unsqueeze(-1), columns["final_value"], now.value[1:])
    wanted = gae(columns["reward"], now.value[:-1], following, columns["done"], learner.gamma, lam)
    torch.testing.assert_close(advantage, wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(target, wanted + now.value[:-1], rtol=1e-4, atol=1e-5)
    data = LossInputs(learner.coefficients, (), columns, None, learner.theta_target)
    stats = learner.loss(learner.theta, data)[1]
    assert float(stats["loss/policy"]) == pytest.approx(-float(wanted.sum(-1).mean()), rel=1e-3, abs=1e-5)


def test_the_target_stands_still_until_it_is_due() -> None:
    learner, actor = playing(Impact(**QUICK, replay=BUFFER, target_every=4), Chain)
    followed = []

    def learn(minibatch: Any, usual: Any = learner._learn) -> Any:
        before, kept = learner.theta.clone(), learner.theta_target.clone()
        stats = usual(minibatch)
        followed.append(torch.equal(learner.theta_target, before))
        assert followed[-1] or torch.equal(learner.theta_target, kept)
        return stats

    learner._learn = learn
    for iteration in range(5):
        advance(learner, actor, iteration)
    assert followed[:9] == [True, False, False, False, True, False, False, False, True]
    assert Impact(**QUICK, replay=BUFFER).learner(Chain.spec, 0, learner.device).target_every == 2 * 3


def test_states_go_on_exactly() -> None:
    options = RolloutSamplers(elite=NearestRollouts(capacity=10))
    halves = {"circular": 0.5, "elite": 0.5}
    hyper = Impact(**QUICK, sampling=halves, replay=options, normalize_inputs=True, target_every=7)
    learner, actor = playing(hyper, Wandering)
    for iteration in range(5):
        advance(learner, actor, iteration)
    twin, other = playing(hyper, Wandering)
    twin.load_state_dict(learner.state_dict())
    other.load_state_dict(actor.state_dict())
    assert learner.gradient_steps % 7 and not torch.equal(twin.theta_target, twin.theta)
    for iteration in range(5, 8):
        assert advance(learner, actor, iteration).steps == advance(twin, other, iteration).steps > 0
    assert torch.equal(learner.theta, twin.theta) and torch.equal(learner.theta_target, twin.theta_target)


@pytest.mark.slow
def test_it_learns() -> None:
    hyper = Impact(slots=16, horizon=10, batch=16, lr=1e-2, net=Net(hidden=(16,)), entropy_coef=0.05)
    learner, actor = playing(hyper, Chain)
    returns: list[float] = []
    for iteration in range(100):
        actor.player.learner.load_weights(learner.weights())
        returns += [one.ret for one in actor.collect(iteration)[1]]
        learner.update(actor.batch, iteration, iteration)
    assert np.mean(returns[-50:]) > 9.0
