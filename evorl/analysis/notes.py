"""Notes of a report: what affects how its numbers can be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from evorl.analysis.groups import Group, differences, pooled, settings, telling
from evorl.analysis.tables import summary_metrics


def warnings(groups: Sequence[Group], world: str = "") -> list[str]:
    """Return warnings that affect how the numbers can be read. ``world``: its name, where the report has several."""
    of_world = f"{world}: " if world else ""
    runs = [run for group in groups for run in group.runs]
    open_ends = sum(run.state != "finished" and not run.tells_nothing for run in runs)
    unlike = _unlike(groups)
    known = f"{of_world}{open_ends} of {count(len(runs), 'run')} not finished: their newest values are shown."
    return [
        *(
            f"{of_world}{group.label}: {seeds}, so its interval is too narrow. A comparison counts equal ones once."
            for group in groups
            if (seeds := _repeated_seeds(group))
        ),
        *(
            f"{of_world}{group.label}: puts runs together that differ in {', '.join(apart)}."
            for group in groups
            if (apart := pooled(group.runs))
        ),
        *(
            f"{of_world}{group.label}: means over runs of unlike {keys}."
            for group in groups
            if (keys := _differing_budget_keys(group))
        ),
        *(
            f"{of_world}{group.label}: {without} of {count(len(group.runs), 'run')} have no fitness, "
            "and are left out of its mean."
            for group in groups
            if 0 < (without := _without_fitness(group)) < len(group.runs)
        ),
        *([f"{of_world}The groups have unlike {unlike}, which their differences may be due to."] if unlike else []),
        *uneven_tuning([run.choices for run in runs]),
        *([known] if open_ends else []),
        *(f"{run.directory}: {count(run.damaged, 'damaged line')} left out." for run in runs if run.damaged),
        *(f"{run.directory}: failed: {run.reason}" for run in runs if run.state == "failed"),
        *(f"{run.directory}: no metrics yet." for run in runs if not run.series and run.state != "failed"),
    ]


def uneven_tuning(choices: Iterable[Mapping[str, str]]) -> list[str]:
    """Say for each world which algorithms have a file of tuned settings, and how to compare them with the others.

    ``choices``: the chosen file of each config group of every run; those of one algorithm with and without its file are
    compared on purpose.
    """
    notes = []
    known = [choice for choice in choices if {"mdp", "rl"} <= {*choice}]
    for world in dict.fromkeys(pair["mdp"] for pair in known):
        files = {pair["rl"]: pair["tuned"] for pair in known if pair["mdp"] == world and "tuned" in pair}
        untuned = dict.fromkeys(pair["rl"] for pair in known if pair["mdp"] == world and "tuned" not in pair)
        plain = [name for name in untuned if name not in files]
        files = {name: file for name, file in files.items() if name not in untuned}
        if files and plain:
            tuned = ", ".join(f"{name} (tuned={file})" for name, file in files.items())
            have = "has" if len(files) == 1 else "have"
            notes.append(
                f"Of {world}, {tuned} {have} tuned settings and {', '.join(plain)} only defaults, which may make the "
                "difference: with ~tuned all have their defaults."
            )
    return notes


def _repeated_seeds(group: Group) -> str:
    alike = Counter((str(run.seed), settings(run)) for run in telling(group.runs))
    twice = list(dict.fromkeys(seed for (seed, _), n in alike.items() if n > 1))
    return f"seed {', '.join(twice)} counts more than once" if twice else ""


def _without_fitness(group: Group) -> int:
    """The number of runs of a group that have no fitness, such as those that diverged."""
    return sum("fitness" not in summary_metrics(run) for run in group.runs)


def _differing_budget_keys(group: Group) -> str:
    """Return the keys of the budget in which the runs of a group differ."""
    return ", ".join(key for key in differences(telling(group.runs)) if key.startswith("budget."))


def _unlike(groups: Sequence[Group]) -> str:
    """Return the keys of the budget whose values differ between groups, where no label says so."""
    keys = differences(telling([run for group in groups for run in group.runs]))
    return ", ".join(
        key
        for key in keys
        if key.startswith("budget.")
        and key not in groups[0].values
        and len({_values(member, key) for member in groups}) > 1
    )


def _values(group: Group, key: str) -> frozenset[str]:
    return frozenset(repr(run.config.get(key)) for run in telling(group.runs))


def count(n: int, noun: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"
