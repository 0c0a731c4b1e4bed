"""PBT + PPO on vector Pong: ours against Ray Tune's PBT over RLlib's PPO, in turn on the same cores, seed by seed.

Both have the same world, population, genes (critic weight in [0, 1], learning rate in [1e-5, 0.01]), network and steps
of training between two decisions of a member. Ours is ``evorl.run +experiment=lamarckian/pbt_pong`` in as many worker
processes as there are cores, with PPO as in conf/tuned/pong_ppo (256 games, whitened inputs) and rl.compile=true; what
the peer has stands in tune.py. The compiler's work is done before, as for whoever ran it once (its seconds are told);
then the clock runs from the command, start-up included, until the fitness 0.8 (12 points of 20 ahead) or the cut-off:
ours is the mean of 60 games of the deterministic policy, which take time too, the peer's the mean of the last 100
training games. The best member of our first search is kept, and judged on other games. Steps are those of training
alone, over the whole population: per second between the first and the last result, in all up to the first result with
that fitness. The last row has the medians of the seeds' ratios.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.speed.common import PEERS, rows, start_bound, start_run
from evorl.cli.config import experiment_of_words
from evorl.cluster.local import Local
from evorl.reproduction.judging import judge
from evorl.reproduction.parts import Inputs, Measurement
from evorl.reproduction.scores import mean_text
from evorl.reproduction.table import Analysis, Policy, Profile, Results, Rows, Table
from evorl.util.errors import BadRequest

OUR_NAME, PEER_NAME = "evorl", "Ray Tune + RLlib"
FITNESS, ROUNDS = 0.8, 20
EPISODES = 60


class Size(NamedTuple):
    seeds: int
    population: int
    interval: int
    """Steps of training between two decisions of a member."""
    seconds: float
    """Cut-off."""


SIZES = {"ci": Size(2, 4, 262_144, 900.0), "paper": Size(1, 30, 1_000_000, 3600.0)}
Result = tuple[float, int, float]
"""Seconds since the command, training steps of the whole population, best fitness so far."""


OWN = ("+experiment=lamarckian/pbt_pong", "rl.compile=true")


def compiling() -> float:
    """Seconds of a run's first batch, for which the gradient step is compiled."""
    from evorl.training.train import Run

    run = Run(replace(experiment_of_words(OWN), ec=None, cluster=Local()))
    began = time.perf_counter()
    run.iterate()
    run.close()
    return time.perf_counter() - began


def ours(size: Size, seed: int, place: Path) -> list[Result]:
    """The results of a search, whose run directory is ``place``: it ends as by Ctrl-C, with a checkpoint."""
    words = [
        *OWN, f"ec.population={size.population}",
        f"ec.train_steps={size.interval}", "cluster=processes", f"cluster.workers={os.cpu_count()}",
        f"seed={seed}", f"hydra.run.dir={place}",
    ]  # fmt: skip
    shutil.rmtree(place, ignore_errors=True)  # of a measurement that was stopped
    began = time.perf_counter()
    process = start_run(words)
    results: list[Result] = []
    try:
        steps, best = 0, 0.0
        for row in rows(place / "population.jsonl", process):
            steps += row["cost"] - round(EPISODES * row["results"]["length"])
            best = max(best, row["objectives"]["fitness"])
            results.append((time.perf_counter() - began, steps, best))
            if best >= FITNESS or results[-1][0] > size.seconds:
                return results
    finally:
        process.terminate()
        process.wait()
    raise SystemExit(f"evorl.run {' '.join(words)} ended with {process.returncode}")


def peer(size: Size, seed: int) -> tuple[list[Result], dict[str, str]]:
    net = experiment_of_words(OWN).rl.net
    settings = {
        "seconds": size.seconds, "fitness": FITNESS, "rounds": ROUNDS, "population": size.population,
        "interval": size.interval, "seed": seed, "began": time.time(), "net": {
            "fcnet_hiddens": list(net.hidden), "fcnet_activation": net.activation, "vf_share_layers": net.shared,
        },
    }  # fmt: skip
    process = start_bound(PEERS, str(Path(__file__).resolve().parent / "tune.py"), json.dumps(settings))
    assert process.stdout is not None
    lines = [line for line in process.stdout if line.startswith('{"rows"')]
    if process.wait() or not lines:
        raise SystemExit(f"tune.py ended with {process.returncode}")
    said = json.loads(lines[0])
    return [(t, steps, best) for t, steps, best in said["rows"]], said["versions"]


def rate(results: list[Result]) -> float:
    (began, before, _), (ended, after, _) = results[0], results[-1]
    return (after - before) / (ended - began)


def arrival(results: list[Result]) -> Result:
    """The first result at the fitness, else the last one."""
    return next((result for result in results if result[2] >= FITNESS), results[-1])


def row(name: str, results: list[Result], own: list[Result]) -> list[str]:
    """Of the table; times are lower bounds where the fitness was never reached."""
    seconds, steps, best = arrival(results)
    sign = "" if best >= FITNESS else ">= "
    ratio = rate(own) / rate(results)
    ours_seconds, _, ours_best = arrival(own)
    time_ratio = f"{sign}{seconds / ours_seconds:.1f}" if ours_best >= FITNESS else "evorl not there"
    return [
        name,
        f"{rate(results):,.0f}",
        f"{ratio:.1f}",
        f"{sign}{seconds:.0f}",
        time_ratio,
        f"{best:.3f}",
        f"{steps:,}",
    ]


def middle(cells: list[str]) -> str:
    """The median of ratios as they are shown: some may be lower bounds, or words where ours missed the fitness."""
    if not all(cell.removeprefix(">= ").replace(".", "").isdigit() for cell in cells):
        return "-"
    bounds = sorted((float(cell.removeprefix(">= ")), cell) for cell in cells)
    lower = any(cell.startswith(">=") for _, cell in bounds[: len(bounds) // 2 + 1])
    return f"{'>= ' if lower else ''}{median([number for number, _ in bounds]):.1f}"


def table(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each program and seed, then the medians of the seeds' ratios."""
    rows = []
    for run in runs:
        rows += [row(f"{name}, seed {run['seed']}", run[name], run[OUR_NAME]) for name in (OUR_NAME, PEER_NAME)]
    peers = rows[1::2]
    ratios = [middle([cells[column] for cells in peers]) for column in (2, 4)]
    return [*rows, ["median of the ratios", "", f"**{ratios[0]}**", "", f"**{ratios[1]}**", "", ""]]


def contest(size: Size, seed: int, inputs: Inputs) -> dict[str, Any]:
    """Both programs in turn, with a compiler's cache of their own."""
    for word in inputs.words:
        raise BadRequest("compares programs with fixed settings, so it takes no words", word.partition("=")[0])
    with TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        compiled, load = compiling(), round(os.getloadavg()[0], 2)
        own = ours(size, seed, inputs.folder)
        print(f"seed {seed}: {own[-1]}", flush=True)
        peer_run, versions = peer(size, seed)
    return {
        "seed": seed, OUR_NAME: own, PEER_NAME: peer_run, "peers": versions, "load": load, "compiler": round(compiled),
    }  # fmt: skip


def contests(size: Size) -> list[Measurement]:
    return [Measurement(f"pbt/{seed}", partial(contest, size, seed)) for seed in range(size.seeds)]


def core_hours(runs: Sequence[Mapping[str, Any]], cores: int) -> float:
    """Of both programs, on all cores, until their last result."""
    return round(cores * sum(run[name][-1][0] for run in runs for name in (OUR_NAME, PEER_NAME)) / 3600, 2)


def analyse(results: Results) -> Analysis | None:
    runs = list(results.measured.values())
    if not runs:
        return None
    size = SIZES[results.profile]
    policies, also = best_member(results.folder / next(iter(results.measured)))
    header = [
        f"PBT + PPO, population {size.population}", "steps per second", "evorl's over it",
        f"seconds to fitness {FITNESS}", "over evorl's", "best fitness", "training steps",
    ]  # fmt: skip
    return Analysis(
        header=header,
        rows=table(runs),
        also=also,
        policies=policies,
        facts={
            "compiler, before the clock": f"{runs[0]['compiler']} s",
            "load before each seed": ", ".join(str(run["load"]) for run in runs),
            "peers": runs[0]["peers"],
            "core hours": core_hours(runs, os.cpu_count() or 1),
        },
        data={
            "profile": size._asdict(),
            "runs": [{name: run[name] for name in ("seed", OUR_NAME, PEER_NAME)} for run in runs],
        },
    )


def best_member(search: Path) -> tuple[dict[str, Policy], list[Rows]]:
    """The policy of the best member of the search in a directory, and a table of it; nothing if there is no run."""
    if not search.is_dir():
        return {}, []
    kept = Policy(search, ("individual=best",))
    judged, _ = judge(*kept, film=False)
    shown = ["pbt_pong", f"{judged['seed']}", f"{judged['return_mean']:.2f}"]
    return {shown[0]: kept}, [Rows(("policy of the best member", "seed", "return on other games"), [shown])]


def measured(data: Mapping[str, Any]) -> str:
    """The mean ratio with its interval, the ratio of each seed, and how much sooner the fitness was there."""
    ratios = [rate(run[OUR_NAME]) / rate(run[PEER_NAME]) for run in data["runs"]]
    seconds = table(data["runs"])[-1][4].strip("*")
    each = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    times = f"{mean_text(ratios, 1)} times the steps per second ({each})"
    return f"{times}, {seconds} times as soon at fitness {FITNESS}"


TABLE = Table(
    title="PBT + PPO on vector Pong",
    of="Training speed of PBT + PPO on Pong",
    claim="13 times the training speed of RLlib (of 2022), with a population of 30",
    source="Bai et al. 2022, abstract",
    about=__doc__,
    profiles={
        "ci": Profile("population 4, 15 minutes at most; 2 seeds; 2 cores", 1, contests(SIZES["ci"])),
        "paper": Profile("population 30, an hour at most; one seed; 2 cores", 4, contests(SIZES["paper"])),
    },
    analyse=analyse,
    measured=measured,
    peers=True,
)
