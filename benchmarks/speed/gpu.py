"""What a GPU is worth: ours with device=cpu, on one thread and on several, and with device=cuda, in turn.

The first three cases are gradient steps per second of learning alone: one batch is collected, then it is learned from
again and again. The others are environment steps per second from end to end, each with a gradient step, beside
Stable-Baselines3 with the same settings on the same GPU. Pictures are 4 x 84 x 84 bytes, of a world that costs nothing
to step (pictures.py). Medians of the samples.

    python benchmarks/speed/gpu.py [--samples 5] [--seconds 3] [--threads 8] [--out DIR]
"""

from __future__ import annotations

import json
from contextlib import ExitStack

import torch
from common import OURS, PEERS, Worker, alternate, arguments, machine, median, page, save
from learners import CASES as LEARNING
from off_policy import CASES as WHOLE
from ppo import Case

PEER = "SB3, the same settings"
BESIDE = [case for case in WHOLE if not case.name.startswith("DQN, 64-64")]


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=3.0, threads=8)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device here")
    many = f"CPU, {args.threads} threads"
    places = {"CPU, 1 thread": "device=cpu rl.threads=1", many: f"device=cpu rl.threads={args.threads}"}
    places["GPU"] = "device=cuda rl.threads=1"
    programs = {name: ("learners.py", "learn", *words.split()) for name, words in LEARNING.items()}
    programs |= {case.name: ("ours.py", *case.words.split()) for case in BESIDE}
    peers: dict[str, Case] = {case.name: case for case in BESIDE}
    facts, data, rows = machine() | {"gpu": torch.cuda.get_device_name(), "peers": {}}, {}, []
    for name, program in programs.items():
        with ExitStack() as stack:
            workers = {
                place: stack.enter_context(Worker(OURS, *program, *words.split())) for place, words in places.items()
            }
            if name in peers:
                settings = {**peers[name].peers[PEER].settings, "threads": 1, "device": "cuda"}
                workers[PEER] = stack.enter_context(Worker(PEERS, "sb3.py", "rate", json.dumps(settings)))
                facts["peers"] |= workers[PEER].versions
            asked = {place: lambda _, one=one: one.rate(args.seconds) for place, one in workers.items()}
            data[name] = found = alternate(asked, range(args.samples))
        rates = {place: median(samples) for place, samples in found.items()}
        best = max(rates[place] for place in places if place != "GPU")
        ratios = [rates["GPU"] / best, *([rates["GPU"] / rates[PEER]] if PEER in rates else [])]
        cells = [f"{rates[place]:,.1f}" if place in rates else "" for place in (*places, PEER)]
        rows.append([name, *cells, *(f"{x:.2f}" for x in ratios), *[""] * (2 - len(ratios))])
        header = ["case", *places, f"{PEER}, GPU", "GPU / CPU at its best", "GPU / SB3"]
        save(args.out, facts, page("GPU", __doc__, header, rows), {"rates": data})


if __name__ == "__main__":
    main()
