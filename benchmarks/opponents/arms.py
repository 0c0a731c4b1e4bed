"""A world learned against snapshots, in a league and by plain self-play, and judged by games of everyone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.opponents.strength import scores, seats_of, shares
from evorl.analysis.payoff_figures import payoff_figure
from evorl.analysis.runs import RunRecord, find_runs, read_runs
from evorl.cluster.processes.fork import with_parent
from evorl.reproduction.figures import legends, panels, shaded
from evorl.reproduction.parts import ROOT, Inputs, Measurement, Sweep
from evorl.reproduction.scores import curve, mean_text, median_policies, samples
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table

ARMS = {"pfsp": "PFSP", "league": "league", "self": "self-play"}
"""Of conf/opponents or conf/ec, and what a table calls them."""
AGENTS = 4
"""Of a league: one main agent, which has as many steps as the only learner of another arm, and three exploiters."""
METRIC = "eval/stochastic_return_mean"
EVALUATIONS = 5
SEEDS = (0, 1, 2)


class Contest(NamedTuple):
    """A world, and what is asked of the policies that learned it."""

    world: str
    title: str
    words: tuple[str, ...]
    """Of every run."""
    snapshot: int
    """Environment steps between snapshots."""
    ahead: float | None
    """Points that a policy is to be ahead of the rule player in a mean game; None: that is not asked."""
    arms: tuple[str, ...] = ("pfsp", "self")


class Size(NamedTuple):
    steps: int
    seeds: tuple[int, ...]
    games: int
    """Of a pair."""
    launcher: tuple[str, ...]
    words: tuple[str, ...] = ()


TINY = ("rl.slots=8", "rl.horizon=16", "rl.minibatch=64", "rl.passes=1")


def train(contest: Contest, arm: str, size: Size) -> Sweep:
    """The runs of an arm, of which each evaluates its policy against the rule player now and then."""
    snapshot = min(contest.snapshot, size.steps // 2)
    steps = size.steps * (AGENTS if arm == "league" else 1)
    own = {
        "pfsp": ("opponents=pfsp", f"opponents.snapshot={snapshot}"),
        "league": (
            "ec=league", f"ec.population={AGENTS}", f"ec.snapshot={snapshot}", f"ec.longest={2 * snapshot}",
            f"ec.train_steps={snapshot // 4}",
        ),
        "self": ("opponents=self",),
    }[arm]  # fmt: skip
    words = (
        f"mdp={contest.world}", "rl=ppo", *own, *contest.words, *size.words, f"budget.steps={steps}",
        f"eval.every={steps // EVALUATIONS}", "checkpoint.every=0", "device=cpu", "record.tensorboard=false",
        f"seed={','.join(map(str, size.seeds))}",
    )  # fmt: skip
    return Sweep(f"{contest.world}/{arm}", words, size.launcher)


def judged(contest: Contest, size: Size) -> Measurement:
    """``evorl.evaluate matrix=true`` of the newest policies of all runs and the rule player."""

    def measure(inputs: Inputs) -> dict[str, Any]:
        groups, out = {}, (inputs.folder / "matrix").absolute()
        for arm in contest.arms:
            runs = read_runs(find_runs([inputs.folder.parent / arm]))[0]
            groups[arm] = [str(run.directory.resolve()) for run in sorted(runs, key=lambda run: int(run.seed))]
        players = [run for group in groups.values() for run in group]
        where = ("cluster=processes", "cluster.workers=2") if size.launcher else ()
        command = [
            sys.executable, "-m", "evorl.evaluate", "matrix=true", f"players=[{','.join([*players, 'rule'])}]",
            f"games={size.games}", f"out={out}", *where,
        ]  # fmt: skip
        subprocess.run(command, cwd=ROOT, check=True, preexec_fn=with_parent())
        result = json.loads((out / "matrix.json").read_text())
        called = {str(Path(player["directory"]).resolve()): player["name"] for player in result["players"]}
        kept = {
            name: result["judgement"][name] for name in ("score", "score_bounds", "rating", "rating_bounds", "nash")
        }
        return {
            "names": [player["name"] for player in result["players"]],
            "groups": {arm: [called[run] for run in group] for arm, group in groups.items()},
            "pairs": result["pairs"], "sentences": result["sentences"], **kept,
        }  # fmt: skip

    return Measurement(f"{contest.world}/judged", measure)


def by_arm(contest: Contest, runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs that have ended, by seed."""
    ended = sorted((run for run in runs if run.last(METRIC) is not None), key=lambda run: int(run.seed))
    chosen = [(run, {run.choices.get("opponents"), run.choices.get("ec")}) for run in ended]
    return {arm: [run for run, choices in chosen if arm in choices] for arm in contest.arms}


def analyse(contest: Contest, sizes: Mapping[str, Size], results: Results) -> Analysis | None:
    arms, size = by_arm(contest, results.runs), sizes[results.profile]
    judged = results.measured.get(f"{contest.world}/judged")
    if judged is None or not all(arms.values()):
        return None
    learners = [name for group in judged["groups"].values() for name in group]
    groups = {arm: [learners.index(name) for name in group] for arm, group in judged["groups"].items()}
    seats = seats_of(judged["pairs"], learners)
    nash = dict(zip(groups, shares(seats, len(learners), [*groups.values()]), strict=True))
    numbers = {
        arm: {
            "ahead": [run.last(METRIC) for run in runs],
            "ahead_deterministic": [run.last("eval/return_mean") for run in runs],
            "score": scores(seats, groups[arm], [n for other in groups if other != arm for n in groups[other]]),
            "nash": nash[arm], "curves": samples(runs, METRIC),
        }
        for arm, runs in arms.items()
    }  # fmt: skip
    policies, kept = median_policies({f"{contest.world}_{arm}": runs for arm, runs in arms.items()})
    return Analysis(
        header=["opponents", "seeds", "points ahead of the rule player", "of each seed", "score against the others",
                "share in Nash averaging"],
        rows=[row(*item) for item in numbers.items()],
        also=[kept],
        gates=gates(contest, numbers),
        notes=[" ".join(judged["sentences"])],
        pictures=[
            Picture(f"{contest.world}_curves", "Points ahead of the rule player", curves(contest, size, arms)),
            Picture(f"{contest.world}_matrix", "Share of points of everyone against everyone", matrix(judged)),
        ],
        policies=policies,
        data={"arms": numbers, "matrix": judged},
    )  # fmt: skip


def row(arm: str, numbers: Mapping[str, Any]) -> list[str]:
    share, low, high = numbers["nash"]
    each = ", ".join(f"{x:.1f}" for x in numbers["ahead"])
    return [
        ARMS[arm], str(len(numbers["ahead"])), mean_text(numbers["ahead"], 1), each, mean_text(numbers["score"], 3),
        f"{share:.2f} [{low:.2f}, {high:.2f}]",
    ]  # fmt: skip


def gates(contest: Contest, numbers: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """What was fixed before the runs."""
    verdicts, pooled = {}, {arm: own for arm, own in numbers.items() if arm != "self"}
    if contest.ahead is not None:
        for arm, own in pooled.items():
            gate = f"{ARMS[arm]}: {contest.ahead:g} points or more ahead of the rule player in every seed"
            verdicts[gate] = verdict(min(own["ahead"]) >= contest.ahead)
    for arm, own in pooled.items():
        gate = f"{ARMS[arm]}: more than half of Nash averaging, by the lower end of its interval"
        verdicts[gate] = verdict(own["nash"][1] > 0.5)
    return verdicts


def verdict(passed: object) -> str:
    return "passed" if passed else "failed"


def curves(contest: Contest, size: Size, arms: Mapping[str, Sequence[RunRecord]]) -> Any:
    drawn, (axes,) = panels([contest.title], "environment steps", "points ahead of the rule player")
    for number, (arm, runs) in enumerate(arms.items()):
        steps = size.steps * (AGENTS if arm == "league" else 1)
        shaded(axes, *curve(runs, steps, steps / EVALUATIONS, METRIC), f"C{number}", ARMS[arm])
    if contest.ahead is not None:
        axes.axhline(contest.ahead, color="grey", ls=":", lw=1)
    return legends(drawn)


def matrix(judged: Mapping[str, Any]) -> Any:
    order = np.argsort(-np.array(judged["rating"]), kind="stable")
    square = np.ix_(order, order)
    names = [judged["names"][n] for n in order]
    bounds = np.stack([np.array(bound)[square] for bound in judged["score_bounds"]])
    return payoff_figure(names, np.array(judged["score"])[square], bounds)


def measured(data: Mapping[str, Any]) -> str:
    sentences = []
    for arm, numbers in data["arms"].items():
        cells = row(arm, numbers)
        sentences.append(f"{cells[0]}: {cells[2]} ahead of the rule player ({cells[3]}), {cells[5]} of Nash averaging")
    return "; ".join(sentences)


def table(contest: Contest, sizes: Mapping[str, Size], core_hours: Mapping[str, float], about: str | None) -> Table:
    ahead = "" if contest.ahead is None else f"is {contest.ahead:g} points ahead of the rule player in every seed, and "
    return Table(
        title=f"{contest.title} without its rule player",
        of=f"{contest.title}: {' and '.join(ARMS[arm] for arm in contest.arms[:-1])} beside plain self-play",
        claim=f"a policy that never met the rule player {ahead}has more than half of Nash averaging",
        source="ours",
        about=about,
        profiles={
            name: Profile(
                f"{size.steps:,} steps of a learner; {len(size.seeds)} seeds; {size.games} games a pair",
                core_hours[name], [*(train(contest, arm, size) for arm in contest.arms), judged(contest, size)],
            )
            for name, size in sizes.items()
        },
        analyse=lambda results: analyse(contest, sizes, results),
        measured=measured,
    )  # fmt: skip
