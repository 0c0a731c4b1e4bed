"""What REINFORCE, A2C and PPO share: acting, advantages, descent on minibatches, running statistics.

An algorithm's own file says which loss it descends and how often; this one says how.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Spec, StateDict
from evorl.nets.capture import Records, capture
from evorl.nets.compiled import compiled
from evorl.nets.distributions import log_prob_entropy, sample, to_world
from evorl.nets.flat import Layout
from evorl.nets.policy import Output, Policy
from evorl.nets.statistics import Moments, ReturnScale
from evorl.ops.adam import adam
from evorl.ops.losses import explained_variance, normalize, policy_gradient, value_loss
from evorl.ops.returns import gae, vtrace
from evorl.rl.core import Batch, Decision, Hyper, Learned, Metrics, NotFinite
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.schedule import value as scheduled


class Minibatch(NamedTuple):
    """Rows to learn from: [N, ...], or [T, N, ...] for a recurrent policy. Old means: of the policy that acted."""

    action: Tensor  # [..., K]
    log_prob: Tensor  # old
    value: Tensor  # [..., R], old
    advantage: Tensor
    target: Tensor  # [..., R]
    entropy_coef: Tensor  # []: the bonus's weight at this step
    critic_coef: Tensor  # []: the value error's


class Loss(NamedTuple):
    """A loss to minimise, and named numbers about it."""

    total: Tensor
    stats: dict[str, Tensor]


def score_function_loss(out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
    """The policy gradient (Williams 1992), the critic's squared error and an entropy bonus, to minimise."""
    policy = policy_gradient(log_prob, mini.advantage)
    value = value_loss(out.value, mini.target)
    bonus = entropy.mean()
    total = policy + mini.critic_coef * value - mini.entropy_coef * bonus
    return Loss(total, {"loss/policy": policy, "loss/value": value, "policy/entropy": bonus})


H = TypeVar("H", bound=Hyper, covariant=True)


class PolicyGradient(Generic[H]):
    """A policy, its optimiser and its running statistics.

    The parameters are one flat vector, so the optimiser's step and the gradient's norm are single operations;
    updates of light networks are captured once and replayed (see `evorl.nets.capture`).
    """

    lesson: ClassVar[type] = Batch

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        self._hyper, self.spec, self.seed, self.device = hyper, spec, seed, device
        self.policy = Policy(spec, hyper.net)
        if hyper.compile and not self.policy.light:
            raise BadRequest("is for networks without an LSTM and without images, whose steps are short", "rl.compile")
        self.policy.initialise(torch.Generator().manual_seed(seeds.key(seed, "weights") >> 1))
        self.layout = Layout.of(self.policy)
        self.theta = self.layout.flatten(dict(self.policy.named_parameters())).to(device)
        self.policy.to(device)
        self.lr, self.entropy_coef, self.critic_coef = torch.zeros(3, device=device)  # the first two as scheduled
        self.critic_coef.fill_(hyper.critic_coef)
        self.adam = {
            "m": torch.zeros_like(self.theta),
            "v": torch.zeros_like(self.theta),
            "t": torch.zeros_like(self.lr),
        }
        self.gamma = hyper.per_reward("gamma", spec.rewards)
        self.lam = hyper.per_reward("lam", spec.rewards)
        self.moments = Moments.of(spec.inputs, hyper.normalize_inputs)
        self.reward_scale = ReturnScale(self.gamma) if hyper.normalize_rewards else None
        self._records, self._lessons = Records(), Records(compiled if hyper.compile else capture)

    @property
    def hyper(self) -> H:
        """For life: the records of updates hold its numbers."""
        return self._hyper

    # -------------------------------------------------------------- acting

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
        given = [*inputs, noise]
        given += [x for x in (legal, carry, start) if x is not None]
        if self.device.type != "cpu":
            given = [x.to(self.device, non_blocking=True) for x in given]
        arguments = (self.theta, *self._statistics(), *given)
        with torch.inference_mode():
            out = [x.cpu() for x in self._records.replay(self._act, *arguments)]
        return Decision(out[0], out[1], out[2], out[3], out[4] if carry is not None else None)

    def _act(self, theta: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        own, count = 0 if self.moments is None else self.moments.count_tensors, len(self.spec.inputs)
        statistics, given = given[:own], given[own:]
        inputs, noise, rest = given[:count], given[count], list(given[count + 1 :])
        legal = rest.pop(0) if self.spec.masked else None
        carry, start = rest if rest else (None, None)
        with torch.no_grad():
            if carry is not None and start is not None:
                out = self.forward(theta, statistics, tuple(x[None] for x in inputs), carry, start[None])
                out = Output(out.raw[0], out.log_std, out.value[0], out.carry)
            else:
                out = self.forward(theta, statistics, inputs)
            space = self.spec.action
            action = sample(space, out.raw, out.log_std, legal, noise)
            log_prob, _ = log_prob_entropy(space, out.raw, out.log_std, legal, action)
            result = (action, to_world(space, action), log_prob, out.value)
        return result if out.carry is None else (*result, out.carry)

    def forward(
        self,
        theta: Tensor,
        statistics: tuple[Tensor, ...],
        inputs: tuple[Tensor, ...],
        carry: Tensor | None = None,
        start: Tensor | None = None,
    ) -> Output:
        """The policy's outputs as a function of its flat parameters."""
        if self.moments is not None:
            inputs = self.moments.normalize(statistics, inputs)
        return self._network(theta, inputs, carry, start)

    def _network(self, theta: Tensor, inputs: tuple[Tensor, ...], carry: Tensor | None, start: Tensor | None) -> Output:
        """`forward` of inputs that are normalised already."""
        out: Output = functional_call(self.policy, self.layout.unflatten(theta), (inputs, carry, start))
        return out

    def _statistics(self) -> tuple[Tensor, ...]:
        return () if self.moments is None else self.moments.tensors(self.device)

    def weights(self) -> list[Tensor]:
        return [self.theta, *self._statistics()]

    def load_weights(self, weights: list[Tensor]) -> None:
        self.theta.copy_(weights[0])
        if self.moments is not None:
            self.moments.load_tensors(self.device, tuple(x.to(self.device, copy=True) for x in weights[1:]))

    def digest(self, batch: Batch, step: int) -> Any:
        return batch

    # -------------------------------------------------------------- learning

    @abstractmethod
    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        """The algorithm's loss on a minibatch, from the present policy's log-probabilities and entropy."""

    def update(self, batch: Batch, step: int, iteration: int) -> Learned:
        rate = scheduled(self.hyper.lr, step)
        self.lr.fill_(rate)
        self.entropy_coef.fill_(scheduled(self.hyper.entropy_coef, step))
        reward = batch.reward if self.reward_scale is None else self.reward_scale(batch.reward, batch.start[:-1])
        log_prob, value, advantage, target = self._estimate(batch, reward)
        data = (batch.action, log_prob, value, self.weight(advantage, target).sum(-1), target)
        learned = self.descend(batch, data, iteration)
        learned.metrics["optimizer/lr"] = rate
        learned.metrics["value/explained_variance"] = float(explained_variance(value, target))
        if self.moments is not None:
            self.moments.update(tuple(x[:-1] for x in batch.inputs))
        return learned

    def _estimate(self, batch: Batch, reward: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-probabilities [T, B] of the policy to move away from, then values, advantages and targets [T, B, R].

        One advantage and one target per named reward; the policy follows their sum.
        """
        if self.hyper.correction == "none":
            value = batch.value[:-1]
            advantage = gae(reward, value, batch.next_value, batch.done, self.gamma, self.lam)
            return batch.log_prob, value, advantage, advantage + value
        log_prob, values = self._reconsider(batch)
        following = torch.where(batch.done.unsqueeze(-1), batch.final_value, values[1:])
        log_ratio, value = log_prob - batch.log_prob, values[:-1]
        target, advantage = vtrace(log_ratio, reward, value, following, batch.done, self.gamma, lam=self.lam)
        return log_prob, value, advantage, target

    @torch.no_grad()
    def _reconsider(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What the present policy and critic say of a batch: log-probabilities [T, B] and values [T+1, B, R]."""
        rest = () if batch.carry is None else (batch.carry.to(self.device), batch.start.to(self.device))
        inputs = tuple(x.to(self.device) for x in batch.inputs)
        out = self.forward(self.theta, self._statistics(), inputs, *rest)
        legal = None if batch.legal is None else batch.legal[:-1].to(self.device)
        action = batch.action.to(self.device)
        log_prob, _ = log_prob_entropy(self.spec.action, out.raw[:-1], out.log_std, legal, action)
        return log_prob.cpu(), out.value.cpu()

    def descend(self, batch: Batch, data: tuple[Tensor, ...], iteration: int) -> Learned:
        """Gradient steps over shuffled minibatches; stops before a pass once the last one's KL exceeds its target."""
        columns = self._columns(batch, data)
        total = torch.zeros(0)
        steps = 0
        for number in range(self.passes()):
            stats = [self._step(rows, columns) for rows in self._shuffled(batch, iteration, number)]
            names = tuple(stats[0])
            now = torch.stack([x for one in stats for x in one.values()]).unflatten(0, (len(stats), len(names)))
            if not torch.isfinite(now).all():
                _refuse(names, now, number)
            total = now.sum(0) if steps == 0 else total + now.sum(0)
            steps += len(stats)
            if self._far(dict(zip(names, now.mean(0).tolist(), strict=True))):
                break
        return Learned(steps, dict(zip(names, (total / steps).tolist(), strict=True)))

    def weight(self, advantage: Tensor, target: Tensor) -> Tensor:
        """What multiplies the score function of each named reward, [T, B, R]."""
        return advantage

    def _far(self, stats: Metrics) -> bool:
        """Whether the policy has moved so far from the one that acted that this batch is used up."""
        return False

    def passes(self) -> int:
        """Times a batch is learned from."""
        return 1

    def minibatch(self, decisions: int) -> int:
        """Decisions in each gradient step, given those of the batch."""
        return decisions

    def _columns(self, batch: Batch, data: tuple[Tensor, ...]) -> list[Tensor]:
        """All that a gradient step reads, inputs normalised: rows [T*B, ...], or [T, B, ...] for a recurrent policy."""
        horizon, slots = batch.done.shape
        inputs = tuple(x[:-1].to(self.device) for x in batch.inputs)
        if self.moments is not None:
            inputs = self.moments.normalize(self._statistics(), inputs)
        columns = [*inputs, *data]
        if batch.legal is not None:
            columns.append(batch.legal[:-1])
        if batch.carry is not None:
            return [x.to(self.device) for x in (*columns, batch.start[:-1], batch.carry)]
        return [x.reshape(horizon * slots, *x.shape[2:]).to(self.device) for x in columns]

    def _shuffled(self, batch: Batch, iteration: int, number: int) -> Sequence[Tensor]:
        """Row numbers of each minibatch of a pass: decisions, or whole slots for a recurrent policy.

        The pass is cut as evenly as possible, so that no step follows a small remainder.
        """
        horizon, slots = batch.done.shape
        size = self.minibatch(horizon * slots)
        rows, size = (slots, max(1, size // horizon)) if batch.carry is not None else (horizon * slots, size)
        order = seeds.generator(self.seed, "shuffle", iteration, number).permutation(rows)
        return torch.from_numpy(order).to(self.device).tensor_split(math.ceil(rows / size))

    def _step(self, rows: Tensor, columns: list[Tensor]) -> dict[str, Tensor]:
        """One gradient step on these rows; returns the numbers about it."""
        arguments = (self.theta, *self.adam.values(), self.lr, self.entropy_coef, self.critic_coef, rows, *columns)
        if not self.policy.light:  # unrolled through time a trace takes longer to capture than to run
            return self._improve(*arguments)
        return self._lessons.replay(self._improve, *arguments)

    def _improve(self, theta: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor, *given: Tensor) -> dict[str, Tensor]:
        """One optimiser step, in place; returns the numbers about it."""
        gradient, stats = self._gradient(theta, *given)
        return {**stats, "optimizer/grad_norm": self._follow(gradient, theta, m, v, t, lr)}

    def _follow(self, gradient: Tensor, theta: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor) -> Tensor:
        """A step of Adam along the clipped gradient, in place; returns the gradient's norm before clipping."""
        norm: Tensor = gradient.norm()
        gradient = gradient * (self.hyper.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        adam(theta, gradient, m, v, t, lr, self.hyper.adam_epsilon)
        return norm

    def _gradient(
        self, theta: Tensor, entropy_coef: Tensor, critic_coef: Tensor, rows: Tensor, *given: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The gradient [D] of the loss on some rows, and named numbers about the loss."""
        columns, count = list(given), len(self.spec.inputs)
        carry = start = None
        if self.policy.core is not None:
            *columns, carry = columns
            carry = carry.index_select(1, rows)
            columns = [x.index_select(1, rows) for x in columns]
            *columns, start = columns
        else:
            columns = [x.index_select(0, rows) for x in columns]
        action, log_prob_old, value_old, advantage, target = columns[count : count + 5]
        mini = Minibatch(action, log_prob_old, value_old, advantage, target, entropy_coef, critic_coef)
        if self.hyper.normalize_advantage:
            mini = mini._replace(advantage=normalize(mini.advantage))
        legal = columns[-1] if self.spec.masked else None
        theta = theta.detach().requires_grad_()
        out = self._network(theta, tuple(columns[:count]), carry, start)
        log_prob, entropy = log_prob_entropy(self.spec.action, out.raw, out.log_std, legal, mini.action)
        total, stats = self.loss(out, log_prob, entropy, mini)
        (gradient,) = torch.autograd.grad(total, theta)
        return gradient, {name: x.detach() for name, x in ({**stats, "loss/total": total}).items()}

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        return {
            "policy": {k: v.cpu().clone() for k, v in self.layout.unflatten(self.theta).items()},
            "optimizer": {k: v.cpu().clone() for k, v in self.adam.items()},
            "moments": None if self.moments is None else self.moments.state_dict(),
            "reward_scale": None if self.reward_scale is None else self.reward_scale.state_dict(),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.load_policy(state)
        for name, x in self.adam.items():
            x.copy_(torch.as_tensor(state["optimizer"][name]))
        if self.reward_scale is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])

    def load_policy(self, state: StateDict) -> None:
        """The weights and input statistics alone, as another run left them. Raises ValueError where they do not fit."""
        theta = self.layout.flatten({k: torch.as_tensor(v) for k, v in state["policy"].items()})
        if (self.moments is None) != (state["moments"] is None):
            raise ValueError(f"the weights were trained with{'out' * (state['moments'] is None)} normalize_inputs")
        if self.moments is not None:
            self.moments.load_state_dict(state["moments"])
        self.theta.copy_(theta)


def _refuse(names: tuple[str, ...], stats: Tensor, number: int) -> None:
    for row, numbers in enumerate(stats.tolist()):
        for name, x in zip(names, numbers, strict=True):
            if not -float("inf") < x < float("inf"):
                raise NotFinite(f"{name} is {x} in gradient step {row} of pass {number}")
