"""Time efficiency: evolution with a shared critic on more and more workers, with and without a generation's barrier.

Numbers are means over the seeds of the runs, of several with their 95 % intervals (Student's t).

Synchronous is P-CEM-RL with a serial critic; asynchronous is AES-RL, with as many individuals in flight as workers,
which do the steps of the critic as well. Measured are whole runs on HalfCheetah with the same work per environment
step as the full one: environment steps that count per second after the warm-up, how much of the workers' time is
within jobs, and the gradient steps for each environment step. The critic's lag is bounded, so that it does its share.
Beside it is a simulation by discrete events (simulation.py) with the times of the stages as they were measured with
one worker: what the schedules allow where every worker has a core of its own. AES-RL also plays its mean five times
for each individual, which costs time and is not counted.

A second table is of Hopper, whose episodes end at unlike times: the searches with a critic beside the actors on four
workers (P-CEM-RL waits at the end of a generation), and how busy their workers are.

Workers beyond the machine's cores share them, so only the simulation tells of more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks.aes_rl.family import SMALL, algorithm
from benchmarks.aes_rl.simulation import Outcome, Shape, Stages, asynchronous, synchronous
from evorl.analysis.runs import RunRecord
from evorl.ops.student_t import half_width
from evorl.reproduction.parts import Sweep
from evorl.reproduction.scores import mean_text
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Rows, Table

WORKERS = (1, 2, 3, 4, 5)
SIMULATED = (*WORKERS, 8, 16, 32)
MODES = {"p_cem_rl": "synchronous", "aes_rl": "asynchronous"}
QUICK = ("rl.warm_up=2000", "ec.critic_job=200", "eval.every=0", "eval.episodes=1", *SMALL)
SEEDS = "seed=0,1,2"
SHORT = (SEEDS, "mdp.time_limit=200", "budget.steps=14000", *QUICK)
BOUNDED = "ec.max_critic_lag=400"
LONG = ("budget.steps=200_000", "eval.every=0")


def _sweeps(synchronous: str, asynchronous: str, words: tuple[str, ...]) -> list[Sweep]:
    """One after the other, since each run is timed."""
    numbers = ",".join(map(str, WORKERS))
    return [
        Sweep("synchronous", (
            f"+experiment=aes_rl/{synchronous}", "cluster=processes", f"cluster.workers={numbers}", *words,
        )),
        Sweep("asynchronous", (
            f"+experiment=aes_rl/{asynchronous}", "cluster=processes", f"cluster.workers={numbers}",
            "ec.slots=${cluster.workers}", BOUNDED, *words,
        )),
    ]  # fmt: skip


UNLIKE = (SEEDS, "mdp=hopper", "cluster=processes", "cluster.workers=4", "budget.steps=8000", BOUNDED, *QUICK)
SWEEPS = {
    "ci": [
        *_sweeps("p_cem_rl", "halfcheetah", SHORT),
        Sweep("hopper", (
            "+experiment=aes_rl/hopper,aes_rl/acem_rl,aes_rl/one_plus_one_rl", "ec.slots=${cluster.workers}", *UNLIKE,
        )),
        Sweep("hopper_generations", ("+experiment=aes_rl/p_cem_rl", "ec.parallel_critic=true", *UNLIKE)),
    ],
    "paper": _sweeps("as_published/p_cem_rl_halfcheetah", "as_published/aes_rl_halfcheetah", LONG),
}  # fmt: skip


class Measured(NamedTuple):
    steps_per_second: float
    busy: float
    gradient_steps: float  # of actors and critics, for each environment step


def jobs_of(run: RunRecord) -> list[dict[str, Any]]:
    """The lines of its journal of jobs; a torn last one is left out."""
    lines = (run.directory / "jobs.jsonl").read_bytes().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def measure(jobs: Sequence[dict[str, Any]], workers: int) -> Measured:
    """From the first trained individual on: the critic has made up for the warm-up by then."""
    began = min(job["began"] for job in jobs if job["kind"] == "trained")
    after = [job for job in jobs if job["began"] >= began]
    spent = max(job["ended"] for job in after) - began
    counted = after[-1]["step"] - after[0]["step"]
    busy = sum(job["ended"] - job["began"] for job in after) / (workers * spent)
    return Measured(counted / spent, busy, sum(job["gradient_steps"] for job in after) / counted)


def stages_of(jobs: Sequence[dict[str, Any]], length: float, population: int) -> Stages:
    """Mean times of the stages, of an episode of so many steps."""

    def per_gradient_step(kind: str) -> float:
        those = [job for job in jobs if job["kind"] == kind]
        return float(sum(job["trained"] - job["began"] for job in those) / sum(job["gradient_steps"] for job in those))

    def playing(*kinds: str) -> float:
        return float(np.mean([job["ended"] - job["trained"] for job in jobs if job["kind"] in kinds] or [0.0]))

    train = per_gradient_step("trained") * population * length
    return Stages(train, playing("trained", "evolved"), per_gradient_step("critic") * length, playing("mean"))


def alone(runs: Sequence[RunRecord], mode: str) -> Stages | None:
    """The stages of a mode's runs with one worker, on average."""
    stages = []
    for run in runs:
        if MODES[run.choices["ec"]] == mode and run.config["cluster.workers"] == 1:
            jobs = jobs_of(run)
            stages.append(stages_of(jobs, float(np.mean(lengths(jobs))), int(run.config["ec.population"])))
    return Stages(*np.mean(stages, axis=0).tolist()) if stages else None


def lengths(jobs: Sequence[dict[str, Any]]) -> list[int]:
    """Environment steps of each episode that counts."""
    ends = [job["step"] for job in jobs if job["kind"] not in ("critic", "mean")]
    return [after - before for before, after in pairwise([0, *ends])]


def cells(runs: Sequence[Measured]) -> list[str]:
    """Steps per second, how busy, and gradient steps: of the runs of all seeds."""
    rates, busy, gradient_steps = zip(*runs, strict=True)
    return [mean_text(rates), f"{mean_text([100 * share for share in busy])} %", f"{np.mean(gradient_steps):.1f}"]


def unlike_rows(by_algorithm: Mapping[str, Sequence[tuple[Measured, Sequence[int]]]]) -> list[list[str]]:
    """Of the table of Hopper: a row for each algorithm, of what its runs measured and of their episodes' steps."""
    shown = []
    for name, runs in by_algorithm.items():
        steps = [step for _, episodes in runs for step in episodes]
        shown.append([name, f"{min(steps)} to {max(steps)}", *cells([sample for sample, _ in runs])])
    return shown


def rows(
    samples: Mapping[tuple[str, int], Sequence[Measured]], outcomes: Mapping[tuple[str, int], Outcome], length: float
) -> list[list[str]]:
    """Of the table: a row for each number of workers."""
    shown = []
    for workers in SIMULATED:
        row = [str(workers)]
        for mode in MODES.values():
            runs = samples.get((mode, workers))
            row += cells(runs) if runs else ["-"] * 3
        for mode in MODES.values():
            outcome = outcomes[mode, workers]
            row += [f"{outcome.per_second * length:.0f}", f"{outcome.busy:.0%}"]
        shown.append(row)
    return shown


def draw(
    samples: Mapping[tuple[str, int], Sequence[Measured]], outcomes: Mapping[tuple[str, int], Outcome], length: float
) -> Figure:
    figure = Figure(figsize=(10, 4), layout="constrained")
    rate, busy = figure.subplots(1, 2)
    for colour, mode in enumerate(MODES.values()):
        simulated = [outcomes[mode, workers] for workers in SIMULATED]
        counts = [workers for workers in WORKERS if (mode, workers) in samples]
        look: dict[str, Any] = {"color": f"C{colour}"}
        rate.plot(SIMULATED, [outcome.per_second * length for outcome in simulated], **look, label=f"{mode}, simulated")
        busy.plot(SIMULATED, [outcome.busy for outcome in simulated], **look)
        rates, shares = ([[sample[at] for sample in samples[mode, n]] for n in counts] for at in (0, 1))
        for axes, values, label in ((rate, rates, f"{mode}, measured"), (busy, shares, None)):
            means, halves = [np.mean(each) for each in values], [half_width(each) for each in values]
            axes.errorbar(counts, means, halves, fmt="o", **look, label=label)
    rate.set(xlabel="workers", ylabel="environment steps per second", xscale="log")
    busy.set(xlabel="workers", ylabel="share of the workers' time within jobs", xscale="log", ylim=(0, 1.05))
    for axes in (rate, busy):
        axes.set_xticks(SIMULATED, map(str, SIMULATED), minor=False)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
    rate.set_ylim(bottom=0)
    rate.legend(frameon=False)
    return figure


UNLIKE_HEADER = ("Hopper, 4 workers", "steps of an episode", "steps/s", "busy", "gradient steps per step")


def analyse(results: Results) -> Analysis | None:
    finished = [run for run in results.runs if run.result is not None]
    done = [run for run in finished if run.choices["mdp"] == "halfcheetah"]
    stages = {mode: durations for mode in MODES.values() if (durations := alone(done, mode)) is not None}
    if len(stages) < len(MODES):
        return None
    samples: dict[tuple[str, int], list[Measured]] = {}
    for run in done:
        workers = run.config["cluster.workers"]
        samples.setdefault((MODES[run.choices["ec"]], workers), []).append(measure(jobs_of(run), workers))
    length = float(np.mean([np.mean(lengths(jobs_of(run))) for run in done]))
    unlike: dict[str, list[tuple[Measured, list[int]]]] = {}
    for run in finished:
        if run.choices["mdp"] == "hopper":
            jobs = jobs_of(run)
            sample = measure(jobs, run.config["cluster.workers"]), lengths(jobs)
            unlike.setdefault(algorithm(run), []).append(sample)
    simulate = {"synchronous": synchronous, "asynchronous": asynchronous}
    outcomes = {(mode, n): simulate[mode](stages[mode], Shape(), n) for mode in stages for n in SIMULATED}
    header = ["workers"]
    for kind, more in (("measured", ["gradient steps per step"]), ("simulated", [])):
        header += [f"{kind} {mode}, {what}" for mode in MODES.values() for what in ("steps/s", "busy", *more)]
    return Analysis(
        header=header,
        rows=rows(samples, outcomes, length),
        also=[Rows(UNLIKE_HEADER, unlike_rows(unlike))] if unlike else [],
        pictures=[Picture("time_efficiency", "Steps per second over workers", draw(samples, outcomes, length))],
        facts={
            f"seconds of the stages, {mode}": {k: round(x, 4) for k, x in seconds._asdict().items()}
            for mode, seconds in stages.items()
        },
        data={
            "measured": {f"{mode} {n}": [sample._asdict() for sample in runs] for (mode, n), runs in samples.items()},
            "simulated": {f"{mode} {n}": outcome._asdict() for (mode, n), outcome in outcomes.items()},
            "hopper": {
                name: [{**sample._asdict(), "lengths": steps} for sample, steps in runs]
                for name, runs in unlike.items()
            },
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    """Of two workers."""
    texts = []
    for mode in MODES.values():
        if runs := data["measured"].get(f"{mode} 2"):
            rate, busy, _ = cells([Measured(**sample) for sample in runs])
            texts.append(f"{mode} {rate} steps/s, {busy} busy (runs: {len(runs)})")
    return "HalfCheetah, 2 workers: " + "; ".join(texts)


TABLE = Table(
    title="Time efficiency: synchronous and asynchronous",
    of="Time efficiency over the number of workers, synchronous and asynchronous",
    claim="the asynchronous search takes less time than the methods before it; the numbers are not known to us",
    source="Lee et al. 2020, abstract",
    about=__doc__,
    profiles={
        "ci": Profile(
            "network of 64-64, episodes of 200 steps, 14,000 steps, Hopper 8,000; 3 seeds", 0.8, SWEEPS["ci"]
        ),
        "paper": Profile(
            "the published settings, 200,000 steps; six free cores, or a Ray cluster: cluster=ray cluster.address=auto",
            30, SWEEPS["paper"],
        ),
    },
    analyse=analyse,
    measured=measured,
)  # fmt: skip
