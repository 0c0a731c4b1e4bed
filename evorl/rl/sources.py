"""Sources of a learner's batches: all members in lockstep, or the first member that is ready.

The learner gets every fragment once, in `Learner.update`. A learner with a replay appends it there and samples its
own minibatches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Sequence
from operator import index
from typing import Any, NamedTuple, Protocol

from evorl.cluster.core import Group
from evorl.mdp.core import Spec, StateDict
from evorl.rl.batch import Batch
from evorl.rl.core import Episode, Hyper, Learner, Metrics

WINDOW = 100  # dropped fragments in the mean and maximum of the lag


class SourceItem(NamedTuple):
    """The learner's next update input, with its cost and the episodes that ended."""

    update_input: Any  # the learner's `update_input`, a batch for most; valid until the next one is taken
    cost: int  # environment steps, of dropped fragments too
    episodes: list[Episode]  # episodes that ended
    metrics: Metrics
    left: Sequence[dict[str, Any]] = ()  # rows of opponents.jsonl: opponents that play no more


class Source(Protocol):
    """Turns a group of samplers (`evorl.rl.sampler`) into batches."""

    def take(self, learner: Learner, step: int, iteration: int) -> SourceItem:
        """Return the next batch for a learner that has made ``iteration`` updates by environment step ``step``."""
        ...

    def state_dict(self) -> StateDict:
        """Return the state that decides what is taken next, and the running statistics; members save their own."""
        ...

    def load_state_dict(self, state: StateDict) -> None:
        """Restore the state. Call it before the first batch is taken."""
        ...


def source(group: Group, hyper: Hyper, spec: Spec) -> Source:
    """Build a `Stream` if ``hyper.asynchronous``, else a `Lockstep`."""
    if hyper.asynchronous:
        return Stream(group, 4 * hyper.members if hyper.max_lag is None else hyper.max_lag)
    return Lockstep(group, hyper.storage(spec, hyper.members * hyper.slots))


class Lockstep:
    """Every member plays under the newest weights. The batch holds all members side by side: the same bits anywhere."""

    def __init__(self, group: Group, storage: Batch) -> None:
        self.group, self.storage = group, storage

    def take(self, learner: Learner, step: int, iteration: int) -> SourceItem:
        return self.item(self.group.all("collect", learner.weights(), iteration))

    def item(self, parts: Sequence[dict[str, Any]]) -> SourceItem:
        """The batches of all members (`Sampler.collect`), side by side."""
        batch = self.storage.fill([type(self.storage)(**part["batch"]) for part in parts])
        return SourceItem(
            batch, sum(part["cost"] for part in parts), [e for part in parts for e in _episodes(part)], {}
        )

    def state_dict(self) -> StateDict:
        return {}

    def load_state_dict(self, state: StateDict) -> None:
        pass


class Stream:
    """Members play on without waiting for new weights. Each fragment is a batch, in the order of arrival.

    Before a fragment is taken, the newest weights go to the member of the fragment before, with the call for another
    one. So the cost of an update does not grow with the number of members, and each member begins its next fragment
    under the newest weights that have reached it. A fragment whose weights are more than ``max_lag`` updates old is
    dropped. Its steps and episodes count.
    """

    def __init__(self, group: Group, max_lag: int) -> None:
        self.group, self.max_lag = group, max_lag
        self.turn = 0  # next member, if they are taken in turn
        self.dropped = 0  # fragments
        self.lags: deque[int] = deque(maxlen=WINDOW)  # of the last fragments learned from
        self.fragments: Generator[tuple[int, Any], Sequence[object] | None, None] | None = None

    def take(self, learner: Learner, step: int, iteration: int) -> SourceItem:
        args, began = (learner.weights(), iteration, step), time.monotonic()
        if self.fragments is None:
            self.fragments = self.group.gather("play", *args, begin=self.turn)
            member, part = next(self.fragments)
        else:
            member, part = self.fragments.send(args)
        cost, episodes, waited = part["cost"], _episodes(part), [part["wait"]]
        while (lag := iteration - part["version"]) > self.max_lag:
            self.dropped += 1
            member, part = next(self.fragments)
            cost += part["cost"]
            episodes += _episodes(part)
            waited.append(part["wait"])
        waits = {"speed/learner_wait": time.monotonic() - began, "speed/actor_wait": sum(waited) / len(waited)}
        self.turn = (member + 1) % self.group.size
        self.lags.append(lag)
        lags = {"policy/lag": sum(self.lags) / len(self.lags), "policy/lag_max": float(max(self.lags))}
        lags["policy/dropped_fragments"] = float(self.dropped)
        return SourceItem(learner.update_input(**part["update_input"]), cost, episodes, {**lags, **waits})

    def state_dict(self) -> StateDict:
        return {"turn": self.turn, "dropped": self.dropped, "lags": list(self.lags)}

    def load_state_dict(self, state: StateDict) -> None:
        self.turn, self.dropped = state["turn"], state["dropped"]
        self.lags = deque(map(index, state["lags"]), maxlen=WINDOW)


def _episodes(part: dict[str, Any]) -> list[Episode]:
    return [Episode(*episode) for episode in part["episodes"]]
