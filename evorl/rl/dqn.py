"""Deep Q-network (Mnih et al. 2015, doi 10.1038/nature14236, algorithm 1), and the parts that Rainbow joins.

The network Q(s, .; theta) learns by targets from a copy theta^- of itself, and acts epsilon-greedily. Each part of
Rainbow (Hessel et al. 2018, arXiv 1710.02298) is a key: ``double`` (van Hasselt et al. 2016), ``dueling`` (Wang et al.
2016), ``n_step`` (Sutton 1988), ``sampling=prioritized`` (Schaul et al. 2016), ``distribution`` (c51: Bellemare et al.
2017; qr: Dabney et al. 2018) and ``noisy`` (Fortunato et al. 2018). ``epsilon_spread`` is from Ape-X (Horgan et al.
2018).

Letters in shapes: N transitions, R named rewards, A actions, M atoms of a value's distribution (1 for a number).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Discrete, Spec, StateDict
from evorl.nets.action_values import ActionValues, noise_size, perturbed
from evorl.nets.distributions import MASKED
from evorl.nets.policy import Net, Output
from evorl.nets.trees import Tree
from evorl.ops.value_distributions import cross_entropy, entropy, huber, project, quantile_huber
from evorl.replay.samplers.prioritized import Prioritized
from evorl.replay.samplers.registry import WeightedSamplers
from evorl.rl.batch import TransitionBatch
from evorl.rl.core import Learned
from evorl.rl.data_parallel import GradientStep, Split
from evorl.rl.network_learner import Network
from evorl.rl.replay_learner import ReplayHyper, ReplayLearner, Transitions, follow, gap, made_for
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.schedule import Anneal, Schedule
from evorl.util.schedule import value as scheduled
from evorl.util.types import Count, Fraction, Natural, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class DQN(ReplayHyper):
    policy_head: ClassVar[bool] = False

    horizon: Count = 4
    lr: Schedule = 5e-4
    max_grad_norm: Positive | None = 10.0
    capacity: Count = 100_000
    batch: Count = 64
    samples_per_step: Positive | None = 16
    warm_up: Natural = 1_000
    epsilon: Schedule = field(default_factory=lambda: Anneal(start=1.0, end=0.05, steps=20_000))
    """Probability of a uniform random action in training episodes: a number, or a schedule over environment steps."""
    epsilon_spread: NonNegative = 0.0
    """The last slot of a member acts with epsilon^(1 + this), the slots before it in between (Ape-X: 7)."""
    target_every: Count = 500
    """Gradient steps between updates of the target network."""
    tau: Fraction = 1.0
    """Share of the network that the target takes over at each update; 1 copies it."""
    huber: Positive = 1.0
    """Error beyond which the loss is linear (its gradient is clipped)."""
    double: bool = False
    """The network chooses the action that the target network values."""
    dueling: bool = False
    """Separate hidden layers for the state's value and the actions' advantages."""
    noisy: bool = False
    """Noisy layers, which explore by themselves (then epsilon may be 0)."""
    noisy_std: Positive = 0.5
    """Initial deviation of their noise, sigma_0, in units of 1/sqrt(inputs)."""
    distribution: Literal["c51", "qr"] | None = None
    """What is learned of returns: null their mean, c51 their probabilities on a support, qr their quantiles."""
    atoms: Count = 51
    """Atoms of the support, or quantiles."""
    support: tuple[float, float] = (-10.0, 10.0)
    """Lowest and highest return of c51."""
    replay: WeightedSamplers = field(default_factory=WeightedSamplers)
    net: Net = field(default_factory=lambda: Net(hidden=(128, 128), activation="relu"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for step in (0.0, math.inf):
            if scheduled(self.epsilon, step) > 1:
                raise BadRequest("is a probability, at most 1", "epsilon")
        if self.distribution == "c51" and (self.atoms < 2 or self.support[0] >= self.support[1]):
            raise BadRequest("c51 needs at least 2 atoms and a support [low, high] with low < high", "support")
        if self.epsilon_spread and self.slots == 1:
            raise BadRequest("is over the slots of a member, and there is one (slots)", "epsilon_spread")

    def learner(self, spec: Spec, seed: int, device: torch.device) -> Learner[DQN]:
        return Learner(self, spec, seed, device)


H = TypeVar("H", bound=DQN, covariant=True)


class Exploration(NamedTuple):
    """How often the slots of a member act at random."""

    epsilon: Tensor  # [] the first one
    spread: Tensor  # [] the last one with epsilon^(1 + this)


class Learner(ReplayLearner[H]):
    policy: ActionValues
    rows: ClassVar[int] = 0  # the axis of a minibatch's transitions

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        if not isinstance(spec.action, Discrete):
            kind = type(spec.action).__name__
            raise BadRequest(
                f"this learner needs a Discrete action, and the world has a {kind}; {made_for(spec.action)}", "mdp"
            )
        super().__init__(hyper, spec, seed, device)
        self.theta_target = self.theta.clone()
        self.support = torch.linspace(*hyper.support, hyper.atoms, device=device)
        self.noise_size = noise_size(self.policy)
        # evaluations of the stochastic policy explore as training does in the end
        epsilon = torch.full((), scheduled(hyper.epsilon, math.inf), device=device)
        self.extra = Exploration(epsilon, spread=torch.zeros((), device=device))
        self.exploration = scheduled(hyper.epsilon, 0)

    def _build_policy(self, spec: Spec) -> ActionValues:
        h = self.hyper
        atoms = 1 if h.distribution is None else h.atoms
        return ActionValues(spec, h.net, h.dueling, h.noisy_std if h.noisy else None, atoms)

    # -------------------------------------------------------------- acting

    def weights(self) -> list[Tensor]:
        """With noisy layers, those under one noise until the next gradient step (Fortunato et al. 2018, section 3)."""
        theta = self.theta
        if self.noise_size:
            noise = self._noise((self.noise_size,), "acting noise", self.gradient_steps).to(self.device)
            theta = self.layout.flatten(perturbed(self.policy, self.layout.unflatten(theta), noise))
        epsilon = 1.0 if self.plays_uniformly else self.exploration
        return [theta, torch.tensor(epsilon), torch.tensor(self.hyper.epsilon_spread), *self._statistics()]

    @property
    def extra_of_a_row(self) -> tuple[Tensor, ...]:
        return self.extra[:1]

    def decide(
        self, out: Output, legal: Tensor | None, noise: Tensor, extra: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """Epsilon-greedy under Gumbel noise. The action with the largest noise is uniformly distributed. The size of
        that noise is independent of the action, and decides whether the action is taken."""
        epsilon, *spread = extra
        if spread:  # Horgan et al. 2018
            epsilon = epsilon ** (1 + spread[0] * torch.linspace(0, 1, len(noise), device=noise.device))
        q, drawn, count = out.raw, noise, torch.tensor(noise.shape[-1])
        if legal is not None:
            q, drawn, count = q.masked_fill(~legal, MASKED), noise.masked_fill(~legal, -math.inf), legal.sum(-1)
        largest, at_random = drawn.max(-1)
        uniform = torch.exp(-count * torch.exp(-largest))  # the distribution function of the largest of so many
        explore = (uniform < epsilon) & (noise != 0).any(-1)  # no noise asks for the greedy policy
        action = torch.where(explore, at_random, q.argmax(-1))
        return action[:, None], noise.new_zeros(noise.shape[0])

    def output_of(self, outputs: Any) -> Output:
        values, carry = outputs
        q = self.mean(values).sum(1)
        return Output(q, None, q.new_zeros(q.shape[0], len(self.spec.rewards)), carry, q[:, :0])

    # -------------------------------------------------------------- values

    def values(self, theta: Tensor, noise: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        """Outputs [N, R, A, M] of the network under noise [Z], for normalised inputs."""
        named = self.layout.unflatten(theta)
        if len(noise):
            named = perturbed(self.policy, named, noise)
        values: Tensor = functional_call(self.policy, named, (inputs,))[0]
        return values

    def mean(self, values: Tensor) -> Tensor:
        """Expected returns [...] of outputs [..., M]."""
        match self.hyper.distribution:
            case None:
                return self.to_returns(values).squeeze(-1)
            case "c51":
                return values.softmax(-1) @ self.to_returns(self.support)
            case "qr":
                return self.to_returns(values).mean(-1)

    def to_units(self, returns: Tensor) -> Tensor:
        """Returns [...] in the units in which values are learned."""
        return returns

    def to_returns(self, values: Tensor) -> Tensor:
        """The inverse of `to_units`."""
        return values

    # -------------------------------------------------------------- learning

    def update(self, batch: TransitionBatch, step: int, iteration: int) -> Learned:
        self.exploration = scheduled(self.hyper.epsilon, step)
        learned = super().update(batch, step, iteration)
        metrics = {**learned.metrics, "policy/epsilon": 1.0 if self.plays_uniformly else self.exploration}
        if isinstance(self.sampler, Prioritized):
            metrics["replay/beta"] = self.sampler.beta
        return learned._replace(metrics=metrics)

    def draw_noise(self, first: int, count: int, *words: int | str) -> Tensor:
        """Standard normal noise [count, 3, Z] of noisy layers: of the network, of the target, and where the network
        chooses the target's action."""
        shape = (3, self.noise_size)
        if not self.noise_size:
            return torch.zeros(count, *shape, device=self.device)
        drawn = [self._noise(shape, "weight noise", *words, u) for u in range(first, first + count)]
        return torch.stack(drawn).to(self.device)

    def _noise(self, shape: tuple[int, ...], *words: int | str) -> Tensor:
        return torch.from_numpy(seeds.generator(self.seed, *words).standard_normal(shape, np.float32))

    def own(self) -> tuple[Tree, ...]:
        return (*super().own(), self.theta_target)

    def steps(self) -> tuple[GradientStep, ...]:
        return self._step, self._step_and_follow

    def gradient_step(self, number: int, noise: Tensor, minibatch: Any) -> dict[str, Tensor]:
        step = self._step_and_follow if (number + 1) % self.hyper.target_every == 0 else self._step
        arguments = (self.network, self.theta_target, self.lr, self._statistics(), noise)
        return self._take_step(step, *arguments, Split(minibatch, self.rows))

    def _step_and_follow(
        self, network: Network, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        minibatch: Any,
    ) -> dict[str, Tensor]:  # fmt: skip
        stats = self._step(network, theta_target, lr, statistics, noise, minibatch)
        stats["value/target_gap"] = gap(network.theta, theta_target)
        follow(theta_target, network.theta, self.hyper.tau)
        return stats

    def _step(
        self, network: Network, theta_target: Tensor, lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        minibatch: Any,
    ) -> dict[str, Tensor]:  # fmt: skip
        batch: Transitions = minibatch
        theta, weight = network.theta, batch.weight
        inputs, following = (self.normalized(statistics, x) for x in (batch.inputs, batch.following))
        with torch.no_grad():
            target = self.target(theta, theta_target, noise, batch.reward, batch.discount, following, batch.legal)
        leaf = theta.detach().requires_grad_()
        predicted = of_action(self.values(leaf, noise[0], inputs), batch.action)
        loss, error = self.losses(predicted, target)
        (gradient,) = torch.autograd.grad((loss if weight is None else weight * loss).mean(), leaf)
        norm = self._apply_gradient(gradient, *network, lr)
        stats = {"loss/value": loss.detach().mean(), "value/q": self.mean(predicted.detach()).mean()}
        stats["optimizer/grad_norm"] = norm
        return stats if weight is None else {**stats, "error": error}

    def target(
        self, theta: Tensor, theta_target: Tensor, noise: Tensor, reward: Tensor, discount: Tensor,
        following: tuple[Tensor, ...], legal: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """What the values of the actions taken learn from, [N, R, M]: a number, probabilities, or samples."""
        values = self.values(theta_target, noise[1], following)
        chooser = self.values(theta, noise[2], following) if self.hyper.double else values  # van Hasselt 2016, eq. 4
        return self.backed_up(values, chooser, reward, discount, legal)

    def backed_up(
        self, values: Tensor, chooser: Tensor, reward: Tensor, discount: Tensor, legal: Tensor | None
    ) -> Tensor:
        """Targets [N, R, M] from the values [N, R, A, M] of the next state, in which ``chooser``'s best action is
        taken."""
        q = self.mean(chooser).sum(1)
        if legal is not None:
            q = q.masked_fill(~legal, MASKED)
        then = of_action(values, q.argmax(-1, keepdim=True))
        reward, discount = reward[..., None], discount[..., None]
        if self.hyper.distribution == "c51":
            places = self.to_units(reward + discount * self.to_returns(self.support))
            return project(places, then.softmax(-1), self.support)
        return self.to_units(reward + discount * self.to_returns(then))  # y_j of Mnih et al. 2015

    def losses(self, predicted: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The loss [N] of each transition, a mean over rewards, and the error [N] that its priority follows."""
        match self.hyper.distribution:
            case None:
                error = (target - predicted).squeeze(-1)
                return huber(error, self.hyper.huber).mean(-1), error.detach().abs().mean(-1)
            case "c51":
                loss = cross_entropy(predicted, target).mean(-1)
                divergence = loss.detach() - entropy(target).mean(-1)  # Hessel et al. 2018: prioritised by the KL
                return loss, divergence.clamp(min=0)  # which rounding may make negative
            case "qr":
                loss = quantile_huber(predicted, target, self.hyper.huber).mean(-1)
        return loss, loss.detach()

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        target = self.layout.copied(self.theta_target)
        return {**super().state_dict(), "policy_target": target, "exploration": self.exploration}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        self.exploration = state["exploration"]

    def load_policy(self, state: StateDict) -> None:
        """Load the network, its target and the input statistics. Raises ValueError."""
        super().load_policy(state)
        if "policy_target" not in state:
            raise ValueError("it has no target network of action values")
        self.layout.load(self.theta_target, state["policy_target"])


def of_action(values: Tensor, action: Tensor) -> Tensor:
    """The values [N, R, M] of the actions [N, 1] among values [N, R, A, M]."""
    rows, rewards, _, atoms = values.shape
    return values.gather(2, action[:, :, None, None].expand(rows, rewards, 1, atoms)).squeeze(2)
