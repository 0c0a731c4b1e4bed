"""Updates of PPO, A2C and REINFORCE against a slow float64 oracle, and what surrounds an update."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from rl_toys import Games, Wandering, episodes
from torch import Tensor, nn
from torch.distributions import Categorical, Normal
from torch_optimizers import optimizer_of

from evorl.mdp.core import Action, Box, Discrete, Input, MultiDiscrete, Spec, heads
from evorl.nets.distributions import draw_noise, log_prob_entropy
from evorl.nets.policy import Net, Policy
from evorl.ops.losses import ppo_clip
from evorl.record.metrics import check
from evorl.rl.a2c import A2C
from evorl.rl.actor import Actor
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Hyper, Learned, NotFinite
from evorl.rl.dqn import DQN
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.ppo import PPO
from evorl.rl.reinforce import Reinforce
from evorl.rl.vtrace import VTrace
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal
from evorl.util.seed import generator

torch.set_num_threads(1)

CPU = torch.device("cpu")
SEED = 5
INPUTS = (Input("x", (4,)), Input("y", (2,)))
MULTI = Spec(INPUTS, MultiDiscrete((3, 2)), ("a", "b"), masked=True)
DISCRETE = Spec(INPUTS, Discrete(4))
BOX = Spec(INPUTS, Box((-1.0, -2.0), (1.0, 2.0)), ("a", "b", "c"))


def learner_of(hyper: Any, spec: Spec, seed: int = SEED) -> PolicyGradient:
    learner: PolicyGradient = hyper.learner(spec, seed, CPU)
    return learner


def normals(*words: int | str, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator("test", *words).standard_normal(shape)).float()


def random_batch(learner: PolicyGradient, horizon: int, slots: int, number: int = 0) -> PolicyGradientBatch:
    """Random states, rewards and ends; actions and values of the learner itself, log-probabilities a little off."""
    spec = learner.spec
    b = PolicyGradientBatch.empty(spec, horizon, slots, learner.hyper.net.lstm)
    for k, x in enumerate(b.inputs):
        x.copy_(normals("input", k, number, shape=tuple(x.shape)))
    rng = generator("ends", number)
    b.done.copy_(torch.from_numpy(rng.random((horizon, slots)) < 0.2))
    b.start[1:] = b.done
    b.start[0] = torch.from_numpy(rng.random(slots) < 0.5)
    b.reward.copy_(normals("reward", number, shape=tuple(b.reward.shape)))
    truncated = b.done & torch.from_numpy(rng.random((horizon, slots)) < 0.5)
    b.final_value.copy_(normals("final", number, shape=tuple(b.final_value.shape)) * truncated[..., None])
    if b.legal is not None:
        b.legal.copy_(torch.from_numpy(rng.random(tuple(b.legal.shape)) < 0.7))
        b.legal[..., 0] = b.legal[..., heads(spec.action)[0]] = True
    carry = None if b.carry is None else normals("carry", number, shape=tuple(b.carry.shape))
    if b.carry is not None and carry is not None:
        b.carry.copy_(carry)
    for t in range(horizon + 1):
        noise = torch.from_numpy(draw_noise(spec.action, generator("noise", number, t), (slots,)))
        seen, legal = tuple(x[t] for x in b.inputs), None if b.legal is None else b.legal[t]
        decision = learner.act(seen, legal, noise, carry, None if carry is None else b.start[t])
        carry, b.value[t] = decision.carry, decision.value
        if t < horizon:
            b.action[t], b.log_prob[t] = decision.action, decision.log_prob
    b.log_prob.add_(normals("off", number, shape=(horizon, slots)) * 0.3)
    return b


# ------------------------------------------------------------------ the oracle


class Oracle:
    """The same learner in float64: explicit loops, torch.distributions, torch's clipping and optimisers."""

    def __init__(self, learner: PolicyGradient) -> None:
        self.hyper, self.spec, self.seed = learner.hyper, learner.spec, learner.seed
        self.policy = Policy(self.spec, self.hyper.net).double()
        for encoder in self.policy.encoders.children():
            encoder.forward = partial(torch.flatten, start_dim=1)  # ours casts to float32
        named = learner.layout.unflatten(learner.theta)
        self.policy.load_state_dict({name: x.double() for name, x in named.items()})
        self.optimizer = optimizer_of(self.hyper, self.policy.parameters())

    def of(self, name: str) -> list[float]:
        given = getattr(self.hyper, name)
        return [given[r] if isinstance(given, dict) else given for r in self.spec.rewards]

    def advantages(self, b: PolicyGradientBatch) -> Tensor:
        """GAE by the sum of its definition, [T, B, R]."""
        horizon, slots = b.done.shape
        out = torch.zeros(horizon, slots, len(self.spec.rewards), dtype=torch.float64)
        for i in range(slots):
            for r, (gamma, lam) in enumerate(zip(self.of("gamma"), self.of("lam"), strict=True)):
                for t in range(horizon):
                    weight = 1.0
                    for k in range(t, horizon):
                        after = b.final_value[k, i, r] if b.done[k, i] else b.value[k + 1, i, r]
                        delta = b.reward[k, i, r].double() + gamma * after.double() - b.value[k, i, r].double()
                        out[t, i, r] += weight * delta
                        weight *= gamma * lam
                        if b.done[k, i]:
                            break
        return out

    def minibatches(self, b: PolicyGradientBatch, iteration: int, number: int) -> Iterator[Tensor]:
        """Decisions [N] of each step; whole slots where there is a memory."""
        horizon, slots = b.done.shape
        asked = self.hyper.minibatch if isinstance(self.hyper, PPO) else horizon * slots
        total, size = (slots, max(1, asked // horizon)) if self.hyper.net.lstm else (horizon * slots, asked)
        order = torch.from_numpy(generator(self.seed, "shuffle", iteration, number).permutation(total))
        parts = -(-total // size)
        for part in range(parts):  # the first few are one longer where the division leaves a rest
            first = part * (total // parts) + min(part, total % parts)
            yield order[first : first + total // parts + (part < total % parts)]

    def distribution(
        self, raw: Tensor, log_std: Tensor | None, legal: Tensor | None, action: Tensor
    ) -> tuple[Tensor, Tensor]:
        space = self.spec.action
        if isinstance(space, Box):
            k = len(space.low)
            sigma = log_std.exp() if log_std is not None else raw[..., k:].clamp(-5, 2).exp()
            normal = Normal(raw[..., :k], sigma.expand_as(raw[..., :k]))
            return normal.log_prob(action.double()).sum(-1), normal.entropy().sum(-1)
        if legal is not None:
            raw = torch.where(legal, raw, torch.tensor(-1e30, dtype=torch.float64))
        parts = [Categorical(logits=part) for part in raw.split(heads(space), -1)]
        return sum(p.log_prob(action[..., k]) for k, p in enumerate(parts)), sum(p.entropy() for p in parts)

    def loss(self, b: PolicyGradientBatch, rows: Tensor, advantage: Tensor, weight: Tensor) -> dict[str, Tensor]:
        h = self.hyper
        if h.net.lstm:
            inputs = tuple(x[:-1, rows].double() for x in b.inputs)
            out = self.policy(inputs, b.carry[:, rows].double(), b.start[:-1, rows])
            pick = lambda x: x[:, rows]  # noqa: E731
        else:
            out = self.policy(tuple(x[:-1].flatten(0, 1)[rows].double() for x in b.inputs))
            pick = lambda x: x.flatten(0, 1)[rows]  # noqa: E731
        legal = None if b.legal is None else pick(b.legal[:-1])
        log_prob, entropy = self.distribution(out.raw, out.log_std, legal, pick(b.action))
        old, old_value = pick(b.log_prob).double(), pick(b.value[:-1]).double()
        target, w = pick(advantage) + old_value, pick(weight)
        if h.normalize_advantage:
            w = (w - w.mean()) / w.std(correction=0)
        ratio = (log_prob - old).exp()
        error = (out.value - target) ** 2
        if isinstance(h, PPO):
            policy = -torch.minimum(ratio * w, ratio.clamp(1 - h.clip, 1 + h.clip) * w).mean()
            if h.value_clip is not None:
                near = old_value + (out.value - old_value).clamp(-h.value_clip, h.value_clip)
                error = torch.maximum(error, (near - target) ** 2)
        else:
            policy = -(log_prob * w).mean()
        total = policy + h.critic_coef * error.mean() - h.entropy_coef * entropy.mean()
        stats = {
            "loss/policy": policy,
            "loss/value": error.mean(),
            "policy/entropy": entropy.mean(),
            "loss/total": total,
        }
        if isinstance(h, PPO):
            outside = ((ratio > 1 + h.clip) & (w > 0)) | ((ratio < 1 - h.clip) & (w < 0))
            stats |= {
                "policy/kl": (ratio - 1 - (log_prob - old)).mean(),
                "policy/clip_fraction": outside.double().mean(),
            }
        return stats

    def update(self, b: PolicyGradientBatch, rate: float, iteration: int) -> dict[str, float]:
        h = self.hyper
        self.optimizer.param_groups[0]["lr"] = rate
        advantage = self.advantages(b)
        target = advantage + b.value[:-1].double()
        weight = (target if isinstance(h, Reinforce) and not h.baseline else advantage).sum(-1)
        rows: list[dict[str, float]] = []
        for number in range(h.passes if isinstance(h, PPO) else 1):
            kls = []
            for chosen in self.minibatches(b, iteration, number):
                stats = self.loss(b, chosen, advantage, weight)
                self.optimizer.zero_grad()
                stats["loss/total"].backward()
                norm = nn.utils.clip_grad_norm_(self.policy.parameters(), h.max_grad_norm)
                self.optimizer.step()
                rows.append({name: x.item() for name, x in (stats | {"optimizer/grad_norm": norm}).items()})
                kls.append(rows[-1].get("policy/kl", 0.0))
            if isinstance(h, PPO) and h.target_kl is not None and sum(kls) / len(kls) > h.target_kl:
                break
        metrics = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
        metrics["value/explained_variance"] = (1 - advantage.var(correction=0) / target.var(correction=0)).item()
        return Learned(len(rows), metrics | {"optimizer/lr": rate})

    def parameters(self) -> dict[str, Tensor]:
        return {name: x.detach() for name, x in self.policy.named_parameters()}


SMALL = Net(hidden=(8, 6))
HYPERS: dict[str, tuple[Any, Spec]] = {
    "ppo": (PPO(minibatch=10, net=SMALL, entropy_coef=0.02), DISCRETE),
    "ppo, per reward": (
        PPO(minibatch=7, net=SMALL, gamma={"b": 0.5, "a": 0.9}, lam={"a": 1.0, "b": 0.3}, entropy_coef=0.02), MULTI,
    ),
    "ppo, value clip": (PPO(minibatch=10, net=SMALL, value_clip=0.05, lr=1e-2), MULTI),
    "ppo, box": (PPO(minibatch=40, net=replace(SMALL, shared=True), normalize_advantage=False), BOX),
    "ppo, state deviation": (PPO(minibatch=13, net=replace(SMALL, std="state"), entropy_coef=0.1), BOX),
    "ppo, lstm": (PPO(minibatch=16, net=replace(SMALL, lstm=5)), MULTI),
    "ppo, lstm, box": (PPO(minibatch=1000, net=replace(SMALL, lstm=5)), BOX),
    "ppo, kl stop": (PPO(minibatch=10, passes=9, net=SMALL, target_kl=0.1, lr=1e-2), DISCRETE),
    "a2c": (A2C(net=SMALL), MULTI),
    "a2c, lstm, box": (A2C(net=replace(SMALL, lstm=4), lam=0.9, normalize_advantage=True), BOX),
    "a2c, rmsprop": (A2C(net=SMALL, optimizer="rmsprop", rmsprop_epsilon=0.1, rmsprop_decay=0.9), MULTI),
    "a2c, rmsprop_tf": (
        A2C(net=SMALL, optimizer="rmsprop_tf", rmsprop_epsilon=1e-4, rmsprop_decay=0.5, lr=1e-2), MULTI,
    ),
    "reinforce": (Reinforce(net=SMALL, max_grad_norm=1e-3), BOX),
    "reinforce, bare": (Reinforce(net=SMALL, baseline=False, normalize_advantage=False), DISCRETE),
}  # fmt: skip
hypers = pytest.mark.parametrize(("hyper", "spec"), HYPERS.values(), ids=HYPERS.keys())


@pytest.mark.slow_cases("ppo", "ppo, box", "a2c, rmsprop", "reinforce, bare")
@hypers
def test_updates_equal_the_oracle(hyper: Hyper, spec: Spec) -> None:
    learner = learner_of(hyper, spec)
    oracle = Oracle(learner)
    for iteration in range(3):
        batch = random_batch(learner, 8, 5, iteration)
        steps, got, _ = learner.update(batch, 0, iteration)
        check(got)
        wanted, want, _ = oracle.update(batch, hyper.lr, iteration)
        assert (steps, got.keys()) == (wanted, want.keys())
        for name in want:
            assert got[name] == pytest.approx(want[name], rel=2e-4, abs=2e-5), name
        for name, x in learner.layout.unflatten(learner.theta).items():
            torch.testing.assert_close(
                x.double(), oracle.parameters()[name], rtol=1e-4, atol=2e-5, msg=f"{name} {iteration}"
            )


@pytest.mark.parametrize("lstm", [0, 5])
def test_ppo_at_ratio_one_takes_the_policy_gradient_step(lstm: int) -> None:
    """One pass, one minibatch, log-probabilities of the policy itself: the same step as A2C."""
    net = replace(SMALL, lstm=lstm)
    ppo = learner_of(
        PPO(net=net, passes=1, minibatch=1000, normalize_advantage=False, lam=1.0, entropy_coef=0.01, lr=1e-3), MULTI
    )
    a2c = learner_of(A2C(net=net, lr=1e-3), MULTI)
    batch = random_batch(ppo, 8, 5)
    batch.log_prob.sub_(normals("off", 0, shape=(8, 5)) * 0.3)
    for learner in (ppo, a2c):
        learner.update(batch, 0, 0)
    torch.testing.assert_close(ppo.theta, a2c.theta, rtol=1e-5, atol=1e-6)


def test_the_ratio_of_several_heads_is_the_product_of_theirs() -> None:
    """Where one head's probability halves and the other's doubles the ratio is one; where both double it is four."""
    action, old = MultiDiscrete((2, 2)), torch.tensor([[0.5, 0.5, 0.25, 0.75]]).log()
    new = torch.tensor([[0.25, 0.75, 0.5, 0.5], [1.0, 1e-9, 0.5, 0.5]]).log()
    chosen, advantage = torch.zeros(1, 2, dtype=torch.int64), torch.ones(1)
    before, _ = log_prob_entropy(action, old, None, None, chosen)
    for raw, ratio in zip(new, (1.0, 4.0), strict=True):
        after, _ = log_prob_entropy(action, raw[None], None, None, chosen)
        loss, clipped = ppo_clip(after, before, advantage, 0.2)
        assert -loss.item() == pytest.approx(min(ratio, 1.2)) and clipped.item() == float(ratio > 1.2)


def test_a_kl_target_ends_the_passes() -> None:
    base = PPO(net=SMALL, passes=20, minibatch=10, lr=1e-2)
    batch = random_batch(learner_of(base, DISCRETE), 8, 5)
    assert learner_of(base, DISCRETE).update(batch, 0, 0).steps == 80
    kept = learner_of(replace(base, target_kl=1e-9), DISCRETE).update(batch, 0, 0)
    assert kept.steps == 4  # the first pass is always whole
    some = learner_of(replace(base, target_kl=0.1), DISCRETE).update(batch, 0, 0).steps
    assert some in range(8, 80, 4)


def test_hyper_parameters_are_for_life_and_threads_the_process_own() -> None:
    """The records of updates hold the numbers: another set of them would be ignored in silence."""
    before = torch.get_num_threads()
    learner = learner_of(PPO(net=SMALL, threads=before + 1), DISCRETE)
    assert torch.get_num_threads() == before
    with pytest.raises(AttributeError):
        learner.hyper = PPO(net=SMALL, clip=0.3)
    assert learner.hyper.clip == 0.2


def test_the_learning_rate_follows_environment_steps() -> None:
    schedule = Anneal(start=1e-3, end=0.0, steps=1000)
    learner = learner_of(PPO(net=SMALL, lr=schedule), DISCRETE)
    batch = random_batch(learner, 8, 5)
    for iteration, (step, rate) in enumerate([(0, 1e-3), (250, 7.5e-4), (500, 5e-4)]):
        assert learner.update(batch, step, iteration).metrics["optimizer/lr"] == pytest.approx(rate)
    before = learner.theta.clone()
    assert learner.update(batch, 2000, 3).metrics["optimizer/lr"] == 0
    assert torch.equal(learner.theta, before)


def test_recurrent_minibatches_keep_whole_slots() -> None:
    """One slot's batch in two minibatches of one slot each: the state of a slot never meets the other's."""
    learner = learner_of(PPO(net=replace(SMALL, lstm=4), minibatch=8), DISCRETE)
    batch = random_batch(learner, 8, 6)
    seen = [rows.tolist() for rows in learner._shuffled(batch, 0, 0)]
    assert sorted(slot for rows in seen for slot in rows) == list(range(6)) and all(len(rows) == 1 for rows in seen)
    larger = learner_of(PPO(net=replace(SMALL, lstm=4), minibatch=27), DISCRETE)
    assert [len(rows) for rows in larger._shuffled(batch, 0, 0)] == [3, 3]


def test_every_pass_and_iteration_is_shuffled_anew() -> None:
    learner = learner_of(PPO(net=SMALL, minibatch=40), DISCRETE)
    batch = random_batch(learner, 8, 5)
    orders = [next(iter(learner._shuffled(batch, i, k))).tolist() for i in range(2) for k in range(2)]
    assert all(sorted(order) == list(range(40)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


def test_illegal_actions_get_no_gradient() -> None:
    """An entry that is illegal everywhere keeps its weights to the bit."""
    learner = learner_of(PPO(net=SMALL, entropy_coef=0.1), MULTI)
    batch = random_batch(learner, 8, 5)
    assert batch.legal is not None
    batch.legal[..., 2] = False
    batch.action[..., 0].clamp_(max=1)
    before = {k: v.clone() for k, v in learner.layout.unflatten(learner.theta).items()}
    learner.update(batch, 0, 0)
    after = learner.layout.unflatten(learner.theta)
    assert torch.equal(after["policy.weight"][2], before["policy.weight"][2])
    assert not torch.equal(after["policy.weight"][0], before["policy.weight"][0])


# ------------------------------------------------------------------ not finite


BAD_FIELDS = [
    (hyper, field)
    for hyper in (PPO(net=SMALL), A2C(net=SMALL), Reinforce(net=SMALL), PPO(net=replace(SMALL, lstm=4)))
    for field in ("reward", "value", "log_prob")
    if field != "log_prob" or isinstance(hyper, PPO)  # the others do not read it
]


@pytest.mark.parametrize(("hyper", "field"), BAD_FIELDS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_named(hyper: Any, field: str, bad: float) -> None:
    learner = learner_of(hyper, DISCRETE)
    batch = random_batch(learner, 8, 5)
    getattr(batch, field)[3, 2] = bad
    with pytest.raises(NotFinite, match=r"(loss|policy|optimizer)/\w+ is (nan|-?inf) in gradient step \d+ of pass 0"):
        learner.update(batch, 0, 0)


@pytest.mark.parametrize("algorithm", [PPO, A2C, Reinforce])
def test_a_gradient_that_is_not_finite_is_named(algorithm: type[Hyper], monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(algorithm(net=SMALL), DISCRETE)
    loss = learner.loss

    def steep(out: Any, *rest: Any) -> Any:
        total, stats = loss(out, *rest)
        return total + (0 * out.raw).abs().sqrt().sum(), stats  # nothing, with a slope that is none

    monkeypatch.setattr(learner, "loss", steep)
    with pytest.raises(NotFinite, match="optimizer/grad_norm is nan in gradient step 0 of pass 0"):
        learner.update(random_batch(learner, 8, 5), 0, 0)


def test_a_discount_for_an_unknown_reward_is_refused() -> None:
    with pytest.raises(BadRequest, match=r"rl.gamma.z: unknown key; did you mean rl.gamma.b"):
        learner_of(PPO(gamma={"a": 0.9, "z": 0.9}), MULTI)


# ------------------------------------------------------------------ same bits


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return torch.equal(a, b) if isinstance(a, Tensor) else a == b


FULL = PPO(minibatch=12, net=SMALL, normalize_inputs=True, normalize_rewards=True, lr=1e-2, horizon=8, slots=5)
STATEFUL: list[Any] = [
    FULL, replace(FULL, net=replace(SMALL, lstm=4)), A2C(net=SMALL, optimizer="rmsprop_tf"), Reinforce(net=SMALL),
]  # fmt: skip


@pytest.mark.slow_cases(but=("0-ppo", "2-reinforce"))
@pytest.mark.parametrize("hyper", STATEFUL, ids=["ppo", "ppo lstm", "a2c", "reinforce"])
@pytest.mark.parametrize("updates", [0, 2])
def test_a_restored_learner_goes_on_with_the_same_bits(hyper: Any, updates: int) -> None:
    learner = learner_of(hyper, MULTI)
    for iteration in range(updates):
        learner.update(random_batch(learner, 8, 5, iteration), 0, iteration)
    state = learner.state_dict()
    batch = random_batch(learner, 8, 5, 9)
    learned = learner.update(batch, 0, 9)
    end = learner.state_dict()
    fresh, used = learner_of(hyper, MULTI, seed=99), learner_of(hyper, MULTI, seed=98)
    used.update(random_batch(used, 8, 5, 17), 0, 17)
    for other in (fresh, used):
        other.seed = SEED
        other.load_state_dict(state)
        assert same(other.state_dict(), state)
        assert other.update(batch, 0, 9) == learned
        assert same(other.state_dict(), end)


def test_statistics_stand_still_within_a_batch_and_follow_it() -> None:
    """Inputs are normalised by what earlier batches held."""
    learner = learner_of(FULL, DISCRETE)
    batch = random_batch(learner, 8, 5)
    seen = tuple(x[0] for x in batch.inputs)
    noise = torch.zeros(5, 4)
    first = learner.act(seen, None, noise, None, None).value
    assert torch.equal(first, learner.act(seen, None, noise, None, None).value)
    learner.update(batch, 0, 0)
    assert learner.moments is not None and learner.moments.running[0].count == 40
    plain = learner_of(replace(FULL, normalize_inputs=False), DISCRETE)
    plain.theta.copy_(learner.theta)
    rows = [x[:-1].flatten(0, 1).double() for x in batch.inputs]
    scaled = tuple(((x - r.mean(0)) / r.std(0, correction=0)).float() for x, r in zip(seen, rows, strict=True))
    torch.testing.assert_close(
        learner.act(seen, None, noise, None, None).value, plain.act(scaled, None, noise, None, None).value
    )


def test_weights_alone_can_be_taken_over() -> None:
    learner, other = learner_of(FULL, DISCRETE), learner_of(FULL, DISCRETE, seed=1)
    learner.update(random_batch(learner, 8, 5), 0, 0)
    other.load_policy(learner.state_dict())
    assert torch.equal(other.theta, learner.theta) and all((x == 0).all() for x in other.network.optimizer)
    x = tuple(normals(k, shape=(5, *one.shape)) for k, one in enumerate(INPUTS))
    for a, b in zip(
        learner.act(x, None, torch.zeros(5, 4), None, None)[:4],
        other.act(x, None, torch.zeros(5, 4), None, None)[:4],
        strict=True,
    ):
        assert torch.equal(a, b)


@pytest.mark.parametrize("trained", [True, False])
def test_weights_with_and_without_normalised_inputs_do_not_mix(trained: bool) -> None:
    state = learner_of(replace(FULL, normalize_inputs=trained), DISCRETE).state_dict()
    other = learner_of(replace(FULL, normalize_inputs=not trained), DISCRETE)
    before = other.theta.clone()
    with pytest.raises(ValueError, match=f"trained with{'' if trained else 'out'} normalize_inputs"):
        other.load_policy(state)
    assert torch.equal(other.theta, before)


def test_weights_of_another_network_do_not_fit() -> None:
    with pytest.raises(ValueError, match="parameter"):
        learner_of(PPO(net=SMALL), DISCRETE).load_policy(learner_of(PPO(), DISCRETE).state_dict())


@pytest.mark.parametrize("action", [Discrete(3), Box((-1.0,), (1.0,))], ids=str)
def test_images_are_learned_from(action: Action) -> None:
    spec = Spec((Input("eye", (1, 36, 36), "uint8"), Input("x", (2,))), action)
    learner = learner_of(PPO(minibatch=8, passes=1, net=SMALL, normalize_inputs=True), spec)
    batch = PolicyGradientBatch.empty(spec, 4, 4, 0)
    batch.inputs[0].copy_(torch.from_numpy(generator("eye").integers(0, 256, (5, 4, 1, 36, 36)).astype("uint8")))
    batch.reward.copy_(normals("reward", shape=(4, 4, 1)))
    before = learner.theta.clone()
    assert learner.update(batch, 0, 0).steps == 2
    assert not torch.equal(learner.theta, before)


def digest() -> str:
    """The bits of three iterations of play and learning, with and without memory."""
    total = hashlib.sha256()
    for hyper in STATEFUL[:2]:
        learner = learner_of(hyper, Wandering.spec)
        actor = Actor(
            Games(Wandering, 5, episodes()),
            learner,
            SEED,
            0,
            PolicyGradientBatch.empty(Wandering.spec, 8, 5, hyper.net.lstm),
        )
        for iteration in range(3):
            actor.collect(iteration)
            metrics = learner.update(actor.batch, 40 * iteration, iteration).metrics
            total.update(repr(sorted(metrics.items())).encode())
        total.update(learner.theta.numpy().tobytes())
    return total.hexdigest()


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_bits(elsewhere: Callable[[str], str]) -> None:
    assert elsewhere("digest()") == digest()


# ------------------------------------------------------------------ a policy that has moved since it acted


@pytest.mark.parametrize("lstm", [0, 5])
def test_corrected_targets_are_v_trace_of_the_present_policy(lstm: int) -> None:
    hyper = PPO(net=replace(SMALL, lstm=lstm), correction="vtrace", lam=0.9, gamma=0.95, normalize_inputs=True)
    actor, now = learner_of(hyper, MULTI), learner_of(hyper, MULTI, SEED + 1)
    batch = random_batch(actor, 8, 5)
    log_prob, value, advantage, target = now._advantages_and_targets(batch, batch.reward)
    out = now.forward(now.theta, now._statistics(), batch.inputs, *(() if not lstm else (batch.carry, batch.start)))
    present, _ = log_prob_entropy(MULTI.action, out.raw[:-1], out.log_std, batch.legal[:-1], batch.action)
    torch.testing.assert_close(log_prob, present.detach())
    torch.testing.assert_close(value, out.value[:-1].detach())
    for b in range(5):
        for r in range(len(MULTI.rewards)):
            correction, following = 0.0, 0.0  # v_s - V(x_s), and v of the state that follows, from the end backwards
            for t in reversed(range(8)):
                ratio = math.exp(float(present[t, b] - batch.log_prob[t, b]))
                rho, c = min(1.0, ratio), 0.9 * min(1.0, ratio)
                done = bool(batch.done[t, b])
                after = float(batch.final_value[t, b, r]) if done else float(out.value[t + 1, b, r])
                here, reward = float(out.value[t, b, r]), float(batch.reward[t, b, r])
                following = after if done or t == 7 else float(out.value[t + 1, b, r]) + correction
                assert float(advantage[t, b, r]) == pytest.approx(rho * (reward + 0.95 * following - here), abs=1e-4)
                correction = rho * (reward + 0.95 * after - here) + (0.0 if done else 0.95 * c * correction)
                assert float(target[t, b, r]) == pytest.approx(here + correction, abs=1e-4)


def test_without_correction_the_batch_is_taken_at_its_word() -> None:
    hyper = PPO(net=SMALL)
    actor, now = learner_of(hyper, MULTI), learner_of(hyper, MULTI, SEED + 1)
    batch = random_batch(actor, 8, 5)
    log_prob, value, advantage, target = now._advantages_and_targets(batch, batch.reward)
    assert log_prob is batch.log_prob and torch.equal(value, batch.value[:-1])
    torch.testing.assert_close(target, advantage + value)


def test_a_copy_acts_as_the_learner_whose_weights_it_has() -> None:
    hyper = replace(FULL, normalize_inputs="whiten")
    one, copy = learner_of(hyper, MULTI), learner_of(hyper, MULTI, SEED + 1)
    one.update(random_batch(one, 8, 5), 0, 0)
    copy.load_weights(one.weights())
    batch = random_batch(one, 8, 5, 1)
    for learner in (one, copy):
        learner.load_weights(learner.weights())  # its own change nothing
    got, want = (
        x.act(tuple(i[0] for i in batch.inputs), batch.legal[0], torch.zeros(5, 5), None, None) for x in (one, copy)
    )
    assert all(torch.equal(a, b) for a, b in zip(got[:4], want[:4], strict=True))


@pytest.mark.parametrize(
    ("kind", "given", "key"),
    [
        (PPO, {"minibatch": 1}, "minibatch"),
        (Reinforce, {"baseline": False, "correction": "vtrace"}, "correction"),
        (PPO, {"asynchronous": True, "members": 2, "normalize_rewards": True}, "normalize_rewards"),
        (DQN, {"epsilon_spread": 7.0}, "epsilon_spread"),
    ],
)
def test_settings_under_which_nothing_right_is_learned_are_refused(kind: Any, given: dict[str, Any], key: str) -> None:
    with pytest.raises(BadRequest) as caught:
        kind(**given)
    assert caught.value.key == key


@pytest.mark.parametrize(
    "hyper",
    [
        Reinforce(slots=1, horizon=1),
        A2C(slots=1, horizon=1, normalize_advantage=True),
        PPO(slots=1, horizon=3, minibatch=2),
        PPO(slots=3, horizon=1, minibatch=2, net=Net(lstm=4)),
    ],
    ids=["reinforce", "a2c", "ppo", "ppo, LSTM"],
)
def test_a_minibatch_of_one_decision_has_no_normalised_advantage(hyper: Any) -> None:
    learner = learner_of(hyper, DISCRETE)  # which may act: an older run can be evaluated
    with pytest.raises(BadRequest, match="whose normalised advantage is 0") as caught:
        learner.check_minibatches()
    assert caught.value.key == "rl.normalize_advantage"


@pytest.mark.parametrize("hyper", [A2C(net=SMALL, optimizer="rmsprop"), VTrace(net=SMALL, optimizer="rmsprop_tf")])
def test_the_state_of_rmsprop_that_older_versions_wrote_is_read(hyper: Any) -> None:
    learner = learner_of(hyper, DISCRETE)
    state = learner.state_dict()
    (mean_square,) = learner.network.optimizer
    wanted = mean_square + torch.rand(mean_square.shape)
    state["optimizer"] = {"m": torch.zeros_like(wanted), "v": wanted, "t": torch.zeros(())}
    learner.load_state_dict(state)
    assert torch.equal(mean_square, wanted)
    assert learner.state_dict()["optimizer"].keys() == {"mean_square"}
