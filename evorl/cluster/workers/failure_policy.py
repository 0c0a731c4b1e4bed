"""When the driver gives up replacing a worker that dies.

Deaths by a kill from outside are not the worker's own doing, and many of them are tolerated. A world that crashes its
process ends the run: soon if it does so in the same call, else by its rate of crashes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from evorl.cluster.core import MemberLost
from evorl.cluster.workers.launcher import Exit

MAX_OWN_DEATHS = 3  # in the same call, by the member's own doing: a crash, a deadline, too much memory
MAX_DEATHS = 20  # in the same call, including kills from outside
RECENT_DEATHS, MIN_CALLS = 10, 100  # so many deaths by its own doing within fewer answered calls end the run


NO_CALL = 0  # number in place of a call's: the worker was starting or idle


@dataclass(slots=True)
class FailureHistory:
    """Answered calls and deaths of one worker's processes."""

    answered: int = 0  # calls
    answered_at_death: deque[int] = field(default_factory=lambda: deque(maxlen=RECENT_DEATHS))  # of own deaths
    call: int = NO_CALL  # the call in which the last process died
    deaths: int = 0  # in this call
    own_deaths: int = 0  # of these, by its own doing

    def begin(self, call: int) -> None:
        """Count deaths in this call from now on."""
        self.call, self.deaths, self.own_deaths = call, 0, 0


def record_death(death: Exit, activity: str, call: int, history: FailureHistory) -> str:
    """Count a death and return a message about it. Raises `MemberLost` if the worker must not be replaced again."""
    if call != history.call:
        history.begin(call)
    history.deaths += 1
    if not death.external:
        history.own_deaths += 1
        history.answered_at_death.append(history.answered)
    worker = f"worker {death.worker}" + ("" if death.member is None else f", busy with member {death.member},")
    what, where = f"{worker} {death.why} as {activity}", f"\n{death.trace}".rstrip()
    if history.own_deaths >= MAX_OWN_DEATHS or history.deaths >= MAX_DEATHS:
        raise MemberLost(f"{what}, {history.deaths} times over the same work{where}")
    recent = history.answered_at_death
    if not death.external and len(recent) == RECENT_DEATHS and (calls := history.answered - recent[0]) < MIN_CALLS:
        raise MemberLost(f"{what}, the last of {RECENT_DEATHS} such ends within {calls} calls{where}")
    return f"{what}: replaced{where}"
