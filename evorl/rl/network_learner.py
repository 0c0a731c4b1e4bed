"""The base of learners with one network: acting, captured updates, the optimiser and the state.

Policy gradients (`evorl.rl.policy_gradient`) and learners with a replay build on it. A subclass gives ``update``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Spec, StateDict
from evorl.nets.action_values import ActionValues
from evorl.nets.capture import TraceCache, capture
from evorl.nets.compiled import compiled
from evorl.nets.distributions import log_prob_entropy, sample, to_world
from evorl.nets.flat import Layout, copied, load
from evorl.nets.per_side import MomentsPerSide, PolicyPerSide
from evorl.nets.policy import Output, Policy
from evorl.nets.statistics import Moments
from evorl.nets.trees import Tree, leaves, mapped
from evorl.ops.adam import Adam, adam, fused_adam
from evorl.ops.rmsprop import RMSProp
from evorl.rl.core import Decision, Hyper, Played
from evorl.rl.data_parallel import Argument, Collective, GradientStep, Leader, Split
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest

H = TypeVar("H", bound=Hyper, covariant=True)
Result = TypeVar("Result")


class Network(NamedTuple):
    """What gradient steps change of a network."""

    theta: Tensor  # [D] its parameters
    optimizer: Adam | RMSProp


class NetworkLearner(Generic[H]):
    """A policy network, its optimiser and the running statistics of its inputs.

    The parameters are one flat vector, so the optimiser's step and the gradient's norm are single operations. Forward
    passes and updates of small networks are captured once and replayed (`evorl.nets.capture`).
    """

    update_input: ClassVar[type]

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        self._hyper, self.spec, self.seed, self.device = hyper, spec, seed, device
        self.policy: Policy | PolicyPerSide | ActionValues = self._build_policy(spec)
        if hyper.compile and not self.policy.light:
            raise BadRequest("is for networks without an LSTM and without images, whose steps are short", "rl.compile")
        self._initialise(torch.Generator().manual_seed(seeds.key(seed, "weights") >> 1))
        self.layout = Layout.of(self.policy)
        theta = self.layout.flatten(dict(self.policy.named_parameters())).to(device)
        self.network = Network(theta, self._new_optimizer(theta))
        self.policy.to(device)
        self.lr = torch.zeros((), device=device)  # as scheduled
        self.gamma = hyper.per_reward("gamma", spec.rewards)
        self.moments = self._new_moments()
        self.extra: tuple[Tensor, ...] = ()  # further tensors that decisions depend on, for `decide`
        self._acts, self._updates = TraceCache(), TraceCache(compiled if hyper.compile else capture)
        self.records = True  # gradient steps, to replay them; a conformance check compares them with those that are not
        self.collective: Collective | None = None  # where several learners take the gradient steps together

    @property
    def hyper(self) -> H:
        """Constant: the captured updates hold its numbers."""
        return self._hyper

    @property
    def theta(self) -> Tensor:
        """The parameters [D]."""
        return self.network.theta

    def _new_optimizer(self, theta: Tensor) -> Adam | RMSProp:
        return Adam.of(theta)

    def _build_policy(self, spec: Spec) -> Policy | PolicyPerSide | ActionValues:
        shared = self.hyper.policies == "shared"
        return Policy(spec, self.hyper.net) if shared else PolicyPerSide(spec, self.hyper.net, self.hyper.policies)

    def _new_moments(self) -> Moments | None:
        how = self.hyper.normalize_inputs
        if how and isinstance(self.policy, PolicyPerSide):
            return MomentsPerSide(self.spec, self.policy.parts, how == "whiten")
        return Moments.of(self.spec.inputs, how)

    def _initialise(self, generator: torch.Generator) -> None:
        self.policy.initialise(generator)

    # -------------------------------------------------------------- acting

    @property
    def extra_of_a_row(self) -> tuple[Tensor, ...]:
        """`extra` for decisions that do not depend on the place of their row in a batch."""
        return self.extra

    @property
    def extra_now(self) -> tuple[Tensor, ...]:
        """`extra` for decisions of this moment, without what cannot change them."""
        return self.extra

    def carry(self, slots: int) -> Tensor | None:
        return self.policy.carry(slots)

    def act(
        self,
        inputs: tuple[Tensor, ...],
        legal: Tensor | None,
        noise: Tensor,
        carry: Tensor | None,
        start: Tensor | None,
    ) -> Decision:
        return self._by_record(self._act, inputs, legal, noise, carry, start)

    def play(self, *arguments: Any) -> Played:
        """The actions of `act`, to the bit. Its record is that of `act` without the operations of all else."""
        return self._by_record(self._play, *arguments)

    def _by_record(
        self, decide: Callable[..., Result], inputs: tuple[Tensor, ...], legal: Tensor | None, noise: Tensor,
        carry: Tensor | None, start: Tensor | None,
    ) -> Result:  # fmt: skip
        extra, statistics = self.extra_now, self._statistics()
        arguments = extra, statistics, inputs, legal, noise, carry, start
        with torch.inference_mode():
            if self.device.type != "cpu":
                moved = mapped(lambda x: x.to(self.device, non_blocking=True), (self.theta, *arguments))
                return mapped(lambda x: x.cpu(), self._acts.replay(decide, *moved))
            # A record has views of its weights, which keeps their id theirs. The spec and the number of rows say all
            # other shapes and types: to look at each tensor would take a tenth of a decision.
            form = len(noise), len(extra), legal is None, carry is None, start is None
            key = getattr(decide, "__func__", decide), id(self.theta), *form, *[x.dtype for x in inputs]
            replay = self._acts.known(key) or self._acts.record(key, partial(decide, self.theta), *arguments)
            rows = [x for x in (legal, noise, carry, start) if x is not None]
            result: Result = replay(*extra, *statistics, *inputs, *rows)
            return result

    @torch.no_grad()
    def _act(
        self, theta: Tensor, extra: tuple[Tensor, ...], statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...],
        legal: Tensor | None, noise: Tensor, carry: Tensor | None, start: Tensor | None,
    ) -> Decision:  # fmt: skip
        if carry is not None and start is not None:
            out = self.forward(theta, statistics, tuple(x[None] for x in inputs), carry, start[None])
            out = Output(out.raw[0], out.log_std, out.value[0], out.carry, out.features[0])
        else:
            out = self.forward(theta, statistics, inputs)
        action, log_prob = self.decide(out, legal, noise, extra)
        played = to_world(self.spec.action, action)
        return Decision(action, played, log_prob, out.value, out.carry, *self._described(out))

    def _play(self, *arguments: Any) -> Played:
        decision = self._act(*arguments)
        return Played(decision.played, decision.carry)

    def _described(self, out: Output) -> tuple[Tensor, ...]:
        """What else of a decision the learner's batches hold: the policy, and the features."""
        return ()

    def decide(self, out: Output, legal: Tensor | None, noise: Tensor, extra: Any) -> tuple[Tensor, Tensor]:
        """Return the actions [B, K] under this noise, and their log-probabilities [B]."""
        action = sample(self.spec.action, out.raw, out.log_std, legal, noise)
        return action, log_prob_entropy(self.spec.action, out.raw, out.log_std, legal, action)[0]

    def forward(
        self,
        theta: Tensor,
        statistics: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...],
        carry: Tensor | None = None,
        start: Tensor | None = None,
    ) -> Output:
        """Return the network's outputs as a function of its flat parameters."""
        return self._outputs(theta, self.normalized(statistics, inputs), carry, start)

    def normalized(self, statistics: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return inputs if self.moments is None else self.moments.normalize(statistics, inputs)

    def _outputs(self, theta: Tensor, inputs: tuple[Tensor, ...], carry: Tensor | None, start: Tensor | None) -> Output:
        """Return the outputs for inputs that are already normalised."""
        return self.output_of(functional_call(self.policy, self.layout.unflatten(theta), (inputs, carry, start)))

    def output_of(self, outputs: Any) -> Output:
        """The outputs in what the network's forward pass returned."""
        out: Output = outputs
        return out

    def _statistics(self) -> tuple[Tensor, ...]:
        return () if self.moments is None else self.moments.tensors(self.device)

    def weights(self) -> list[Tensor]:
        return [self.theta, *self.extra, *self._statistics()]

    def load_weights(self, weights: list[Tensor]) -> None:
        for x, new in zip((self.theta, *self.extra), weights, strict=False):
            x.copy_(new)
        if self.moments is not None:
            statistics = weights[1 + len(self.extra) :]
            self.moments.load_tensors(self.device, tuple(x.to(self.device, copy=True) for x in statistics))

    def to_update_input(self, batch: Any, step: int) -> Any:
        return batch

    # -------------------------------------------------------------- optimising

    def own(self) -> tuple[Tree, ...]:
        """What gradient steps change, in place."""
        return (self.network,)

    def steps(self) -> Sequence[GradientStep]:
        """The methods that `_take_step` takes where several learners take it together."""
        return ()

    def tensors(self) -> list[Tensor]:
        return leaves(self.own())

    def _take_step(self, step: GradientStep, *arguments: Argument) -> dict[str, Tensor]:
        """Take a gradient step with these arguments, alone or together with other learners; return its statistics."""
        if isinstance(self.collective, Leader):
            return self.collective.take_step(self, step, arguments)
        return self._replay(step, *(x.tree if isinstance(x, Split) else x for x in arguments))

    def _replay(self, step: GradientStep, *arguments: Tree) -> dict[str, Tensor]:
        """``step(*arguments)``, by a replay where handing over its operations takes a part of the time."""
        if not self.records or (not self.policy.light and self.device.type != "cuda"):  # through time, or of images
            return step(*arguments)
        return self._updates.replay(step, *arguments)

    def _mean(self, x: Tensor) -> Tensor:
        """The mean over a minibatch, of a mean over this learner's share of it."""
        return x if self.collective is None else self.collective.mean(x)

    def _apply_gradient(self, gradient: Tensor, theta: Tensor, optimizer: Adam | RMSProp, lr: Tensor) -> Tensor:
        """Take a step of Adam along the clipped gradient, in place; return the gradient's norm before clipping.

        Of stacked networks, gradient and theta [K, D], each has its own norm [K].
        """
        assert isinstance(optimizer, Adam)
        norm, gradient = self._clipped(gradient)
        step = adam if self.policy.light else fused_adam  # which `capture` cannot record on the CPU
        step(theta, gradient, optimizer, lr, self.hyper.adam_epsilon)
        return norm

    def _clipped(self, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the norm of a gradient [..., D] over all learners, and the gradient within ``max_grad_norm``."""
        gradient = self._mean(gradient)
        norm: Tensor = gradient.norm(dim=-1)
        if self.hyper.max_grad_norm is None:
            return norm, gradient
        return norm, gradient * (self.hyper.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)[..., None]

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "policy": self.layout.copied(self.theta),
            "optimizer": copied(self.network.optimizer._asdict()),
            "moments": None if self.moments is None else self.moments.state_dict(),
        }

    def appended_rows(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        self.load_policy(state)
        load(self.network.optimizer._asdict(), state["optimizer"])

    def load_policy(self, state: StateDict) -> None:
        """Load only the weights and input statistics of another run. Raises ValueError if they do not fit."""
        if (self.moments is None) != (state["moments"] is None):
            raise ValueError(f"the weights were trained with{'out' * (state['moments'] is None)} normalize_inputs")
        self.layout.load(self.theta, state["policy"])
        if self.moments is not None:
            self.moments.load_state_dict(state["moments"])
        if self.collective is not None:
            self.collective.stale = True


def with_network(learner: object, user: str, key: str = "") -> NetworkLearner[Any]:
    """Return a learner to ``user``, who reads its network. Raises `BadRequest` for a `Learner` of another kind."""
    if isinstance(learner, NetworkLearner):
        return learner
    raise BadRequest(
        f"{user} knows no network of a {type(learner).__module__}.{type(learner).__qualname__}, which is no "
        "evorl.rl.network_learner.NetworkLearner",
        key,
    )
