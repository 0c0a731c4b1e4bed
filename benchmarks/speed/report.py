"""What a report costs: seconds of the command from start to end and of a processor, bytes of its page.

100 runs of 1,000 rows: five learning rates, two discounts, ten seeds, with the metrics that PPO writes, made here from
random walks. Each command is a process of its own, started anew each time; medians.

    python benchmarks/speed/report.py [--runs 100] [--rows 1000] [--rounds 3] [--out DIR]
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
from common import OURS, ROOT, arguments, machine, median, page, save

METRICS = (
    *("loss/policy", "loss/value", "loss/total", "policy/entropy", "policy/kl", "policy/clip_fraction"),
    *("optimizer/grad_norm", "optimizer/lr", "optimizer/updates", "value/explained_variance"),
    *("train/return", "train/episode_length", "train/episodes"),
    *("speed/steps_per_second", "speed/sample_seconds", "speed/update_seconds"),
)
EVALUATIONS = 20
FORMS: dict[str, list[str]] = {
    "the page and its pictures": [],
    "with every table as CSV, parquet and LaTeX": ["csv=true", "parquet=true", "latex=true"],
}


def write_runs(place: Path, runs: int, rows: int) -> None:
    for number in range(runs):
        setting, seed = divmod(number, 10)
        write_run(place / str(number), 10 ** -(2 + setting % 5 / 2), (0.9, 0.99)[setting // 5 % 2], seed, rows)


def write_run(place: Path, lr: float, gamma: float, seed: int, rows: int) -> None:
    rng = np.random.default_rng([seed, int(1e6 * lr), int(100 * gamma)])
    (place / ".hydra").mkdir(parents=True)
    (place / ".hydra" / "config.yaml").write_text(
        f"mdp:\n  _target_: evorl.mdp.gymnasium.Gymnasium\n  id: CartPole-v1\nseed: {seed}\n"
        f"rl:\n  _target_: evorl.rl.ppo.PPO\n  lr: {lr}\n  gamma: {gamma}\n"
    )
    walks = np.cumsum(rng.normal(size=(rows, len(METRICS))), 0)
    returns = 100 * gamma * (1 - np.exp(-lr * np.arange(rows))) + rng.normal(size=rows)
    lines = []
    for k in range(rows):
        measured = dict(zip(METRICS, walks[k].tolist(), strict=True)) | {"train/return": returns[k]}
        lines.append({"step": 768 * (k + 1), "time": (k + 1) * (0.1 + 0.001 * seed)} | measured)
        if (k + 1) % max(1, rows // EVALUATIONS) == 0:
            evaluated = {f"eval/return_{name}": returns[k] + by for name, by in (("mean", 0), ("min", -9), ("max", 9))}
            lines.append({"step": 768 * (k + 1), "time": (k + 1) * 0.1 + 0.01 * seed} | evaluated)
    (place / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = {"steps": 768 * rows, "seconds": rows * 0.1, "fitness": returns[-1], "eval": {"return_mean": returns[-1]}}
    (place / "result.json").write_text(json.dumps(result))


def cost(place: Path, out: Path, words: list[str]) -> tuple[float, float, int]:
    """Seconds of the command, those of a processor, and bytes of its page."""
    command = [str(OURS), "-m", "evorl.report", str(place), f"out={out}", *words]
    began, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
    after = os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - began, worked, (out / "index.html").stat().st_size


def main() -> None:
    options = arguments(__doc__, runs=100, rows=1000, rounds=3)
    costs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in FORMS}
    with tempfile.TemporaryDirectory() as place:
        write_runs(Path(place) / "runs", options.runs, options.rows)
        for number in range(options.rounds):
            for name, words in FORMS.items():
                costs[name].append(cost(Path(place) / "runs", Path(place) / f"report {name}", words))
                print(f"round {number + 1}  {name}: {costs[name][-1][0]:.1f} s", flush=True)
    rows = [
        [name, *(f"{median([run[k] for run in several]):.1f}" for k in (0, 1)), f"{several[-1][2] / 1e6:.2f}"]
        for name, several in costs.items()
    ]
    header = [f"{options.runs} runs of {options.rows:,} rows", "seconds", "processor seconds", "page, MB"]
    save(options.out, machine(), page("Reports", __doc__, header, rows), {"seconds, processor seconds, bytes": costs})


if __name__ == "__main__":
    main()
