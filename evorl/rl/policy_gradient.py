"""The base of REINFORCE, A2C, A3C and PPO: advantages, targets, minibatches and passes.

The file of an algorithm defines its loss and the number of passes. Acting, captured updates, the optimiser and the
state are in `evorl.rl.network_learner`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from evorl.mdp.core import Spec, StateDict
from evorl.nets.distributions import log_prob_entropy
from evorl.nets.per_side import PolicyPerSide
from evorl.nets.policy import Output
from evorl.nets.statistics import ReturnScale
from evorl.nets.trees import mapped
from evorl.ops.losses import explained_variance, normalize, normalize_within, policy_gradient, value_loss
from evorl.ops.returns import gae, vtrace
from evorl.rl.batch import PolicyGradientBatch
from evorl.rl.core import Hyper, Learned, Metrics, NotFinite
from evorl.rl.data_parallel import GradientStep, Split
from evorl.rl.network_learner import Network, NetworkLearner
from evorl.util import seed as seeds
from evorl.util.errors import BadRequest
from evorl.util.heartbeat import heartbeat
from evorl.util.schedule import Schedule, scheduled_fields
from evorl.util.schedule import value as scheduled
from evorl.util.types import Fraction, NonNegative


@dataclass(frozen=True, kw_only=True)
class PolicyGradientHyper(Hyper):
    """Hyper-parameters of every policy-gradient learner."""

    parallel: ClassVar[bool] = True
    per_side: ClassVar[bool] = True

    lam: Fraction | dict[str, Fraction] = 0.95
    """GAE's lambda; one number, or one for each named reward."""
    critic_coef: NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: Schedule = 0.0
    """Weight of the entropy bonus; or a schedule like that of the learning rate."""
    normalize_advantage: bool = True
    """Shift and scale advantages to mean 0 and deviation 1, per gradient step."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return."""
    correction: Literal["none", "vtrace"] = "none"
    """Correct targets and advantages for the policy's change since it acted, by V-trace with ``lam`` as its lambda."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asynchronous and self.normalize_rewards and self.members > 1:
            raise BadRequest(
                "asynchronous batches come from any of several members, whose returns would mix; "
                "scale rewards in the world, or take one member",
                "normalize_rewards",
            )

    def storage(self, spec: Spec, slots: int) -> PolicyGradientBatch:
        return PolicyGradientBatch.empty(spec, self.horizon, slots, self.net.lstm)


class Minibatch(NamedTuple):
    """Rows to learn from: [N, ...], or [T, N, ...] if recurrent. "Old" values are of the policy that acted."""

    action: Tensor  # [..., K]
    log_prob: Tensor  # old
    value: Tensor  # [..., R], old
    advantage: Tensor
    target: Tensor  # [..., R]
    entropy_coef: Tensor  # []: weight of the entropy bonus at this step
    critic_coef: Tensor  # []: weight of the value error
    scheduled: Mapping[str, Tensor] = MappingProxyType({})  # each []: own keys of type `Schedule`, at this step


class Coefficients(NamedTuple):
    """Numbers that a loss reads, each []."""

    entropy: Tensor  # follows its schedule
    critic: Tensor
    own: tuple[Tensor, ...] = ()  # an algorithm's own keys that follow schedules


class Columns(NamedTuple):
    """What gradient steps read of a batch: each [T*B, ...], or [T, B, ...] if recurrent."""

    inputs: tuple[Tensor, ...]  # normalised
    action: Tensor
    log_prob: Tensor  # of the policy that acted, as the value
    value: Tensor
    advantage: Tensor  # summed over the named rewards
    target: Tensor
    legal: Tensor | None = None
    start: Tensor | None = None
    carry: Tensor | None = None  # [2, B, H]


class Loss(NamedTuple):
    """A loss to minimise, with named statistics of it."""

    total: Tensor
    stats: dict[str, Tensor]


def score_function_loss(out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
    """The policy gradient (Williams 1992), the critic's squared error and an entropy bonus, to minimise."""
    policy = policy_gradient(log_prob, mini.advantage)
    value = value_loss(out.value, mini.target)
    bonus = entropy.mean()
    total = policy + mini.critic_coef * value - mini.entropy_coef * bonus
    return Loss(total, {"loss/policy": policy, "loss/value": value, "policy/entropy": bonus})


H = TypeVar("H", bound=PolicyGradientHyper, covariant=True)


class PolicyGradient(NetworkLearner[H]):
    """A learner that follows the gradient of its policy's return: advantages, minibatches, passes."""

    update_input: ClassVar[type] = PolicyGradientBatch

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        super().__init__(hyper, spec, seed, device)
        shared = scheduled_fields(PolicyGradientHyper)
        self.own_schedules = tuple(name for name in scheduled_fields(type(hyper)) if name not in shared)
        entropy, critic, *own = torch.zeros(2 + len(self.own_schedules), device=device)
        self.coefficients = Coefficients(entropy, critic.fill_(hyper.critic_coef), tuple(own))
        self.lam = hyper.per_reward("lam", spec.rewards)
        self.reward_scale = ReturnScale(self.gamma) if hyper.normalize_rewards else None
        fewest, what = self._fewest_rows()
        if fewest < hyper.learners:
            raise BadRequest(
                f"the smallest minibatch has {fewest} {what}, one for each of at most so many", "rl.learners"
            )

    def check_minibatches(self) -> None:
        """Raise `BadRequest` if a minibatch of one decision would have a normalised advantage, which is 0."""
        fewest, _ = self._fewest_rows()
        if self.hyper.normalize_advantage and fewest * (1 if self.policy.core is None else self.hyper.horizon) == 1:
            raise BadRequest(
                "the smallest minibatch has one decision, whose normalised advantage is 0: nothing is learned from it",
                "rl.normalize_advantage",
            )

    # -------------------------------------------------------------- learning

    @abstractmethod
    def loss(self, out: Output, log_prob: Tensor, entropy: Tensor, mini: Minibatch) -> Loss:
        """The algorithm's loss on a minibatch, from the present policy's log-probabilities and entropy.

        It is recorded at the first gradient step and replayed without Python, so all numbers but tensors stay as they
        were: a key that changes with the steps is a `Schedule`, which ``mini.scheduled`` has.
        """

    def update(self, batch: PolicyGradientBatch, step: int, iteration: int) -> Learned:
        rate = scheduled(self.hyper.lr, step)
        self.lr.fill_(rate)
        self.follow_schedules(step)
        reward = batch.reward if self.reward_scale is None else self.reward_scale(batch.reward, batch.start[:-1])
        log_prob, value, advantage, target = self._advantages_and_targets(batch, reward)
        weight = self.weight(advantage, target).sum(-1)
        learned = self.descend(batch, self._columns(batch, log_prob, value, weight, target), iteration)
        learned.metrics["optimizer/lr"] = rate
        learned.metrics["value/explained_variance"] = float(explained_variance(value, target))
        if self.moments is not None:
            self.moments.update(tuple(x[:-1] for x in batch.inputs))
        return learned

    def follow_schedules(self, step: int) -> None:
        """Set the numbers that the loss reads to those after so many environment steps."""
        self.coefficients.entropy.fill_(scheduled(self.hyper.entropy_coef, step))
        for name, number in zip(self.own_schedules, self.coefficients.own, strict=True):
            number.fill_(scheduled(getattr(self.hyper, name), step))

    def _advantages_and_targets(
        self, batch: PolicyGradientBatch, reward: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return old log-probabilities [T, B], and values, advantages and targets [T, B, R].

        One advantage and one target per named reward; the policy follows their sum.
        """
        if self.hyper.correction == "none":
            value = batch.value[:-1]
            advantage = gae(reward, value, batch.next_value, batch.done, self.gamma, self.lam)
            return batch.log_prob, value, advantage, advantage + value
        log_prob, values = self._reevaluate(batch)
        following = torch.where(batch.done.unsqueeze(-1), batch.final_value, values[1:])
        log_ratio, value = log_prob - batch.log_prob, values[:-1]
        target, advantage = vtrace(log_ratio, reward, value, following, batch.done, self.gamma, lam=self.lam)
        return log_prob, value, advantage, target

    @torch.no_grad()
    def _reevaluate(self, batch: PolicyGradientBatch) -> tuple[Tensor, Tensor]:
        """Recompute a batch with the current network: log-probabilities [T, B] and values [T+1, B, R]."""
        rest = () if batch.carry is None else (batch.carry.to(self.device), batch.start.to(self.device))
        inputs = tuple(x.to(self.device) for x in batch.inputs)
        out = self.forward(self.theta, self._statistics(), inputs, *rest)
        legal = None if batch.legal is None else batch.legal[:-1].to(self.device)
        action = batch.action.to(self.device)
        log_prob, _ = log_prob_entropy(self.spec.action, out.raw[:-1], out.log_std, legal, action)
        return log_prob.cpu(), out.value.cpu()

    def descend(self, batch: PolicyGradientBatch, columns: Columns, iteration: int) -> Learned:
        """Gradient steps over shuffled minibatches; stops before a pass once the last one's KL exceeds its target."""
        total = torch.zeros(0)
        steps = 0
        for number in range(self.passes()):
            heartbeat()
            stats = [self._step(rows, columns) for rows in self._shuffled(batch, iteration, number)]
            names = tuple(stats[0])
            numbers = torch.stack([x for step in stats for x in step.values()]).unflatten(0, (len(stats), len(names)))
            if not torch.isfinite(numbers).all():
                _raise_not_finite(names, numbers, number)
            total = numbers.sum(0) if steps == 0 else total + numbers.sum(0)
            steps += len(stats)
            if self._moved_too_far(dict(zip(names, numbers.mean(0).tolist(), strict=True))):
                break
        return Learned(steps, dict(zip(names, (total / steps).tolist(), strict=True)))

    def weight(self, advantage: Tensor, target: Tensor) -> Tensor:
        """Return the factor of the score function for each named reward, [T, B, R]."""
        return advantage

    def _moved_too_far(self, stats: Metrics) -> bool:
        """Return whether the policy is too far from the one that acted to go on with this batch."""
        return False

    def passes(self) -> int:
        """Number of passes over a batch."""
        return 1

    def minibatch(self, decisions: int) -> int:
        """Return the number of decisions in a gradient step, given the number in the batch."""
        return decisions

    def _columns(
        self, batch: PolicyGradientBatch, log_prob: Tensor, value: Tensor, advantage: Tensor, target: Tensor
    ) -> Columns:
        """The columns of a batch, with these values of its decisions."""
        horizon, slots = batch.done.shape
        inputs = self.normalized(self._statistics(), tuple(x[:-1].to(self.device) for x in batch.inputs))
        legal = None if batch.legal is None else batch.legal[:-1]
        columns = Columns(inputs, batch.action, log_prob, value, advantage, target, legal)
        if batch.carry is not None:
            columns = columns._replace(start=batch.start[:-1], carry=batch.carry)
            return mapped(lambda x: x.to(self.device), columns)
        return mapped(lambda x: x.reshape(horizon * slots, *x.shape[2:]).to(self.device), columns)

    def _shuffled(self, batch: PolicyGradientBatch, iteration: int, number: int) -> Sequence[Tensor]:
        """Return the row numbers of each minibatch of a pass: decisions, or whole slots for a recurrent policy.

        The pass is cut as evenly as possible, so that no step follows a small remainder.
        """
        rows, steps = self._rows_and_steps(*batch.done.shape)
        order = seeds.generator(self.seed, "shuffle", iteration, number).permutation(rows)
        return torch.from_numpy(order).to(self.device).tensor_split(steps)

    def _rows_and_steps(self, horizon: int, slots: int) -> tuple[int, int]:
        """The number of rows that a pass shuffles, and of its gradient steps."""
        size = self.minibatch(horizon * slots)
        rows, size = (slots, max(1, size // horizon)) if self.policy.core is not None else (horizon * slots, size)
        return rows, math.ceil(rows / size)

    def _fewest_rows(self) -> tuple[int, str]:
        """The number of rows of the smallest minibatch, and what they are."""
        h = self.hyper
        rows, steps = self._rows_and_steps(h.horizon, h.slots if h.asynchronous else h.members * h.slots)
        return rows // steps, "decisions" if self.policy.core is None else "slots (whole ones, as rl.net.lstm needs)"

    @property
    def _axis(self) -> int:
        """That of the rows in columns."""
        return 0 if self.policy.core is None else 1

    def steps(self) -> tuple[GradientStep, ...]:
        return (self._optimise,)

    def _step(self, rows: Tensor, columns: Columns) -> dict[str, Tensor]:
        """Take one gradient step on these rows; return its statistics."""
        own = (self.network, self.lr, self.coefficients)
        if self.collective is None:
            return self._take_step(self._optimise, *own, rows, columns)
        columns = mapped(lambda x: x.index_select(self._axis, rows), columns)
        if self.hyper.normalize_advantage:  # here, where all of the minibatch is
            columns = columns._replace(advantage=self._normalized_advantage(columns.advantage, columns.inputs))
        return self._take_step(self._optimise, *own, rows[:0], Split(columns, self._axis))

    def _optimise(
        self, network: Network, lr: Tensor, coefficients: Coefficients, rows: Tensor, columns: Columns
    ) -> dict[str, Tensor]:
        """Take one optimiser step, in place; return its statistics."""
        gradient, stats = self._gradient(network.theta, coefficients, rows, columns)
        return {**stats, "optimizer/grad_norm": self._apply_gradient(gradient, *network, lr)}

    def _gradient(
        self, theta: Tensor, coefficients: Coefficients, rows: Tensor, columns: Columns
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the gradient [D] of the loss on some rows, or on all if none are given, and statistics of the loss."""
        if len(rows):
            columns = mapped(lambda x: x.index_select(self._axis, rows), columns)
        if self.hyper.normalize_advantage and self.collective is None:
            columns = columns._replace(advantage=self._normalized_advantage(columns.advantage, columns.inputs))
        mini = Minibatch(
            action=columns.action, log_prob=columns.log_prob, value=columns.value, advantage=columns.advantage,
            target=columns.target, entropy_coef=coefficients.entropy, critic_coef=coefficients.critic,
            scheduled=dict(zip(self.own_schedules, coefficients.own, strict=True)),
        )  # fmt: skip
        theta = theta.detach().requires_grad_()
        out = self._outputs(theta, columns.inputs, columns.carry, columns.start)
        log_prob, entropy = log_prob_entropy(self.spec.action, out.raw, out.log_std, columns.legal, columns.action)
        total, stats = self.loss(out, log_prob, entropy, mini)
        (gradient,) = torch.autograd.grad(total, theta)
        return gradient, {name: x.detach() for name, x in ({**stats, "loss/total": total}).items()}

    def _normalized_advantage(self, advantage: Tensor, inputs: tuple[Tensor, ...]) -> Tensor:
        """Mean 0 and deviation 1 over a minibatch, or over the rows of each network in it."""
        if not isinstance(self.policy, PolicyPerSide):
            return normalize(advantage)
        for mask in self.policy.who.masks(inputs):
            advantage = torch.where(mask, normalize_within(advantage, mask), advantage)
        return advantage

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        scale = None if self.reward_scale is None else self.reward_scale.state_dict()
        return {**super().state_dict(), "reward_scale": scale}

    def load_state_dict(self, state: StateDict) -> None:
        super().load_state_dict(state)
        if self.reward_scale is not None:
            self.reward_scale.load_state_dict(state["reward_scale"])


def _raise_not_finite(names: tuple[str, ...], stats: Tensor, number: int) -> None:
    for row, numbers in enumerate(stats.tolist()):
        for name, x in zip(names, numbers, strict=True):
            if not -float("inf") < x < float("inf"):
                raise NotFinite(f"{name} is {x} in gradient step {row} of pass {number}")
