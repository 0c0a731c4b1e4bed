"""Workers that die over and over: which of them are replaced for ever, and what is said of the others."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from cluster_victims import WAYS, Victim, lives

from evorl.cluster.core import MemberLost
from evorl.cluster.processes import Processes
from evorl.cluster.workers import failure_policy


class Flaky:
    """Dies in the given way in every ``every``-th call, the first time that it is made."""

    def __init__(self, place: Path, way: str, every: int, index: int) -> None:
        self.place, self.way, self.every = place, way, every

    def work(self, number: int) -> int:
        path = self.place / str(number)
        if number % self.every == 0 and not path.exists():
            path.touch()
            WAYS[self.way]()
        return number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "every", "lasts"),
    [("segfaults", 1, failure_policy.RECENT_DEATHS - 1), ("segfaults", 15, 200), ("is killed", 1, 20)],
)
def test_who_survives_each_repetition_but_dies_all_the_time_ends_the_group(
    way: str, every: int, lasts: int, tmp_path: Path
) -> None:
    """By its own doing, and often: else it is mended for ever."""
    group = Processes(workers=1).spawn(partial(Flaky, tmp_path, way, every), 1)
    try:
        assert [group.all("work", number) for number in range(1, lasts + 1)] == [[n] for n in range(1, lasts + 1)]
        if (way, every) == ("segfaults", 1):
            with pytest.raises(MemberLost) as caught:
                group.all("work", lasts + 1)
            first, _, stack = str(caught.value).partition("\n")
            end = (
                f"the last of {failure_policy.RECENT_DEATHS} such ends within {failure_policy.RECENT_DEATHS - 1} calls"
            )
            assert first == f"worker 0, busy with member 0, was killed by SIGSEGV as work ran, {end}"
            assert "in string_at" in stack
    finally:
        group.close()


@pytest.mark.slow
def test_who_is_stopped_again_and_again_is_not_to_blame(tmp_path: Path) -> None:
    place = lives(tmp_path / "lives", failure_policy.MAX_OWN_DEATHS + 1)
    group = Processes(workers=2, deadline_s=0.5).spawn(partial(Victim, place, "is stopped", "add"), 2)
    try:
        assert group.all("add", 5) == [5, 10]
        assert group.counters()["cluster/replaced"] == failure_policy.MAX_OWN_DEATHS + 1
    finally:
        group.close()
