"""DQN beside Stable-Baselines3's and CleanRL's (dqn.py, dqn_atari.py, unchanged) at equal settings.

The settings are those of +experiment=elite_replay/dqn/WORLD; the others' are derived from them. All have the same
network, Adam, one transition per decision, uniform sampling, one gradient step for so many decisions, and the same
epsilon. The loss of Stable-Baselines3 is Huber's and that of CleanRL the squared error, so ours runs with each.
Gradients are not clipped. Told is the mean return of the last 100 training episodes, with the exploration that they
have, since CleanRL's programs evaluate nothing: at the end, and its mean over the run. A number is the interquartile
mean over seeds with its 95 % stratified bootstrap interval; "beside" says how the interval of ours lies beside that of
the one with the same loss. Core hours of ours hold an evaluation at the end, so they tell no speed.

    python benchmarks/elite_replay/dqn.py profile=ci|atari|paper [KEY=VALUE ...] [--runs DIR] [--out DIR]
        [--draw | --print]

``profile=ci`` is CartPole for 20,000 steps and LunarLander for 60,000, 3 seeds, one process at a time. profile=atari
is one seed of Pong from pixels for 10,000 decisions, which says no more than that all three run at equal settings;
nothing is learned by then. ``profile=paper`` is Pong for 1,000,000 decisions, and the two others 500,000. The same
command goes on with what is missing. KEY=VALUE changes ours and the others alike. ``--draw`` shows the runs that have
ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from arms import ALONE, CLUSTER, Sweep, world_of
from figures import figure, shaded, write
from scores import core_hours, curve, mean, samples, scored
from sweeps import Asked, asked, runs_of
from verdicts import beside

from common import PEERS, machine, of_runs, page, save, start  # isort: skip
from common import table as markdown  # isort: skip
from ours import experiment

from evorl.analysis.runs import RunRecord, Series
from evorl.training.experiment import Experiment

METRIC = "train/return"
EPISODES = 100
"""That it is the mean of, as `evorl` and Stable-Baselines3 have it."""
GYMNASIUM = {"cartpole": "CartPole-v1", "lunarlander": "LunarLander-v3", "pong": "PongNoFrameskip-v4"}
TITLES = {"cartpole": "CartPole", "lunarlander": "LunarLander", "pong": "Pong from pixels"}
HUBER, SQUARED, SB3, CLEANRL = "evorl, Huber loss", "evorl, squared loss", "Stable-Baselines3", "CleanRL"
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
    given = {
        "total-timesteps": steps, "learning-rate": rl.lr, "buffer-size": rl.capacity, "gamma": rl.gamma,
        "target-network-frequency": rl.target_every * rl.horizon, "batch-size": rl.batch, "start-e": rl.epsilon.start,
        "end-e": rl.epsilon.end, "exploration-fraction": rl.epsilon.steps / steps, "learning-starts": rl.warm_up,
        "train-frequency": rl.horizon, "cuda": "false",
    }  # fmt: skip
    words = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    program = "dqn_atari" if world == "pong" else "dqn"
    return (
        "cleanrl_dqn.py",
        "",
        {"program": program, "world": GYMNASIUM[world], "seed": seed, "threads": 1, "words": words},
    )


OTHERS = {SB3: sb3, CLEANRL: cleanrl}


def play(place: Path, program: str, *words: str) -> None:
    """Run a peer's program to its end, and keep what it says."""
    began = time.monotonic()
    process = start(PEERS, program, *words)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{process.args!r} ended with {process.returncode}")
    told = json.loads(out.splitlines()[-1])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps({**told, "settings": words[-1], "seconds": time.monotonic() - began}))


def play_others(options: Asked) -> None:
    """Whatever of the others' runs is missing."""
    for world, words in PROFILES[options.profile].items():
        made = experiment([f"+experiment=elite_replay/dqn/{world}", *words, *options.also])
        for seed in SEEDS[options.profile]:
            for name, of in OTHERS.items():
                program, kind, settings = of(world, made, seed)
                place = kept(options.runs, name, world, seed)
                if not place.exists():
                    play(place, program, *filter(None, [kind]), json.dumps(settings))


def kept(runs: Path, name: str, world: str, seed: int) -> Path:
    return runs / "dqn_others" / f"{name}-{world}-{seed}.json"


def record(told: Mapping[str, Any], seed: int, steps: float, every: float) -> RunRecord:
    """A peer's run in the form of ours: at every so many steps the mean of the last episodes that have ended."""
    ends, found = (np.array(x, np.float64) for x in zip(*told["episodes"], strict=True))
    grid = np.arange(every, steps + 1, every)
    grid = grid[grid >= ends[0]]
    past = [found[: np.searchsorted(ends, step, "right")][-EPISODES:] for step in grid]
    series = Series(grid, grid, np.array([x.mean() for x in past]))
    return RunRecord(
        directory=Path(), config={"seed": seed, "budget.steps": steps}, series={METRIC: series}, seconds=told["seconds"]
    )


# ------------------------------------------------------------------ tables

Found = dict[str, dict[str, list[RunRecord]]]
"""Runs by world and name."""


def gathered(options: Asked) -> tuple[Found, list[RunRecord]]:
    """All runs, and those of ours."""
    runs = runs_of(options.runs, [one.name for one in SWEEPS[options.profile]])
    runs = [run for run in runs if run.result is not None]
    found: Found = {world: {} for world in PROFILES[options.profile]}
    for run in runs:
        name = HUBER if run.config["rl.huber"] == 1 else SQUARED
        found[world_of(run).removeprefix("vector_")].setdefault(name, []).append(run)
    for world, each in found.items():
        for name in OTHERS if each else ():
            steps = float(next(iter(each.values()))[0].config["budget.steps"])
            for seed in SEEDS[options.profile]:
                place = kept(options.runs, name, world, seed)
                if place.exists():
                    told = json.loads(place.read_text())
                    each.setdefault(name, []).append(record(told, seed, steps, grid_of(steps)))
    return found, runs


def grid_of(steps: float) -> float:
    return steps / 20


def last(run: RunRecord) -> float:
    """The newest mean of the last episodes."""
    found = run.last(METRIC)
    return float("nan") if found is None else found


def rows(found: Found) -> tuple[list[list[str]], dict[str, Any], dict[str, str]]:
    """Of the table, the same as numbers, and the verdicts of the rule fixed before the runs."""
    shown, data, gates = [], dict[str, Any](), dict[str, str]()
    for world, each in found.items():
        scores = {
            name: {"end": scored(runs, last), "overall": scored(runs, lambda run: mean(run, METRIC, 0.0, np.inf))}
            for name, runs in each.items()
        }
        for name, mine in scores.items():
            runs, cells = each[name], []
            steps = float(runs[0].config["budget.steps"])
            other = scores.get(SAME_LOSS.get(name, ""), {})
            for what, one in mine.items():
                cells += ["-" if one is None else one.told(0), beside(one, other.get(what))]
            if name in SAME_LOSS and len(runs) > 1 and other:
                verdict = "failed" if beside(mine["end"], other["end"]) == "below" else "passed"
                gates[f"{TITLES[world]}, {name}: not below {SAME_LOSS[name]} at the end"] = verdict
            title = f"{TITLES[world]}, {name}"
            shown.append([title, f"{len(runs)}", f"{steps:,.0f}", *cells, f"{core_hours(runs):.3f}"])
        data[world] = {
            name: {
                **{what: one and one._asdict() for what, one in mine.items()},
                "runs": samples(each[name], METRIC),
            }
            for name, mine in scores.items()
        }  # fmt: skip
    return shown, data, gates


def draw(found: Found, path: Path) -> None:
    drawn, axes = figure(
        [TITLES[world] for world in found], "environment steps (decisions)", f"return of the last {EPISODES} episodes"
    )
    for one, each in zip(axes, found.values(), strict=True):
        for name, runs in each.items():
            steps = float(runs[0].config["budget.steps"])
            band = curve(runs, steps, grid_of(steps), METRIC)
            shaded(one, *band, COLOURS[name], f"{name}, seeds: {len(runs)}")
    write(drawn, path)


def report(options: Asked, facts: dict[str, Any]) -> None:
    found, runs = gathered(options)
    if not runs:
        raise SystemExit(f"{options.runs} holds no run that has ended")
    everyone = [run for each in found.values() for those in each.values() for run in those]
    facts |= {"load at the end": round(os.getloadavg()[0], 2), **of_runs(one.directory for one in runs)}
    facts["core hours"] = round(core_hours(everyone), 2)
    for place in sorted((options.runs / "dqn_others").glob("*.json")):
        facts[place.stem.rsplit("-", 2)[0]] = json.loads(place.read_text())["versions"]
    shown, data, gates = rows({world: each for world, each in found.items() if each})
    header = ["world, program", "seeds", "steps", "return at the end", "beside", "mean over the run", "beside"]
    lines = page("DQN at equal settings", __doc__, [*header, "core hours"], shown)
    if gates:
        lines += ["", *markdown(["gate", "verdict"], [[*one] for one in gates.items()])]
    save(options.out, facts, [*lines, "", "![Return over environment steps](dqn.png)"], {"table": data, "gates": gates})
    if options.out is not None:
        draw({world: each for world, each in found.items() if each}, options.out / "dqn.png")


def main() -> None:
    facts: dict[str, Any] = machine()
    options = asked(__doc__, SWEEPS)
    if not options.draw:
        play_others(options)
    report(options, facts)


if __name__ == "__main__":
    main()
