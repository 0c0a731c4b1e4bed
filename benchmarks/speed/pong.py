"""The main job, ``evorl.run mdp=pong rl=ppo``, as a person runs it: time, score, first signs of life, memory.

The whole run by the clock, start-up, evaluations and checkpoints included; the seconds from the command to its first
line and to its first line of metrics, read from the pipe; the mean score of the last evaluation (60 games against the
rule player, of 20 points); the growth of resident memory, by a straight line through the last two thirds of the run.

    python benchmarks/speed/pong.py [--seeds 3] [--steps 0 (the world's own budget)] [--out DIR]
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import linear_regression
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from common import OURS, ROOT, arguments, machine, median, page, save

METRICS = re.compile(r"\d.* / .* steps")
PERIOD_S = 0.5
MIB = 2**20


def run(seed: int, steps: int) -> dict[str, Any]:
    """One run and what was seen of it from outside."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        words = ["mdp=pong", "rl=ppo", f"seed={seed}", *([f"budget.steps={steps}"] if steps else [])]
        command = [str(OURS), "-m", "evorl.run", *words, f"hydra.run.dir={place}"]
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        said: list[tuple[float, str]] = []
        reader = Thread(target=_read, args=(process, began, said))
        reader.start()
        memory = _memory(process, began)
        wall = time.perf_counter() - began
        reader.join()
        if process.returncode:
            raise SystemExit(f"evorl.run {' '.join(words)} ended with {process.returncode}")
        return _figures(json.loads((place / "result.json").read_text()), seed, wall, said, memory)


def _read(process: subprocess.Popen[str], began: float, said: list[tuple[float, str]]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said.append((time.perf_counter() - began, line))


def _memory(process: subprocess.Popen[str], began: float) -> list[tuple[float, float]]:
    """(seconds, resident MiB of the process and its children) until it ends."""
    samples = []
    while process.poll() is None:
        samples.append((time.perf_counter() - began, sum(map(_resident, _family(process.pid)))))
        time.sleep(PERIOD_S)
    return [sample for sample in samples if sample[1]]


def _family(pid: int) -> list[int]:
    try:
        children = [int(x) for path in Path(f"/proc/{pid}/task").glob("*/children") for x in path.read_text().split()]
    except OSError:  # it ended
        children = []
    return [pid, *(relative for child in children for relative in _family(child))]


def _resident(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    match = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(match[1]) * 1024 / MIB if match else 0.0


def _figures(
    result: dict[str, Any], seed: int, wall: float, said: list[tuple[float, str]], memory: list[tuple[float, float]]
) -> dict[str, Any]:
    late = [sample for sample in memory if sample[0] >= wall / 3]
    slope = linear_regression(*zip(*late, strict=True)).slope if len(late) > 2 else 0.0
    return {
        "seed": seed,
        "wall": wall,
        "steps": result["steps"],
        "steps_per_second": result["steps_per_second"],
        "score": result["eval"]["score_mean"],
        "episodes": result["eval"]["episodes"],
        "first_line": said[0][0],
        "first_metric": next(seconds for seconds, line in said if METRICS.search(line)),
        "MiB_most": max(resident for _, resident in memory),
        "MiB_per_5M_steps": slope * 5e6 / result["steps_per_second"],
        "memory": memory,
    }


SHOWN = {
    "wall": ("wall seconds, all of it", "{:.1f}", "< 180"),
    "steps_per_second": ("steps per second", "{:,.0f}", ""),
    "score": ("mean score", "{:+.2f}", ">= +15"),
    "first_line": ("seconds to the first line", "{:.2f}", "< 1"),
    "first_metric": ("seconds to the first metric", "{:.2f}", "< 2"),
    "MiB_most": ("resident MiB, at most", "{:.0f}", ""),
    "MiB_per_5M_steps": ("resident MiB per 5M steps", "{:+.2f}", "flat"),
}


def main() -> None:
    args = arguments(__doc__, seeds=3, steps=0)
    facts, runs = machine(), []
    for seed in range(1, args.seeds + 1):
        runs.append(run(seed, args.steps))
        print("  " + ", ".join(f"{key} {x:,.2f}" for key, x in runs[-1].items() if key != "memory"), flush=True)
        save(args.out, facts, result(runs), {"runs": runs})


def result(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The page of the runs so far."""
    header = ["evorl.run mdp=pong rl=ppo", *(f"seed {run['seed']}" for run in runs), "median", "aim"]
    rows = [
        [name, *(form.format(run[key]) for run in runs), form.format(median(run[key] for run in runs)), aim]
        for key, (name, form, aim) in SHOWN.items()
    ]
    return page("Pong, the main job", __doc__, header, rows)


if __name__ == "__main__":
    main()
