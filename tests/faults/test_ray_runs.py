"""Whole runs on `cluster=ray` whose processes are killed, stopped and interrupted with real signals.

What test_cluster_kills.py asks of `cluster=processes`, with fewer signals: a Ray takes seconds to begin.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_runs import (
    RayRun,
    Run,
    foreground,
    kill_actor,
    kill_all,
    kill_driver,
    kill_group,
    kill_worker,
    kill_workers,
    replaced,
    settings,
    stop_worker,
    undisturbed,
)
from cluster_victims import send
from harness import ROOT, fingerprint, relatives, title

from evorl.cluster.ray import own_ray

pytestmark = pytest.mark.fault

SHARED = Path("/dev/shm")  # where Ray's object store is made
CLUSTER = ("cluster=ray",)
SOONER = ("cluster.deadline_s=20",)  # a worker may need a part of it to begin


@pytest.mark.parametrize("world", ["pong", "pendulum"])
def test_workers_are_killed_and_stopped_and_no_bit_changes(
    world: str, run: Callable[..., RayRun], tmp_path: Path
) -> None:
    """At random moments, alone and together, with the actors that carry them; at last Ray itself is, too."""
    words = settings(world, 250_000, *CLUSTER, *SOONER)
    it, draw = run(*words), random.Random(world)
    assert it.until_rows(1), it.said()
    kills = stops = together = 0
    while kills < 20 or stops < 2 or together < 2:
        assert not it.over, (kills, stops, together, it.said())
        time.sleep(draw.uniform(0, 0.4))
        act = draw.choices([kill_worker, kill_workers, kill_actor, stop_worker], [6, 2, 1, 1])[0]
        hit = act(it, draw)
        stops += hit if act is stop_worker else 0
        kills += hit if act is not stop_worker else 0
        together += hit == 2
    assert it.until_rows(1) and kill_all(it, draw) > 4, it.said()
    it.finish()
    assert replaced(it.directory) >= 20
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


def test_a_killed_driver_leaves_nothing_and_goes_on(run: Callable[..., Run], tmp_path: Path) -> None:
    """At random moments: of Ray's start, of its first calls, of training, of saving."""
    before = {*SHARED.iterdir()}
    words = settings("pendulum", 40_000, *CLUSTER, "checkpoint.every=1000")
    it, draw = run(*words), random.Random(0)
    for kill in (kill_driver, kill_group) * 2:
        if draw.random() < 0.5:
            assert it.until(it.others), it.said()  # the owner of its Ray is there
            time.sleep(draw.uniform(0, 4))
        else:
            assert it.until_rows(draw.randrange(1, 20)), it.said()
        kill(it)
        it.driver.wait()
        it.check_gone()
        assert {*SHARED.iterdir()} <= before
        it.go_on()
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))


def heads(place: Path) -> set[int]:
    return {pid for pid in relatives(place) if title(pid).partition(b"\0")[0].endswith(b"/gcs_server")}


@pytest.mark.parametrize("moment", ["begins", "has begun"])
def test_a_driver_that_dies_before_it_hears_of_its_ray_leaves_nothing(moment: str, short_path: Path) -> None:
    """Also where Ray's own beginning gets no further."""
    ours, theirs = socket.socketpair()
    private = short_path / "private"
    private.mkdir()
    options = json.dumps({"num_cpus": 1, "object_store_memory": own_ray.STORE})
    words = [sys.executable, "-m", own_ray.__name__, str(theirs.fileno()), options, str(private)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(short_path)}
    with theirs, subprocess.Popen(words, pass_fds=[theirs.fileno()], env=env) as process:
        theirs.close()
        if moment == "begins":
            while not heads(short_path):
                assert process.poll() is None
                time.sleep(0.01)
            send(signal.SIGSTOP, heads(short_path))
        else:
            assert select.select([ours], [], [], 60)[0]
        ours.close()
        assert process.wait(own_ray.CLOSE_S) == 0
    assert not private.exists() and not relatives(short_path)


def test_interrupted_it_saves_and_goes_on(run: Callable[..., Run], tmp_path: Path) -> None:
    words = settings("pong", 40_000, *CLUSTER)
    it = run(*words)
    for number in (signal.SIGINT, signal.SIGTERM):
        it.interrupted(foreground, number)
    it.finish()
    assert fingerprint(it.directory) == fingerprint(undisturbed(tmp_path, words))
