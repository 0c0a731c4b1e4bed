"""The table of samplers, their options, and what the key ``rl.sampling`` means.

``rl.sampling`` is the name of a sampler, or the share of each in a minibatch by name. The options of a sampler are the
keys of ``rl.replay.NAME``; a learner can use the samplers that its options have a field for, and `Uniform`.

An entry point of a plugin in the group ``evorl.samplers`` names a sampler, too. Its options are ``rl.replay.own.NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from evorl.replay.samplers.attentive import Attentive, AttentiveRollouts
from evorl.replay.samplers.circular import Circular, CircularKeys
from evorl.replay.samplers.core import BufferKeys, RolloutKeys, Sampler
from evorl.replay.samplers.elite import Elite
from evorl.replay.samplers.nearest import NearestRollouts, NearestTransitions
from evorl.replay.samplers.prioritized import Prioritized, PrioritizedKeys, PrioritizedRollouts, PrioritizedSequences
from evorl.replay.samplers.queue import Queue, QueueKeys
from evorl.replay.samplers.uniform import Uniform
from evorl.util.errors import BadRequest, nearest
from evorl.util.kinds import Kinds
from evorl.util.kinds import options_of as options_of_plugin
from evorl.util.types import Fraction

SAMPLERS: Mapping[str, type[Sampler]] = {
    kind.name: kind for kind in (Queue, Circular, Uniform, Elite, Attentive, Prioritized)
}
"""By name, in the order in which their items lie in a minibatch."""

Sampling = str | dict[str, Fraction]
"""The value of ``rl.sampling``."""
TOLERANCE = 1e-6
KINDS = Kinds(Sampler, SAMPLERS, "evorl.samplers", "sampling")


@dataclass(frozen=True, kw_only=True)
class TransitionSamplers:
    """Options of samplers of transitions, for learners without weights of transitions."""

    attentive: NearestTransitions = field(default_factory=NearestTransitions)
    own: dict[str, Any] = field(default_factory=dict)
    """Options of samplers of plugins: +rl.replay.own.NAME.KEY=VALUE."""


@dataclass(frozen=True, kw_only=True)
class WeightedSamplers(TransitionSamplers):
    """The same for learners that weight transitions, as priorities need."""

    prioritized: PrioritizedKeys = field(default_factory=PrioritizedKeys)


@dataclass(frozen=True, kw_only=True)
class SequenceSamplers(WeightedSamplers):
    """Options of samplers of sequences."""

    prioritized: PrioritizedSequences = field(default_factory=PrioritizedSequences)


@dataclass(frozen=True, kw_only=True)
class RolloutSamplers:
    """Options of samplers of rollouts."""

    queue: QueueKeys = field(default_factory=QueueKeys)
    circular: CircularKeys = field(default_factory=CircularKeys)
    uniform: BufferKeys = field(default_factory=BufferKeys)
    elite: NearestRollouts = field(default_factory=NearestRollouts)
    attentive: AttentiveRollouts = field(default_factory=AttentiveRollouts)
    prioritized: PrioritizedRollouts = field(default_factory=PrioritizedRollouts)
    own: dict[str, Any] = field(default_factory=dict)
    """Options of samplers of plugins: +rl.replay.own.NAME.KEY=VALUE."""


def in_shares(**shares: float) -> dict[str, float]:
    """A value of ``rl.sampling`` that lists all samplers of rollouts, so that each share can be changed by itself."""
    return {option.name: shares.get(option.name, 0.0) for option in fields(RolloutSamplers) if option.name in SAMPLERS}


def options_of(name: str, options: Any) -> Any:
    """The options of a sampler, among those of a learner. Raises `BadRequest` for wrong ones of a plugin's."""
    if name in SAMPLERS:
        return getattr(options, name, None)
    kind = KINDS.kind_of(name).options
    if isinstance(options, RolloutSamplers) and not issubclass(kind, RolloutKeys):
        kind = BufferKeys
    return options_of_plugin(name, kind, options.own, "replay.own")


def names(options: Any) -> list[str]:
    """The samplers of evorl that a learner can use; ``options``: one of the dataclasses above."""
    known = {Uniform.name, *(option.name for option in fields(options))}
    return [name for name in SAMPLERS if name in known]


def shares(sampling: Sampling, options: Any) -> dict[str, float]:
    """The share of each sampler in a minibatch, of those that have one. Raises `BadRequest` for an unknown name.

    ``options``: one of the dataclasses above.
    """
    known = [*names(options), *KINDS.of_plugins()]
    share_of = {sampling: 1.0} if isinstance(sampling, str) else sampling
    for name in share_of:
        if name not in known:
            here = f"; the samplers of this learner are {', '.join(known)}"
            raise BadRequest(f"no sampler {name!r}{nearest(name, known) or here}", "sampling")
    KINDS.check_named(options.own, "replay.own")
    used = {name: share_of[name] for name in known if share_of.get(name)}
    for name in used.keys() - SAMPLERS.keys():
        if KINDS.kind_of(name).weighs and not isinstance(options, WeightedSamplers | RolloutSamplers):
            raise BadRequest(f"{name} weights transitions, which this learner does not", "sampling")
        options_of(name, options)
    total = sum(used.values())
    if round(abs(total - 1), 9) > TOLERANCE:
        terms = " + ".join(f"{name} {share:g}" for name, share in used.items()) or "no sampler has one"
        raise BadRequest(f"the shares of samplers must sum to 1, and not to {total:.9g} ({terms})", "sampling")
    return used


def sole(sampling: Sampling, options: Any) -> str:
    """The sampler of a learner that has one. Raises `BadRequest` where ``sampling`` names several."""
    used = [*shares(sampling, options)]
    if len(used) > 1:
        raise BadRequest(f"one sampler chooses all transitions, and not {' and '.join(used)}", "sampling")
    return used[0]
