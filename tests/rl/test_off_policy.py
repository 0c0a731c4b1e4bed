"""Learners with a replay: gradient steps against slow ones, the limiter, exploration and exact state."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Game, advance, collected_from
from torch import Tensor

from evorl.mdp.core import Array, Box, Discrete, Input, Spec, State, Step
from evorl.nets.flat import copied
from evorl.nets.policy import Net
from evorl.nets.trees import leaves as leaves_of
from evorl.nets.trees import unbound
from evorl.rl.core import NotFinite
from evorl.rl.ddpg import DDPG
from evorl.rl.replay_learner import Reading
from evorl.rl.sac import SAC, squashed
from evorl.rl.separate_updates import load_critic, train_actor, train_actors, train_critic
from evorl.rl.td3 import TD3
from evorl.util.errors import BadRequest

torch.set_num_threads(1)  # more only wait for each other over tensors as small as these
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "slots": 3, "horizon": 4, "batch": 8, "samples_per_step": 8.0, "warm_up": 24, "capacity": 500,
    "net": Net(hidden=(16, 8), activation="relu", output="tanh"),
}  # fmt: skip


class Drift(Game):
    """Two positions that actions push; ends in a terminal state, or by truncation after 7 decisions."""

    spec = Spec((Input("x", (2,)),), Box((-1.0, -2.0), (1.0, 2.0)), rewards=("near", "cheap"))

    def begin(self, slot: int, key: int) -> None:
        super().begin(slot, key)
        self.x = np.array([self.draw(0), self.draw(1)], np.float32) - 0.5

    def state(self) -> State:
        return State((self.x.copy(),), None)

    def step(self, action: Array) -> Step:
        self.t += 1
        self.x = self.x + 0.1 * action.astype(np.float32)
        reward = np.array([-np.square(self.x).sum(), -0.1 * np.square(action).sum()], np.float32)
        return Step(reward, terminated=bool(self.x[0] > 0.4), truncated=self.t >= 7)


collected = partial(collected_from, Drift)


# ------------------------------------------------------------------ slow twins


def mlp(named: dict[str, Tensor], prefix: str, group: int | None, x: Tensor) -> Tensor:
    """Hidden layers of a network, relu, written with plain products."""
    number = 0
    while f"{prefix}.{number}.weight" in named:
        weight, bias = named[f"{prefix}.{number}.weight"], named[f"{prefix}.{number}.bias"]
        x = x @ weight[group or 0] + bias[group or 0][0]
        number += 1
        last = f"{prefix}.{number}.weight" not in named
        if not (last and prefix == "layers"):
            x = x.clamp(min=0)
    return x


def actor_of(named: dict[str, Tensor], x: Tensor) -> Tensor:
    return torch.tanh(mlp(named, "hidden", None, x) @ named["policy.weight"].T + named["policy.bias"])


def critic_of(named: dict[str, Tensor], group: int, x: Tensor, a: Tensor) -> Tensor:
    return mlp(named, "layers", group, torch.cat([x, a], -1))


def leaves(state: dict[str, Any]) -> dict[str, Tensor]:
    return {k: torch.as_tensor(v).clone().requires_grad_() for k, v in state.items()}


class SlowTD3:
    """Algorithm 1 of TD3, and of DDPG with one critic and no noise, with torch's own Adam, row by row."""

    def __init__(self, learner: Any) -> None:
        state, self.h, self.critics = copy.deepcopy(learner.state_dict()), learner.hyper, learner.critics
        self.actor, self.critic = leaves(state["policy"]), leaves(state["critic"]["q"])
        self.actor_target, self.critic_target = leaves(state["policy_target"]), leaves(state["critic"]["target"])
        rate = {"lr": float(self.h.lr), "eps": self.h.adam_epsilon}
        self.actor_adam = torch.optim.Adam(list(self.actor.values()), **rate)
        self.critic_adam = torch.optim.Adam(list(self.critic.values()), **rate)

    def step(self, number: int, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        self.critic_step(noise, rows)
        if not isinstance(self.h, TD3) or (number + 1) % self.h.delay == 0:
            self.actor_step(noise, rows)
            follow_slowly(self.h.tau, self.actor, self.actor_target)
            follow_slowly(self.h.tau, self.critic, self.critic_target)

    def critic_step(self, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        h = self.h
        critic_loss = torch.zeros(())
        for i, row in enumerate(rows):
            x, a, y = row["x"], row["a"], row["next"]
            with torch.no_grad():
                action = actor_of(self.actor_target, y)
                if isinstance(h, TD3):
                    smoothing = (noise[0][i] * h.target_noise).clamp(-h.target_clip, h.target_clip)
                    action = (action + smoothing).clamp(-1, 1)
                values = [critic_of(self.critic_target, g, y, action) for g in range(self.critics)]
                smallest = torch.stack(values).min(0).values
                target = row["reward"] + (0.0 if row["terminated"] else 1.0) * row["discount"] * smallest
            for g in range(self.critics):
                critic_loss = critic_loss + (critic_of(self.critic, g, x, a) - target).square().mean()
        self.critic_adam.zero_grad()
        (critic_loss / len(rows)).backward()
        self.critic_adam.step()

    def actor_step(self, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        loss = torch.zeros(())
        for row in rows:
            loss = loss - critic_of(self.critic, 0, row["x"], actor_of(self.actor, row["x"])).sum()
        self.actor_adam.zero_grad()
        (loss / len(rows)).backward()
        self.actor_adam.step()


def follow_slowly(tau: float, source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    for name in source:
        target[name].data = (1 - tau) * target[name].data + tau * source[name].data


def everything(learner: Any) -> Reading:
    return Reading(learner.replay, learner.replay.count, learner.replay.oldest(learner.replay.count))


def rows_of(learner: Any, number: int, *words: int | str) -> list[dict[str, Any]]:
    """The minibatch of a gradient step, transition by transition."""
    b = next(unbound(learner.minibatches(everything(learner), number, 1, *words)))
    return [
        {
            "x": b.inputs[0][i], "a": b.action[i], "reward": b.reward[i], "next": b.following[0][i],
            "terminated": bool((b.discount[i] == 0).all()), "discount": learner.gamma,
        }
        for i in range(len(b.action))
    ]  # fmt: skip


class SlowSAC:
    """Algorithm 1 of the paper, with torch's own squashed Gaussian and Adam, row by row."""

    def __init__(self, learner: Any) -> None:
        state, self.h = copy.deepcopy(learner.state_dict()), learner.hyper
        self.actor, self.critic = leaves(state["policy"]), leaves(state["critic"]["q"])
        self.critic_target = leaves(state["critic"]["target"])
        self.log_alpha = torch.as_tensor(state["alpha"]["log"]).clone().requires_grad_()
        self.adams = [
            torch.optim.Adam(one, lr=float(self.h.lr), eps=self.h.adam_epsilon)
            for one in (list(self.critic.values()), list(self.actor.values()), [self.log_alpha])
        ]

    def draw(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        named = self.actor
        raw = mlp(named, "hidden", None, x) @ named["policy.weight"].T + named["policy.bias"]
        mean, std = raw[:2], raw[2:].clamp(-5, 2).exp()
        squash = torch.distributions.TanhTransform(cache_size=1)
        policy = torch.distributions.TransformedDistribution(torch.distributions.Normal(mean, std), [squash])
        action = squash(mean + std * noise)
        return action, policy.log_prob(action).sum()

    def step(self, number: int, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        alpha = self.log_alpha.exp().detach()
        self.critic_step(noise, rows)
        before = {name: x.detach().clone() for name, x in self.actor.items()}
        self.actor_step(noise, rows)
        now, self.actor = self.actor, before
        self.alpha_step(noise, rows, alpha)
        self.actor = now
        follow_slowly(self.h.tau, self.critic, self.critic_target)

    def critic_step(self, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        alpha, critic_loss = self.log_alpha.exp().detach(), torch.zeros(())
        for i, row in enumerate(rows):
            with torch.no_grad():
                action, log_prob = self.draw(row["next"], noise[0][i])
                values = [critic_of(self.critic_target, g, row["next"], action) for g in range(2)]
                soft = torch.minimum(*values) - alpha * log_prob / 2  # half of the entropy for each of two rewards
                target = row["reward"] + (0.0 if row["terminated"] else 1.0) * row["discount"] * soft
            for g in range(2):
                critic_loss = critic_loss + (critic_of(self.critic, g, row["x"], row["a"]) - target).square().mean()
        self.follow(0, critic_loss / len(rows))

    def actor_step(self, noise: Tensor, rows: list[dict[str, Any]]) -> None:
        alpha, loss = self.log_alpha.exp().detach(), torch.zeros(())
        for i, row in enumerate(rows):
            action, log_prob = self.draw(row["x"], noise[1][i])
            values = [critic_of(self.critic, g, row["x"], action).sum() for g in range(2)]
            loss = loss + alpha * log_prob - torch.minimum(*values)
        self.follow(1, loss / len(rows))

    def alpha_step(self, noise: Tensor, rows: list[dict[str, Any]], alpha: Tensor) -> None:
        entropy = sum(-self.draw(row["x"], noise[1][i])[1].detach() for i, row in enumerate(rows)) / len(rows)
        self.follow(2, self.log_alpha.exp() * (entropy + 2))  # the target entropy is -2

    def follow(self, number: int, loss: Tensor) -> None:
        self.adams[number].zero_grad()
        loss.backward()
        self.adams[number].step()


RATES: dict[str, Any] = {"tau": 0.1, "lr": 1e-2, "gamma": {"near": 0.9, "cheap": 0.5}}
STOCHASTIC = {**SMALL, "net": Net(hidden=(16, 8), activation="relu", std="state")}
LEARNERS: dict[str, tuple[Any, Any]] = {
    "td3": (TD3(**SMALL, **RATES), SlowTD3),
    "td3, no delay": (TD3(**SMALL, **RATES, delay=1), SlowTD3),
    "td3, long delay": (TD3(**SMALL, **RATES, delay=3, target_noise=1.0), SlowTD3),
    "ddpg": (DDPG(**SMALL, **RATES), SlowTD3),
    "sac": (SAC(**STOCHASTIC, **RATES, alpha=0.5), SlowSAC),
}


def forget_moments(learner: Any) -> None:
    """Make the optimisers as new as a twin's."""
    past = [learner.network.optimizer, learner.critic.adam]
    if isinstance(learner.hyper, SAC):
        past.append(learner.temperature.adam)
    for x in leaves_of(tuple(past)):
        x.zero_()


@pytest.mark.parametrize("name", LEARNERS)
def test_it_takes_the_steps_of_the_paper(name: str) -> None:
    hyper, twin = LEARNERS[name]
    learner, _ = collected(hyper, 4)
    forget_moments(learner)
    slow = twin(learner)
    for number in range(learner.gradient_steps, learner.gradient_steps + 6):
        noise, rows = learner.draw_noise(number, 1)[0], rows_of(learner, number)
        learner.gradient_step(number, noise, next(unbound(learner.minibatches(everything(learner), number, 1))))
        learner.gradient_steps += 1
        slow.step(number, noise, rows)
    state = learner.state_dict()
    pairs = [
        (state["policy"], slow.actor), (state["critic"]["q"], slow.critic),
        (state["critic"]["target"], slow.critic_target),
    ]  # fmt: skip
    if isinstance(hyper, SAC):
        torch.testing.assert_close(state["alpha"]["log"], slow.log_alpha.detach(), rtol=1e-4, atol=1e-5)
    else:
        pairs.append((state["policy_target"], slow.actor_target))
    for fast, expected in pairs:
        for part, x in expected.items():
            torch.testing.assert_close(fast[part], x.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "number"), [("ddpg", 0), ("td3", 1), ("sac", 2)])
def test_a_gradient_step_draws_the_noises_that_it_needs(name: str, number: int) -> None:
    learner, _ = collected(LEARNERS[name][0], 1)
    assert learner.draw_noise(0, 3).shape == (3, number, learner.hyper.batch, 2)


APART = ["td3", "ddpg", "sac"]


@pytest.mark.parametrize("name", APART)
def test_critics_learn_alone_with_a_given_target_policy(name: str) -> None:
    hyper, twin = LEARNERS[name]
    learner, _ = collected(hyper, 4)
    forget_moments(learner)
    other = 0.5 * learner.theta  # the target policy
    before = learner.theta.clone()
    learner.set_target_policy(other)
    slow = twin(learner)
    learner.set_target_policy(before)  # train_critic has to take the given one
    train_critic(learner, other, everything(learner), 10, 6, chain=3, step=0)
    for number in range(10, 16):
        noise, rows = learner.draw_noise(number, 1, "critic", 3)[0], rows_of(learner, number, "critic", 3)
        slow.critic_step(noise, rows)
        if name == "sac":
            slow.alpha_step(noise, rows, slow.log_alpha.exp())
        follow_slowly(hyper.tau, slow.critic, slow.critic_target)
    state = learner.state_dict()
    for fast, expected in ((state["critic"]["q"], slow.critic), (state["critic"]["target"], slow.critic_target)):
        for part, x in expected.items():
            torch.testing.assert_close(fast[part], x.detach(), rtol=1e-4, atol=1e-5)
    if name == "sac":
        torch.testing.assert_close(state["alpha"]["log"], slow.log_alpha.detach(), rtol=1e-4, atol=1e-5)
    else:
        assert torch.equal(learner.theta, before)


@pytest.mark.parametrize("name", APART)
def test_an_actor_learns_alone_with_a_new_optimiser(name: str) -> None:
    hyper, twin = LEARNERS[name]
    learner, _ = collected(hyper, 4)  # its optimiser is not new: train_actor has to reset it
    phi = learner.critic.phi.clone()
    slow = twin(learner)
    theta, _ = train_actor(learner, learner.theta.clone(), everything(learner), 6, individual=7, step=0)
    for number in range(6):
        slow.actor_step(learner.draw_noise(number, 1, "actor", 7)[0], rows_of(learner, number, "actor", 7))
    found = learner.layout.unflatten(theta)
    for part, x in slow.actor.items():
        torch.testing.assert_close(found[part], x.detach(), rtol=1e-4, atol=1e-5)
    assert torch.equal(learner.critic.phi, phi)


class Painted(Drift):
    """The same, seen as a picture."""

    spec = replace(Drift.spec, inputs=(Input("x", (1, 36, 36), "uint8"),))

    def state(self) -> State:
        return State((np.broadcast_to(100 * (self.x[0] + self.x[1] + 1), (1, 36, 36)).astype(np.uint8),), None)


@pytest.mark.parametrize("kind", [TD3, DDPG, SAC])
def test_critic_and_actors_learn_apart_from_pictures(kind: Any) -> None:
    shape: dict[str, Any] = {"std": "state"} if kind is SAC else {"output": "tanh"}
    net = Net(encoder="a3c", hidden=(8,), **shape)
    hyper = kind(slots=2, horizon=4, batch=4, samples_per_step=1, warm_up=4, net=net)
    learner, _ = collected_from(Painted, hyper, 3)
    theta, phi = learner.theta.clone(), learner.critic.phi.clone()
    train_critic(learner, theta, everything(learner), 10, 2, chain=3, step=0)
    alone, _ = train_actor(learner, theta.clone(), everything(learner), 2, individual=7, step=0)
    first, _ = train_actors(learner, torch.stack([theta, theta]), everything(learner), 2, (7, 8), step=0)
    assert (
        not torch.equal(learner.critic.phi, phi) and not torch.equal(alone, theta) and not isinstance(first, NotFinite)
    )
    torch.testing.assert_close(first[0], alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", APART)
def test_training_apart_is_a_function_of_what_it_is_given(name: str) -> None:
    """Another process, with other weights and moments of its own, takes the same steps; so does one that split them."""
    hyper, _ = LEARNERS[name]
    one, _ = collected(hyper, 4)
    two = hyper.learner(one.spec, 99, torch.device("cpu"))
    two.seed = one.seed
    start, target, reading = copied(one.critic_state()), one.theta.clone(), everything(one)
    two.network.optimizer.m.fill_(1.0)
    ends = []
    for learner, parts in ((one, [70]), (two, [64, 6]), (two, [33, 37])):
        load_critic(learner, start)
        first = 0
        for steps in parts:
            train_critic(learner, target, reading, first, steps, chain=0, step=0)
            first += steps
        theta, _ = train_actor(learner, target, reading, 9, individual=1, step=0)
        ends.append({**copied(learner.critic_state()), "theta": theta})
    for other in ends[1:]:
        assert all(torch.equal(other[part], x) for part, x in ends[0].items())


@pytest.mark.slow_cases(but=("td3", "sac", "ddpg, clipped"))
@pytest.mark.parametrize(
    "hyper",
    [
        TD3(**SMALL, **RATES),
        DDPG(**SMALL, **RATES, max_grad_norm=0.01),
        SAC(**STOCHASTIC, **RATES, alpha=0.5),
        TD3(**{**SMALL, "net": Net(hidden=(16, 8), activation="tanh", output="tanh", bias=False)}, **RATES),
        TD3(**SMALL, **RATES, normalize_inputs=True),
    ],
    ids=["td3", "ddpg, clipped", "sac", "td3, tanh", "td3, normalised"],
)
def test_stacked_actors_learn_as_each_does_alone(hyper: Any) -> None:
    """Step by step within rounding; 70 steps are more than are drawn at once."""
    learner, _ = collected(hyper, 4)
    theta = learner.theta + 0.1 * torch.randn(3, len(learner.theta), generator=torch.Generator().manual_seed(1))
    ids = (5, 11, 6)
    for steps, exact in ((1, 1e-5), (2, 2e-5), (70, 1e-2)):
        together = train_actors(learner, theta, everything(learner), steps, ids, step=0)
        for start, number, outcome in zip(theta, ids, together, strict=True):
            assert not isinstance(outcome, NotFinite)
            alone, metrics = train_actor(learner, start, everything(learner), steps, number, step=0)
            torch.testing.assert_close(outcome[0], alone, rtol=exact, atol=exact)
            assert outcome[1] == pytest.approx(metrics, rel=1e-2, abs=1e-3)
    assert not torch.equal(alone, start)


def test_a_stacked_actor_that_is_not_finite_leaves_the_others_alone() -> None:
    learner, _ = collected(TD3(**SMALL, **RATES), 4)
    theta = learner.theta.repeat(3, 1)
    theta[1, 0] = math.nan
    first, second, third = train_actors(learner, theta, everything(learner), 5, (0, 1, 2), step=0)
    assert isinstance(second, NotFinite)
    for outcome, number in ((first, 0), (third, 2)):
        assert not isinstance(outcome, NotFinite)
        alone, _ = train_actor(learner, theta[number], everything(learner), 5, number, step=0)
        torch.testing.assert_close(outcome[0], alone, rtol=1e-4, atol=1e-4)


def test_a_squashed_gaussian_is_exact_at_the_bounds() -> None:
    """float32's tanh is 1 from 9 on; the density of u = 20 is found in float64 by the definition."""
    u = torch.tensor([[0.3, 20.0], [-15.0, 4.0]])
    raw = torch.cat([u, torch.full((2, 2), -1.0)], -1)
    action, log_prob = squashed(raw, torch.zeros(2, 2))
    wide = u.double()
    expected = (1.0 - 0.5 * math.log(2 * math.pi) - (4 / (wide.exp() + (-wide).exp()) ** 2).log()).sum(-1)
    torch.testing.assert_close(log_prob.double(), expected, rtol=1e-5, atol=1e-5)
    assert action[0, 1] == 1 and action[1, 0] == -1


# ------------------------------------------------------------------ collecting


def test_a_minibatch_holds_what_was_played() -> None:
    """The next state of every sampled transition follows from its state and action, also where it was truncated; only
    what the world says is terminal bootstraps nothing."""
    learner, _ = collected(TD3(**SMALL), 20)
    ended = 0
    for number in range(40):
        for row in rows_of(learner, number):
            played = row["a"].clamp(-1, 1) * torch.tensor([1.0, 2.0])
            following = row["x"] + 0.1 * played
            assert row["terminated"] == bool(following[0] > 0.4)
            torch.testing.assert_close(row["next"], following) if not row["terminated"] else None
            ended += row["terminated"]
    assert ended > 0


def test_the_warm_up_plays_uniform_actions_and_evaluation_does_not() -> None:
    learner, _ = collected(TD3(**{**SMALL, "warm_up": 10**6, "horizon": 60}), 2)
    played = learner.replay.action[: learner.replay.count]
    assert np.abs(played).max() <= 1 and learner.gradient_steps == 0
    for edge in (-0.5, 0.0, 0.5):
        assert (played < edge).mean() == pytest.approx((edge + 1) / 2, abs=0.1)
    x = (torch.rand(5, 2),)
    still, drawn = (learner.act(x, None, noise, None, None).action for noise in (torch.zeros(5, 2), torch.ones(5, 2)))
    policy = actor_of(learner.state_dict()["policy"], x[0])
    torch.testing.assert_close(still, policy)
    torch.testing.assert_close(drawn, (policy + 0.1).clamp(-1, 1))  # the evaluation of the stochastic policy


def test_noise_explores_around_the_actor() -> None:
    learner, _ = collected(TD3(**{**SMALL, "warm_up": 0}, exploration=0.3), 1)
    x, noise = (torch.rand(5, 2),), torch.randn(5, 2)
    played = learner.act(x, None, noise, None, None)
    expected = (actor_of(learner.state_dict()["policy"], x[0]) + 0.3 * noise).clamp(-1, 1)
    torch.testing.assert_close(played.action, expected)
    torch.testing.assert_close(played.played, expected * torch.tensor([1.0, 2.0]))


@pytest.mark.slow_cases(but=("8.0-8", "None-3", "1.0-3"))
@pytest.mark.parametrize(("ratio", "batch"), [(8.0, 8), (2.0, 8), (20.0, 8), (1.0, 3), (None, 3), (None, 8)])
def test_the_limiter_keeps_the_ratio_of_samples_to_transitions(ratio: float | None, batch: int) -> None:
    """None is one gradient step per transition, whatever the batch."""
    learner, _ = collected(TD3(**{**SMALL, "samples_per_step": ratio, "batch": batch}), 12)
    assert learner.replay.count == 12 * 12
    assert learner.gradient_steps == int((144 - 24) * (ratio or batch) / batch)


@pytest.mark.slow_cases("keys2-6", "keys3-12")
@pytest.mark.parametrize(
    ("keys", "steps"), [({}, 12), ({"batch": 4}, 24), ({"samples_per_step": 4.0}, 6), ({"warm_up": 60}, 12)]
)
def test_who_goes_on_with_other_keys_has_only_new_steps_to_take(keys: dict[str, Any], steps: int) -> None:
    """An individual of a population has the replay of its parent, and other genes."""
    parent, _ = collected(TD3(**SMALL), 12)
    child, actor = collected(TD3(**{**SMALL, **keys}), 0)
    child.load_state_dict(parent.state_dict())
    before = child.gradient_steps
    advance(child, actor, 13)
    assert child.gradient_steps - before == steps
    last = TD3(**SMALL).learner(child.spec, 0, torch.device("cpu"))
    last.load_state_dict(child.state_dict())
    assert last._steps_due() == 0


# ------------------------------------------------------------------ state


@pytest.mark.slow_cases(but=("td3 n-step", "sac"))
@pytest.mark.parametrize(
    "hyper",
    [
        TD3(**{**SMALL, "capacity": 60}),
        TD3(**SMALL, normalize_inputs=True, n_step=3),
        DDPG(**SMALL, max_grad_norm=0.1),
        SAC(**STOCHASTIC),
    ],
    ids=["td3", "td3 n-step", "ddpg", "sac"],
)
def test_it_goes_on_to_the_bit(hyper: Any) -> None:
    learner, actor = collected(hyper, 9)
    saved = copy.deepcopy((learner.state_dict(), actor.state_dict()))
    other, second = collected(hyper, 0)
    other.load_state_dict(saved[0])
    second.load_state_dict(saved[1])
    for iteration in range(9, 15):
        for one, its in ((learner, actor), (other, second)):
            advance(one, its, iteration)
    assert learner.gradient_steps == other.gradient_steps
    for a, b in (
        (learner.theta, other.theta),
        (learner.critic.phi, other.critic.phi),
        (learner.critic.target, other.critic.target),
    ):
        assert torch.equal(a, b)


def test_a_policy_without_a_critic_of_actions_does_not_fit() -> None:
    learner, _ = collected(TD3(**SMALL), 1)
    state = learner.state_dict()
    del state["critic"]
    with pytest.raises(ValueError, match="no critic of state and action"):
        learner.load_policy(state)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("action", "instead"),
    [
        (Discrete(3), "Discrete; rl=dqn is made for it, and rl=ppo takes any"),
        (Box((-1.0,), (float("inf"),)), "Box without them; rl=ppo takes any"),
    ],
    ids=["discrete", "unbounded"],
)
def test_actions_without_finite_bounds_are_refused(action: Any, instead: str) -> None:
    with pytest.raises(BadRequest, match=f"needs a Box action with finite bounds, and the world has a {instead}$"):
        TD3(**SMALL).learner(Spec((Input("x", (2,)),), action), 0, CPU)


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ({"capacity": 20}, "capacity"),
        ({"capacity": 30, "batch": 31}, "capacity"),
        ({"net": Net(lstm=4, output="tanh")}, "net.lstm"),
        ({"net": Net()}, "net.output"),
    ],
)
def test_impossible_hyper_parameters_are_refused(words: dict[str, Any], key: str) -> None:
    with pytest.raises(BadRequest) as caught:
        TD3(**{**SMALL, **words})
    assert caught.value.key == key
