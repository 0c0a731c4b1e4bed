"""Groups whose workers Ray places, where they differ from others (what all promise is in test_group.py)."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cluster_toys as toys
import evolution_runs as evolving
import numpy as np
import psutil
import pytest
import zmq
from harness import QUICK, ROOT, WORLDS, experiment_of, fingerprint, go, parent, relatives, rows, start, title, train_in
from ray.exceptions import RayActorError

from evorl.cluster.core import Group, Make
from evorl.cluster.local import Local
from evorl.cluster.ray import Ray, session
from evorl.cluster.ray.head import HeadLost
from evorl.cluster.ray.launcher import RETRY_S, ActorLauncher, Hang, WakeUp, WorkerActor
from evorl.cluster.transport.curve import Credentials
from evorl.cluster.workers.group import RemoteGroup
from evorl.cluster.workers.launcher import Exit
from evorl.cluster.workers.worker import serve
from evorl.ec.core import Evaluation
from evorl.population.loop import Population
from evorl.util.errors import BadRequest

MEMBERS = 3


@pytest.fixture
def spawn(address: str) -> Iterator[Callable[..., Any]]:
    groups: list[Group] = []

    def spawned(make: Make = toys.Counter, *, workers: int = 2, **keys: Any) -> Group:
        groups.append(Ray(workers=workers, **keys).spawn(make, MEMBERS, (toys.Refused,)))
        return groups[-1]

    yield spawned
    for group in groups:
        group.close()


def test_what_cannot_be_joined_is_said_in_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = [*QUICK, *WORLDS["pong"], "cluster=ray", f"hydra.run.dir={tmp_path / 'run'}"]
    for value, said in (
        ("127.0.0.1:1", "Connection refused"),
        ("ray://head:10001", "no address to join"),
        ("[::1]:1", "refused"),
    ):
        assert go(*words, f"cluster.address='{value}'") == 2
        (line,) = capfd.readouterr().err.splitlines()
        assert line.startswith("evorl: cluster.address: ") and said in line
    assert not (tmp_path / "run").exists()


def test_the_head_of_the_ray_of_this_process_may_have_other_names(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address was compared as text."""
    own: Any = SimpleNamespace(config=Ray(address=address.replace("127.0.0.1", "localhost")))
    assert own.config.address != address
    session.Session._check_initialized(own)
    for told in ({}, {address: b"one", own.config.address: b"another"}):
        monkeypatch.setattr(session, "cluster_at", lambda where, told=told: told.get(where, b""))
        with pytest.raises(BadRequest, match=f"part of the Ray at {address} already, not of localhost"):
            session.Session._check_initialized(own)
    own.config = Ray(address="127.0.0.1:1")
    with pytest.raises(BadRequest, match=r"Ray at 127\.0\.0\.1:1 cannot be joined: .*refused"):
        session.Session._check_initialized(own)


def until(reached: Callable[[], bool]) -> None:
    ends = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < ends


@pytest.mark.slow
def test_what_members_answer_does_not_depend_on_who_dies(spawn: Callable[..., Any]) -> None:
    group, alone = spawn(deadline_s=30.0), Local().spawn(toys.Counter, MEMBERS)
    big = np.arange(50_000.0)
    strokes: list[Callable[[int], None]] = [
        lambda pid: None,
        lambda pid: os.kill(pid, signal.SIGKILL),
        lambda pid: os.kill(parent(pid), signal.SIGKILL),  # the actor that carries it
    ]
    for number, stroke in enumerate(strokes):
        stroke(group.all("pid")[0])
        until(lambda least=number: group.all("echo", 1) == [1] * MEMBERS and group.pool.replaced >= least)
        assert group.all("add", number + 2) == alone.all("add", number + 2)
        assert all((one == big).all() for one in group.all("echo", big))
        assert [*group.map("echo", ((i,) for i in range(20)))] == [*range(20)]
    assert [state["sum"] for state in group.states()] == [state["sum"] for state in alone.states()]
    until(lambda: not zombies())


def zombies() -> list[int]:
    """The processes below this one that have ended and were not waited for."""
    found = []
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [one.pid] * (one.status() == psutil.STATUS_ZOMBIE)
    return found


@pytest.mark.fault
def test_a_stopped_worker_is_found_by_its_deadline(spawn: Callable[..., Any]) -> None:
    group = spawn(deadline_s=30.0)
    os.kill(group.all("pid")[1], signal.SIGSTOP)
    group.pool.heartbeats.deadline_s = 3.0  # enough for its successor to begin
    assert [answer[0] for answer in group.all("add", 1)] == [*range(MEMBERS)]
    assert group.pool.replaced >= 1


@pytest.mark.parametrize(("gpus", "reserved"), [(0.0, False), (0.5, True)])
def test_a_worker_takes_its_reserved_gpu_again(gpus: float, reserved: bool) -> None:
    """Without a GPU it takes any machine."""
    joined: Any = session.Session.__new__(session.Session)
    joined.config, joined.alone, joined._group = Ray(address="auto", gpus=gpus), False, SimpleNamespace()
    for again in (False, True):
        strategy = joined.place(1, again)["scheduling_strategy"]
        assert isinstance(strategy, session.PlacementGroupSchedulingStrategy) == (reserved or not again)


@pytest.mark.slow
def test_errors_come_as_from_anywhere(spawn: Callable[..., Any]) -> None:
    with pytest.raises(toys.Refused, match="cannot be made"):
        spawn(toys.unmakeable)
    group = spawn()
    with pytest.raises(toys.Refused, match="not today"):
        group.all("refuse")


def test_a_run_has_the_bits_of_local(address: str, tmp_path: Path) -> None:
    words = (*QUICK, *WORLDS["pong"], "rl.members=3", "budget.steps=3000")
    fingers = []
    for cluster in ("local", "ray"):
        train_in(tmp_path / cluster, experiment_of(*words, f"cluster={cluster}"))
        fingers.append(fingerprint(tmp_path / cluster))
    assert fingers[0] == fingers[1]


@pytest.mark.fault
@pytest.mark.parametrize("case", ["es-normal", "rounds"])
def test_a_population_has_the_bits_of_local(case: str, address: str) -> None:
    """By seed, and whole."""
    found = []
    for cluster in ("local", "ray"):
        experiment = experiment_of(*evolving.QUICK, *evolving.CASES[case], f"cluster={cluster}")
        assert experiment.ec is not None
        population, told = Population(experiment, experiment.ec), list[dict[str, Any]]()
        while population.evaluations < 18:
            told += [{**row, "seconds": 0} for row in population.iterate().evaluated]
        found.append((told, numbers(population.leader)))
        population.close()
    assert found[0] == found[1]


def numbers(leader: Evaluation | None) -> Any:
    assert leader is not None and leader.individual.weights is not None
    return leader.objectives, leader.individual.id, leader.individual.weights.tobytes()


def test_ends_may_be_told_of_while_they_are_read() -> None:
    """Ray's threads add to them whenever a worker ends."""
    launcher: Any = ActorLauncher.__new__(ActorLauncher)
    launcher._ended = deque([(0, 0, (0, None, ""))] * 1000)
    launcher._session = SimpleNamespace(owner=None)
    stop = threading.Event()

    def tell() -> None:
        while not stop.is_set():
            launcher._ended.append((0, 0, (0, None, "")))
            launcher._ended.popleft()

    teller = threading.Thread(target=tell)
    teller.start()
    try:
        assert not any(launcher._ray_is_gone() for _ in range(3000))
    finally:
        stop.set()
        teller.join()


def test_who_is_killed_is_the_carrier_there_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead one may say last where it was."""
    launcher: Any = ActorLauncher.__new__(ActorLauncher)
    launcher.host, launcher.endpoint, launcher.make, launcher._keys, launcher._made = "here", "", None, None, None
    launcher._actors, launcher._places, launcher._lives = {}, {}, {}
    launcher._session = SimpleNamespace(place=lambda worker, again: {}, lost=False)
    launcher._kind = SimpleNamespace(options=lambda **given: SimpleNamespace(remote=lambda *given: actor()))
    monkeypatch.setattr("evorl.cluster.ray.launcher.ray.kill", lambda actor: None)
    monkeypatch.setattr("evorl.cluster.ray.launcher.ray.get", lambda call, timeout: Hang())
    answers: list[Future[Any]] = []
    killed: list[str] = []

    def actor() -> Any:
        answers.append(Future())
        return SimpleNamespace(where=method(answers[-1]), run_worker=method(Future()), hang=method(Future()))

    def method(answer: Future[Any]) -> Any:
        return SimpleNamespace(remote=lambda *given: SimpleNamespace(future=lambda: answer))

    launcher.start(b"", 0, 0)
    launcher.kill(0, 0)
    launcher.start(b"", 0, 1)
    for name, answer in zip(("now", "before"), reversed(answers), strict=True):
        answer.set_result(("here", SimpleNamespace(kill=partial(killed.append, name))))
    launcher.kill(0, 1)
    assert killed == ["now"]


def hang_somewhere(*given: object, mark: Callable[[int], None], **more: object) -> None:
    """In place of `serve`."""
    mark(5)
    time.sleep(60)


@pytest.mark.parametrize("stopped", [False, True])
def test_an_actor_tells_where_its_worker_hangs(stopped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for the end of its worker, and could not be asked."""
    monkeypatch.setattr("evorl.cluster.ray.launcher.serve", hang_somewhere)
    actor = WorkerActor(toys.Counter, "", "")
    assert actor.hang() == Hang()
    with ThreadPoolExecutor(1) as calls:
        end = calls.submit(actor.run_worker, b"", 0, 0, None)
        until(lambda: actor._worker is not None and actor._worker.box.member == 5)
        assert actor._worker is not None
        if stopped:
            os.kill(actor._worker.pid, signal.SIGSTOP)
            until(lambda: actor.hang().stopped)
        member, trace, told = actor.hang()
        os.kill(actor._worker.pid, signal.SIGKILL)
        assert (member, told) == (5, stopped) and ("in hang_somewhere" in trace) != stopped
        assert end.result(60)[:2] == (-signal.SIGKILL, 5)
    assert actor.hang() == Hang()


@pytest.mark.fault
def test_the_stack_of_a_worker_that_hangs_is_shown(spawn: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    group = spawn(deadline_s=60.0)
    group.any("drowse", 1000.0)
    group.pool.heartbeats.deadline_s = 2.0
    while not group.pool.replaced:
        group.poll(0.1)
    assert re.search(
        r"busy with member \d, gave no sign for 2 s as drowse ran: replaced\n(?s:.*) in drowse", caplog.text
    )


def test_a_carrier_that_never_was_is_not_asked_for_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of one that has come is news at once, as that of one that failed by itself, or that we have ended."""
    pauses: list[tuple[float, Callable[[], None]]] = []

    def timer(seconds: float, then: Callable[..., None], given: Sequence[Any]) -> Any:
        pauses.append((seconds, partial(then, *given)))
        return SimpleNamespace(start=lambda: None)

    monkeypatch.setattr("evorl.cluster.ray.launcher.threading.Timer", timer)
    launcher: Any = ActorLauncher.__new__(ActorLauncher)
    launcher._ended, launcher._bell, launcher._places = deque(), WakeUp(), {0: Future(), 1: Future(), 2: Future()}
    launcher._lives = {worker: SimpleNamespace(number=7) for worker in range(4)}
    launcher._places[1].set_result(("here", None))
    try:
        errors = [RayActorError(), RayActorError(), RuntimeError("a bad world"), RayActorError()]
        for worker, error in enumerate(errors):
            answer: Future[Any] = Future()
            answer.set_exception(error)
            launcher._worker_ended(worker, 7, answer)
        assert [worker for worker, *_ in launcher._ended] == [1, 2, 3]
        ((seconds, then),) = pauses
        then()
        assert seconds == RETRY_S and launcher._ended[3][0] == 0
        launcher._lives[0].number = 8
        then()  # of a former life
        assert len(launcher._ended) == 4
    finally:
        launcher._bell.close()


# ------------------------------------------------------------------ what stays open


def begun_and_closed() -> None:
    group = Ray().spawn(toys.Counter, MEMBERS)
    group.all("add", 1)
    group.close()


def killed_and_closed() -> None:
    group: Any = Ray().spawn(toys.Counter, MEMBERS)
    os.kill(parent(group.all("pid")[0]), signal.SIGKILL)
    until(lambda: group.all("echo", 1) == [1] * MEMBERS and group.pool.replaced > 0)
    group.close()


def never_begun() -> None:
    with pytest.raises(BadRequest):
        Ray(address="elsewhere:1").spawn(toys.Counter, MEMBERS)


def not_to_be_made() -> None:
    with pytest.raises(toys.Refused):
        Ray().spawn(toys.unmakeable, MEMBERS, (toys.Refused,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "cycle",
    [
        never_begun,
        *(pytest.param(one, marks=pytest.mark.fault) for one in (killed_and_closed, begun_and_closed, not_to_be_made)),
    ],
)
@pytest.mark.usefixtures("address")
def test_no_file_stays_open(cycle: Callable[[], None]) -> None:
    cycle()  # what Ray itself opens once
    gc.collect()
    before = toys.files(sockets=False)
    for _ in range(2):
        cycle()
    gc.collect()
    until(lambda: toys.files(sockets=False) == before)


def test_a_bell_that_is_rung_too_late_writes_to_no_other_file() -> None:
    bell = WakeUp()
    bell.wake()
    bell.clear()
    number = bell.fileno()
    bell.close()
    successor = os.eventfd(0, os.EFD_NONBLOCK)
    try:
        assert successor == number
        bell.wake()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(successor)
    finally:
        os.close(successor)


class Sessions:
    """Of the launcher: a Ray of the run's own that is gone, or a joined one whose head is lost."""

    def __init__(self, lost: bool) -> None:
        self.lost, self.head = lost, "10.0.0.1:6379"
        self.owner = None if lost else SimpleNamespace(gone=lambda seconds: True)

    def renew(self) -> None:
        raise AssertionError("another Ray was started")


@pytest.mark.parametrize("lost", [False, True])
def test_what_closes_starts_no_ray_in_place_of_one_that_is_gone(lost: bool) -> None:
    """A run whose Ray ended during the last evaluation has its result, and began another Ray, or failed."""
    launcher: Any = ActorLauncher.__new__(ActorLauncher)
    launcher._ended, launcher._bell, launcher._session = deque(), WakeUp(), Sessions(lost)
    launcher._lives = {worker: SimpleNamespace(number=7) for worker in range(2)}
    assert [(gone.worker, gone.life) for gone in launcher.exits(closing=True)] == [(0, 7), (1, 7)]
    with pytest.raises(HeadLost if lost else AttributeError):  # it would clear its actors, then begin another
        launcher.exits()


def test_another_ray_that_does_not_start_is_a_failure_and_no_wrong_request(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def busy(self: session.Session, workers: int) -> None:
        attempts.append(workers)
        raise BadRequest("Ray does not start here: it timed out", "cluster.address")

    monkeypatch.setattr(session.Session, "_open", busy)
    own: Any = session.Session.__new__(session.Session)
    own.initialized, own.lost, own.owner, own._workers = True, False, None, 3
    with pytest.raises(HeadLost, match=r"^the run's own Ray is gone, and no other starts: .*it timed out$"):
        own.renew()
    assert attempts == [3] * session.RENEWALS


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"cpus": 0.00001}, "^cpus: Ray counts in steps of 0.0001, and 1e-05 lies between two$"),
        ({"gpus": 1.5}, "^gpus: a worker has a part of one GPU or whole ones, not 1.5$"),
    ],
)
def test_amounts_that_ray_does_not_have_are_refused(keys: Any, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        Ray(**keys)


def test_a_group_whose_launcher_is_lost_is_closed_all_the_same() -> None:
    launcher: Any = Threads(toys.Counter, ["here"])
    group = RemoteGroup(launcher, 1, 30.0, ())
    closed: list[bool] = []

    def lost(closing: bool = False) -> list[Exit]:
        raise HeadLost("gone")

    launcher.exits, launcher.close = lost, lambda: closed.append(True)
    with pytest.raises(HeadLost):
        group.close()
    assert closed == [True] and group.pool.socket.closed
    group.close()
    assert closed == [True]


# ------------------------------------------------------------------ a Ray of its own


def listening(pid: int) -> set[IPv4Address | IPv6Address]:
    """The addresses at which a process waits for connections."""
    own, lines = set(), []
    with suppress(OSError):  # it has ended
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # it was closed just now
                own.add(os.readlink(link))
    for name in ("tcp", "tcp6"):
        with suppress(OSError):  # without IPv6, say
            lines += [line.split() for line in Path(f"/proc/self/net/{name}").read_text().splitlines()]
    waiting = [fields for fields in lines if fields[3] == "0A" and f"socket:[{fields[9]}]" in own]
    words = [bytes.fromhex(fields[1].partition(":")[0]) for fields in waiting]  # of 32 bits each
    found = [ip_address(b"".join(one[at : at + 4][::-1] for at in range(0, len(one), 4))) for one in words]
    return {getattr(one, "ipv4_mapped", None) or one for one in found}


@pytest.mark.slow
def test_a_run_starts_its_own_ray_which_asks_for_its_token_and_leaves_nothing(tmp_path: Path) -> None:
    run = start(*QUICK, *WORLDS["pong"], "cluster=ray", "hydra.run.dir=run", "budget.steps=1000000", cwd=tmp_path)
    ends = time.monotonic() + 90
    while not (tmp_path / "run" / "metrics.jsonl").exists() or len(rows(tmp_path / "run")) < 2:
        assert run.poll() is None and time.monotonic() < ends, (tmp_path / "err").read_text()
        time.sleep(0.01)
    assert "members go to a Ray on this machine" in (tmp_path / "out").read_text()
    assert {str(ip) for pid in relatives(tmp_path / "tmp") for ip in listening(pid)} == {"127.0.0.1"}
    titles = b"\n".join(title(pid) for pid in relatives(tmp_path / "tmp"))
    (address,) = {found.decode() for found in re.findall(rb"--gcs-address=([\d.:]+)", titles)}
    asked = [
        sys.executable,
        "-c",
        f"from evorl.cluster.ray.head import resolved_address; resolved_address({address!r})",
    ]
    stranger = subprocess.run(asked, env={"HOME": str(tmp_path)}, cwd=ROOT, capture_output=True, text=True)
    assert "PermissionError: it asks for a token" in stranger.stderr
    os.killpg(run.pid, signal.SIGTERM)  # Ray is in another session
    assert run.wait(60) == 143, (tmp_path / "err").read_text()
    assert {path.name for path in (tmp_path / "tmp").iterdir()} <= {"ray"}  # Ray's own session folder
    assert not relatives(tmp_path / "tmp")


@pytest.mark.fault
def test_gpus_that_this_machine_has_not_are_refused_at_once(tmp_path: Path) -> None:
    run = start(*QUICK, *WORLDS["pong"], "cluster=ray", "cluster.gpus=1000", "hydra.run.dir=run", cwd=tmp_path)
    assert run.wait(60) == 2, (tmp_path / "err").read_text()
    *_, line = (tmp_path / "err").read_text().splitlines()
    assert re.fullmatch(r"evorl: cluster\.gpus: this machine has \d+ GPUs; \d+ x 1000 are needed", line)
    assert not (tmp_path / "run").exists() and not relatives(tmp_path / "tmp")


@pytest.mark.parametrize(("each", "here", "most"), [(0.0, 0, 9), (0.1, 1, 10), (0.6, 2, 2), (1.0, 2, 2), (2.0, 3, 1)])
def test_no_worker_has_parts_of_two_gpus(each: float, here: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_total_resources", lambda: {"CPU": 9.0, "GPU": float(here)})
    asked: Any = SimpleNamespace(config=Ray(gpus=each))
    session.Session._check_gpus(asked, most)
    if each:
        with pytest.raises(BadRequest, match=f"this machine has {here} GPUs"):
            session.Session._check_gpus(asked, most + 1)


def test_options_go_to_the_ray_that_begins_or_to_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, joined = list[Any](), list[Any]()
    monkeypatch.setattr(session.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(session, "RayOwner", lambda options: begun.append(options) or SimpleNamespace(address="here:1"))
    monkeypatch.setattr(session.atexit, "register", lambda *what: None)
    monkeypatch.setattr(session.UNTYPED, "init", lambda address, **more: joined.append((address, more)))
    session.init_ray("key", None, num_cpus=None, _plasma_directory="/x", namespace="n", logging_level="ERROR")
    assert begun == [{"num_cpus": None, "_plasma_directory": "/x"}]
    assert joined == [("here:1", {"namespace": "n", "logging_level": "ERROR"})]


# ------------------------------------------------------------------ over a network


@pytest.mark.slow
def test_a_joined_ray_is_spoken_to_with_keys_of_the_run(address: str, spawn: Callable[..., Any]) -> None:
    group = spawn(address=address, cpus=0.1)
    endpoint = group.pool.launcher.endpoint
    assert endpoint.startswith("tcp://") and not endpoint.startswith("tcp://0.0.0.0")
    refused = group.pool.refused
    context = zmq.Context()
    try:
        strangers = [stranger(context, group, mechanism) for mechanism in ("none", "token", "another's key")]
        for one in strangers:
            one.connect(endpoint)
            one.send_multipart([b"let", b"me", b"in"])
        until(lambda: group.all("echo", 1) == [1] * MEMBERS and group.pool.refused > refused)
    finally:
        context.destroy(linger=0)
    assert [answer[0] for answer in group.all("add", 1)] == [*range(MEMBERS)]


def stranger(context: zmq.Context[Any], group: Any, mechanism: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.identity = b"0.0"  # a worker's
    if mechanism == "token":
        socket.plain_username, socket.plain_password = b"worker", b"guess"
    elif mechanism == "another's key":
        Credentials(group.pool.launcher._keys.admit().server, *zmq.curve_keypair()).apply_to(socket)
    return socket


class Threads:
    """A launcher of workers in threads, on hosts of the given names."""

    def __init__(self, make: Make, hosts: list[str]) -> None:
        self.make, self.hosts, self.workers, self.host, self.watch = make, hosts, len(hosts), "here", None
        self.endpoint = "inproc://group"

    def bind(self, socket: zmq.Socket[bytes]) -> None:
        socket.bind("tcp://127.0.0.1:*")
        self.endpoint = socket.get_string(zmq.LAST_ENDPOINT)

    def start(self, token: bytes, worker: int, life: int) -> None:
        def work() -> None:
            host = self.hosts[worker]
            serve(self.make, self.endpoint, token, worker, life, lambda: True, driver=self.host, host=host)

        threading.Thread(target=work, daemon=True).start()

    def kill(self, worker: int, life: int) -> None: ...

    def exits(self, closing: bool = False) -> list[Exit]:
        return []

    def close(self) -> None: ...


def test_only_workers_of_the_same_host_get_shared_memory() -> None:
    launcher: Any = Threads(toys.Counter, ["here", "there", "there"])
    group = RemoteGroup(launcher, 6, 30.0, ())
    big = np.arange(50_000)
    assert all((one == big).all() for one in group.all("echo", big))
    assert [handle.process.reader is not None for handle in group.pool.handles] == [True, False, False]
    group.close()


@pytest.mark.slow
def test_a_cluster_without_room_is_refused(address: str) -> None:
    with pytest.raises(BadRequest, match=r"no room for 2 workers of 99 CPUs .* has 2 CPUs"):
        Ray(address=address, cpus=99.0, deadline_s=1.0).spawn(toys.Counter, MEMBERS)


@pytest.mark.slow
def test_a_process_is_part_of_one_ray(address: str) -> None:
    with pytest.raises(BadRequest, match=f"part of the Ray at {address} already"):
        Ray(address="elsewhere:1").spawn(toys.Counter, MEMBERS)
