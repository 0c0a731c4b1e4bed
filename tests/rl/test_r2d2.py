"""R2D2: gradient steps against slow ones in double precision, stored states, priorities, memory and exact state."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from rl_toys import Game, GameWorld, Memory, Wandering, advance, collected_from
from test_dqn import Choosing, SlowDQN, everything
from torch import Tensor

from evorl.mdp.core import Discrete, Input, Spec
from evorl.nets.policy import Net
from evorl.nets.trees import mapped, unbound
from evorl.ops.adam import Adam
from evorl.replay.samplers.prioritized import PrioritizedSequences
from evorl.replay.samplers.registry import SequenceSamplers
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.dqn import DQN
from evorl.rl.evaluation import evaluate_policy
from evorl.rl.network_learner import Network
from evorl.rl.r2d2 import R2D2
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal

torch.set_num_threads(1)
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {
    "slots": 3, "horizon": 4, "batch": 8, "length": 4, "burn_in": 3, "n_step": 3, "samples_per_step": 8.0,
    "warm_up": 24, "capacity": 500, "lr": 1e-2, "target_every": 3, "gamma": {"near": 0.9, "cheap": 0.5},
    "net": Net(hidden=(8,), activation="relu", lstm=5), "epsilon": 0.3, "huber": 0.2,
}  # fmt: skip
collected = partial(collected_from, Choosing)


# ------------------------------------------------------------------ a slow twin


class SlowR2D2(SlowDQN):
    """The algorithm in double precision with torch's own Adam: sequence by sequence, one decision after the other."""

    def __init__(self, learner: Any) -> None:
        super().__init__(learner)
        self.network = {k: x.detach().double().requires_grad_() for k, x in self.network.items()}
        self.target = {k: x.double().clone() for k, x in learner.layout.unflatten(learner.theta_target).items()}
        self.adam = torch.optim.Adam(list(self.network.values()), lr=float(self.h.lr), eps=self.h.adam_epsilon)
        self.replay, self.length = learner.replay, learner.replay.count
        self.gamma = np.array([0.9, 0.5])

    def remember(self, named: dict[str, Tensor], x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        drive = x @ named["core.weight_x"] + h @ named["core.weight_h"] + named["core.bias"]
        i, f, g, o = drive.split(len(h))
        c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def along(self, named: dict[str, Tensor], noise: Tensor, sequence: dict[str, Any]) -> list[Tensor]:
        """Outputs [R, A, M] in the states from the first decision to learn from on."""
        h, c = torch.from_numpy(self.replay.carry[sequence["prefix"][0] % self.replay.shape.rows]).double()
        with torch.no_grad():
            for number in sequence["prefix"][:-1]:
                h, c = self.remember(named, self.single(number)["x"], h, c)
        found = []
        for x in sequence["states"]:
            h, c = self.remember(named, x, h, c)
            found.append(self.outputs(named, noise, h))
        return found

    def single(self, number: int) -> dict[str, Any]:
        """A transition, as the ring gives it."""
        row = self.replay.read(np.array([number]), self.length, self.gamma)
        return {
            "x": torch.from_numpy(row.inputs[0][0]).double(), "next": torch.from_numpy(row.next_inputs[0][0]).double(),
            "legal": row.next_legal[0], "action": int(row.action[0, 0]), "reward": row.reward[0].astype(float),
            "terminated": bool((row.discount[0] == 0).all()),
        }  # fmt: skip

    def sequence(self, number: int) -> dict[str, Any]:
        """A prefix that ends with the number, and up to length + n - 1 transitions of its episode from there on."""
        rows, oldest = self.replay.shape.rows, self.replay.oldest(self.length)
        prefix, path = [number], [number]
        while len(prefix) <= self.h.burn_in and self.replay.previous[prefix[0] % rows] >= oldest:
            prefix.insert(0, int(self.replay.previous[prefix[0] % rows]))
        while len(path) < self.h.length + self.h.n_step - 1 and self.replay.following[path[-1] % rows] >= 0:
            path.append(int(self.replay.following[path[-1] % rows]))
        singles = [self.single(one) for one in path]
        return {"prefix": prefix, "path": singles, "states": [singles[0]["x"], *(one["next"] for one in singles)]}

    def h_of(self, x: Tensor) -> Tensor:
        return x.sign() * ((x.abs() + 1).sqrt() - 1) + 1e-3 * x if self.h.rescale else x

    def h_inverse(self, y: Tensor) -> Tensor:
        if not self.h.rescale:
            return y
        return y.sign() * ((((1 + 4e-3 * (y.abs() + 1 + 1e-3)).sqrt() - 1) / 2e-3).square() - 1)

    def mean(self, outputs: Tensor) -> Tensor:
        if self.h.distribution == "c51":
            return (outputs.softmax(-1) * self.h_inverse(torch.tensor(self.support).double())).sum(-1)
        return self.h_inverse(outputs).mean(-1)

    def of_sequence(self, number: int, noise: Tensor) -> tuple[list[Tensor], list[float]]:
        """Losses and errors of its decisions."""
        sequence = self.sequence(number)
        path = sequence["path"]
        now = self.along(self.network, noise[0], sequence)
        with torch.no_grad():
            then = self.along(self.target, noise[1], sequence)
        losses, errors = [], []
        for t, one in enumerate(path[: self.h.length]):
            steps = path[t : t + self.h.n_step]
            chooser = (now if self.h.double else then)[t + len(steps)].detach()
            best = self.best(self.mean(chooser), steps[-1]["legal"])
            of_rewards = []
            for r, gamma in enumerate(self.gamma):
                reward = sum(gamma**k * step["reward"][r] for k, step in enumerate(steps))
                discount = 0.0 if steps[-1]["terminated"] else gamma ** len(steps)
                of_rewards.append(
                    self.of_reward(now[t][r, one["action"]], then[t + len(steps)][r, best], reward, discount)
                )
            losses.append(torch.stack([loss for loss, _ in of_rewards]).mean())
            errors.append(float(np.mean([error for _, error in of_rewards])))
        return losses, errors

    def of_reward(self, now: Tensor, then: Tensor, reward: float, discount: float) -> tuple[Tensor, float]:
        if self.h.distribution is not None:
            places = self.h_inverse(torch.tensor(self.support).double())
            moved = self.h_of(reward + discount * places)
            target = self.projected_to(moved, then.softmax(-1))
            loss = -(torch.tensor(target) * now.log_softmax(-1)).sum()
            return loss, loss.item() + sum(x * math.log(x) for x in target if x > 0)  # KL(target || now)
        error = self.h_of(reward + discount * self.h_inverse(then[0])) - now[0]
        return self.huber(error), abs(error.item())

    def projected_to(self, places: Tensor, probability: Tensor) -> list[float]:
        found = np.zeros(len(self.support))
        step = self.support[1] - self.support[0]
        for place, share in zip(places.tolist(), probability.tolist(), strict=True):
            b = (min(max(place, self.support[0]), self.support[-1]) - self.support[0]) / step
            lower = min(int(b), len(found) - 2)
            found[lower] += share * (lower + 1 - b)
            found[lower + 1] += share * (b - lower)
        return found.tolist()

    def learn(self, number: int, noise: Tensor, numbers: list[int], weights: list[float]) -> list[float]:
        """Take a gradient step; return the sequences' priorities."""
        found = [self.of_sequence(one, noise) for one in numbers]
        total = sum((w * sum(losses) for w, (losses, _) in zip(weights, found, strict=True)), torch.zeros(()))
        self.adam.zero_grad()
        (total / sum(len(losses) for losses, _ in found)).backward()
        torch.nn.utils.clip_grad_norm_(list(self.network.values()), self.h.max_grad_norm)
        self.adam.step()
        if (number + 1) % self.h.target_every == 0:
            self.target = {name: x.detach().clone() for name, x in self.network.items()}
        eta = self.h.replay.prioritized.eta
        return [eta * max(e) + (1 - eta) * sum(e) / len(e) for _, e in found]


def in_double(learner: Any) -> Any:
    """The same learner, which computes in double precision."""
    learner.network = mapped(lambda x: x.double(), Network(learner.theta, Adam.of(learner.theta)))
    learner.theta_target = learner.theta_target.double()
    learner.theta_target += 0.3 * torch.randn(len(learner.theta), generator=torch.Generator().manual_seed(0)).double()
    learner.support = learner.support.double()
    next(learner.policy.encoders.children()).forward = lambda x: x.flatten(
        1
    )  # which makes single precision of all numbers
    return learner


CASES: dict[str, dict[str, Any]] = {
    "paper": {},
    "plain": {"double": False, "dueling": False, "sampling": "uniform", "rescale": False, "n_step": 1},
    "no burn-in": {"burn_in": 0},
    "a prefix that the ring cuts": {"capacity": 60, "burn_in": 6},
    "long": {"length": 9, "burn_in": 9, "n_step": 2},
    "c51": {"distribution": "c51", "atoms": 7, "support": (-1.0, 1.0)},
    "noisy": {"noisy": True},
}


def check_steps(name: str) -> None:
    learner, _ = collected(R2D2(**SMALL | CASES[name]), 9)
    learner, slow = in_double(learner), SlowR2D2(learner)
    for number in range(4):
        noise = learner.draw_noise(number, 1)[0].double()
        minibatch = next(unbound(learner.minibatches(everything(learner), number, 1)))
        weights = minibatch.weight[0].tolist() if learner.sampler.weighs else [1.0] * 8
        minibatch = mapped(lambda x: x.double() if x.is_floating_point() else x, minibatch)
        error = learner.gradient_step(number, noise, minibatch).get("error")
        slow_error = slow.learn(number, noise, learner.near[:, 0].tolist(), weights)
        if error is not None:
            np.testing.assert_allclose(error.numpy(), slow_error, rtol=1e-5, atol=1e-7)
    state = learner.state_dict()
    for fast, expected in ((state["policy"], slow.network), (state["policy_target"], slow.target)):
        for part, x in expected.items():
            torch.testing.assert_close(fast[part], x.detach(), rtol=1e-5, atol=1e-6)
    assert not all(torch.equal(x, state["policy"][part]) for part, x in state["policy_target"].items())


@pytest.mark.slow_cases("long", "plain", "no burn-in", "c51")
@pytest.mark.parametrize("name", CASES)
def test_it_takes_the_steps_of_the_paper(name: str) -> None:
    check_steps(name)


# ------------------------------------------------------------------ stored states


def check_stored_states(game: type[Game]) -> None:
    """Under constant weights the stored state is that of a core that has seen the episode from its start."""
    learner, actor = collected_from(game, R2D2(**SMALL | {"warm_up": 10_000, "gamma": 0.9}), 9)
    replay, named = learner.replay, learner.layout.unflatten(learner.theta)
    slow = SlowR2D2(learner)
    seen = 0
    for number in range(replay.count):
        episode = [number]
        while (before := int(replay.previous[episode[0]])) >= 0:
            episode.insert(0, before)
        h = c = torch.zeros(5)
        for one in episode[:-1]:
            x = torch.from_numpy(np.concatenate([x.reshape(-1) for x in replay.seen(replay.frame[one])]))
            h, c = slow.remember(named, x, h, c)
        np.testing.assert_allclose(replay.carry[number], torch.stack([h, c]), rtol=1e-4, atol=1e-6)
        seen = max(seen, len(episode))
    assert seen > 4 and (replay.previous[: replay.count] < 0).sum() > 3
    assert actor.batch.carries is not None


def test_the_state_that_acting_had_is_stored() -> None:
    check_stored_states(Choosing)


# ------------------------------------------------------------------ priorities


def check_priorities() -> None:
    options = SequenceSamplers(prioritized=PrioritizedSequences(alpha=1.0))
    learner, actor = collected(R2D2(**SMALL | {"replay": options, "length": 5, "samples_per_step": 3.5}), 9)
    before = learner.sampler.priorities.tree.copy()
    seen: list[Any] = []
    usual = learner.gradient_step

    def noted(number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        found = usual(number, noise, columns)
        seen.append((learner.drawn[0].tolist(), found["error"].tolist()))
        return found

    learner.gradient_step = noted
    advance(learner, actor, 9)
    assert len(seen) == 1
    p, replay, length = learner.sampler.priorities, learner.replay, learner.replay.count
    told: dict[int, float] = {}
    for number, error in zip(*seen[0], strict=True):
        told[number] = error + 1e-6
        for _ in range(2):  # half of 5 decisions, the first of them included: 3
            following = int(replay.following[number % replay.shape.rows])
            number = following if 0 <= following < length else number
            told[number] = error + 1e-6
    assert len(told) > len(seen[0][0])
    for number in range(p.low, p.high):
        leaf = p.leaves + number % p.rows
        new = p.largest if number >= length - 12 else before[leaf]
        if number in told or number < length - 12:
            assert p.tree[leaf] == pytest.approx(told.get(number, new)), number


def test_sequences_that_overlap_a_learned_one_by_half_get_its_priority() -> None:
    check_priorities()


# ------------------------------------------------------------------ learning


REMEMBER: dict[str, Any] = {
    "slots": 8, "horizon": 9, "batch": 8, "samples_per_step": 8.0, "warm_up": 200, "lr": 5e-3, "target_every": 30,
    "capacity": 5000, "n_step": 5, "gamma": 0.95, "epsilon": Anneal(start=1.0, end=0.05, steps=1500),
}  # fmt: skip


@pytest.mark.slow
def test_a_cue_is_remembered() -> None:
    """Without memory it is right half the time at best."""
    hyper = R2D2(**REMEMBER, length=9, burn_in=4, net=Net(hidden=(16,), activation="relu", lstm=12))
    learner, _ = collected_from(Memory, hyper, 18)
    assert evaluate_policy(learner, GameWorld(game=Memory), 0, 64)["eval/return_mean"] >= 0.95


@pytest.mark.slow
def test_a_network_without_a_core_does_not_remember_it() -> None:
    hyper = DQN(**REMEMBER, net=Net(hidden=(16,), activation="relu"))
    learner, _ = collected_from(Memory, hyper, 18)
    assert evaluate_policy(learner, GameWorld(game=Memory), 0, 64)["eval/return_mean"] <= 0.7


# ------------------------------------------------------------------ state


@pytest.mark.slow_cases(but=("noisy quantiles",))
@pytest.mark.parametrize(
    "more",
    [{"capacity": 60}, {"normalize_inputs": True, "sampling": "uniform"}, {"noisy": True, "distribution": "qr"}],
    ids=["", "normalised", "noisy quantiles"],
)  # fmt: skip
def test_it_goes_on_to_the_bit(more: dict[str, Any]) -> None:
    hyper = R2D2(**SMALL | more)
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


def test_it_learns_from_images() -> None:
    spec = Spec((Input("image", (1, 36, 36), "uint8"),), Discrete(2))
    hyper = R2D2(**SMALL | {"gamma": 0.9, "slots": 2, "warm_up": 8})
    learner = hyper.learner(spec, 0, CPU)
    batch = hyper.storage(spec, 2)
    batch.inputs[0].copy_(torch.randint(0, 256, (5, 2, 1, 36, 36), generator=torch.Generator().manual_seed(0)))
    batch.reward.fill_(0.5)
    ends = []
    for _ in range(4):
        learned = learner.update(batch, 0, 0)
        ends.append(learner.theta.clone())
    assert torch.isfinite(ends[-1]).all() and not torch.equal(ends[0], ends[-1]) and learned.steps > 0


def test_the_limiter_counts_decisions() -> None:
    """A gradient step learns from 8 x 4 decisions: one for 4 collected ones at 8 samples for each."""
    learner, _ = collected(R2D2(**SMALL), 6)
    assert learner.gradient_steps == (6 * 12 - 24) * 8 // 32


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("make", [partial(R2D2, **SMALL | {"net": Net()}), partial(DQN, net=Net(lstm=4))])
def test_each_of_the_two_has_its_networks(make: Any) -> None:
    with pytest.raises(BadRequest) as caught:
        make()
    assert caught.value.key == "net.lstm"


def test_other_worlds_are_refused() -> None:
    with pytest.raises(BadRequest, match="needs a Discrete action, and the world has a"):
        R2D2(**SMALL).learner(Wandering.spec, 0, CPU)


def test_a_compiled_step_is_refused() -> None:
    with pytest.raises(BadRequest, match="without an LSTM"):
        replace(R2D2(**SMALL), compile=True).learner(Choosing.spec, 0, CPU)


def test_batches_of_policy_gradients_hold_the_first_state_alone() -> None:
    batch = PolicyGradientBatch.empty(Choosing.spec, 4, 3, 5)
    assert batch.carry is not None and batch.carry.shape == (2, 3, 5)
