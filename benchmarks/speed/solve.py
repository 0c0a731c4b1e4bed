"""Wall time from the command to a solved world: ours and the peers', seed by seed, alternating.

Solved: the mean return of the last 100 training episodes, and there were that many, is 475 on CartPole-v1 or -200 on
Pendulum-v1. The clock runs from the start of the process, imports included, until the program itself notices.

Ours: ``evorl.run mdp=cartpole rl=ppo`` (or pendulum, there also rl=sac) with conf/tuned, noticed in metrics.jsonl.
Stable-Baselines3: the tuned settings of rl-baselines3-zoo (hyperparams/ppo.yml of DLR-RM/rl-baselines3-zoo), without
the start-up of the zoo's own script, noticed at the end of the very episode, with the better of 1 and 2 threads, tried
first. RLlib: its tuned CartPole example, all in one process, noticed after each iteration.
CleanRL: its ppo.py (1.2.0, with gym 0.23.1) unchanged, with SB3's thread setting, noticed at the end of the very
episode; its release asks for Python < 3.11, and runs on 3.11 all the same.
A peer that is not there when its published budget is spent (100,000 steps; RLlib 200 iterations; CleanRL 500,000
steps) counts with the time until then, a lower bound marked by >=; there is no second try.

    python benchmarks/speed/solve.py [--seeds 5] [--rllib 2] [--out DIR]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from common import (
    CLEANRL,
    PEERS,
    ROOT,
    Worker,
    alternate,
    arguments,
    bound,
    machine,
    median,
    page,
    rows,
    save,
    start_bound,
    start_run,
)

EPISODES = 100
Outcome = dict[str, Any]
"""seconds, reached, steps."""


@dataclass(frozen=True)
class Case:
    name: str
    """Of our world."""
    threshold: float
    tuned: dict[str, Any]
    """For sb3.py: rl-baselines3-zoo's settings."""
    aim: float
    """Stable-Baselines3's time over ours."""


CASES = {
    "CartPole-v1": Case("cartpole", 475.0, {
        "envs": 8,
        "ppo": {
            "n_steps": 32, "batch_size": 256, "gae_lambda": 0.8, "gamma": 0.98, "n_epochs": 20, "ent_coef": 0.0,
            "learning_rate": "lin_0.001", "clip_range": "lin_0.2",
        },
    }, 3.0),
    "Pendulum-v1": Case("pendulum", -200.0, {
        "envs": 4,
        "ppo": {
            "n_steps": 1024, "gae_lambda": 0.95, "gamma": 0.9, "n_epochs": 10, "ent_coef": 0.0, "learning_rate": 1e-3,
            "clip_range": 0.2, "use_sde": True, "sde_sample_freq": 4,
        },
    }, 5.0),
}  # fmt: skip
SB3_BUDGET = 100_000
RLLIB = {"iterations": 200, "runners": 0, "learners": 0, "envs": 16, "cpus": 2, "threads": 1}


def ours(case: Case, seed: int, rl: str = "ppo") -> Outcome:
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        words = [f"mdp={case.name}", f"rl={rl}", "eval.every=0", f"seed={seed}", f"hydra.run.dir={place}"]
        began = time.perf_counter()
        process = start_run(words)
        row = {"step": 0}
        for row in rows(place / "metrics.jsonl", process):
            if row.get("train/episodes", 0) >= EPISODES and row["train/return"] >= case.threshold:
                seconds = time.perf_counter() - began
                process.kill()
                process.wait()
                return {"seconds": seconds, "reached": True, "steps": row["step"]}
        if process.wait():
            raise SystemExit(f"evorl.run {' '.join(words)} ended with {process.returncode}")
        return {"seconds": time.perf_counter() - began, "reached": False, "steps": row["step"]}


def peer(program: str, *words: str, path: Path = ROOT) -> Outcome:
    """A program of the peers' environment that says one line when it is there, or has spent its budget."""
    began = time.perf_counter()
    process = start_bound(PEERS, program, *words, path=path)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - began
    if process.wait() or not line:
        raise SystemExit(f"{program} ended with {process.returncode}")
    return {"seconds": seconds, **json.loads(line)}


def fastest(settings: dict[str, Any], threads: int) -> tuple[int, dict[str, str]]:
    """The thread setting at which Stable-Baselines3 makes most steps per second, and the versions there."""
    rates = {}
    for count in range(1, threads + 1):
        with Worker(PEERS, "sb3.py", "rate", json.dumps({**settings, "threads": count})) as worker:
            rates[count] = worker.rate(2.0)
    return max(rates, key=lambda count: rates[count]), worker.versions


def contestants(world: str, case: Case, threads: int) -> dict[str, Callable[[int], Outcome]]:
    settings = {**case.tuned, "world": world, "threads": threads, "budget": SB3_BUDGET, "threshold": case.threshold}
    programs: dict[str, Callable[[int], Outcome]] = {
        "evorl": lambda number: ours(case, number + 1),
        "SB3, tuned": lambda number: peer("sb3.py", "solve", json.dumps({**settings, "seed": number + 1})),
    }
    if world == "CartPole-v1":  # its ppo.py takes discrete actions only
        programs["CleanRL, defaults"] = partial(cleanrl, case, threads)
    else:  # SAC takes continuous actions only
        programs["evorl, rl=sac"] = lambda number: ours(case, number + 1, "sac")
    return programs


def cleanrl(case: Case, threads: int, number: int) -> Outcome:
    settings = {"threshold": case.threshold, "seed": number + 1, "threads": threads}
    return peer("cleanrl_ppo.py", json.dumps(settings), path=CLEANRL)


def rllib(case: Case, number: int) -> Outcome:
    return peer("rllib.py", json.dumps({**RLLIB, "threshold": case.threshold, "seed": number + 1}))


def lines(world: str, by_program: dict[str, list[Outcome]]) -> list[list[str]]:
    """One row for each contestant."""
    best = (
        median(outcome["seconds"] for outcome in by_program["evorl"])
        if all(outcome["reached"] for outcome in by_program["evorl"])
        else None
    )
    out = []
    for name, outcomes in by_program.items():
        taken = [outcome["seconds"] for outcome in outcomes]
        middle, sign = (
            median(taken),
            bound([outcome["seconds"] if outcome["reached"] else None for outcome in outcomes], taken),
        )
        seeds = ", ".join(("" if outcome["reached"] else ">= ") + f"{outcome['seconds']:.1f}" for outcome in outcomes)
        ratio = "" if name == "evorl" else f"{sign}{middle / best:.2f}" if best else "evorl not there"
        aim = f"{CASES[world].aim:g}" if name.startswith("SB3") else ""
        steps = f"{median(outcome['steps'] for outcome in outcomes):,.0f}"
        out.append([f"{world}: {name}", sign + f"{middle:.1f}", seeds, steps, ratio, aim])
    return out


def main() -> None:
    args = arguments(__doc__, seeds=5, rllib=2, threads=2)
    facts, results, text = machine(), {}, []
    head = ["seconds until solved", "median", "each seed", "steps (median)", "time over evorl's", "aim"]
    for world, case in CASES.items():
        print(world, flush=True)
        threads, facts["peers"] = fastest({**case.tuned, "world": world}, args.threads)
        by_program = alternate(contestants(world, case, threads), range(args.seeds))
        if world == "CartPole-v1" and args.rllib:
            by_program |= alternate({"RLlib, tuned": partial(rllib, case)}, range(args.rllib))
        results[world] = {
            "threshold": case.threshold,
            "SB3": {**case.tuned, "threads": threads},
            "outcomes": by_program,
        }
        text += lines(world, by_program)
        shown = page("Time from the command to a solved world", __doc__, head, text)
        save(args.out, facts, shown, {"RLlib": RLLIB, "worlds": results})


if __name__ == "__main__":
    main()
