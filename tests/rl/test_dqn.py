"""Deep Q-networks: gradient steps against slow ones, exploration, priorities and exact state."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Chain, Game, GameWorld, advance, collected_from
from torch import Tensor

from evorl.mdp.core import Array, Box, Discrete, Input, MultiDiscrete, Spec, State, Step
from evorl.nets.action_values import noise_size, perturbed
from evorl.nets.distributions import draw_noise
from evorl.nets.policy import Net
from evorl.nets.trees import unbound
from evorl.replay.samplers.prioritized import PrioritizedKeys
from evorl.replay.samplers.registry import WeightedSamplers
from evorl.rl.dqn import DQN
from evorl.rl.evaluation import evaluate_policy
from evorl.rl.replay_learner import Reading, Transitions
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal
from evorl.util.seed import generator

torch.set_num_threads(1)
CPU = torch.device("cpu")


def priorities(**keys: Any) -> WeightedSamplers:
    return WeightedSamplers(prioritized=PrioritizedKeys(**keys))


SMALL: dict[str, Any] = {
    "slots": 3, "horizon": 4, "batch": 8, "samples_per_step": 8.0, "warm_up": 24, "capacity": 500, "lr": 1e-2,
    "net": Net(hidden=(16, 8), activation="relu"), "gamma": {"near": 0.9, "cheap": 0.5}, "target_every": 3,
}  # fmt: skip
RAINBOW: dict[str, Any] = {
    "double": True, "dueling": True, "noisy": True, "n_step": 3, "sampling": "prioritized", "distribution": "c51",
    "atoms": 7, "support": (-1.0, 1.0),
}  # fmt: skip


class Choosing(Game):
    """A position that four actions push, some of them illegal; it terminates, or is cut after 7 decisions."""

    spec = Spec((Input("x", (2,)),), Discrete(4), rewards=("near", "cheap"), masked=True)

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.x = np.array([self.draw(0), self.draw(1)], np.float32) - 0.5

    def state(self) -> State:
        legal = np.array([self.draw(10 + 4 * self.t + k) < 0.5 for k in range(4)])
        legal[int(self.draw(5 + self.t) * 4)] = True
        return State((self.x.copy(),), legal)

    def step(self, action: Array) -> Step:
        legal = self.state().legal
        assert legal is not None and legal[action[0]]
        self.t += 1
        self.x = self.x + np.float32(0.2) * np.array([action[0] - 1.5, 0.5], np.float32)
        reward = np.array([-np.square(self.x).sum(), -0.1 * action[0]], np.float32)
        return Step(reward, terminated=bool(self.x[0] > 0.6), truncated=self.t >= 7)


collected = partial(collected_from, Choosing)


# ------------------------------------------------------------------ a slow twin


def under_noise(named: dict[str, Tensor], noise: Tensor) -> dict[str, Tensor]:
    """Eq. 9 to 11 of Fortunato et al. 2018, weight by weight."""
    numbers, found = iter(noise.tolist()), dict(named)
    for name in [name.removesuffix(".weight_sigma") for name in named if name.endswith(".weight_sigma")]:
        groups, inputs, width = named[f"{name}.weight"].shape
        f = [math.copysign(math.sqrt(abs(x)), x) for x in (next(numbers) for _ in range(groups * (inputs + width)))]
        before, after = f[: groups * inputs], f[groups * inputs :]
        factor = torch.tensor(
            [[[before[g * inputs + i] * after[g * width + o] for o in range(width)] for i in range(inputs)]
             for g in range(groups)])  # fmt: skip
        found[f"{name}.weight"] = named[f"{name}.weight"] + named[f"{name}.weight_sigma"] * factor
        bias = torch.tensor(after).view(groups, 1, width)
        found[f"{name}.bias"] = named[f"{name}.bias"] + named[f"{name}.bias_sigma"] * bias
    assert not list(numbers)
    return found


class SlowDQN:
    """The algorithm with torch's own Adam, row by row, with plain products."""

    def __init__(self, learner: Any) -> None:
        state, self.h = copy.deepcopy(learner.state_dict()), learner.hyper
        self.network = {k: torch.as_tensor(v).clone().requires_grad_() for k, v in state["policy"].items()}
        self.target = {k: torch.as_tensor(v).clone() for k, v in state["policy_target"].items()}
        self.adam = torch.optim.Adam(list(self.network.values()), lr=float(self.h.lr), eps=self.h.adam_epsilon)
        self.support = [float(x) for x in torch.linspace(*self.h.support, self.h.atoms)]

    def outputs(self, named: dict[str, Tensor], noise: Tensor, x: Tensor) -> Tensor:
        """[R, A, M]"""
        named = under_noise(named, noise) if self.h.noisy else named
        streams = []
        for group in range(2 if self.h.dueling else 1):
            y = x
            for i in range(len(self.h.net.hidden)):
                y = (y @ named[f"hidden.{i}.weight"][group] + named[f"hidden.{i}.bias"][group][0]).clamp(min=0)
            streams.append(y)
        advantage = (streams[0] @ named["advantage.weight"][0] + named["advantage.bias"][0][0]).view(2, 4, -1)
        if not self.h.dueling:
            return advantage
        value = (streams[1] @ named["value.weight"][0] + named["value.bias"][0][0]).view(2, 1, -1)
        return value + (advantage - advantage.mean(1, keepdim=True))

    def mean(self, outputs: Tensor) -> Tensor:
        if self.h.distribution == "c51":
            return (outputs.softmax(-1) * torch.tensor(self.support)).sum(-1)
        return outputs.mean(-1)

    def best(self, q: Tensor, legal: Tensor) -> int:
        return max((float(q[:, a].sum()), a) for a in range(4) if legal[a])[1]

    def loss(self, row: dict[str, Any], noise: Tensor) -> tuple[Tensor, float]:
        with torch.no_grad():
            then = self.outputs(self.target, noise[1], row["next"])
            chooser = self.outputs(self.network, noise[2], row["next"]) if self.h.double else then
            then = then[:, self.best(self.mean(chooser), row["legal"])]  # [R, M]
        now = self.outputs(self.network, noise[0], row["x"])[:, row["a"]]
        losses, errors = [], []
        for r in range(2):
            reward, discount = float(row["reward"][r]), float(row["discount"][r])
            loss, error = self.of_reward(now[r], then[r], reward, discount)
            losses.append(loss)
            errors.append(error)
        return torch.stack(losses).mean(), sum(errors) / 2

    def of_reward(self, now: Tensor, then: Tensor, reward: float, discount: float) -> tuple[Tensor, float]:
        if self.h.distribution == "c51":
            target = self.projected(then.softmax(-1), reward, discount)
            loss = -(torch.tensor(target) * now.log_softmax(-1)).sum()
            return loss, loss.item() + sum(p * math.log(p) for p in target if p > 0)  # KL(target || now)
        if self.h.distribution == "qr":
            count, loss = len(now), torch.zeros(())
            for i in range(count):
                for j in range(count):
                    u = reward + discount * then[j] - now[i]
                    weight = abs((2 * i + 1) / (2 * count) - float(u.item() < 0))
                    loss = loss + weight * self.huber(u) / count
            return loss, loss.item()
        error = reward + discount * then[0] - now[0]
        return self.huber(error), abs(error.item())

    def huber(self, u: Tensor) -> Tensor:
        delta = self.h.huber
        return 0.5 * u.square() if abs(u.item()) <= delta else delta * (u.abs() - 0.5 * delta)

    def projected(self, probability: Tensor, reward: float, discount: float) -> list[float]:
        low, high, found = self.support[0], self.support[-1], [0.0] * len(self.support)
        step = (high - low) / (len(found) - 1)
        for place, share in zip(self.support, probability.tolist(), strict=True):
            b = (min(max(reward + discount * place, low), high) - low) / step
            lower = min(int(b), len(found) - 2)
            found[lower] += share * (lower + 1 - b)
            found[lower + 1] += share * (b - lower)
        return found

    def step(self, number: int, noise: Tensor, rows: list[dict[str, Any]]) -> list[float]:
        found = [self.loss(row, noise) for row in rows]
        self.adam.zero_grad()
        (sum(row["weight"] * loss for row, (loss, _) in zip(rows, found, strict=True)) / len(rows)).backward()
        if self.h.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(self.network.values()), self.h.max_grad_norm)
        self.adam.step()
        if (number + 1) % self.h.target_every == 0:
            for name, x in self.network.items():
                self.target[name] = (1 - self.h.tau) * self.target[name] + self.h.tau * x.detach()
        return [error for _, error in found]


def everything(learner: Any) -> Reading:
    return Reading(learner.replay, learner.replay.count, learner.replay.oldest(learner.replay.count))


def rows_of(learner: Any, b: Transitions) -> list[dict[str, Any]]:
    (x,), (following,), legal = b.inputs, b.following, b.legal
    weight = torch.ones(learner.hyper.batch) if b.weight is None else b.weight
    assert legal is not None
    return [
        {"x": x[i], "a": int(b.action[i]), "reward": b.reward[i], "discount": b.discount[i], "next": following[i],
         "legal": legal[i], "weight": float(weight[i])}
        for i in range(len(x))
    ]  # fmt: skip


CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "polyak": {"tau": 0.1, "target_every": 1, "max_grad_norm": 0.05},
    "dueling": {"dueling": True, "huber": 0.1},
    "n-step": {"n_step": 3},
    "prioritised": {"sampling": "prioritized", "replay": priorities(alpha=1.0, beta=0.7)},
    "c51": {"distribution": "c51", "atoms": 7, "support": (-1.0, 1.0)},
    "quantiles": {"distribution": "qr", "atoms": 5, "huber": 0.2},
    "noisy": {"noisy": True, "double": True},
    "rainbow": RAINBOW,
}


def check_steps(name: str) -> None:
    learner, _ = collected(DQN(**SMALL | CASES[name]), 4)
    for x in learner.network.optimizer:
        x.zero_()
    slow = SlowDQN(learner)
    for number in range(learner.gradient_steps, learner.gradient_steps + 7):
        noise = learner.draw_noise(number, 1)[0]
        minibatch = next(unbound(learner.minibatches(everything(learner), number, 1)))
        found = learner.gradient_step(number, noise, minibatch)
        errors = slow.step(number, noise, rows_of(learner, minibatch))
        if learner.sampler.weighs:
            np.testing.assert_allclose(found["error"], errors, rtol=1e-3, atol=1e-5)
    state = learner.state_dict()
    for fast, expected in ((state["policy"], slow.network), (state["policy_target"], slow.target)):
        for part, x in expected.items():
            torch.testing.assert_close(fast[part], x.detach(), rtol=1e-3, atol=1e-5)
    assert not all(torch.equal(x, state["policy"][part]) for part, x in state["policy_target"].items())


@pytest.mark.parametrize("name", CASES)
def test_it_takes_the_steps_of_the_papers(name: str) -> None:
    check_steps(name)


# ------------------------------------------------------------------ noisy layers


def test_noise_perturbs_weights_by_products_of_factors() -> None:
    learner = DQN(**SMALL | RAINBOW).learner(Choosing.spec, 0, CPU)
    named = learner.layout.unflatten(learner.theta)
    size = noise_size(learner.policy)
    assert size == 2 * (2 + 16) + 2 * (16 + 8) + (8 + 2 * 4 * 7) + (8 + 2 * 7)
    noise = torch.randn(size, generator=torch.Generator().manual_seed(0))
    for name, x in under_noise(named, noise).items():
        torch.testing.assert_close(perturbed(learner.policy, named, noise)[name], x)
    still = perturbed(learner.policy, named, torch.zeros(size))
    assert all(torch.equal(x, named[name]) for name, x in still.items())
    for name in ("hidden.0", "hidden.1", "advantage", "value"):
        scale = 1 / math.sqrt(named[f"{name}.weight"].shape[1])
        assert named[f"{name}.weight"].abs().max() <= scale and named[f"{name}.weight"].std() > scale / 3
        assert (named[f"{name}.weight_sigma"] == 0.5 * scale).all() and (
            named[f"{name}.bias_sigma"] == 0.5 * scale
        ).all()


def test_members_act_under_one_noise_until_the_next_gradient_step() -> None:
    learner, actor = collected(DQN(**SMALL | {"noisy": True, "epsilon": 0.0}), 4)
    first, again = learner.weights()[0], learner.weights()[0]
    assert torch.equal(first, again) and not torch.equal(first, learner.theta)
    own = learner.layout.flatten(
        under_noise(
            learner.layout.unflatten(learner.theta),
            torch.from_numpy(
                generator(learner.seed, "acting noise", learner.gradient_steps).standard_normal(
                    learner.noise_size, np.float32
                )
            ),
        )
    )
    torch.testing.assert_close(first, own)
    advance(learner, actor, 4)
    assert not torch.equal(learner.weights()[0] - learner.theta, first - learner.theta)


# ------------------------------------------------------------------ exploring


def acted(learner: Any, rows: int, legal: Tensor | None = None, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Actions of the same state in many rows, and those of the greedy policy."""
    spec = learner.spec
    noise = torch.from_numpy(draw_noise(spec.action, generator(seed), (rows,)))
    legal = torch.ones(rows, 4, dtype=torch.bool) if legal is None else legal.expand(rows, -1)
    x = (torch.tensor([[0.1, -0.2]]).expand(rows, -1),)
    return tuple(learner.act(x, legal, one, None, None).action[:, 0] for one in (noise, torch.zeros_like(noise)))


def check_epsilon(epsilon: float) -> None:
    learner = DQN(**SMALL | {"warm_up": 0, "epsilon": epsilon}).learner(Choosing.spec, 0, CPU)
    member = DQN(**SMALL).learner(Choosing.spec, 1, CPU)
    member.load_weights(learner.weights())
    for legal in ([1, 1, 1, 1], [0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 0]):
        mask = torch.tensor(legal, dtype=torch.bool)
        drawn, greedy = acted(member, 20000, mask)
        assert mask[drawn].all() and len(greedy.unique()) == 1
        q = learner.mean(learner.values(learner.theta, learner.theta[:0], (torch.tensor([[0.1, -0.2]]),)))[0].sum(0)
        assert int(greedy[0]) == int(q.masked_fill(~mask, -math.inf).argmax())
        share = torch.bincount(drawn, minlength=4) / len(drawn)
        expected = epsilon * mask / mask.sum()
        expected[greedy[0]] += 1 - epsilon
        torch.testing.assert_close(share, expected.float(), atol=0.015, rtol=0)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_share_of_even_actions_among_the_legal(epsilon: float) -> None:
    check_epsilon(epsilon)


def test_slots_have_epsilons_of_their_own() -> None:
    """Horgan et al. 2018, section 4.1: epsilon^(1 + alpha i / (N - 1)); the chance of another action is 3/4 of it."""
    hyper = DQN(**SMALL | {"warm_up": 0, "epsilon": 0.8, "epsilon_spread": 3.0})
    member = hyper.learner(Choosing.spec, 1, CPU)
    member.load_weights(hyper.learner(Choosing.spec, 0, CPU).weights())
    others = torch.zeros(5)
    for seed in range(1000):
        drawn, greedy = acted(member, 5, seed=seed)
        others += drawn != greedy
    expected = torch.tensor([0.75 * 0.8 ** (1 + 3 * i / 4) for i in range(5)])
    torch.testing.assert_close(others / 1000, expected, atol=0.06, rtol=0)


def test_the_schedule_reaches_members_and_evaluations_have_its_end() -> None:
    hyper = DQN(**SMALL | {"epsilon": Anneal(start=0.9, end=0.1, steps=120), "warm_up": 24})
    learner, actor = collected(hyper, 0)
    sent = []
    for iteration in range(12):
        sent.append(float(learner.weights()[1]))
        advance(learner, actor, iteration)
    warm = 1 + 24 // 12
    assert sent[:warm] == [1.0] * warm  # even actions until the first gradient step
    assert sent[warm:] == pytest.approx([0.9 - 0.8 * min(12 * (i - 1) / 120, 1) for i in range(warm, 12)])
    assert float(learner.extra[0]) == pytest.approx(0.1)
    other = hyper.learner(Choosing.spec, 0, CPU)
    other.load_state_dict(learner.state_dict())
    assert [torch.equal(a, b) for a, b in zip(other.weights(), learner.weights(), strict=True)] == [True] * 3
    own = replace(hyper, warm_up_actions="policy").learner(Choosing.spec, 0, CPU)
    assert float(own.weights()[1]) == pytest.approx(0.9)


def test_a_minibatch_holds_what_was_played_and_the_masks_that_followed() -> None:
    learner, _ = collected(DQN(**SMALL), 20)
    replay, ended = learner.replay, 0
    for number in range(30):
        for row in rows_of(learner, next(unbound(learner.minibatches(everything(learner), number, 1)))):
            following = row["x"] + 0.2 * torch.tensor([row["a"] - 1.5, 0.5])
            terminated = bool((row["discount"] == 0).all())
            assert terminated == bool(following[0] > 0.6)
            if not terminated:
                torch.testing.assert_close(row["next"], following)
            place = np.flatnonzero((replay.inputs[0] == row["next"].numpy()).all(1))
            assert any((replay.legal[p] == row["legal"].numpy()).all() for p in place)
            ended += terminated
    assert ended > 0


def test_priorities_follow_the_errors_of_the_steps_they_drew() -> None:
    more = {"sampling": "prioritized", "replay": priorities(alpha=1.0), "samples_per_step": 4.0}
    learner, actor = collected(DQN(**SMALL | more), 3)
    seen: list[tuple[Any, Any]] = []
    usual = learner.gradient_step

    def noted(number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        found = usual(number, noise, columns)
        seen.append((learner.drawn, found["error"].numpy()))
        return found

    learner.gradient_step = noted
    advance(learner, actor, 3)
    numbers = seen[0][0]
    assert len(seen) == len(numbers) == 6
    last = {
        n: e + 1e-6
        for row, (_, error) in zip(numbers.tolist(), seen, strict=True)
        for n, e in zip(row, error, strict=True)
    }
    p = learner.sampler.priorities
    for number, error in last.items():
        assert p.tree[p.leaves + number % p.rows] == pytest.approx(error)
    assert (p.low, p.high) == (0, learner.replay.count)


CHAIN: dict[str, Any] = {
    "slots": 8, "horizon": 8, "batch": 32, "samples_per_step": 16.0, "warm_up": 128, "lr": 1e-2, "target_every": 20,
    "capacity": 5000, "net": Net(hidden=(16,), activation="relu"), "gamma": 0.9,
    "epsilon": Anneal(start=1.0, end=0.1, steps=200),
}  # fmt: skip


@pytest.mark.slow_cases(but=("",))
@pytest.mark.parametrize("more", [{}, RAINBOW | {"support": (0.0, 10.0), "atoms": 21}], ids=["", "rainbow"])
def test_a_chain_that_pays_at_its_far_end(more: dict[str, Any]) -> None:
    """Always right gives 11; a fair coin about 2; always left 1.5."""
    learner, _ = collected_from(Chain, DQN(**CHAIN | more), 40)
    metrics = evaluate_policy(learner, GameWorld(game=Chain), 0, 64)
    assert metrics["eval/return_mean"] == pytest.approx(11) and metrics["eval/stochastic_return_mean"] > 6


# ------------------------------------------------------------------ state


@pytest.mark.slow_cases(but=("rainbow",))
@pytest.mark.parametrize(
    "more",
    [{"capacity": 60}, {"normalize_inputs": True, "n_step": 3}, RAINBOW | {"capacity": 60}],
    ids=["", "normalised", "rainbow"],
)
def test_it_goes_on_to_the_bit(more: dict[str, Any]) -> None:
    hyper = DQN(**SMALL | more)
    learner, actor = collected(hyper, 9)
    saved = copy.deepcopy((learner.state_dict(), actor.state_dict()))
    other, second = collected(hyper, 0)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    for iteration in range(9, 15):
        for one, its in ((learner, actor), (other, second)):
            advance(one, its, iteration)
    assert learner.gradient_steps == other.gradient_steps > 0
    assert torch.equal(learner.theta, other.theta) and torch.equal(learner.theta_target, other.theta_target)


def test_a_policy_without_a_target_does_not_fit() -> None:
    learner, _ = collected(DQN(**SMALL), 1)
    state = learner.state_dict()
    del state["policy_target"]
    with pytest.raises(ValueError, match="no target network"):
        learner.load_policy(state)


def test_images_have_the_network_of_the_paper() -> None:
    spec = Spec((Input("image", (4, 84, 84), "uint8"),), Discrete(6))
    learner = DQN(net=Net(hidden=(512,), activation="relu")).learner(spec, 0, CPU)
    assert len(learner.theta) == 1_687_206  # of Mnih et al. 2015, for 6 actions
    image = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    decision = learner.act((image,), None, torch.zeros(2, 6), None, None)
    assert decision.action.shape == (2, 1)


def test_it_learns_from_images() -> None:
    """Convolutions are not captured: their gradient steps are taken as they are."""
    spec = Spec((Input("image", (1, 36, 36), "uint8"),), Discrete(2))
    hyper = DQN(**SMALL | RAINBOW | {"gamma": 0.9, "slots": 2, "warm_up": 8})
    learner = hyper.learner(spec, 0, CPU)
    batch = hyper.storage(spec, 2)
    batch.inputs[0].copy_(torch.randint(0, 256, (5, 2, 1, 36, 36), generator=torch.Generator().manual_seed(0)))
    batch.reward.fill_(0.5)
    ends = []
    for _ in range(3):
        learned = learner.update(batch, 0, 0)
        ends.append(learner.theta.clone())
    assert torch.isfinite(ends[-1]).all() and not torch.equal(ends[0], ends[1])
    assert learned.steps == 8 and len(learned.statistics["loss/value"]) == 8


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("action", "instead"),
    [
        (MultiDiscrete((2, 3)), "MultiDiscrete; rl=ppo takes any"),
        (Box((-1.0,), (1.0,)), "Box; rl=td3 and rl=sac are made for it, and rl=ppo takes any"),
        (Box((-1.0,), (float("inf"),)), "Box; rl=ppo takes any"),
    ],
    ids=["several", "real", "unbounded"],
)
def test_other_actions_are_refused_with_the_learners_that_take_them(action: Any, instead: str) -> None:
    with pytest.raises(BadRequest, match=f"needs a Discrete action, and the world has a {instead}$"):
        DQN(**SMALL).learner(Spec((Input("x", (2,)),), action, rewards=("near", "cheap")), 0, CPU)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ({"capacity": 20}, "capacity"),
        ({"net": Net(lstm=4)}, "net.lstm"),
        ({"epsilon": 1.5}, "epsilon"),
        ({"epsilon": Anneal(start=2.0, end=0.1, steps=10)}, "epsilon"),
        ({"distribution": "c51", "atoms": 1}, "support"),
        ({"distribution": "c51", "support": (1.0, 1.0)}, "support"),
    ],
)
def test_impossible_hyper_parameters_are_refused(words: dict[str, Any], key: str) -> None:
    with pytest.raises(BadRequest) as caught:
        DQN(**SMALL | words)
    assert caught.value.key == key
