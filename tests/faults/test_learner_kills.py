"""Runs whose learners, or whose own process, are killed: they end with the cause, leave nothing, and go on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import fingerprint, learners_of, title
from test_kill import Victim, more_rows, settings, undisturbed

PPO = settings("cartpole", "rl.learners=3", "rl.minibatch=32", "checkpoint.every=600", steps=4_000)
VTRACE = [
    *(word for word in PPO if not word.startswith(("rl.passes", "rl.minibatch"))),
    *("rl=vtrace", "rl.asynchronous=false", "rl.batch=12", "rl.fill_in=12", "rl.members=2", "rl.slots=3"),
    *("cluster=processes", "cluster.workers=2"),
]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "victim"
    made.mkdir()
    yield made


def gone(pids: list[int]) -> bool:
    """Within the moment that the kernel needs."""
    ends = time.monotonic() + 20
    while any(title(pid) for pid in pids) and time.monotonic() < ends:
        time.sleep(0.01)
    return not any(title(pid) for pid in pids)


@pytest.mark.fault
@pytest.mark.parametrize("words", [PPO, VTRACE], ids=["ppo", "vtrace on workers"])
def test_killed_in_every_way_it_ends_the_same(words: list[str], place: Path) -> None:
    it = Victim(place, *words, start_up=False)
    try:
        for who, number in (("learner", signal.SIGKILL), ("run", signal.SIGINT), ("run", signal.SIGKILL)):
            process = it.go_on()
            assert it.until(more_rows(it, 9)), it.err()
            learners = learners_of(process.pid)
            assert len(learners) == 2
            if who == "learner":
                os.kill(learners[0], number)
                assert process.wait(60) == 1
                told = f"learner 1 (process {learners[0]}) was killed by SIGKILL"
                assert f"evorl: LearnerLost: {told}\n" in it.err()
                assert told in json.loads((it.run / "failure.json").read_bytes())["reason"]
                (it.run / "failure.json").unlink()
            else:
                assert it.stop(number) == (-9 if number == signal.SIGKILL else 130), it.err()
                assert "Traceback" not in it.err()
            assert gone(learners)
        assert it.go_on().wait(120) == 0, it.err()
        (it.run / "failure.json").unlink(missing_ok=True)
        it.check_clean()
        assert fingerprint(it.run) == fingerprint(undisturbed(place.parent, words))
    finally:
        it.close()
