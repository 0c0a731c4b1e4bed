"""How often a worker is replaced, without workers; see also tests/faults/test_cluster_failure_policy.py."""

from __future__ import annotations

import pytest

from evorl.cluster.core import MemberLost
from evorl.cluster.workers.failure_policy import MAX_OWN_DEATHS, FailureHistory, record_death
from evorl.cluster.workers.launcher import Exit


def test_a_worker_that_dies_again_and_again_over_a_call_is_not_replaced() -> None:
    history, gone = FailureHistory(), Exit(0, 0, "died", external=False)
    for _ in range(MAX_OWN_DEATHS - 1):
        assert record_death(gone, "work ran", 1, history) == "worker 0 died as work ran: replaced"
    with pytest.raises(MemberLost, match=f"{MAX_OWN_DEATHS} times over the same work"):
        record_death(gone, "work ran", 1, history)
