"""Groups of runs whose configs agree except for seeds."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from evorl.analysis.runs import RunRecord, flatten, is_number
from evorl.analysis.sweeps import stopped_early
from evorl.training.periods import BUDGET, PARTS, in_steps, is_default
from evorl.util.errors import BadRequest, nearest
from evorl.util.schedule import Anneal
from evorl.util.text import printable

IGNORED = ("seed", "resume", "replay")
"""Keys that identify a repetition or a path, not an experiment."""
IGNORED_GROUPS = ("record", "hydra")
SCALE_GROUPS = ("budget", "cluster", "checkpoint")
"""Config groups of the amount and place of work, and of what is kept. They separate runs only where one seed occurs
twice otherwise."""
GENERIC = {
    "gymnasium": "mdp.id", "pettingzoo": "mdp.id", "problem": "mdp.id",
    "atari": "mdp.game", "atari_noframeskip": "mdp.game", "openspiel": "mdp.game",
}  # fmt: skip
"""Config files of many worlds, and the key that chooses one."""
SCHEDULE = {field.name for field in fields(Anneal)}
"""The keys of a value that changes with the steps."""
SortKey = tuple[int, tuple[float, ...], str]
MAX_LABEL = 57
"""Most characters of a label."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs whose configs agree; ``values`` holds the keys that distinguish the group from the others."""

    values: Mapping[str, Any]
    runs: Sequence[RunRecord]
    mark: str = ""
    """Suffix that distinguishes it from a group with the same label."""

    @property
    def label(self) -> str:
        """As many of the values as fit, of the keys that these runs have: ``rl=ppo, rl.lr=0.001``."""
        known = {key: value for key, value in self.values.items() if value is not MISSING}
        pairs = [f"{key}={_short(value)}" for key, value in known.items()]
        kept = next(n for n in range(len(pairs), -1, -1) if n <= 1 or len(", ".join(pairs[:n])) <= MAX_LABEL)
        lacking = f"no {next(iter(self.values))}" if self.values else "all runs"
        text = ", ".join(pairs[:kept]) or lacking
        text += ", …" if kept < len(pairs) else ""
        return printable((text if len(text) <= MAX_LABEL + 3 else f"{text[:MAX_LABEL]}…") + self.mark)


def labels_beside(groups: Sequence[Group]) -> list[str]:
    """The labels of groups in one picture, without the keys whose value all of them share.

    They are the usual labels where the shorter ones would be alike.
    """
    keys = groups[0].values if groups else ()
    differing = [key for key in keys if len({repr(group.values.get(key)) for group in groups}) > 1]
    short = [replace(group, values={key: group.values[key] for key in differing}, mark="").label for group in groups]
    return short if len({*short}) == len(groups) > 1 else [group.label for group in groups]


def format_value(value: Any) -> str:
    """Format a config value as on the command line; a missing key is a dash."""
    if value is MISSING:
        return "–"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)  # no two values have one name
    if isinstance(value, list | tuple):
        return f"[{','.join(format_value(item) for item in value)}]"
    return printable(value)


def _short(value: Any) -> str:
    """Format a config value for a label: of a number four digits."""
    return f"{value:.4g}" if isinstance(value, float) else format_value(value)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def runs_by_world(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Return the runs by world, sorted by name. Values of different worlds are not comparable."""
    members: dict[str, list[RunRecord]] = {}
    for run in runs:
        members.setdefault(_world_name(run), []).append(run)
    return dict(sorted(members.items()))


def differences(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Return each key that differs among the runs, except seeds and ``record``, with its value in each run."""
    leaves = [_leaves(run) for run in runs]
    keys = sorted({key for leaf in leaves for key in leaf})
    columns = {key: [leaf.get(key, MISSING) for leaf in leaves] for key in keys} | _period_columns(runs)
    return _fold_schedules({key: column for key, column in columns.items() if _varies(column)}, leaves)


def group_runs(runs: Sequence[RunRecord], by: Sequence[str] = ()) -> list[Group]:
    """Group runs by all differences in their configs, the most informative key first, or by the given keys.

    Differences that follow from a different choice of a config file are ignored. Budgets, clusters and
    checkpoints separate runs only if two runs of the same seed differ in nothing else: then they are what the
    experiment varies. The budgets that a search gives to the jobs that it stops early are nothing that it varies.
    """
    if by:
        return _grouped(runs, {key: [named_values(run).get(key, MISSING) for run in runs] for key in by})
    return _grouped(runs, _columns(runs, _distinguishing_keys(runs)))


def telling(runs: Sequence[RunRecord]) -> Sequence[RunRecord]:
    """The runs that are compared: all but those that failed before they wrote a value."""
    return [run for run in runs if not run.tells_nothing] or runs


def _distinguishing_keys(runs: Sequence[RunRecord]) -> list[str]:
    varied = {key: column for key, column in _chosen_budgets(runs, differences(runs)).items() if _varies(column)}
    for number, config_group in enumerate(SCALE_GROUPS):
        if not _distinguishes_same_seed(runs, varied, config_group, SCALE_GROUPS[number + 1 :]):
            varied = {key: column for key, column in varied.items() if _config_group(key) != config_group}
    choices = {key for key in varied if any(f"{key}._target_" in run.config for run in runs)}
    return _most_informative_first(
        {key: column for key, column in varied.items() if _is_informative(key, varied)}, choices
    )


def regroup(members: Mapping[str, Sequence[Group]]) -> dict[str, list[Group]]:
    """Group the runs of each world by the keys that distinguish the groups of any world."""
    keys = list(dict.fromkeys(key for groups in members.values() for group in groups for key in group.values))
    return {world: _regrouped(groups, keys) for world, groups in members.items()}


def _regrouped(groups: Sequence[Group], keys: Sequence[str]) -> list[Group]:
    """Group the runs of these groups by more keys. Keys that they have keep their values."""
    runs = [run for group in groups for run in group.runs]
    known = [group.values for group in groups for _ in group.runs]
    columns = _columns(runs, keys)
    return _grouped(
        runs,
        {
            key: [own.get(key, value) for own, value in zip(known, column, strict=True)]
            for key, column in columns.items()
        },
    )


def _columns(runs: Sequence[RunRecord], keys: Sequence[str]) -> dict[str, list[Any]]:
    """The values of these keys in each run; of periods and budgets only those that were chosen."""
    leaves = [_leaves(run) for run in runs]
    values = [leaf | _schedules(leaf) for leaf in leaves]
    columns = {key: [own.get(key, MISSING) for own in values] for key in keys} | _period_columns(runs)
    chosen = _chosen_budgets(runs, columns)
    return {key: chosen[key] for key in keys}


def named_values(run: RunRecord) -> dict[str, Any]:
    """Return all that runs can be grouped by: config keys, chosen files, the folder of a run, and its provenance."""
    return (
        flatten({"provenance": run.provenance})
        | {"folder": run.directory.absolute().parent.name}
        | {key: value for key, value in run.config.items() if not key.endswith("_target_")}
        | _leaves(run)
        | _schedules(run.config)
    )


def settings(run: RunRecord) -> str:
    """What repetitions of an experiment have in common: all of the config but seeds and `SCALE_GROUPS`."""
    leaves = _leaves(run) | {f"{name}.every": _chosen_period(name, run) for name in PARTS}
    return repr({key: value for key, value in leaves.items() if _config_group(key) not in SCALE_GROUPS})


def pooled(runs: Sequence[RunRecord]) -> list[str]:
    """Return the keys, but for those of `SCALE_GROUPS`, in which the runs of a group differ."""
    return [key for key in differences(telling(runs)) if _config_group(key) not in SCALE_GROUPS]


def check_keys(by: Sequence[str], runs: Sequence[RunRecord]) -> None:
    """Raise `BadRequest` for a key to group by that no run has."""
    known = {key for run in runs for key in named_values(run)}
    for key in by:
        if key not in known:
            varied = list(differences(runs))
            hint = nearest(key, [*varied, *sorted(known)]) or f"; keys that differ: {', '.join(varied) or 'none'}"
            raise BadRequest(f"no run has the key {key}{hint}", key="by")


def _grouped(runs: Sequence[RunRecord], varied: Mapping[str, Sequence[Any]]) -> list[Group]:
    keys = list(varied)
    members: dict[tuple[str, ...], list[int]] = {}
    for index in sorted(range(len(runs)), key=lambda i: [_sort_key(varied[key][i]) for key in keys]):
        members.setdefault(tuple(repr(varied[key][index]) for key in keys), []).append(index)
    return _number_equal_labels(
        Group({key: varied[key][rows[0]] for key in keys}, sorted((runs[i] for i in rows), key=_by_seed))
        for rows in members.values()
    )


def _distinguishes_same_seed(
    runs: Sequence[RunRecord], varied: Mapping[str, list[Any]], config_group: str, later: Sequence[str]
) -> bool:
    """Return whether runs of one seed differ only in keys of this config group, ignoring the ``later`` groups."""
    own = [key for key in varied if _config_group(key) == config_group]
    rest = [key for key in varied if _config_group(key) not in (config_group, *later)]
    tried: dict[str, set[str]] = {}
    for index, run in enumerate(runs):
        same = repr([run.seed, *(varied[key][index] for key in rest)])
        tried.setdefault(same, set()).add(repr([varied[key][index] for key in own]))
    return any(len(several) > 1 for several in tried.values())


def _config_group(key: str) -> str:
    return key.partition(".")[0]


def _most_informative_first(varied: Mapping[str, list[Any]], choices: set[str]) -> list[str]:
    """Order keys: chosen files first, then greedily the key that splits the runs into most groups."""
    ordered: list[str] = []
    rest = sorted(varied)
    known: list[tuple[str, ...]] = [() for _ in varied[rest[0]]] if rest else []
    while rest:
        splits = {
            key: [(*before, repr(value)) for before, value in zip(known, varied[key], strict=True)] for key in rest
        }
        best = max(rest, key=lambda key: (key in choices, len(set(splits[key]))))
        ordered.append(best)
        known = splits[best]
        rest.remove(best)
    return ordered


def _number_equal_labels(groups: Iterable[Group]) -> list[Group]:
    """Return the groups with numbers added to equal labels."""
    numbered = list(groups)
    counts, seen = Counter(group.label for group in numbered), Counter[str]()
    for index, group in enumerate(numbered):
        if counts[group.label] > 1:
            seen[group.label] += 1
            numbered[index] = replace(group, mark=f" #{seen[group.label]}")
    return numbered


def _world_name(run: RunRecord) -> str:
    """Return the config file's name, with what chooses a world of many: ``pong``, ``problem zdt1``."""
    name = run.choices.get("mdp") or str(run.config.get("mdp._target_", "")).rpartition(".")[2] or "unknown world"
    key = GENERIC.get(name.lower())
    if name.lower() == "remote":
        return f"{name} {_program(run.config.get('mdp.command')) or run.config.get('mdp.listen')}"
    return f"{name} {run.config[key]}" if key is not None and key in run.config else name


def _program(command: Any) -> str:
    """The file that a command starts, without its folder: ``tag.py``; "" without a command."""
    try:
        words = shlex.split(str(command or ""))
    except ValueError:
        return str(command)
    files = [word for word in words if re.search(r"\.\w+$", word) and not word.startswith("-") and " " not in word]
    return Path((files or words or [""])[-1 if files else 0]).name


def _leaves(run: RunRecord) -> dict[str, Any]:
    """Return the relevant config keys; a ``_target_`` is replaced by the chosen file (``rl``: ``ppo``)."""
    leaves: dict[str, Any] = {}
    ignored = IGNORED_GROUPS if run.has_learner else (*IGNORED_GROUPS, "rl")
    for key, value in run.config.items():
        if key in IGNORED or _config_group(key) in ignored:
            continue
        if value == {} and key not in run.choices:  # nothing, where other runs have keys below it
            continue
        if key.endswith("._target_"):
            group = key.removesuffix("._target_")
            leaves[group] = run.choices.get(group, str(value).rpartition(".")[2])
        elif key == "init" and Path(str(value)).parent in (
            run.directory.absolute().parent,
            run.home and run.home.parent,
        ):
            leaves[key] = Path(str(value)).name  # another job of its sweep
        else:
            leaves[key] = run.choices.get(key, value)
    if BUDGET in leaves:
        leaves[BUDGET] = _budget(run)
    return leaves


def _budget(run: RunRecord) -> Any:
    """The budget in environment steps. None in a config is that of the world, which another run may have chosen."""
    steps = run.config.get(BUDGET)
    return run.config.get("mdp.budget") if steps is None else steps


def _period_columns(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """The periods of each run: null where it follows from a budget or is what others have by default."""
    columns: dict[str, list[Any]] = {}
    for name in PARTS:
        key = f"{name}.every"
        if any(key in run.config for run in runs):
            steps = [in_steps(name, run.config) for run in runs]
            chosen = [_chosen_period(name, run) for run in runs]
            defaults = [place for place, own in enumerate(chosen) if own is None]
            of_budget = {(_budget(runs[place]), steps[place]) for place in defaults}
            of_all = {steps[place] for place in defaults}
            columns[key] = [
                None if of_all == {own} or (_budget(run), own) in of_budget else value
                for run, own, value in zip(runs, steps, chosen, strict=True)
            ]
    return columns


def _chosen_period(name: str, run: RunRecord) -> Any:
    """A period of a run; null where it follows from a budget."""
    return None if is_default(name, run.config, run.words) else run.config.get(f"{name}.every")


def _chosen_budgets(runs: Sequence[RunRecord], columns: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns without the budgets of jobs that a search stops early."""
    if BUDGET not in columns:
        return {**columns}
    early = stopped_early(runs)
    return {**columns, BUDGET: [MISSING if part else steps for part, steps in zip(early, columns[BUDGET], strict=True)]}


def _varies(column: Sequence[Any]) -> bool:
    return len({*map(repr, column)}) > 1


def _fold_schedules(varied: dict[str, list[Any]], leaves: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Put a schedule of which several keys differ into one column; one key alone stays a number."""
    schedules = [_schedules(leaf) for leaf in leaves]
    for name in {name for schedule in schedules for name in schedule}:
        parts = {name, *(f"{name}.{part}" for part in SCHEDULE)}
        if len(parts & {*varied}) > 1:
            varied = {key: column for key, column in varied.items() if key not in parts}
            varied[name] = [
                schedule.get(name, leaf.get(name, MISSING)) for schedule, leaf in zip(schedules, leaves, strict=True)
            ]
    return dict(sorted(varied.items()))


def _schedules(leaf: Mapping[str, Any]) -> dict[str, Anneal]:
    """The schedules of a config, by key."""
    shared = {}
    for name in (key.removesuffix(".start") for key in leaf if key.endswith(".start")):
        parts = {key.removeprefix(f"{name}."): value for key, value in leaf.items() if key.startswith(f"{name}.")}
        numbers = [value for part, value in parts.items() if part != "kind"]
        if {"start", "end", "steps"} <= {*parts} <= SCHEDULE and all(map(is_number, numbers)):
            shared[name] = Anneal(**parts)
    return shared


def _is_informative(key: str, varied: Mapping[str, list[Any]]) -> bool:
    """Return whether a key differs among runs that chose the same file for its config group."""
    words = key.split(".")
    groups = [".".join(words[:n]) for n in range(1, len(words))]
    chosen = next((varied[group] for group in groups if group in varied), None)
    if chosen is None:
        return True
    pairs = {(repr(choice), repr(value)) for choice, value in zip(chosen, varied[key], strict=True)}
    return len(pairs) > len({choice for choice, _ in pairs})


def _sort_key(value: Any) -> SortKey:
    """Numbers come first, then lists of numbers by their numbers, then the rest by its text."""
    if is_number(value):
        return (0, (float(value),), "")
    if isinstance(value, list | tuple) and all(map(is_number, value)):
        return (1, tuple(map(float, value)), "")
    return (2, (), format_value(value))


def _by_seed(run: RunRecord) -> tuple[SortKey, str]:
    return _sort_key(run.seed), str(run.directory)
