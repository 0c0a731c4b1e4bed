"""The base of DDPG, TD3 and SAC: an actor, and critics Q(s, a) with slowly following targets.

What they do with their replay is in `evorl.rl.replay_learner`. The file of an algorithm gives its targets and losses.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from evorl.mdp.core import Box, Spec, StateDict
from evorl.nets.flat import Layout, copied, load
from evorl.nets.policy import Activation, Net, Output, Policy, uniform_weights
from evorl.nets.q_functions import QFunctions
from evorl.nets.trees import Tree
from evorl.ops.adam import Adam
from evorl.rl.network_learner import Network
from evorl.rl.replay_learner import Reading, ReplayHyper, ReplayLearner, Transitions, follow, gap, made_for
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.types import Fraction


@dataclass(frozen=True, kw_only=True)
class OffPolicyHyper(ReplayHyper):
    """Hyper-parameters of every learner with an actor and critics."""

    tau: Fraction = 0.005
    """Share of the critics, and of a deterministic actor, that their targets take over after a gradient step."""
    critic_activation: Activation | None = None
    """Activation of the critics' hidden layers; null is that of ``net``."""
    net: Net = field(default_factory=lambda: Net(hidden=(256, 256), activation="relu", output="tanh"))


H = TypeVar("H", bound=OffPolicyHyper, covariant=True)


class Critic(NamedTuple):
    """What gradient steps change of the stacked critics."""

    phi: Tensor  # [D] their parameters
    target: Tensor  # [D] those of their targets
    adam: Adam


class OffPolicy(ReplayLearner[H]):
    """An actor, ``critics`` stacked critics with their targets, and a replay."""

    policy: Policy
    critics: ClassVar[int] = 2
    noises: ClassVar[int] = 0
    """Noises for an action that a gradient step needs."""
    actor_noise: ClassVar[bool] = False
    """Whether a step of the actor alone needs them."""

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        if not isinstance(spec.action, Box) or not np.isfinite([spec.action.low, spec.action.high]).all():
            kind = "Box without them" if isinstance(spec.action, Box) else type(spec.action).__name__
            raise BadRequest(
                f"this learner needs a Box action with finite bounds, and the world has a {kind}; "
                f"{made_for(spec.action)}",
                "mdp",
            )
        super().__init__(hyper, spec, seed, device)
        self.q_functions = QFunctions(spec, hyper.net, self.critics, hyper.critic_activation)
        uniform_weights(self.q_functions, torch.Generator().manual_seed(seeds.key(seed, "critic weights") >> 1))
        self.critic_layout = Layout.of(self.q_functions)
        phi = self.critic_layout.flatten(dict(self.q_functions.named_parameters())).to(device)
        self.q_functions.to(device)
        self.critic = Critic(phi, phi.clone(), Adam.of(phi))
        self.random = torch.zeros((), dtype=torch.bool, device=device)  # true in members' copies during the warm-up
        self.extra = (self.random,)

    def _build_policy(self, spec: Spec) -> Policy:
        return Policy(spec, self.hyper.net, critic=False)

    def _initialise(self, generator: torch.Generator) -> None:
        self.policy.initialise_uniformly(generator)

    # -------------------------------------------------------------- acting

    def weights(self) -> list[Tensor]:
        theta, _, *statistics = super().weights()
        return [theta, torch.tensor(self.plays_uniformly), *statistics]

    @property
    def extra_now(self) -> tuple[Tensor, ...]:
        """Nothing after the warm-up, whose operations take a fifth of a decision; a GPU would have to wait for it."""
        return () if self.device.type == "cpu" and not self.random else self.extra

    def decide(
        self, out: Output, legal: Tensor | None, noise: Tensor, extra: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        """During a warm-up all actions are equally likely: erf(noise / sqrt(2)) is uniform in [-1, 1]."""
        action = self.explore(out.raw, noise)
        for random in extra:
            drawn = (random & (noise != 0).any(-1))[:, None]  # no noise asks for the deterministic policy
            action = torch.where(drawn, torch.erf(noise * 0.5**0.5), action)
        return action, noise.new_zeros(noise.shape[0])

    @abstractmethod
    def explore(self, raw: Tensor, noise: Tensor) -> Tensor:
        """Actions [B, K] within [-1, 1] under this noise, from the actor's outputs."""

    # -------------------------------------------------------------- learning

    def own(self) -> tuple[Tree, ...]:
        return (*super().own(), self.critic)

    def states(self, reading: Reading, first: int, count: int, *words: int | str) -> tuple[Tensor, ...]:
        """The inputs of the same `minibatches` alone, each [count, batch, ...]: all that an actor's step needs."""
        states = reading.storage.states(self._numbers(reading, first, count, *words))
        return tuple(torch.from_numpy(x).unflatten(0, (count, -1)).to(self.device) for x in states)

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

    # -------------------------------------------------------------- critics and actors apart (`separate_updates`)

    @abstractmethod
    def set_target_policy(self, theta: Tensor) -> None:
        """Take the actor [D] whose actions the critics' targets value."""

    @abstractmethod
    def critic_step(self, noise: Tensor, minibatch: Transitions) -> dict[str, Tensor]:
        """Take a gradient step of the critics alone; their targets follow."""

    def actor_step(self, actor: Network, noise: Tensor, inputs: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """Take a gradient step of an actor [D] alone, in place.

        Stacked actors [K, D] take a step each, in the same operations: moments [K, D], a shared step count [],
        noise and inputs [K, ...].
        """
        return self._take_step(self._actor_step, actor, self.guide(), self.lr, self._statistics(), noise, inputs)

    def guide(self) -> dict[str, Tensor]:
        """What of `critic_state` an actor's steps need, without a copy."""
        return {"q": self.critic.phi}

    def critic_state(self) -> dict[str, Tensor]:
        """The tensors that the critics' steps change, without a copy."""
        return {**self.guide(), "target": self.critic.target, **self.critic.adam._asdict()}

    # -------------------------------------------------------------- parts of a gradient step

    def q_values(self, phi: Tensor, inputs: tuple[Tensor, ...], action: Tensor) -> Tensor:
        """Values [G, N, R] of all critics under flat parameters."""
        values: Tensor = functional_call(self.q_functions, self.critic_layout.unflatten(phi), (inputs, action))
        return values

    @abstractmethod
    def actor_loss(
        self, theta: Tensor, guide: dict[str, Tensor], noise: Tensor, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss [] of an actor [D] in the states of a minibatch, as `guide`'s critics see it, and statistics of its
        policy."""

    def _actor_step(
        self, actor: Network, guide: dict[str, Tensor], lr: Tensor, statistics: tuple[Tensor, ...], noise: Tensor,
        inputs: tuple[Tensor, ...],
    ) -> dict[str, Tensor]:  # fmt: skip
        def loss_of(theta: Tensor, noise: Tensor, inputs: tuple[Tensor, ...]) -> tuple[Tensor, dict[str, Tensor]]:
            return self.actor_loss(theta, guide, noise, self.normalized(statistics, inputs))

        losses = loss_of if actor.theta.dim() == 1 else vmap(loss_of)
        leaf = actor.theta.detach().requires_grad_()
        loss, stats = losses(leaf, noise, inputs)
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)  # an actor's own gradient: it is in no other's loss
        norm = self._apply_gradient(gradient, *actor, lr)
        stats = {"loss/policy": loss, "optimizer/grad_norm": norm, **stats}
        return {name: x.detach() for name, x in stats.items()}

    def critic_update(
        self, critic: Critic, lr: Tensor, inputs: tuple[Tensor, ...], action: Tensor, target: Tensor
    ) -> dict[str, Tensor]:
        """Step all critics towards their common target [N, R]: the sum over critics of mean squared errors."""
        leaf = critic.phi.detach().requires_grad_()
        values = self.q_values(leaf, inputs, action)
        loss = nn.functional.mse_loss(values, target.expand_as(values), reduction="sum") / target.numel()
        (gradient,) = torch.autograd.grad(loss, leaf)
        self._apply_gradient(gradient, critic.phi, critic.adam, lr)
        return {"loss/value": loss.detach() / len(values), "value/q": values.detach().mean()}

    def targets_follow(self, critic: Critic) -> dict[str, Tensor]:
        """Let the critics' targets follow them; return how far behind they are."""
        follow(critic.target, critic.phi, self.hyper.tau)
        return {"value/target_gap": gap(critic.phi, critic.target)}

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        q, target = self.critic_layout.copied(self.critic.phi), self.critic_layout.copied(self.critic.target)
        critics = {"critic": {"q": q, "target": target}, "critic_optimizer": copied(self.critic.adam._asdict())}
        return {**super().state_dict(), **critics}

    def load_state_dict(self, state: StateDict) -> None:
        if "optimizer" in state.get("critic", {}):
            raise BadRequest(
                "an older version wrote this state, with the critics' optimiser elsewhere; init=RUN_DIR takes the rest",
                "resume",
            )
        super().load_state_dict(state)
        load(self.critic.adam._asdict(), state["critic_optimizer"])

    def load_policy(self, state: StateDict) -> None:
        """Load the actor, the critics with their targets, and the input statistics. Raises ValueError."""
        super().load_policy(state)
        if "critic" not in state:
            raise ValueError("it has no critic of state and action")
        for x, name in ((self.critic.phi, "q"), (self.critic.target, "target")):
            self.critic_layout.load(x, state["critic"][name])
