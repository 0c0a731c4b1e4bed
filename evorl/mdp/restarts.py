"""Episodes that start again after their world failed: how often, how soon, and what the log says of it."""

from __future__ import annotations

import logging
import traceback
from typing import NamedTuple

from evorl.mdp.core import EpisodeFailed, WorldError

LOG = logging.getLogger("evorl")
PAUSES_S = (0.0, 5.0)
"""Seconds before an episode that has failed once, twice, ... without a step starts again. One failure more ends it."""


class _Failure(NamedTuple):
    slot: int
    seed: int
    error: str
    times: int  # that the episode has failed
    pause: float


class Restarts:
    """The failures of an arena's episodes; ``name`` is that of its world, ``episodes`` how many are played at once."""

    def __init__(self, name: str, episodes: int) -> None:
        self._name, self._episodes = name, episodes
        self._untold: list[_Failure] = []

    def add(self, slot: int, seed: int, failures: int, steps: int, error: BaseException) -> float:
        """Note that the episode of this seed has failed so often; return the seconds to wait before it starts again.

        ``steps``: that it has begun, with the one that failed; 0 if the world could not begin the episode. There is no
        need to wait for a world that has taken a step.

        Raises an error, with the traceback, if it must not start again: `EpisodeFailed` where a step failed, which may
        be for its action, and `WorldError` where the episode did not begin, which is no fault of the policy.
        """
        if failures > len(PAUSES_S):
            self.tell()
            trace = "".join(traceback.format_exception(error))
            raise (EpisodeFailed if steps else WorldError)(
                f"{self._name} failed {failures} times in the episode of slot {slot} with seed {seed}:\n{trace}"
            ) from error
        pause = 0.0 if steps > 1 else PAUSES_S[failures - 1]
        self._untold.append(_Failure(slot, seed, repr(error), failures, pause))
        return pause

    def tell(self) -> None:
        """Log what failed since the last call: one line for all that failed alike."""
        alike: dict[tuple[str, int, float], list[_Failure]] = {}
        for failure in self._untold:
            alike.setdefault((failure.error, failure.times, failure.pause), []).append(failure)
        self._untold.clear()
        for (error, _, pause), failures in alike.items():
            LOG.warning("%s after %s%s", self._what(failures), error, f", in {pause:g} s" if pause else "")

    def _what(self, failures: list[_Failure]) -> str:
        slots = {failure.slot for failure in failures}
        if len(slots) == 1:
            return f"{self._name}, slot {failures[0].slot}, seed {failures[0].seed}: starting the episode again"
        some = "all" if len(slots) == self._episodes else f"{len(slots)} of"
        return f"{self._name}, {some} {self._episodes} episodes: starting them again"
