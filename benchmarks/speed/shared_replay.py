"""What reading the replay costs an evolution with a shared critic: CEM-RL on HalfCheetah, on 1 host, 2 and 3 hosts.

On 1 host both workers map the driver's memory. On 2 hosts one worker is beside the driver, and 1 or 2 are on another
host, where one keeps a copy that follows by the rows that it lacks and the other maps it. On 3 hosts 1 is beside the
driver and 1 on each other host. The other hosts are simulated: processes of this machine that do not share memory with
the driver and connect over loopback with CURVE, so waits leave out the network. Rows of the replay and all other
messages (weights, critics, episodes) are counted apart, each with its arrays and its plain data. Arrays that a process
of the same host maps do not cross.

A job that reads the replay waits from the moment when the driver assigns it to a worker until it begins. That includes
reading the rows, encryption, storing and confirming them, and the job's own message; where workers share a core, also
that. In the reference, a process that holds the replay answers a call for each gradient step with a minibatch of 256:
its wait is the time of such a call.

    python benchmarks/speed/shared_replay.py [--steps 10_000] [--calls 300] [--out DIR]
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
from common import ROOT, arguments, machine, median, page, save

sys.path += [str(ROOT / "tests" / "cluster"), str(ROOT / "tests")]
from islands import IslandLauncher, Islands
from ours import experiment
from replay import BATCH, SPEC, fragment

from evorl.cluster.transport.wire import Header, Kind
from evorl.cluster.workers.inbox import Inbox
from evorl.cluster.workers.sender import Sender
from evorl.ec.shared_critic import TRAINED
from evorl.population.critic_jobs import CRITIC
from evorl.population.critic_loop import CriticPopulation
from evorl.replay.samplers.uniform import uniform
from evorl.replay.storage import Replay, Shape

HERE = IslandLauncher.host
HOSTS = {
    "1 host, 2 workers": (HERE, HERE), "2 hosts, 1 worker on the other": (HERE, "b"),
    "2 hosts, 2 workers on the other": (HERE, "b", "b"), "3 hosts, 1 worker on each other": (HERE, "b", "c"),
}  # fmt: skip
WORDS = (
    *("mdp=halfcheetah", "rl=td3", "ec=cem_rl", "ec.population=4", "ec.trained=2", "rl.net.hidden=[64,64]"),
    *("rl.warm_up=2000", "rl.capacity=100000", f"rl.batch={BATCH}", "eval.every=0", "record.tensorboard=false"),
)


class Sampler:
    """A process that holds a replay and answers with minibatches: the reference."""

    def __init__(self, member: int) -> None:
        self.replay = Replay(SPEC, Shape(10_000, 1))
        for number in range(200):
            self.replay.append(fragment(number))

    def sample(self, update: int) -> list[Any]:
        count = self.replay.count
        numbers = uniform(5, update, 1, BATCH, self.replay.oldest(count), count)
        batch = self.replay.read(numbers.reshape(-1), count, np.array([0.99]))
        return [*batch.inputs, batch.action, batch.reward, batch.discount, *batch.next_inputs]


class Traffic:
    """Bytes of messages by what they carry, and when jobs were sent to each process."""

    def __init__(self) -> None:
        self.bytes: Counter[str] = Counter()
        self.sent: defaultdict[int, list[float]] = defaultdict(list)


@contextmanager
def watched() -> Iterator[Traffic]:
    """Count what the driver of a group sends and receives."""
    send, tell, assign, handled = Sender.send, Sender._send_to_receiver, Sender.assign, Inbox._handle
    traffic = Traffic()

    def sends(self: Any, handle: Any, kind: Kind, envelope: object, payload: Any, place: bytes = b"") -> None:
        crosses = payload.size if not self.is_near(handle) or payload.block is None else 0
        traffic.bytes["others"] += len(payload.body) + crosses
        send(self, handle, kind, envelope, payload, place)

    def tells(self: Any, handle: Any, kind: Kind, envelope: object, payload: Any) -> None:
        traffic.bytes["replay" if kind in (Kind.FOLLOW, Kind.LOCATE) else "others"] += len(payload.body) + payload.size
        tell(self, handle, kind, envelope, payload)

    def assigns(self: Any, handle: Any, calls: Any) -> None:
        traffic.sent[handle.process.pid].append(time.time())
        assign(self, handle, calls)

    def handles(self: Any, identity: bytes, frames: list[bytes]) -> None:
        if Header.unpack(frames[0]).kind == Kind.ANSWER:
            traffic.bytes["others"] += sum(map(len, frames))
        handled(self, identity, frames)

    sending = patch.multiple(Sender, send=sends, _send_to_receiver=tells, assign=assigns)
    with sending, patch.object(Inbox, "_handle", handles):
        yield traffic


def evolution(hosts: tuple[str, ...], steps: int) -> dict[str, Any]:
    """Bytes and waits of a run over these hosts, one worker on each that is named."""
    whole: Any = replace(experiment(WORDS), cluster=Islands(workers=len(hosts), hosts=hosts))
    waits: list[float] = []
    gradient_steps = 0
    with watched() as traffic:
        run: Any = CriticPopulation(whole, whole.ec)
        add = run.clock.seconds.add

        def adds(kind: str, worked: Any) -> None:
            if kind in (TRAINED, CRITIC):
                # the process may have got its next job before the answer to this one was taken
                waits.append(min(worked.began - at for at in traffic.sent[worked.process] if at <= worked.began))
            add(kind, worked)

        run.clock.seconds.add = adds
        try:
            while run.steps < steps:
                gradient_steps += sum(row["gradient_steps"] for row in run.iterate().jobs)
        finally:
            run.close()
    return {"transitions": run.steps, "gradient steps": gradient_steps, "waits": waits, "bytes": dict(traffic.bytes)}


def reference(calls: int) -> dict[str, Any]:
    """Bytes and waits of a call for each gradient step."""
    with watched() as traffic:
        group = Islands(workers=1, hosts=("b",)).spawn(Sampler, 1)
        try:
            group.any("sample", 0).result()
            traffic.bytes.clear()
            waits = []
            for update in range(calls):
                began = time.perf_counter()
                group.any("sample", update).result()
                waits.append(time.perf_counter() - began)
        finally:
            group.close()
    return {"bytes": traffic.bytes["others"] / calls, "waits": waits}


def row(name: str, run: dict[str, Any]) -> list[str]:
    steps, transitions, sizes = run["gradient steps"], run["transitions"], run["bytes"]
    wait, replay, others = sum(run["waits"]), sizes.get("replay", 0), sizes["others"]
    figures = (
        replay / transitions, replay / steps, others / steps, 1e3 * median(run["waits"]),
        1e6 * wait / transitions, 1e6 * wait / steps,
    )  # fmt: skip
    return [name, *(f"{x:,.1f}" for x in figures)]


def main() -> None:
    args = arguments(__doc__, steps=10_000, calls=300)
    header = [
        "", "replay, B per transition", "replay, B per gradient step", "other messages, B per gradient step",
        "wait of a job, ms", "wait, us per transition", "wait, us per gradient step",
    ]  # fmt: skip
    single = reference(args.calls)
    wait_us = 1e6 * median(single["waits"])
    lines, data = [["a call per gradient step", "", f"{single['bytes']:,.1f}", "", "", "", f"{wait_us:,.1f}"]], {}
    for name, hosts in HOSTS.items():
        data[name] = evolution(hosts, args.steps)
        lines.append(row(name, data[name]))
        text = page("The replay of an evolution with a shared critic", __doc__, header, lines)
        save(args.out, machine(), text, {"reference": single, **data})


if __name__ == "__main__":
    main()
