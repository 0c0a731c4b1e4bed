"""DQN beside Stable-Baselines3's and CleanRL's (dqn.py, dqn_atari.py, unchanged) at equal settings.

The settings are those of +experiment=elite_replay/dqn/WORLD; the others' are derived from them. All have the same
network, Adam, one transition per decision, uniform sampling, one gradient step for so many decisions, and the same
epsilon. The loss of Stable-Baselines3 is Huber's and that of CleanRL the squared error, so ours runs with each.
Gradients are not clipped. Told is the mean return of the last 100 training episodes, with the exploration that they
have, since CleanRL's programs evaluate nothing: at the end, and its mean over the run. A number is the interquartile
mean over seeds with its 95 % stratified bootstrap interval; "beside" says how the interval of ours lies beside that of
the one with the same loss. Core hours of ours hold an evaluation at the end, so they tell no speed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.elite_replay.arms import world_of
from benchmarks.speed.common import PEERS, answer
from evorl.analysis.runs import RunRecord, Series
from evorl.cli.config import experiment_of_words
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import ALONE, CLUSTER, Inputs, Measurement, Sweep
from evorl.reproduction.scores import core_hours, curve, median_policies, samples, score_text, scored
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table
from evorl.reproduction.verdicts import beside

if TYPE_CHECKING:
    from evorl.training.experiment import Experiment

METRIC = "train/return"
EPISODES = 100
"""That it is the mean of, as `evorl` and Stable-Baselines3 have it."""
GYMNASIUM = {"cartpole": "CartPole-v1", "lunarlander": "LunarLander-v3", "pong": "PongNoFrameskip-v4"}
TITLES = {"cartpole": "CartPole", "lunarlander": "LunarLander", "pong": "Pong from pixels"}
HUBER, SQUARED, SB3, CLEANRL = "evorl, Huber loss", "evorl, squared loss", "Stable-Baselines3", "CleanRL"
OURS = {"huber": HUBER, "squared": SQUARED}
SAME_LOSS = {HUBER: SB3, SQUARED: CLEANRL}
COLOURS = {HUBER: "C0", SQUARED: "C1", SB3: "C2", CLEANRL: "C3"}
PROFILES: dict[str, dict[str, tuple[str, ...]]] = {
    "ci": {"cartpole": (), "lunarlander": ()},
    "atari": {"pong": ("budget.steps=10_000", "rl.capacity=10_000", "rl.warm_up=2_000")},
    "paper": {"cartpole": ("budget.steps=500_000",), "lunarlander": ("budget.steps=500_000",), "pong": ()},
}
"""Worlds, and what is changed of their experiments."""
SEEDS = {"ci": (1, 2, 3), "atari": (1,), "paper": (1, 2, 3)}


def sweep(profile: str, world: str) -> Sweep:
    seeds = ",".join(map(str, SEEDS[profile]))
    words = (f"+experiment=elite_replay/dqn/{world}", *PROFILES[profile][world], "record.tensorboard=false")
    return Sweep(
        f"dqn_{world}", (f"seed={seeds}", *words, "rl.huber=1.0,1e9"), CLUSTER if profile == "paper" else ALONE
    )


SWEEPS = {profile: [sweep(profile, world) for world in worlds] for profile, worlds in PROFILES.items()}


# ------------------------------------------------------------------ the others, at the settings of an experiment


def sb3(world: str, made: Experiment, seed: int) -> tuple[str, str, dict[str, Any]]:
    """Program, what it does, and settings of Stable-Baselines3's DQN."""
    rl, steps = made.rl, int(made.budget.steps)
    images = world == "pong"
    arguments = {
        "policy": "CnnPolicy" if images else "MlpPolicy", "learning_rate": rl.lr, "batch_size": rl.batch,
        "buffer_size": rl.capacity, "learning_starts": rl.warm_up, "gamma": rl.gamma, "train_freq": rl.horizon,
        "gradient_steps": 1, "target_update_interval": rl.target_every * rl.horizon, "max_grad_norm": 1e9,
        "exploration_fraction": rl.epsilon.steps / steps, "exploration_initial_eps": rl.epsilon.start,
        "exploration_final_eps": rl.epsilon.end,
    }  # fmt: skip
    hidden = [] if images else list(rl.net.hidden)
    settings = {"algorithm": "DQN", "budget": steps, "world": GYMNASIUM[world], "seed": seed, "threads": 1}
    return "sb3.py", "curve", {**settings, "hidden": hidden, "arguments": arguments}


def cleanrl(world: str, made: Experiment, seed: int) -> tuple[str, str, dict[str, Any]]:
    """The same of CleanRL's program, whose network is written into it."""
    rl, steps = made.rl, int(made.budget.steps)
    arguments = {
        "total-timesteps": steps, "learning-rate": rl.lr, "buffer-size": rl.capacity, "gamma": rl.gamma,
        "target-network-frequency": rl.target_every * rl.horizon, "batch-size": rl.batch, "start-e": rl.epsilon.start,
        "end-e": rl.epsilon.end, "exploration-fraction": rl.epsilon.steps / steps, "learning-starts": rl.warm_up,
        "train-frequency": rl.horizon, "cuda": "false",
    }  # fmt: skip
    words = [str(word) for name, value in arguments.items() for word in (f"--{name}", value)]
    program = "dqn_atari" if world == "pong" else "dqn"
    return (
        "cleanrl_dqn.py",
        "",
        {"program": program, "world": GYMNASIUM[world], "seed": seed, "threads": 1, "words": words},
    )


OTHERS = {SB3: sb3, CLEANRL: cleanrl}


def play(
    of: Callable[..., tuple[str, str, dict[str, Any]]], world: str, words: Sequence[str], seed: int, inputs: Inputs
) -> dict[str, Any]:
    """What a peer's program says at its end: ``versions``, and ``episodes`` (step, return)."""
    made = experiment_of_words([f"+experiment=elite_replay/dqn/{world}", *words, *inputs.words])
    program, kind, settings = of(world, made, seed)
    began = time.monotonic()
    played = answer(PEERS, program, *filter(None, [kind]), json.dumps(settings))
    return {**played, "settings": settings, "seconds": time.monotonic() - began}


def others(profile: str) -> list[Measurement]:
    """All runs of the others."""
    return [
        Measurement(kept(name, world, seed), partial(play, of, world, words, seed))
        for world, words in PROFILES[profile].items()
        for seed in SEEDS[profile]
        for name, of in OTHERS.items()
    ]


def kept(name: str, world: str, seed: int) -> str:
    return f"dqn/{name}-{world}-{seed}"


def record(played: Mapping[str, Any], seed: int, steps: float, every: float) -> RunRecord:
    """A peer's run in the form of ours: at every so many steps the mean of the last episodes that have ended."""
    ends, returns = (np.array(x, np.float64) for x in zip(*played["episodes"], strict=True))
    grid = np.arange(every, steps + 1, every)
    grid = grid[grid >= ends[0]]
    past = [returns[: np.searchsorted(ends, step, "right")][-EPISODES:] for step in grid]
    series = Series(grid, grid, np.array([x.mean() for x in past]))
    return RunRecord(
        directory=Path(),
        config={"seed": seed, "budget.steps": steps},
        series={METRIC: series},
        seconds=played["seconds"],
    )


# ------------------------------------------------------------------ tables

Runs = dict[str, dict[str, list[RunRecord]]]
"""Runs by world and name."""


def gathered(results: Results) -> Runs:
    """All runs that have ended, of the worlds that ours have."""
    by_world: Runs = {world: {} for world in PROFILES[results.profile]}
    for run in results.runs:
        if run.result is not None:
            name = HUBER if run.config["rl.huber"] == 1 else SQUARED
            by_world[world_of(run).removeprefix("vector_")].setdefault(name, []).append(run)
    by_world = {world: each for world, each in by_world.items() if each}
    for world, each in by_world.items():
        steps = float(next(iter(each.values()))[0].config["budget.steps"])
        for name in OTHERS:
            played = {seed: results.measured.get(kept(name, world, seed)) for seed in SEEDS[results.profile]}
            runs = [record(answer, seed, steps, grid_of(steps)) for seed, answer in played.items() if answer]
            each |= {name: runs} if runs else {}
    return by_world


def grid_of(steps: float) -> float:
    return steps / 20


def last(run: RunRecord) -> float:
    """The newest mean of the last episodes."""
    value = run.last(METRIC)
    return float("nan") if value is None else value


def overall(run: RunRecord) -> float:
    """The mean over the twentieths of the run, all that is known of a peer's; ours has more."""
    steps, series = float(run.config["budget.steps"]), run.series[METRIC]
    grid = np.arange(grid_of(steps), steps + 1, grid_of(steps))
    at = np.searchsorted(series.steps, grid[grid >= series.steps[0]], "right") - 1
    return float(series.values[at].mean())


def rows(by_world: Runs) -> tuple[list[list[str]], dict[str, Any], dict[str, str]]:
    """Of the table, the same as numbers, and the verdicts of the rule fixed before the runs."""
    shown, data, gates = [], dict[str, Any](), dict[str, str]()
    for world, each in by_world.items():
        scores = {name: {"end": scored(runs, last), "overall": scored(runs, overall)} for name, runs in each.items()}
        for name, estimates in scores.items():
            runs, cells = each[name], []
            steps = float(runs[0].config["budget.steps"])
            other = scores.get(SAME_LOSS.get(name, ""), {})
            for what, estimate in estimates.items():
                cells += [score_text(estimate), beside(estimate, other.get(what))]
            if name in SAME_LOSS and len(runs) > 1 and other:
                verdict = "failed" if beside(estimates["end"], other["end"]) == "below" else "passed"
                gates[f"{TITLES[world]}, {name}: not below {SAME_LOSS[name]} at the end"] = verdict
            title = f"{TITLES[world]}, {name}"
            shown.append([title, f"{len(runs)}", f"{steps:,.0f}", *cells, f"{core_hours(runs):.3f}"])
        data[world] = {
            name: {
                **{what: estimate and estimate._asdict() for what, estimate in estimates.items()},
                "runs": samples(each[name], METRIC),
            }
            for name, estimates in scores.items()
        }  # fmt: skip
    return shown, data, gates


def draw(by_world: Runs) -> Figure:
    drawn, axes = panels(
        [TITLES[world] for world in by_world],
        "environment steps (decisions)",
        f"return of the last {EPISODES} episodes",
    )
    for axis, each in zip(axes, by_world.values(), strict=True):
        for name, runs in each.items():
            steps = float(runs[0].config["budget.steps"])
            band = curve(runs, steps, grid_of(steps), METRIC)
            shaded(axis, *band, COLOURS[name], f"{name}, seeds: {len(runs)}")
    return legends(drawn)


def analyse(results: Results) -> Analysis | None:
    by_world = gathered(results)
    if not by_world:
        return None
    shown, data, gates = rows(by_world)
    header = ["world, program", "seeds", "steps", "return at the end", "beside", "mean over the run", "beside"]
    everyone = [run for each in by_world.values() for runs in each.values() for run in runs]
    versions = {
        place.partition("/")[2].rsplit("-", 2)[0]: answer["versions"] for place, answer in results.measured.items()
    }
    policies, medians = median_policies({
        f"dqn_{world}_{name}": each[title] for world, each in by_world.items() for name, title in OURS.items()
        if title in each
    })  # fmt: skip
    return Analysis(
        header=[*header, "core hours"],
        rows=shown,
        also=[medians],
        policies=policies,
        gates=gates,
        pictures=[Picture("dqn", "Return over environment steps", draw(by_world))],
        facts={"core hours": round(core_hours(everyone), 2), **versions},
        data={"table": data},
    )


def measured(data: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{TITLES[world]}: " + ", ".join(f"{name} {score_text(scores['end'])}" for name, scores in each.items())
        for world, each in data["table"].items()
    )


def policy_scores(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"dqn_{world}_{name}": each[title]["end"]
        for world, each in data["table"].items()
        for name, title in OURS.items()
        if title in each
    }


def profile(name: str, size: str, hours: float) -> Profile:
    return Profile(size, hours, [*SWEEPS[name], *others(name)])


TABLE = Table(
    title="DQN at equal settings",
    of="DQN beside Stable-Baselines3's and CleanRL's",
    claim="DQN learns as fast per step as the programs with the same loss and settings",
    source="ours; no paper has it",
    about=__doc__,
    profiles={
        "atari": profile(
            "atari", "one seed of Pong from pixels for 10,000 decisions: all three run, and nothing is learned by then",
            0.2,
        ),
        "ci": profile("ci", "CartPole for 20,000 steps, LunarLander for 60,000; 3 seeds, one process at a time", 0.33),
        "paper": profile(
            "paper", "Pong from pixels for 1,000,000 decisions, CartPole and LunarLander for 500,000; 3 seeds", 50
        ),
    },
    analyse=analyse,
    measured=measured,
    policy_scores=policy_scores,
    peers=True,
)  # fmt: skip
