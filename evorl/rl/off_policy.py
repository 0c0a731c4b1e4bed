"""The base of DDPG, TD3 and SAC: a replay, critics Q(s, a) with slowly following targets, and the gradient steps.

`Learner.update` appends the new fragment to the replay. Then it takes as many gradient steps as the limiter allows,
so the learner runs in every loop that a policy gradient runs in. The file of an algorithm gives its targets and losses.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap

from evorl.mdp.core import Box, Spec, StateDict
from evorl.nets.flat import Layout
from evorl.nets.policy import Activation, Net, Output, Policy, uniform_weights
from evorl.nets.q_functions import QFunctions
from evorl.replay.storage import Fragment, Replay, Shape, Storage
from evorl.replay.uniform import uniform
from evorl.rl.core import Batch, Hyper, Learned, Metrics
from evorl.rl.network_learner import NetworkLearner
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.schedule import Schedule
from evorl.util.schedule import value as scheduled
from evorl.util.types import Count, Fraction, Natural, Positive

CHUNK = 64  # gradient steps whose minibatches are drawn and gathered at once


@dataclass(frozen=True, kw_only=True)
class OffPolicyHyper(Hyper):
    """Hyper-parameters of every learner with a replay of transitions."""

    replays: ClassVar[bool] = True

    slots: Count = 1
    horizon: Count = 32
    lr: Schedule = 1e-3
    adam_epsilon: Positive = 1e-8
    max_grad_norm: Positive | None = None
    capacity: Count = 1_000_000
    """Transitions that the replay holds."""
    batch: Count = 256
    """Transitions in a gradient step."""
    samples_per_step: Positive = 256.0
    """Transitions to learn from for each one that is collected; the batch size gives one gradient step per decision."""
    warm_up: Natural = 10_000
    """Decisions before the first gradient step."""
    warm_up_actions: Literal["uniform", "policy"] = "uniform"
    """Actions of training episodes during the warm-up."""
    n_step: Count = 1
    """Rewards that a target sums before it bootstraps."""
    tau: Fraction = 0.005
    """Share of the critics that their targets take over after a gradient step."""
    critic_activation: Activation | None = None
    """Activation of the critics' hidden layers; null is that of ``net``."""
    net: Net = field(default_factory=lambda: Net(hidden=(256, 256), activation="relu", output="tanh"))

    def __post_init__(self) -> None:
        if self.members * self.slots * self.horizon > self.capacity // 2:
            raise BadRequest("members x slots x horizon must be at most half of it", "capacity")
        if self.net.lstm:
            raise BadRequest("a replay of single transitions cannot train a recurrent network", "net.lstm")


H = TypeVar("H", bound=OffPolicyHyper, covariant=True)


class Reading(NamedTuple):
    """What a gradient step may read of a replay."""

    storage: Storage
    length: int  # transitions that existed
    oldest: int  # number of the oldest one


class OffPolicy(NetworkLearner[H]):
    """An actor, ``critics`` stacked critics with their targets, and a replay."""

    critics: ClassVar[int] = 2
    noises: ClassVar[int] = 1
    """Noises for an action that a gradient step needs."""
    actor_noise: ClassVar[bool] = False
    """Whether a step of the actor alone needs them."""

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        if not isinstance(spec.action, Box) or not np.isfinite([spec.action.low, spec.action.high]).all():
            raise BadRequest("this learner needs actions within finite bounds (a Box); rl=ppo takes any", "mdp")
        super().__init__(hyper, spec, seed, device)
        self.critic = QFunctions(spec, hyper.net, self.critics, hyper.critic_activation)
        uniform_weights(self.critic, torch.Generator().manual_seed(seeds.key(seed, "critic weights") >> 1))
        self.critic_layout = Layout.of(self.critic)
        self.phi = self.critic_layout.flatten(dict(self.critic.named_parameters())).to(device)
        self.critic.to(device)
        self.phi_target = self.phi.clone()
        self.critic_adam = {
            "m": torch.zeros_like(self.phi),
            "v": torch.zeros_like(self.phi),
            "t": torch.zeros_like(self.lr),
        }
        self.random = torch.tensor(False, device=device)  # true in members' copies during the warm-up
        self.extra = (self.random,)
        self.gradient_steps = 0

    def _build_policy(self, spec: Spec) -> Policy:
        return Policy(spec, self.hyper.net, critic=False)

    def _initialise(self, generator: torch.Generator) -> None:
        self.policy.initialise_uniformly(generator)

    @cached_property
    def replay(self) -> Replay:
        """Made when it is first needed: learners that only act have none."""
        return Replay(self.spec, Shape(self.hyper.capacity, self.hyper.members * self.hyper.slots))

    # -------------------------------------------------------------- acting

    def weights(self) -> list[Tensor]:
        theta, _, *statistics = super().weights()
        uniform = self.hyper.warm_up > 0 and self.hyper.warm_up_actions == "uniform"
        return [theta, torch.tensor(uniform and self.gradient_steps == 0), *statistics]

    def _decide(
        self, out: Output, legal: Tensor | None, noise: Tensor, extra: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """During a warm-up all actions are equally likely: erf(noise / sqrt(2)) is uniform in [-1, 1]."""
        (random,) = extra
        explore = (random & (noise != 0).any(-1))[:, None]  # no noise asks for the deterministic policy
        action = torch.where(explore, torch.erf(noise * 0.5**0.5), self.explore(out.raw, noise))
        return action, noise.new_zeros(len(noise))

    @abstractmethod
    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        """Actions [B, K] within [-1, 1] under this noise, from the actor's outputs."""

    # -------------------------------------------------------------- learning

    def update(self, batch: Batch, step: int, iteration: int) -> Learned:
        rate = scheduled(self.hyper.lr, step)
        self.lr.fill_(rate)
        self.replay.append(_fragment(batch))
        if self.moments is not None:
            self.moments.update(tuple(x[:-1] for x in batch.inputs))
        metrics: Metrics = {"optimizer/lr": rate, "replay/size": float(min(self.replay.count, self.hyper.capacity))}
        due = self._steps_due()
        found = self._learn(due)
        taken = self.gradient_steps * self.hyper.batch
        metrics["replay/samples_per_step"] = taken / max(self.replay.count - self.hyper.warm_up, 1)
        return Learned(due, metrics, found)

    def _steps_due(self) -> int:
        """The limiter: gradient steps that the collected transitions allow and that were not taken yet."""
        h = self.hyper
        return max(int((self.replay.count - h.warm_up) * h.samples_per_step / h.batch) - self.gradient_steps, 0)

    def _learn(self, due: int) -> dict[str, list[Tensor]]:
        """Take ``due`` gradient steps; return their statistics."""
        found: dict[str, list[Tensor]] = {}
        while due:
            count = min(due, CHUNK)
            reading = Reading(self.replay, self.replay.count, self.replay.oldest(self.replay.count))
            columns = self.minibatches(reading, self.gradient_steps, count)
            noise = self.draw_noise(self.gradient_steps, count)
            for i in range(count):
                for name, x in self.gradient_step(self.gradient_steps, noise[i], [x[i] for x in columns]).items():
                    found.setdefault(name, []).append(x)
                self.gradient_steps += 1
            due -= count
        return found

    def minibatches(self, reading: Reading, first: int, count: int, *words: int | str) -> list[Tensor]:
        """The columns of the minibatches of gradient steps ``first`` and later, each [count, batch, ...]: inputs,
        action, reward, discount, next inputs.

        A minibatch is a function of the seed, what it is for (``words``), the number of its gradient step, and what of
        the replay it may read.
        """
        numbers, gamma = self._numbers(reading, first, count, *words), self.gamma.numpy().astype(np.float64)
        found = reading.storage.read(numbers, reading.length, gamma, self.hyper.n_step)
        columns = (*found.inputs, found.action, found.reward, found.discount, *found.next_inputs)
        return [torch.from_numpy(x).unflatten(0, (count, -1)).to(self.device) for x in columns]

    def states(self, reading: Reading, first: int, count: int, *words: int | str) -> list[Tensor]:
        """The inputs of the same `minibatches` alone, each [count, batch, ...]: all that an actor's step needs."""
        found = reading.storage.states(self._numbers(reading, first, count, *words))
        return [torch.from_numpy(x).unflatten(0, (count, -1)).to(self.device) for x in found]

    def _numbers(self, reading: Reading, first: int, count: int, *words: int | str) -> NDArray[np.int64]:
        key = seeds.key(self.seed, "replay", *words)
        return uniform(key, first, count, self.hyper.batch, reading.oldest, reading.length).reshape(-1)

    def draw_noise(self, first: int, count: int, *words: int | str) -> Tensor:
        """Standard normal noise [count, noises, batch, K] for gradient steps from ``first`` on, keyed one by one."""
        shape, steps = (self.noises, self.hyper.batch, self.components), range(first, first + count)
        words = ("action noise", *words)
        drawn = [seeds.generator(self.seed, *words, u).standard_normal(shape, np.float32) for u in steps]
        return torch.from_numpy(np.stack(drawn)).to(self.device)

    @property
    def components(self) -> int:
        """Components of an action, K."""
        assert isinstance(self.spec.action, Box)
        return len(self.spec.action.low)

    @abstractmethod
    def gradient_step(self, number: int, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        """Take the gradient step ``number`` on a minibatch; return its statistics, each []."""

    # -------------------------------------------------------------- critics and actors apart (`separate_updates`)

    @abstractmethod
    def set_target_policy(self, theta: Tensor) -> None:
        """Take the actor [D] whose actions the critics' targets value."""

    @abstractmethod
    def critic_step(self, noise: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        """Take a gradient step of the critics alone; their targets follow."""

    def actor_step(
        self, theta: Tensor, adam: dict[str, Tensor], noise: Tensor, inputs: list[Tensor]
    ) -> dict[str, Tensor]:
        """Take a gradient step of an actor [D] alone, in place, with the state of its optimiser, as `self.adam` has it.

        Stacked actors [K, D] take a step each, in the same operations: moments [K, D], a shared step count [],
        noise and inputs [K, ...], statistics [K].
        """
        given = (*self.guide().values(), noise, *self._statistics(), *inputs)
        return self._updates.replay(self._actor_step, theta, *adam.values(), self.lr, *given)

    def guide(self) -> dict[str, Tensor]:
        """What of `critic_state` an actor's steps need, without a copy."""
        return {"q": self.phi}

    def critic_state(self) -> dict[str, Tensor]:
        """The tensors that the critics' steps change, without a copy."""
        return {**self.guide(), "target": self.phi_target, **self.critic_adam}

    # -------------------------------------------------------------- parts of a gradient step

    def split(
        self, columns: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor, Tensor, tuple[Tensor, ...]]:
        """Inputs, actions, rewards, discounts and next inputs of a minibatch, with normalised inputs."""
        own, count = self._own, len(self.spec.inputs)
        action, reward, discount, *rest = columns[own + count :]
        following = tuple(rest)
        if self.moments is not None:
            following = self.moments.normalize(columns[:own], following)
        return self.now(columns), action, reward, discount, following

    @property
    def _own(self) -> int:
        """Tensors of the inputs' statistics."""
        return 0 if self.moments is None else self.moments.count_tensors

    def now(self, columns: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The first part of `split`, which needs no more than statistics and inputs."""
        own, count = self._own, len(self.spec.inputs)
        statistics, inputs = columns[:own], columns[own : own + count]
        return inputs if self.moments is None else self.moments.normalize(statistics, inputs)

    def q_values(self, phi: Tensor, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """Values [G, N, R] of all critics under flat parameters."""
        values: Tensor = functional_call(self.critic, self.critic_layout.unflatten(phi), (inputs, action))
        return values

    @abstractmethod
    def actor_loss(
        self, theta: Tensor, guide: tuple[Tensor, ...], noise: Tensor, columns: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss [] of an actor [D] on a minibatch, as `guide`'s critics see it, and statistics of its policy."""

    def _actor_step(
        self, theta: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor, *given: Tensor
    ) -> dict[str, Tensor]:
        """``given``: `guide`, noise, statistics of inputs, and columns of a minibatch, of which inputs are enough.

        Stacked actors share the first and the third.
        """
        number, own = len(self.guide()), self._own

        def loss_of(theta: Tensor, *given: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            return self.actor_loss(theta, given[:number], given[number], given[number + 1 :])

        if theta.dim() == 2:
            noise_and_columns = (0, *[None] * own, *[0] * (len(given) - number - 1 - own))
            loss_of = vmap(loss_of, (0, *[None] * number, *noise_and_columns))
        leaf = theta.detach().requires_grad_()
        loss, stats = loss_of(leaf, *given)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)  # an actor's own gradient: it is in no other's loss
        norm = self._apply_gradient(gradient, theta, m, v, t, lr)
        found = {"loss/policy": loss, "optimizer/grad_norm": norm, **stats}
        return {name: x.detach() for name, x in found.items()}

    def critic_update(
        self,
        phi: Tensor,
        m: Tensor,
        v: Tensor,
        t: Tensor,
        lr: Tensor,
        inputs: tuple[Tensor, ...],
        action: Tensor,
        target: Tensor,
    ) -> dict[str, Tensor]:
        """Step all critics towards their common target [N, R]: the sum over critics of mean squared errors."""
        leaf = phi.detach().requires_grad_()
        values = self.q_values(leaf, inputs, action)
        loss = (values - target).square().mean((1, 2)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
        self._apply_gradient(gradient, phi, m, v, t, lr)
        return {"loss/value": loss.detach() / len(values), "value/q": values.detach().mean()}

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        def named(phi: Tensor) -> StateDict:
            return {k: v.cpu().clone() for k, v in self.critic_layout.unflatten(phi).items()}

        return {
            **super().state_dict(),
            "critic": {
                "q": named(self.phi), "target": named(self.phi_target),
                "optimizer": {k: v.cpu().clone() for k, v in self.critic_adam.items()},
            },
            "gradient_steps": self.gradient_steps,
            "replay": self.replay.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        for name, x in self.critic_adam.items():
            x.copy_(torch.as_tensor(state["critic"]["optimizer"][name]))
        self.gradient_steps = state["gradient_steps"]
        self.replay.load_state_dict(state["replay"])

    def load_policy(self, state: StateDict) -> None:
        """Load the actor, the critics with their targets, and the input statistics. Raises ValueError."""
        super().load_policy(state)
        if "critic" not in state:
            raise ValueError("it has no critic of state and action")
        for x, name in ((self.phi, "q"), (self.phi_target, "target")):
            named = {k: torch.as_tensor(v) for k, v in state["critic"][name].items()}
            x.copy_(self.critic_layout.flatten(named))


def follow(target: Tensor, source: Tensor, tau: float) -> None:
    """target <- (1 - tau) target + tau source, in place (Lillicrap et al. 2016, algorithm 1)."""
    target.lerp_(source, tau)


def gap(phi: Tensor, target: Tensor) -> Tensor:
    """Norm of the difference between critics and targets, in units of the critics' norm, []."""
    distance: Tensor = (target - phi).norm() / phi.norm()
    return distance


def _fragment(batch: Batch) -> Fragment:
    assert batch.origin is not None and batch.terminated is not None and batch.final_inputs is not None
    column, first = batch.origin.numpy()
    return Fragment(
        [x.numpy() for x in batch.inputs],
        None if batch.legal is None else batch.legal.numpy(),
        batch.action.numpy(),
        batch.reward.numpy(),
        batch.done.numpy(),
        batch.terminated.numpy(),
        [x.numpy() for x in batch.final_inputs],
        None if batch.final_legal is None else batch.final_legal.numpy(),
        column,
        first,
    )
