"""Conformance test of learners: it plays and learns a few batches, and reports the first broken rule."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evorl.mdp.begin import begin
from evorl.mdp.core import World
from evorl.nets.distributions import draw_noise, noise_size
from evorl.record import metrics
from evorl.rl.core import Decision, Hyper, Learned, Learner, play_of
from evorl.rl.network_learner import NetworkLearner
from evorl.rl.sampler import Sampler
from evorl.util import seed as seeds
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.conformance import require as require
from evorl.util.types import with_whole_rows

CPU = torch.device("cpu")


def check(hyper: Hyper, world: World, batches: int = 4) -> None:
    """Raise `Nonconformity`, with one sentence, unless learners of these hyper-parameters keep these rules.

    Gradient steps must begin within so many ``batches`` of the world's episodes: give a replay a small ``warm_up``.

    * Decisions are finite, and without noise the same rows get the same actions. Evaluations have them, too.
    * Gradient steps are taken and change the policy. Their numbers are finite, and have names of docs/metrics.md or
      PACKAGE/NAME.
    * Gradient steps that are recorded and replayed have the bits of steps without a record. Not compared are those of
      ``rl.compile``, whose bits are others, and gradients that samplers compute (A3C).
    * The same seed gives the same bits, and another seed other ones.
    * A learner with a saved state goes on with the same bits. The state is plain data.
    * Learners with the same weights act alike, and one with the policy of another's state acts as that one does.
    """
    whole = _Training(hyper, world, seed=1)
    whole.learn(batches)
    packages = {kind.__module__.partition(".")[0] for kind in type(hyper).__mro__}
    _check_learned(whole.learned, packages - {"abc", "builtins", "evorl"})
    fresh = _Training(hyper, world, seed=1)
    require(not _same_weights(fresh, whole), "its gradient steps do not change the policy")

    each_anew = _Training(hyper, world, seed=1)
    if isinstance(each_anew.learner, NetworkLearner) and not hyper.compile:
        each_anew.learner.records = False
        each_anew.learn(batches)
        why = (
            "a number in its gradient steps changes, and their record keeps it as it was at the first one: "
            "it has to be a tensor that is changed in place, or a key with a schedule"
        )
        require([one.metrics for one in each_anew.learned] == [one.metrics for one in whole.learned], why)
        require(_same_weights(each_anew, whole), why)

    halved = _Training(hyper, world, seed=1)
    halved.learn(batches // 2)
    _check_plain(with_whole_rows(halved.learner.state_dict()))
    halved.restart()
    halved.learn(batches - batches // 2)
    why = "the same seed, with a state that was saved and restored half way, gives other bits"
    require(_alike(halved.decide(), whole.decide()), why)
    require(_equal(*(with_whole_rows(each.learner.state_dict()) for each in (halved, whole))), why)
    other = _Training(hyper, world, seed=2)
    require(not _same_weights(other, fresh), "another seed gives the same policy")

    state, weights = copy.deepcopy(with_whole_rows(whole.learner.state_dict())), whole.learner.weights()
    for each in (fresh, other):
        each.learner.load_weights([weight.clone() for weight in weights])
    require(_alike(fresh.decide(), other.decide()), "with the same weights two learners act unlike each other")
    stranger = _Training(hyper, world, seed=2)
    stranger.learner.load_policy(state)
    require(_alike(stranger.decide(), whole.decide()), "with the policy of another's state it acts unlike that one")


class _Training:
    """A learner, the member that plays for it, and what the updates returned."""

    def __init__(self, hyper: Hyper, world: World, seed: int) -> None:
        self.hyper, self.world, self.seed, self.count, self.step = hyper, world, seed, 0, 0
        self.learned: list[Learned] = []
        sampler = Sampler(world, hyper, seed, CPU, member=0)
        sampler.arena.close()
        self.spec = sampler.arena.spec
        self.learner: Learner = hyper.learner(self.spec, seed, CPU)

    def learn(self, batches: int) -> None:
        """Play and learn; each batch is of new episodes, whose keys follow from its number."""
        for _ in range(batches):
            sampler = Sampler(self.world, self.hyper, seeds.key(self.seed, self.count), CPU, member=0)
            try:
                played = sampler.collect(self.learner.weights(), self.count)
                self.step += played["cost"]
                batch = sampler.learner.to_update_input(sampler.actor.batch, self.step)
                self.learned.append(self.learner.update(batch, self.step, self.count))
            finally:
                sampler.arena.close()
            self.count += 1

    def restart(self) -> None:
        """Go on with a new learner that has the state of this one."""
        state = copy.deepcopy(with_whole_rows(self.learner.state_dict()))
        self.learner = self.hyper.learner(self.spec, self.seed, CPU)
        self.learner.load_state_dict(state)

    def decide(self) -> Decision:
        """Decide for the first states of eight slots, twice, without noise and then with."""
        slots = 8 * self.world.sides
        arena = begin(self.world, slots, seeds.Episodes(0, "conformance"))
        seen = arena.recv()
        arena.close()
        inputs = tuple(torch.from_numpy(np.array(x)) for x in seen.inputs)
        legal = None if seen.legal is None else torch.from_numpy(np.array(seen.legal))
        carry = self.learner.carry(slots)
        start = None if carry is None else torch.ones(slots, dtype=torch.bool)
        still = torch.zeros(slots, noise_size(self.spec.action))
        first, again = (_copy(self.learner.act(inputs, legal, still, carry, start)) for _ in range(2))
        require(_alike(first, again), "without noise the same rows get other actions")
        noise = torch.from_numpy(draw_noise(self.spec.action, seeds.generator("conformance"), (slots,)))
        drawn = _copy(self.learner.act(inputs, legal, noise, carry, start))
        played = play_of(self.learner)(inputs, legal, noise, carry, start).played
        require(torch.equal(played, drawn.played), "its `play` takes other actions than its `act`")
        for name in ("log_prob", "value"):
            require(bool(torch.isfinite(getattr(drawn, name)).all()), f"a decision's {name} is not finite")
        return drawn


def _same_weights(a: _Training, b: _Training) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.learner.weights(), b.learner.weights(), strict=True))


def _check_learned(learned: Sequence[Learned], packages: set[str]) -> None:
    require(sum(each.steps for each in learned) > 0, "it took no gradient step; a replay needs a smaller warm_up here")
    for each in learned:
        names = [*each.metrics, *each.statistics]
        try:
            metrics.check(names, packages)
        except metrics.UnregisteredMetric as error:
            raise Nonconformity(str(error)) from None
        for name, value in each.metrics.items():
            require(math.isfinite(value), f"{name} is {value}")


def _check_plain(state: Any) -> None:
    if isinstance(state, dict):
        require(all(isinstance(key, str) for key in state), "its state has a key that is no string")
        state = list(state.values())
    if isinstance(state, list | tuple):
        for part in state:
            _check_plain(part)
        return
    held = state is None or isinstance(state, bool | int | float | str | np.ndarray | Tensor)
    require(held, f"its state holds a {type(state).__name__}, which a checkpoint cannot")


def _copy(decision: Decision) -> Decision:
    return Decision._make(None if x is None else x.clone() for x in decision)


def _alike(a: Decision, b: Decision) -> bool:
    return all(x is y if x is None or y is None else torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _equal(a: Any, b: Any) -> bool:
    """Whether two nested states are equal to the last bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Tensor | np.ndarray):
        return type(a) is type(b) and a.shape == b.shape and np.array_equal(np.asarray(a), np.asarray(b))
    return bool(a == b or (a != a and b != b))
