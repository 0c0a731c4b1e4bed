"""PPO on Google football: steps of training per second and goals, ours beside RLlib's on the same cores.

Both programs play the same world, evorl's, with the same engine, network, batches and passes (conf/tuned/football_ppo);
what the peer has stands in football_rllib.py. Rates: live workers are asked in turn, so that a drift of the machine
hits all alike; bare is random steps of EnvPool's own vector environment, without a learner. Rates are medians. Goals:
the deterministic policy of ours over 60 games at every evaluation, the peer's mean return over its last 100 training
games. A share counts as reached at the first evaluation at or above it, and at least the run's length where there is
none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks.speed.common import OURS, PEERS, Worker, alternate, answer, bound
from evorl.analysis.runs import RunRecord
from evorl.cli.config import experiment_of_words
from evorl.reproduction.pages import ranges
from evorl.reproduction.parts import Inputs, Measurement, Sweep
from evorl.reproduction.scores import mean_text, median_policies
from evorl.reproduction.table import Analysis, Profile, Results, Rows, Table
from evorl.util.errors import BadRequest

HERE = Path(__file__).resolve().parent
OUR_NAME, PEER_NAME, BARE_NAME = "evorl", "RLlib", "bare"
GOALS = "eval/goals_mean"
SHARE = 0.95
ROUNDS, SECONDS = 5, 10.0


class Case(NamedTuple):
    label: str
    words: tuple[str, ...]
    steps: int | None
    """Of training in ``profile=ci``; None: only its rate is measured, without the peer."""


NUMBERS = ("mdp.engine=gfootball", "mdp.observation=simple115")
ASYNCHRONOUS = ("rl.asynchronous=true", "cluster=processes", "cluster.workers=1")
CASES = {
    "close-pictures": Case("empty goal close, pictures, EnvPool", ("mdp.scenario=academy_empty_goal_close",), 100_000),
    "close-numbers": Case("empty goal close, 115 numbers", ("mdp.scenario=academy_empty_goal_close", *NUMBERS), 50_000),
    "run-numbers": Case("run to score, 115 numbers", ("mdp.scenario=academy_run_to_score", *NUMBERS), 500_000),
    "eleven-pictures": Case(
        "11 against 11, pictures, EnvPool, actions repeated 3 to 6 times, 2 passes, asynchronous",
        ("mdp.scenario=11_vs_11_easy_stochastic", "mdp.frame_skip=[3,6]", "rl.passes=2", *ASYNCHRONOUS),
        None,
    ),
}
PPO = ("mdp=football", "rl=ppo")
SEEDS, PEER_SEEDS = range(5), range(3)
LEARN = (f"seed={','.join(map(str, SEEDS))}", "eval.episodes=60")
PAPER = ("+experiment=lamarckian/ppo_football", "seed=0,1,2")


def peer_settings(words: tuple[str, ...], seed: int, steps: int | None) -> str:
    """What football_rllib.py is asked: the settings of these words."""
    made = experiment_of_words(words)
    world, rl = made.mdp, made.rl
    return json.dumps({
        "world": {
            name: getattr(world, name) for name in ("scenario", "engine", "observation", "rewards")
        },
        "games": rl.slots, "horizon": rl.horizon, "minibatch": rl.minibatch, "passes": rl.passes, "lr": rl.lr,
        "gamma": rl.gamma, "clip": rl.clip, "entropy": rl.entropy_coef, "hidden": list(rl.net.hidden),
        "cpus": os.cpu_count(), "seed": seed, "steps": steps,
    })  # fmt: skip


def rates(case: Case, inputs: Inputs) -> dict[str, Any]:
    """Steps per second of training, ours and the peer's, and of the bare engine where that is EnvPool's."""
    refuse(inputs)
    words = (*PPO, *case.words)
    world, rl = (made := experiment_of_words(words)).mdp, made.rl
    world.ready()
    with ExitStack() as stack:
        workers = {OUR_NAME: Worker(OURS, "ours.py", *words, stopped=rl.asynchronous)}
        if case.steps is not None:
            workers[PEER_NAME] = Worker(PEERS, str(HERE / "football_rllib.py"), peer_settings(words, 0, None))
        if world.engine == "envpool":
            workers[BARE_NAME] = Worker(OURS, str(HERE / "football_bare.py"), world.scenario, str(rl.slots))
        for worker in workers.values():
            stack.enter_context(worker)
        contestants = {name: lambda _, worker=worker: worker.rate(SECONDS) for name, worker in workers.items()}
        versions = {name: worker.versions for name, worker in workers.items()}
        return {"rates": alternate(contestants, range(ROUNDS)), "versions": versions}


def peer(case: Case, seed: int, inputs: Inputs) -> dict[str, Any]:
    """The peer's curve: seconds, steps, mean return."""
    refuse(inputs)
    settings = peer_settings((*PPO, *case.words), seed, case.steps)
    return dict(answer(PEERS, str(HERE / "football_rllib.py"), settings))


def refuse(inputs: Inputs) -> None:
    for word in inputs.words:
        raise BadRequest("compares programs with fixed settings, so it takes no words", word.partition("=")[0])


def ci() -> list[Sweep | Measurement]:
    parts: list[Sweep | Measurement] = []
    for name, case in CASES.items():
        parts.append(Measurement(f"football-rates/{name}", partial(rates, case)))
        if case.steps is not None:
            words = (*PPO, *case.words, *LEARN, f"budget.steps={case.steps}", f"eval.every={case.steps // 10}")
            parts.append(Sweep(f"football/{name}", words))
    close = CASES["close-numbers"]
    parts += [Measurement(f"football-peer/{seed}", partial(peer, close, seed)) for seed in PEER_SEEDS]
    return parts


def rate_rows(measured: Mapping[str, Any]) -> list[list[str]]:
    """Of the first table."""
    rows = []
    for name, case in CASES.items():
        if (sampled := measured.get(f"football-rates/{name}")) is None:
            continue
        each = {program: median(samples) for program, samples in sampled["rates"].items()}
        own, theirs, bare = (each.get(program) for program in (OUR_NAME, PEER_NAME, BARE_NAME))
        assert own is not None
        rows.append([
            case.label, f"{own:,.0f}", *(["-"] * 2 if theirs is None else [f"{theirs:,.0f}", f"{own / theirs:.2f}"]),
            *(["-"] * 2 if bare is None else [f"{bare:,.0f}", f"{own / bare:.0%}"]),
        ])  # fmt: skip
    return rows


def learned(label: str, curves: list[tuple[list[float], list[float], list[float]]]) -> list[str]:
    """A row of the second table, of seconds, steps and shares of goals of each seed."""
    crossings = [next((n for n, share in enumerate(shares) if share >= SHARE), None) for _, _, shares in curves]
    where = [-1 if n is None else n for n in crossings]
    cells = []
    for column in (0, 1):
        values = [curve[column][n] for curve, n in zip(curves, where, strict=True)]
        reached = [None if n is None else value for n, value in zip(crossings, values, strict=True)]
        cells.append(f"{bound(reached, values)}{median(values):,.0f}")
    ends = [shares[-1] for _, _, shares in curves]
    return [label, str(len(curves)), mean_text(ends, 2), *cells]


def not_run(measured: Mapping[str, Any], seeds: Mapping[str, set[int]]) -> list[str]:
    """A paragraph on what these results lack of ``profile=ci``, of the answers and the seeds of each case."""
    lack = []
    for name, case in CASES.items():
        if f"football-rates/{name}" not in measured:
            lack.append(f"rates of {case.label}")
        if case.steps is not None and (more := {*SEEDS} - seeds.get(name, set())):
            lack.append(f"learning of {case.label}, {of_seeds(more)}")
    if more := {seed for seed in PEER_SEEDS if f"football-peer/{seed}" not in measured}:
        lack.append(f"learning of the peer, {of_seeds(more)}")
    return [f"Not run: {'; '.join(lack)}."] if lack else []


def of_seeds(seeds: set[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"


def own_curve(run: RunRecord) -> tuple[list[float], list[float], list[float]]:
    series = run.series[GOALS]
    return series.seconds.tolist(), series.steps.tolist(), series.values.tolist()


def case_of(run: RunRecord) -> str:
    return run.directory.parent.name


def analyse(results: Results) -> Analysis | None:
    judged = [run for run in results.runs if GOALS in run.series]
    by_case = {name: [run for run in judged if case_of(run) == name] for name in (*CASES, "football-paper")}
    by_case = {name: runs for name, runs in by_case.items() if runs}
    peers = [curve["rows"] for name, curve in results.measured.items() if name.startswith("football-peer/")]
    first, curves = rate_rows(results.measured), {name: [*map(own_curve, runs)] for name, runs in by_case.items()}
    if not first and not curves:
        return None
    seeds = {name: {run.seed for run in runs} for name, runs in by_case.items()}
    labels = {name: case.label for name, case in CASES.items()}
    rows = [learned(f"evorl, {labels.get(name, '11 against 11, hard')}", each) for name, each in curves.items()]
    if peers:
        columns = [tuple(np.array(curve).T.tolist()) for curve in peers]
        rows.append(learned(f"RLlib, {labels['close-numbers']}", columns))
    policies, medians = median_policies({name.replace("-", "_"): runs for name, runs in by_case.items()})
    goals = Rows(("goals", "seeds", "share at the end", f"seconds to {SHARE:.0%}", "steps to it"), rows)
    return Analysis(
        header=["PPO", "evorl, steps/s", "RLlib, steps/s", "ratio", "bare EnvPool", "evorl's share of it"],
        rows=first,
        also=[goals, medians],
        notes=not_run(results.measured, seeds) if results.profile == "ci" else [],
        policies=policies,
        data={
            "rates": {
                name: results.measured[key]["rates"]
                for name in CASES
                if (key := f"football-rates/{name}") in results.measured
            },
            "goals": {name: [shares for _, _, shares in each] for name, each in curves.items()},
        },
    )


def measured(data: Mapping[str, Any]) -> str:
    sentences = []
    for name, samples in data["rates"].items():
        if PEER_NAME in samples:
            ratio = median(samples[OUR_NAME]) / median(samples[PEER_NAME])
            sentences.append(f"{CASES[name].label}: {ratio:.2f} times RLlib's steps per second")
    for name, shares in data["goals"].items():
        label = CASES[name].label if name in CASES else "11 against 11, hard"
        ends = mean_text([each[-1] for each in shares], 2)
        sentences.append(f"{label}: {ends} goals a game at the end (seeds: {len(shares)})")
    return "; ".join(sentences)


TABLE = Table(
    title="PPO on Google football",
    of="Sampling efficiency and training speed of PPO on Google football",
    claim="both are twice those of RLlib, on up to 6000 cores",
    source="Bai et al. 2022, abstract",
    about=__doc__,
    profiles={
        "ci": Profile(
            "two academy exercises and 11 against 11, both engines; rates of 5 rounds, 5 seeds of learning; 2 cores",
            5,
            ci(),
        ),
        "paper": Profile(
            "11 against 11, hard, 150,000,000 steps; 3 seeds", 2000, [Sweep("football/football-paper", PAPER)]
        ),
    },
    analyse=analyse,
    measured=measured,
    peers=True,
)
