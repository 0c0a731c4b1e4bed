"""V-trace with replays: gradient steps against a slow float64 oracle, what a rollout holds, and learning."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Chain, Games, Memory, Pushing, Scripted, Wandering, episodes
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch_optimizers import optimizer_of

from evorl.mdp.core import Box, Discrete, Input, heads
from evorl.nets.policy import Net, Policy
from evorl.record.metrics import check
from evorl.replay.samplers.attentive import AttentiveRollouts
from evorl.replay.samplers.circular import CircularKeys
from evorl.replay.samplers.core import BufferKeys
from evorl.replay.samplers.nearest import NearestRollouts
from evorl.replay.samplers.prioritized import PrioritizedRollouts
from evorl.replay.samplers.registry import RolloutSamplers
from evorl.rl.actor import Actor
from evorl.rl.rollout_replay import rollouts
from evorl.rl.vtrace import VTrace
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal
from evorl.util.seed import generator

torch.set_num_threads(1)
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"slots": 4, "horizon": 6, "batch": 4, "fill_in": 8, "net": Net(hidden=(8, 6)), "lr": 1e-2}
PRIORITIZED: dict[str, Any] = {
    "sampling": {"queue": 0.5, "uniform": 0.25, "prioritized": 0.25},
    "replay": RolloutSamplers(prioritized=PrioritizedRollouts(capacity=20)),
}
CIRCULAR: dict[str, Any] = {
    "sampling": {"circular": 0.5, "uniform": 0.5},
    "replay": RolloutSamplers(circular=CircularKeys(batches=2, passes=2)),
}
ELITE: dict[str, Any] = {
    "sampling": {"queue": 0.5, "elite": 0.5},
    "replay": RolloutSamplers(elite=NearestRollouts(capacity=10, insertion="elite")),
}


def playing(hyper: Any, game: Any, seed: int = 3) -> tuple[Any, Actor]:
    learner, member = (hyper.learner(game.spec, seed, CPU) for _ in range(2))
    arena = Games(game, hyper.slots, episodes(seed))
    return learner, Actor(arena, member, seed, 0, hyper.storage(game.spec, hyper.slots))


def advance(learner: Any, actor: Actor, iteration: int) -> Any:
    """One iteration of a run: the member gets the weights, the learner its batch."""
    actor.player.learner.load_weights(learner.weights())
    actor.collect(iteration)
    return learner.update(actor.batch, iteration, iteration)


# ------------------------------------------------------------------ the oracle


class Oracle:
    """The gradient step in float64: one rollout after another, torch.distributions, torch's clipping and optimisers."""

    def __init__(self, learner: Any) -> None:
        self.h, self.spec = learner.hyper, learner.spec
        self.policy = Policy(self.spec, self.h.net).double()
        for encoder in self.policy.encoders.children():
            encoder.forward = partial(torch.flatten, start_dim=1)  # ours casts to float32
        self.policy.load_state_dict({k: x.double() for k, x in learner.layout.unflatten(learner.theta).items()})
        self.optimizer = optimizer_of(self.h, self.policy.parameters(), self.h.lr)

    def of(self, name: str) -> Tensor:
        given = getattr(self.h, name)
        return torch.tensor([given[r] if isinstance(given, dict) else given for r in self.spec.rewards]).double()

    def distributions(self, numbers: Tensor, legal: Tensor | None) -> list[Any]:
        """Of each head or component, from the numbers of a policy in one state."""
        action = self.spec.action
        if isinstance(action, Box):
            mean, log_std = numbers.double().chunk(2)
            return [Normal(m, s) for m, s in zip(mean, log_std.exp(), strict=True)]
        masked = numbers.double() if legal is None else numbers.double().masked_fill(~legal, -1e30)
        return [Categorical(logits=part) for part in masked.split(heads(action))]

    def numbers(self, out: Any, t: int) -> Tensor:
        if not isinstance(self.spec.action, Box):
            return out.raw[t]
        return torch.cat([out.raw[t], out.log_std]) if out.log_std is not None else out.raw[t]

    def step(self, rows: dict[str, np.ndarray], fresh: int, weights: Any) -> dict[str, Tensor]:
        size = len(rows["reward"])
        weights = np.ones(size) if weights is None else weights
        terms = [self.rollout({k: torch.from_numpy(x[i]) for k, x in rows.items()}) for i in range(size)]
        found = {
            name: self.over([(w, t[name]) for w, t in zip(weights, terms, strict=True)])
            for name in ("loss/policy", "loss/value", "entropy")
        }
        cloned = [pair for i, pair in enumerate(zip(weights, terms, strict=True))
                  if self.h.clone_on == "all" or i >= fresh]  # fmt: skip
        found["loss/clone_policy"] = self.over([(w, t["clone_policy"]) for w, t in cloned])
        errors, mean = [(w, t["clone_value"]) for w, t in cloned], self.h.reduction == "mean"
        found["loss/clone_value"] = (
            self.over([(w, e.square().mean(-1) if mean else e.square().sum(-1)) for w, e in errors])
            if self.h.clone_error == "squared"
            else torch.cat([(w * e).reshape(-1) for w, e in errors]).norm()
        )
        found["loss/total"] = (
            found["loss/policy"] + self.h.critic_coef * found["loss/value"] - self.h.entropy_coef * found["entropy"]
            + self.h.clone_policy * found["loss/clone_policy"] + self.h.clone_value * found["loss/clone_value"]
        )  # fmt: skip
        self.optimizer.zero_grad()
        found["loss/total"].backward()
        found["optimizer/grad_norm"] = nn.utils.clip_grad_norm_(self.policy.parameters(), self.h.max_grad_norm)
        self.optimizer.step()
        return found

    def over(self, terms: list[tuple[float, Tensor]]) -> Tensor:
        """The mean or sum of numbers [T] of each rollout, weighted."""
        every = torch.cat([weight * x for weight, x in terms])
        return every.mean() if self.h.reduction == "mean" else every.sum()

    def rollout(self, row: dict[str, Tensor]) -> dict[str, Tensor]:
        """The terms [T] of one rollout."""
        inputs = tuple(row[f"input {i}"].double() for i in range(len(self.spec.inputs)))
        h = self.h
        if "carry" not in row:
            out = self.policy(inputs)
        else:
            out = self.policy(tuple(x[:, None] for x in inputs), row["carry"][:, None].double(), row["start"][:, None])
            out = out._replace(raw=out.raw[:, 0], value=out.value[:, 0])
        length, terms = len(row["reward"]), []
        log_probs, trusted = [], []
        for t in range(length):
            legal = row["legal"][t] if "legal" in row else None
            now, then = (self.distributions(x, legal) for x in (self.numbers(out, t), row["policy"][t]))
            chosen = row["action"][t].double() if isinstance(self.spec.action, Box) else row["action"][t]
            log_probs.append(sum(one.log_prob(x) for one, x in zip(now, chosen, strict=True)))
            pairs = [(q, p) if h.clone_kl == "behaviour" else (p, q) for p, q in zip(now, then, strict=True)]
            clone = sum(torch.distributions.kl_divergence(*pair) for pair in pairs)
            trusted.append(self.trusts(now, then))
            terms.append((clone, sum(one.entropy() for one in now)))
        target, advantage = self.targets(row, out.value.detach(), [x.detach() for x in log_probs], trusted)
        keep, error = torch.tensor(trusted).double(), target - out.value[:-1]
        return {
            "loss/policy": -torch.stack(log_probs) * advantage.sum(-1) * keep,
            "loss/value": (error.square().mean(-1) if h.reduction == "mean" else error.square().sum(-1)) * keep,
            "entropy": torch.stack([x[1] for x in terms]),
            "clone_policy": torch.stack([x[0] for x in terms]) * keep,
            "clone_value": (out.value[:-1] - row["value"][:-1].double()) * keep[:, None],
        }

    def trusts(self, now: list[Any], then: list[Any]) -> float:
        if self.h.kl_mask is None:
            return 1.0
        if self.h.kl_mask_to == "implied":
            (p,), (q,) = now, then
            then = [Categorical(probs=torch.minimum(self.h.rho_bar * q.probs, p.probs))]
        far = sum(torch.distributions.kl_divergence(p, q) for p, q in zip(now, then, strict=True))
        return float(far < self.h.kl_mask)

    def targets(
        self, row: dict[str, Tensor], value: Tensor, log_probs: list[Tensor], trusted: list[float]
    ) -> tuple[Tensor, Tensor]:
        """Eq. 1 and section 4.2 from the end of the rollout to its start, [T, R]."""
        h, gamma, lam = self.h, self.of("gamma"), self.of("lam")
        length = len(row["reward"])
        target, advantage = torch.zeros(2, length, len(gamma), dtype=torch.float64)
        for t in reversed(range(length)):
            ratio = 1.0 if h.correction == "none" else float((log_probs[t] - row["log_prob"][t].double()).exp())
            over, last = bool(row["done"][t]), t == length - 1
            following = row["final_value"][t].double() if over else value[t + 1]
            later = torch.zeros_like(gamma) if over or last else target[t + 1] - value[t + 1]
            reward = row["reward"][t].double()
            delta = min(h.rho_bar, ratio) * (reward + gamma * following - value[t])
            target[t] = value[t] + delta + gamma * lam * trusted[t] * min(h.c_bar, ratio) * later
            advantage[t] = min(h.rho_pg_bar, ratio) * (reward + gamma * (following + later) - value[t])
        return target, advantage


EVERY: dict[str, Any] = {"rho_bar": 1.1, "c_bar": 0.9, "rho_pg_bar": 1.3, "lam": 0.8, "entropy_coef": 0.1}
CLEAR: dict[str, Any] = {"clone_policy": 0.3, "clone_value": 0.2}
PLATFORM: dict[str, Any] = {**CLEAR, "clone_kl": "policy", "clone_error": "norm", "clone_on": "all"}
CASES: dict[str, tuple[VTrace, Any]] = {
    "plain": (VTrace(**SMALL), Chain),
    "each clip": (VTrace(**SMALL, **EVERY), Wandering),
    "sums": (VTrace(**SMALL, **EVERY, reduction="sum", max_grad_norm=40.0), Wandering),
    "per reward": (VTrace(**SMALL, gamma={"b": 0.5, "a": 0.9}, critic_coef=0.3), Wandering),
    "rmsprop": (VTrace(**SMALL, **EVERY, optimizer="rmsprop", rmsprop_epsilon=0.1, rmsprop_decay=0.9), Chain),
    "rmsprop_tf": (VTrace(**SMALL, **EVERY, optimizer="rmsprop_tf", rmsprop_epsilon=1e-3, rmsprop_decay=0.9), Chain),
    "cloning": (VTrace(**SMALL, **EVERY, **CLEAR), Wandering),
    "cloning, circular": (VTrace(**SMALL, **CLEAR, **CIRCULAR), Wandering),
    "cloning, box": (VTrace(**SMALL, **EVERY, **CLEAR), Pushing),
    "the platform's cloning": (VTrace(**SMALL, **EVERY, **PLATFORM, reduction="sum"), Chain),
    "mask": (VTrace(**SMALL, **{**EVERY, "rho_bar": 0.95}, **CLEAR, kl_mask=0.001), Chain),
    "mask, heads": (VTrace(**SMALL, **PLATFORM, kl_mask=0.01, kl_mask_to="behaviour"), Wandering),
    "no correction": (VTrace(**SMALL, correction="none"), Chain),
    "lstm": (VTrace(**{**SMALL, "net": Net(hidden=(6,), lstm=5)}, **EVERY), Wandering),
    "prioritized": (VTrace(**SMALL, **EVERY, **CLEAR, **PRIORITIZED), Wandering),
    "state deviation": (VTrace(**{**SMALL, "net": Net(hidden=(6,), std="state")}, **CLEAR), Pushing),
}  # fmt: skip


@pytest.mark.slow_cases("cloning", "cloning, box", "mask", "state deviation", "the platform's cloning", "plain")
@pytest.mark.parametrize("case", CASES)
def test_gradient_steps_equal_the_oracle(case: str) -> None:
    hyper, game = CASES[case]
    learner, actor = playing(hyper, game)
    oracle: Any = None
    seen: list[Any] = []

    def learn(minibatch: Any, usual: Any = learner._learn) -> Any:
        nonlocal oracle
        oracle = oracle or Oracle(learner)
        learner.coefficients.entropy.fill_(hyper.entropy_coef)
        want = oracle.step(minibatch.rollouts, learner.replay.sizes.get("queue", 0), minibatch.weights)
        got = usual(minibatch)
        for name in {*want} & {*got}:
            assert float(got[name]) == pytest.approx(float(want[name].detach()), rel=1e-3, abs=1e-5), name
        seen.append(got)
        return got

    learner._learn = learn
    learner.theta.add_(torch.from_numpy(generator("moved").standard_normal(len(learner.theta))).float() * 0.1)
    for iteration in range(6):
        actor.collect(iteration)  # under weights that the learner has left
        check(learner.update(actor.batch, 0, iteration).metrics)
    assert len(seen) >= 8 and learner.gradient_steps == len(seen)
    assert max(float(x["policy/kl"]) for x in seen) > 1e-5  # replayed decisions are off-policy
    if hyper.kl_mask is not None:
        assert any(0 < float(x["policy/rejected"]) < 1 for x in seen)
    for name, x in oracle.policy.named_parameters():
        mine = learner.layout.unflatten(learner.theta)[name].double()
        torch.testing.assert_close(mine, x.detach(), rtol=2e-3, atol=2e-4, msg=f"{name} of {case}")


# ------------------------------------------------------------------ what a rollout holds


@pytest.mark.parametrize("lstm", [0, 5])
@pytest.mark.parametrize("game", [Wandering, Pushing, Scripted])
def test_the_stored_policy_is_the_one_that_acted(game: Any, lstm: int) -> None:
    """The present network, which has not changed since, gives the same log-probabilities, values and features."""
    hyper = VTrace(**{**SMALL, "net": Net(hidden=(8, 6), lstm=lstm)}, **ELITE)
    learner, actor = playing(hyper, game)
    actor.collect(0)
    rows = rollouts(actor.batch)
    np.testing.assert_allclose(learner.encode(rows), rows["features"], atol=1e-6)
    columns = {name: learner._tensor(name, x) for name, x in rows.items()}
    now = learner._decided(learner.theta, learner._statistics(), columns)
    torch.testing.assert_close(now.policy, columns["policy"])
    torch.testing.assert_close(now.log_prob, columns["log_prob"])
    torch.testing.assert_close(now.value[:-1], columns["value"][:-1])


def test_features_of_a_projection_are_fixed_and_random() -> None:
    hyper = VTrace(**SMALL, **ELITE, projection=3)
    learner, actor = playing(hyper, Chain)
    actor.collect(0)
    rows = rollouts(actor.batch)
    assert rows["features"].shape == (4, 6, 3)
    np.testing.assert_allclose(learner.encode(rows), rows["features"], atol=1e-6)
    other = hyper.learner(Chain.spec, 4, CPU)  # an individual's next life has another seed, and its old replay
    other.load_state_dict(learner.state_dict())
    np.testing.assert_allclose(other.encode(rows), rows["features"], atol=1e-6)


def test_other_learners_batches_hold_no_policy() -> None:
    plain = VTrace(**SMALL).storage(Chain.spec, 2)
    assert plain.features is None and plain.policy is not None and plain.policy.shape == (6, 2, 2)


def test_bytes_of_a_rollout_are_those_of_the_page() -> None:
    """Of CartPole's shapes: four numbers seen, two actions."""
    spec = replace(Chain.spec, inputs=(Input("state", (4,)),))
    for replay, wanted in (({}, 1021), (ELITE, 1021 + 5120)):
        learner = VTrace(slots=8, **replay).learner(spec, 0, CPU)
        (part,) = [one for name, one in learner.replay.parts.items() if name != "queue"]
        assert part.rollouts.bytes_each == wanted


# ------------------------------------------------------------------ runs


def test_states_go_on_exactly() -> None:
    options = replace(ELITE["replay"], attentive=AttentiveRollouts(capacity=9))
    quarters = dict.fromkeys(("queue", "uniform", "elite", "attentive"), 0.25)
    hyper = VTrace(**SMALL, sampling=quarters, replay=options, normalize_inputs=True)
    learner, actor = playing(hyper, Wandering)
    for iteration in range(5):
        advance(learner, actor, iteration)
    twin, other = playing(hyper, Wandering)
    twin.load_state_dict(learner.state_dict())
    other.load_state_dict(actor.state_dict())
    for iteration in range(5, 8):
        assert advance(learner, actor, iteration).steps == advance(twin, other, iteration).steps > 0
    assert torch.equal(learner.theta, twin.theta)


@pytest.mark.parametrize(
    ("words", "key", "line"),
    [
        ({"batch": 5}, "sampling.queue", "0.5 of 5 rollouts in a minibatch is 2.5"),
        ({"slots": 4000}, "replay.uniform.capacity", "must be at least 4000: 4000 rollouts arrive at once"),
    ],
)
def test_what_does_not_fit_is_refused(words: dict[str, Any], key: str, line: str) -> None:
    with pytest.raises(BadRequest) as raised:
        VTrace(**{**SMALL, **words})
    assert raised.value.key == key and line in str(raised.value)


def test_a_mask_by_the_implied_policy_needs_one_discrete_action() -> None:
    assert isinstance(Chain.spec.action, Discrete)
    VTrace(**SMALL, kl_mask=0.1).learner(Chain.spec, 0, CPU)
    for game in (Wandering, Pushing):
        with pytest.raises(BadRequest, match=r"^rl\.kl_mask: .*take rl\.kl_mask_to=behaviour"):
            VTrace(**SMALL, kl_mask=0.1).learner(game.spec, 0, CPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("game", "net", "replayed", "reached"),
    [
        (Chain, Net(hidden=(16,)), "uniform", 9.0),
        (Chain, Net(hidden=(16,)), "elite", 9.0),
        (Memory, Net(hidden=(16,), lstm=16), "uniform", 0.9),
    ],
    ids=["chain", "chain, elite", "memory"],
)
def test_it_learns(game: Any, net: Net, replayed: str, reached: float) -> None:
    sampling: Any = {"queue": 0.5, replayed: 0.5}
    options = RolloutSamplers(elite=NearestRollouts(capacity=100, insertion="elite"), uniform=BufferKeys(capacity=100))
    more: dict[str, Any] = {"lr": Anneal(start=1e-2, end=1e-3, steps=200, power=2), "net": net, "replay": options}
    hyper = VTrace(slots=16, horizon=10, batch=32, fill_in=32, entropy_coef=0.05, sampling=sampling, **more)
    learner, actor = playing(hyper, game)
    returns: list[float] = []
    for iteration in range(150):
        actor.player.learner.load_weights(learner.weights())
        returns += [one.ret for one in actor.collect(iteration)[1]]
        learner.update(actor.batch, iteration, iteration)
    assert np.mean(returns[-50:]) > reached


@pytest.mark.parametrize("share", [1.0, 1 - 1e-7])
def test_cloning_needs_replayed_rollouts(share: float) -> None:
    """Else it would be without effect. Shares may miss 1 by rounding."""
    sampling: Any = {"queue": share}
    VTrace(**SMALL, sampling=sampling, clone_policy=0.1, clone_on="all").learner(Chain.spec, 0, CPU)
    with pytest.raises(BadRequest, match=r"^rl\.clone_on: "):
        VTrace(**SMALL, sampling=sampling, clone_policy=0.1).learner(Chain.spec, 0, CPU)
