"""What learners with a replay of rollouts share: batches in, minibatches out, features of the present network.

`Learner.update` splits the new batch into rollouts, one of each slot, and puts them into the replay. Then it takes the
gradient steps that are due. So such a learner runs in every loop that a policy gradient runs in. The file of an
algorithm gives its loss.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from evorl.mdp.core import Spec, StateDict
from evorl.nets.distributions import log_prob_entropy, parameters
from evorl.nets.policy import Output, Policy
from evorl.ops.losses import approximate_kl
from evorl.replay.memory import check_memory, uncompressed
from evorl.replay.mixture import Minibatch, Mixture, Shares, slices
from evorl.replay.packed import check_compressible
from evorl.replay.rollouts import Array, Columns, Numbers
from evorl.replay.samplers.registry import KINDS, RolloutSamplers, Sampling, in_shares
from evorl.replay.stacks import put_together, take_apart
from evorl.rl.batch import RolloutBatch
from evorl.rl.core import Learned, Metrics
from evorl.rl.data_parallel import GradientStep, Split
from evorl.rl.network_learner import Network
from evorl.rl.optimizer import OptimizerHyper, OptimizerLearner
from evorl.util import seed as seeds
from evorl.util.schedule import Schedule
from evorl.util.schedule import value as scheduled
from evorl.util.types import Count, Fraction, Natural, NonNegative


@dataclass(frozen=True, kw_only=True)
class RolloutHyper(OptimizerHyper):
    """Hyper-parameters of every learner with a replay of rollouts."""

    parallel: ClassVar[bool] = True

    horizon: Count = 20
    lr: Schedule = 1e-3
    asynchronous: bool = True
    batch: Count = 32
    """Rollouts in a gradient step."""
    fill_in: Natural = 64
    """Rollouts before the first gradient step."""
    lam: Fraction | dict[str, Fraction] = 1.0
    """Lambda of the value targets; one number, or one for each named reward."""
    critic_coef: NonNegative = 0.5
    """Weight of the value loss."""
    entropy_coef: Schedule = 0.01
    """Weight of the entropy bonus; or a schedule like that of the learning rate."""
    reduction: Literal["mean", "sum"] = "mean"
    """Losses are averaged, or summed, over the decisions of a minibatch."""
    projection: Natural = 0
    """Width of a fixed random projection of feature vectors; 0: they are the policy's last hidden layer itself."""
    sampling: Sampling = field(default_factory=lambda: in_shares(queue=0.5, uniform=0.5))
    """Share of each sampler in a minibatch, which sum to 1; or a name: the only sampler (docs/samplers.md)."""
    replay: RolloutSamplers = field(default_factory=RolloutSamplers)
    """Options of the samplers."""
    compress: bool = False
    """Keep observations in bytes compressed by LZ4; needs the extra lz4."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.mix.check(self.batch, self._fragment, self.learners)

    @property
    def mix(self) -> Shares:
        """The samplers that are used."""
        return Shares(self.sampling, self.replay)

    def imports(self) -> tuple[str, ...]:
        return (*super().imports(), *map(KINDS.root_of, self.mix.shares))

    @property
    def _fragment(self) -> int:
        """Rollouts that arrive at once, at most."""
        return self.members * self.slots

    def storage(self, spec: Spec, slots: int) -> RolloutBatch:
        return RolloutBatch.empty(spec, self.horizon, slots, self.net.lstm, self._features(spec))

    def check_memory(self, spec: Spec, steps: int, copies: int = 1) -> None:
        kept = uncompressed(spec, self.compress)
        like = take_apart(rollouts(self.storage(kept, 1)), kept.inputs)
        sizes = {name: x.nbytes for name, x in like.items()}
        plain = sum(sizes.values()) - sizes.get("features", 0)
        for name, keys in self.mix.keys.items():
            held = min(keys.capacity or self._fragment + self.batch, steps // self.horizon + self._fragment)
            needed = held * (sum(sizes.values()) if KINDS.kind_of(name).compares else plain)
            check_memory(needed, spec, f"rl.replay.{name}.capacity", f"{held} rollouts", copies=copies)

    def _features(self, spec: Spec) -> int:
        """Numbers of a feature vector; 0 where no sampler compares any."""
        if not self.mix.compare:
            return 0
        last = self.net.hidden[-1:] or (self.net.lstm or self.net.encoders(spec.inputs).width,)
        return self.projection or last[0]


class Coefficients(NamedTuple):
    """Numbers that a loss reads, the same for the whole minibatch."""

    entropy: Tensor  # [] its weight, which follows its schedule
    critic: Tensor  # [] the weight of the value error
    gamma: Tensor  # [R]
    lam: Tensor  # [R]


class LossInputs(NamedTuple):
    """What a loss reads beside the parameters."""

    coefficients: Coefficients
    statistics: tuple[Tensor, ...]  # of the inputs
    columns: dict[str, Tensor]  # fields of `RolloutBatch`, each [T, N, ...]
    weight: Tensor | None  # [N] of the rollouts, with a sampler that weighs
    theta_target: Tensor | None  # [D] the learner's target network, if it has one


class Decided(NamedTuple):
    """The decisions of a minibatch, as a network sees them."""

    policy: Tensor  # [T, N, P] its `parameters`
    log_prob: Tensor  # [T, N]
    entropy: Tensor  # [T, N]
    value: Tensor  # [T+1, N, R]
    legal: Tensor | None


H = TypeVar("H", bound=RolloutHyper, covariant=True)


class RolloutLearner(OptimizerLearner[H]):
    """A policy with a critic that learns from a replay of whole rollouts."""

    update_input: ClassVar[type] = RolloutBatch
    policy: Policy
    theta_target: Tensor | None = None

    def __init__(self, hyper: H, spec: Spec, seed: int, device: torch.device) -> None:
        self.mix = hyper.mix
        super().__init__(hyper, spec, seed, device)
        if hyper.compress:
            check_compressible(spec)
        self.gamma, lam = self.gamma.to(device), hyper.per_reward("lam", spec.rewards).to(device)
        entropy, critic = torch.zeros(2, device=device)
        self.coefficients = Coefficients(entropy, critic.fill_(hyper.critic_coef), self.gamma, lam)
        self.gradient_steps = 0
        self.encoding = self.prefetch_seconds = self.prefetch_wait = 0.0  # seconds in an update
        self.prefetching: Future[float] | None = None
        width = self.policy.policy.in_features
        # of no seed: the features in a replay that another run hands on must stay comparable
        drawn = seeds.generator("projection").standard_normal((width, hyper.projection), np.float32)
        self.projection = torch.from_numpy(drawn / width**0.5).to(device) if hyper.projection else None

    @cached_property
    def _actor(self) -> Policy:
        """The policy without its critic; it has no weights of its own."""
        with torch.device("meta"):
            return Policy(self.spec, self.hyper.net, critic=False)

    @cached_property
    def replay(self) -> Mixture:
        """Made when it is first needed: learners that only act have none."""
        h, like = self.hyper, take_apart(rollouts(self.hyper.storage(self.spec, 1)), self.spec.inputs)
        return Mixture(self.mix, h.batch, h._fragment, h.fill_in, like, self.seed, h.compress)

    # -------------------------------------------------------------- acting

    def _described(self, out: Output) -> tuple[Tensor, ...]:
        policy = parameters(self.spec.action, out.raw, out.log_std)
        return (policy, self._project(out.features)) if self.mix.compare else (policy,)

    def _project(self, features: Tensor) -> Tensor:
        return features if self.projection is None else features @ self.projection

    def encode(self, columns: Columns) -> Array:
        """Return the present network's features [N, T, F] of the states of N rollouts in which a decision was made."""
        began = time.monotonic()
        features = self._encode(self.theta, self._statistics(), columns)
        self.encoding += time.monotonic() - began
        return features

    @torch.no_grad()
    def _encode(self, theta: Tensor, statistics: tuple[Tensor, ...], columns: Columns) -> Array:
        """The features by parameters [D]. The critic has no part in them: with hidden layers of its own half of the
        forward pass is left out."""
        columns = put_together(columns, self.spec.inputs)
        names = [name for name in columns if name.startswith("input") or name in ("carry", "start")]
        tensors = {name: torch.from_numpy(columns[name]).to(self.device).transpose(0, 1) for name in names}
        inputs = tuple(tensors[f"input {i}"][:-1] for i in range(len(self.spec.inputs)))
        rest = (tensors["carry"], tensors["start"][:-1]) if "carry" in tensors else ()
        if self.moments is not None:
            inputs = self.moments.normalize(statistics, inputs)
        weights = self.layout.unflatten(theta)
        # of stacked hidden layers the actor's are the first
        own = {name: weights[name][: len(x)] for name, x in self._actor.named_parameters()}
        out: Output = functional_call(self._actor, own, (inputs, *rest))
        features: Array = self._project(out.features).transpose(0, 1).cpu().numpy()
        return features

    # -------------------------------------------------------------- prefetching

    @cached_property
    def _second_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(self.hyper.threads,))

    def _prefetch(self) -> None:
        """Begin in a second thread what the next minibatch needs, by the present weights."""
        theta, statistics = self.theta.clone(), tuple(x.clone() for x in self._statistics())
        encode, step = partial(self._encode, theta, statistics), self.gradient_steps + 1

        def prefetch() -> float:
            began = time.monotonic()
            self.replay.prefetch(step, encode)
            return time.monotonic() - began

        self.prefetching = self._second_thread.submit(prefetch)

    def _prefetched(self) -> None:
        """Wait for the second thread. So what it does is a function of the steps, and not of time."""
        if self.prefetching is not None:
            began, prefetching, self.prefetching = time.monotonic(), self.prefetching, None
            self.prefetch_seconds += prefetching.result()
            self.prefetch_wait += time.monotonic() - began

    # -------------------------------------------------------------- learning

    def update(self, batch: RolloutBatch, step: int, iteration: int) -> Learned:
        rate = scheduled(self.hyper.lr, step)
        self.encoding = self.prefetch_seconds = self.prefetch_wait = 0.0
        self.lr.fill_(rate)
        self.coefficients.entropy.fill_(scheduled(self.hyper.entropy_coef, step))
        if self.moments is not None:
            self.moments.update(tuple(x[:-1] for x in batch.inputs))
        self._prefetched()
        self.replay.insert(take_apart(rollouts(batch), self.spec.inputs), self.gradient_steps, self.encode)
        self.replay.advance(step)
        statistics: dict[str, list[Tensor]] = {}
        ages: Metrics = {}
        began = self.gradient_steps
        while self.replay.due():
            self._prefetched()
            minibatch = self.replay.sample(self.gradient_steps, self.encode)
            if self.replay.prefetches(self.gradient_steps + 1):
                self._prefetch()
            for name, x in self._learn(minibatch).items():
                statistics.setdefault(name, []).append(x)
            ages = {f"replay/age_{name}": age for name, age in minibatch.ages.items()}
            self.gradient_steps += 1
        metrics = {"optimizer/lr": rate, **ages, **self.replay.metrics(self.gradient_steps)}
        if self.mix.compare:
            metrics["speed/encode_seconds"] = self.encoding
            metrics["speed/prefetch_seconds"] = self.prefetch_seconds
            metrics["speed/prefetch_wait"] = self.prefetch_wait
        return Learned(self.gradient_steps - began, metrics, statistics)

    def _learn(self, minibatch: Minibatch) -> dict[str, Tensor]:
        """Take a gradient step; return its statistics."""
        whole = put_together(minibatch.rollouts, self.spec.inputs)
        columns = {name: self._tensor(name, x) for name, x in whole.items()}
        weight = None if minibatch.weights is None else torch.from_numpy(minibatch.weights[self._order]).to(self.device)
        arguments = (self.network, self.theta_target, self.lr, self.coefficients, self._statistics())
        stats = self._take_step(self._due_step(), *arguments, Split(columns, 1), Split(weight, 0))
        if self.replay.weighted:
            error = np.empty((self.hyper.batch, self.hyper.horizon), np.float32)
            error[self._order] = stats.pop("error").T.cpu().numpy()
            self.replay.learned(minibatch.places, error)
        return stats

    def _tensor(self, name: str, x: Array) -> Tensor:
        """A column [N, ...] of rollouts as a gradient step takes it, with time first: [T, N, ...]; carry [2, N, H]."""
        return torch.from_numpy(np.ascontiguousarray(x.swapaxes(0, 1)[:, self._order])).to(self.device)

    @cached_property
    def _order(self) -> Numbers | slice:
        """The rollouts of a minibatch: one learner's share after the other, in it one part after the other."""
        h = self.hyper
        if h.learners == 1:
            return slice(None)
        parts = np.split(np.arange(h.batch), np.cumsum([*self.mix.sizes(h.batch).values()])[:-1])
        return np.concatenate([x.reshape(h.learners, -1) for x in parts], axis=1).reshape(-1)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Rollouts of each part in a learner's share of a minibatch."""
        return {name: size // self.hyper.learners for name, size in self.mix.sizes(self.hyper.batch).items()}

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where they are."""
        return slices(self.sizes)

    def steps(self) -> tuple[GradientStep, ...]:
        return (self._optimise,)

    def _due_step(self) -> GradientStep:
        return self._optimise

    def _optimise(
        self, network: Network, theta_target: Tensor | None, lr: Tensor, coefficients: Coefficients,
        statistics: tuple[Tensor, ...], columns: dict[str, Tensor], weight: Tensor | None,
    ) -> dict[str, Tensor]:  # fmt: skip
        """Take one optimiser step, in place; return its statistics."""
        leaf = network.theta.detach().requires_grad_()
        minibatch = LossInputs(coefficients, statistics, columns, weight, theta_target)
        total, stats = self.loss(leaf, minibatch)
        (gradient,) = torch.autograd.grad(total, leaf)
        norm = self._apply_gradient(gradient, *network, lr)
        return {name: x.detach() for name, x in {**stats, "loss/total": total, "optimizer/grad_norm": norm}.items()}

    @abstractmethod
    def loss(self, theta: Tensor, minibatch: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss [] of flat parameters [D] on a minibatch, and statistics of it; with weights the value errors
        [T, N] are among these, as "error"."""

    # -------------------------------------------------------------- parts of a loss

    def _decided(self, theta: Tensor, statistics: tuple[Tensor, ...], columns: Mapping[str, Tensor]) -> Decided:
        """One forward pass over all states of the rollouts."""
        inputs = tuple(columns[f"input {i}"] for i in range(len(self.spec.inputs)))
        rest = (columns["carry"], columns["start"]) if "carry" in columns else ()
        out = self.forward(theta, statistics, inputs, *rest)
        raw, legal = out.raw[:-1], columns["legal"][:-1] if "legal" in columns else None
        log_prob, entropy = log_prob_entropy(self.spec.action, raw, out.log_std, legal, columns["action"])
        return Decided(parameters(self.spec.action, raw, out.log_std), log_prob, entropy, out.value, legal)

    def _total(self, x: Tensor, *factors: Tensor | None) -> Tensor:
        """The mean or sum [] of numbers [T, N] of decisions, each times the factors that there are.

        Gradients are averaged over learners, so a sum is multiplied by their number.
        """
        x, learners = product(x, *factors), self.hyper.learners
        if self.hyper.reduction == "mean":
            return x.mean()
        return x.sum() if learners == 1 else learners * x.sum()

    def _over_rewards(self, x: Tensor) -> Tensor:
        """The mean or sum [T, N] over named rewards of numbers [T, N, R]."""
        return x.mean(-1) if self.hyper.reduction == "mean" else x.sum(-1)

    @torch.no_grad()
    def _described_ratios(self, present: Decided, columns: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """How far the policy is from those that acted, over the minibatch and over each of its parts."""
        old = columns["log_prob"]
        ratio = (present.log_prob - old).exp()
        stats = {"policy/ratio": ratio.mean(), "policy/kl": approximate_kl(present.log_prob, old)}
        for name, where in self.slices.items():
            stats[f"replay/ratio_{name}"] = ratio[:, where].mean()
            stats[f"replay/kl_{name}"] = approximate_kl(present.log_prob[:, where], old[:, where])
        return stats

    def _clip_fractions(self, clipped: Tensor) -> dict[str, Tensor]:
        """The share of decisions [T, N] that a clip stops, in the minibatch and in each of its parts."""
        parts = {f"replay/clip_fraction_{name}": clipped[:, where] for name, where in self.slices.items()}
        return {name: x.mean(dtype=self.theta.dtype) for name, x in {"policy/clip_fraction": clipped, **parts}.items()}

    # -------------------------------------------------------------- state

    def state_dict(self) -> StateDict:
        self._prefetched()
        return {**super().state_dict(), "gradient_steps": self.gradient_steps, "replay": self.replay.state_dict()}

    def appended_rows(self) -> StateDict:
        return {"replay": self.replay.appended_rows()}

    def load_state_dict(self, state: StateDict) -> None:
        self._prefetched()
        super().load_state_dict(state)
        self.gradient_steps = state["gradient_steps"]
        self.replay.load_state_dict(state["replay"])


FIELDS = ("start", "action", "log_prob", "value", "final_value", "reward", "done", "policy", "legal", "carry",
          "features")  # fmt: skip


def rollouts(batch: RolloutBatch) -> dict[str, Array]:
    """The slots of a batch as rollouts: its fields by name, each [B, ...], without a copy."""
    fields = {f"input {i}": x for i, x in enumerate(batch.inputs)}
    fields |= {name: getattr(batch, name) for name in FIELDS if getattr(batch, name) is not None}
    return {name: x.numpy().swapaxes(0, 1) for name, x in fields.items()}


def product(x: Tensor, *factors: Tensor | None) -> Tensor:
    """A tensor times the factors that there are."""
    for factor in factors:
        x = x if factor is None else x * factor
    return x
