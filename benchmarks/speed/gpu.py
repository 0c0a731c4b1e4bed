"""What a GPU is worth: ours with device=cpu, on one thread and on eight, and with device=cuda.

The first three cases are gradient steps per second of learning alone: one batch is collected, then it is learned from
again and again. The others are environment steps per second from end to end, each with a gradient step, beside
Stable-Baselines3 with the same settings on the same GPU. Pictures are 4 x 84 x 84 bytes, of a world that costs nothing
to step (pictures.py). Everybody starts at once, then they take turns. Medians of the samples.

    python benchmarks/speed/gpu.py [--samples 5] [--seconds 3] [--out DIR]
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import torch
from common import OURS, PEERS, Worker, alternate, arguments, machine, median, page, save
from learners import CASES as LEARNING
from off_policy import CASES as WHOLE

GPU, PEER = "GPU", "SB3, GPU"
MANY = 8
PLACES = {
    "CPU, 1 thread": "device=cpu rl.threads=1",
    f"CPU, {MANY} threads": f"device=cpu rl.threads={MANY}",
    GPU: "device=cuda rl.threads=1",
}
BESIDE = {case.name: case for case in WHOLE if not case.name.startswith("DQN, 64-64")}
PROGRAMS = {
    **{name: ("learners.py", "learn", *words.split()) for name, words in LEARNING.items()},
    **{name: ("ours.py", *case.words.split()) for name, case in BESIDE.items()},
}


def commands(name: str) -> dict[str, tuple[Any, ...]]:
    """The worker of each contestant."""
    programs: dict[str, tuple[Any, ...]] = {
        place: (OURS, *PROGRAMS[name], *words.split()) for place, words in PLACES.items()
    }
    if name in BESIDE:
        settings = {**BESIDE[name].peers["SB3, the same settings"].settings, "threads": 1, "device": "cuda"}
        programs[PEER] = (PEERS, "sb3.py", "rate", json.dumps(settings))
    return programs


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=3.0)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here")
    facts, data, rows = machine() | {"gpu": torch.cuda.get_device_name(), "peers": {}}, {}, []
    header = ["per second", *PLACES, PEER, "GPU / CPU at its best", "GPU / SB3"]
    jobs = [(name, place, command) for name in PROGRAMS for place, command in commands(name).items()]
    with ExitStack() as stack, ThreadPoolExecutor(len(jobs)) as pool:
        started = pool.map(lambda job: Worker(*job[2]), jobs)
        workers = {job[:2]: stack.enter_context(worker) for job, worker in zip(jobs, started, strict=True)}
        for name in PROGRAMS:
            workers_of_case = {place: worker for (case, place), worker in workers.items() if case == name}
            facts["peers"] |= workers_of_case[PEER].versions if PEER in workers_of_case else {}
            rate = {
                place: lambda _, worker=worker: worker.rate(args.seconds) for place, worker in workers_of_case.items()
            }
            data[name] = alternate(rate, range(args.samples))
            rates = {place: median(samples) for place, samples in data[name].items()}
            ratios = [rates[GPU] / max(x for place, x in rates.items() if place.startswith("CPU"))]
            ratios += [rates[GPU] / rates[PEER]] if PEER in rates else []
            cells = [f"{rates[place]:,.1f}" if place in rates else "" for place in (*PLACES, PEER)]
            rows.append([name, *cells, *(f"{x:.2f}" for x in ratios), *[""] * (2 - len(ratios))])
            save(args.out, facts, page("GPU", __doc__, header, rows), {"rates": data})


if __name__ == "__main__":
    main()
