"""Members of a group without workers, whose `close` fails."""

from __future__ import annotations

import logging

import pytest

from evorl.cluster.local import Local

CLOSED: list[int] = []


class Closes:
    def __init__(self, index: int) -> None:
        if index == 3:
            raise ValueError("the true cause")
        self.index = index

    def close(self) -> None:
        CLOSED.append(self.index)
        if self.index == 0:
            raise BrokenPipeError("the world is gone")


def test_a_member_that_does_not_close_leaves_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    CLOSED.clear()
    with caplog.at_level(logging.WARNING):
        Local().spawn(Closes, 3).close()
    assert CLOSED == [0, 1, 2]
    assert [one.getMessage() for one in caplog.records] == [
        "member 0 does not close: BrokenPipeError: the world is gone"
    ]


def test_who_cannot_be_made_is_the_cause_and_the_others_are_closed() -> None:
    CLOSED.clear()
    with pytest.raises(Exception, match="the true cause"):
        Local().spawn(Closes, 4)
    assert CLOSED == [0, 1, 2]
