"""When a worker that dies is not replaced any more.

What is killed from outside is nobody's fault and is mended for long; a world that brings down its process again and
again ends the run: over the same call soon, else by how often it does so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from evorl.cluster.core import MemberLost
from evorl.cluster.workers.launcher import Exit

MAX_OWN_DEATHS = 3  # over the same call, by the member's own doing: a crash, a deadline, too much memory
MAX_DEATHS = 20  # over the same call, by a kill from outside
RECENT_DEATHS, MIN_CALLS = 10, 100  # by a worker's own doing, and calls that it answered meanwhile


NO_CALL = 0  # the number of no call


@dataclass(slots=True)
class FailureHistory:
    """Of a worker's place: what its processes have answered, and how they died."""

    answered: int = 0  # calls
    own: deque[int] = field(
        default_factory=lambda: deque(maxlen=RECENT_DEATHS)
    )  # what was answered before each of the last
    over: int = NO_CALL  # which call they died last
    deaths: int = 0  # over that
    own_deaths: int = 0

    def begin(self, call: int) -> None:
        """The deaths to come are over this call, or over nothing but its begin."""
        self.over, self.deaths, self.own_deaths = call, 0, 0


def record_death(gone: Exit, doing: str, call: int, past: FailureHistory) -> str:
    """Count a death, and say what happened. Raises `MemberLost` where that is not to be mended any more."""
    if call != past.over:
        past.begin(call)
    past.deaths += 1
    if not gone.blameless:
        past.own_deaths += 1
        past.own.append(past.answered)
    who = f"worker {gone.worker}" + ("" if gone.member is None else f", busy with member {gone.member},")
    what, where = f"{who} {gone.why} as {doing}", f"\n{gone.trace}".rstrip()
    if past.own_deaths >= MAX_OWN_DEATHS or past.deaths >= MAX_DEATHS:
        raise MemberLost(f"{what}, {past.deaths} times over the same work{where}")
    if not gone.blameless and len(past.own) == RECENT_DEATHS and (calls := past.answered - past.own[0]) < MIN_CALLS:
        raise MemberLost(f"{what}, the last of {RECENT_DEATHS} such ends within {calls} calls{where}")
    return f"{what}: replaced{where}"
