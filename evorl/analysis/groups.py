"""Runs sorted into groups by what differs in their configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evorl.analysis.runs import RunRecord

IGNORED = ("seed", "resume", "replay")
"""Keys that say which repetition a run is or where its files lie, not what it tries."""
IGNORED_GROUPS = ("record", "hydra")
SCALE_GROUPS = ("budget", "cluster")
"""Groups of keys that say how far and where a run was worked: they part no seeds of one experiment, as long as none of
these comes twice."""
MAX_LABEL = 57
"""Letters of a label, beyond which it is cut."""


@dataclass(frozen=True, eq=False)
class Group:
    """Runs whose configs agree; ``values`` holds the few keys that tell it from the other groups."""

    values: Mapping[str, Any]
    runs: Sequence[RunRecord]
    mark: str = ""
    """Tells it from a group of the same label."""

    @property
    def label(self) -> str:
        """The values in their order, as many as there is room for: ``rl=ppo, rl.lr=0.001``."""
        pairs = [f"{key}={format_value(value)}" for key, value in self.values.items()]
        kept = next(n for n in range(len(pairs), -1, -1) if n <= 1 or len(", ".join(pairs[:n])) <= MAX_LABEL)
        text = ", ".join(pairs[:kept]) or "all runs"
        text += ", …" if kept < len(pairs) else ""
        return (text if len(text) <= MAX_LABEL + 3 else f"{text[:MAX_LABEL]}…") + self.mark


def format_value(value: Any) -> str:
    """A config value as it is written on the command line; a key that a config lacks is a dash."""
    if value is MISSING:
        return "–"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return f"[{','.join(format_value(item) for item in value)}]"
    return str(value)


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


def runs_by_world(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """The runs of each world, in the order of the worlds' names: numbers of different worlds do not compare."""
    members: dict[str, list[RunRecord]] = {}
    for run in runs:
        members.setdefault(_world_name(run), []).append(run)
    return dict(sorted(members.items()))


def differences(runs: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """Every key that is not the same in all runs, ignoring seeds and records, with its value in each run."""
    leaves = [_leaves(run) for run in runs]
    keys = sorted({key for leaf in leaves for key in leaf})
    columns = {key: [leaf.get(key, MISSING) for leaf in leaves] for key in keys}
    return {key: column for key, column in columns.items() if len({repr(value) for value in column}) > 1}


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Runs grouped by every difference, the most telling first; what a differing choice of a file explains is none.

    Budgets and clusters part runs only where they tell two of the same seed apart: there they are what is tried.
    """
    varied = differences(runs)
    for number, room in enumerate(SCALE_GROUPS):
        if not _distinguishes_same_seed(runs, varied, room, SCALE_GROUPS[number + 1 :]):
            varied = {key: column for key, column in varied.items() if _config_group(key) != room}
    choices = {key for key in varied if any(f"{key}._target_" in run.config for run in runs)}
    keys = _most_informative_first(
        {key: column for key, column in varied.items() if _is_informative(key, varied)}, choices
    )
    members: dict[tuple[str, ...], list[int]] = {}
    for index in sorted(range(len(runs)), key=lambda i: [_sort_key(varied[key][i]) for key in keys]):
        members.setdefault(tuple(repr(varied[key][index]) for key in keys), []).append(index)
    return _number_equal_labels(
        Group({key: varied[key][rows[0]] for key in keys}, sorted((runs[i] for i in rows), key=_by_seed))
        for rows in members.values()
    )


def _distinguishes_same_seed(
    runs: Sequence[RunRecord], varied: Mapping[str, list[Any]], room: str, later: Sequence[str]
) -> bool:
    """Whether keys of this room tell runs of one seed apart that differ in nothing else, the later rooms aside."""
    own = [key for key in varied if _config_group(key) == room]
    rest = [key for key in varied if _config_group(key) not in (room, *later)]
    tried: dict[str, set[str]] = {}
    for index, run in enumerate(runs):
        same = repr([run.seed, *(varied[key][index] for key in rest)])
        tried.setdefault(same, set()).add(repr([varied[key][index] for key in own]))
    return any(len(several) > 1 for several in tried.values())


def _config_group(key: str) -> str:
    return key.partition(".")[0]


def _most_informative_first(varied: Mapping[str, list[Any]], choices: set[str]) -> list[str]:
    """Chosen files, then at each place the key that splits the runs into most groups along with those before it."""
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
    """The groups, numbered where the room of a label is not enough to tell them apart."""
    told = list(groups)
    counts, seen = Counter(group.label for group in told), Counter[str]()
    for index, group in enumerate(told):
        if counts[group.label] > 1:
            seen[group.label] += 1
            told[index] = replace(group, mark=f" #{seen[group.label]}")
    return told


def _world_name(run: RunRecord) -> str:
    """``pong``, ``gymnasium LunarLander-v3``, ``problem zdt1``: what its config file is called, and whom it names."""
    name = run.choices.get("mdp") or str(run.config.get("mdp._target_", "")).rpartition(".")[2] or "unknown world"
    return (
        f"{name} {run.config['mdp.id']}"
        if name.lower() in ("gymnasium", "problem") and "mdp.id" in run.config
        else name
    )


def _leaves(run: RunRecord) -> dict[str, Any]:
    """The config's leaves that matter; what a group is made of goes by the group's name (``rl``: ``ppo``)."""
    leaves: dict[str, Any] = {}
    for key, value in run.config.items():
        if key in IGNORED or _config_group(key) in IGNORED_GROUPS:
            continue
        if key.endswith("._target_"):
            group = key.removesuffix("._target_")
            leaves[group] = run.choices.get(group, str(value).rpartition(".")[2])
        elif key == "init" and Path(str(value)).parent == run.directory.absolute().parent:
            leaves[key] = Path(str(value)).name  # another job of its sweep
        else:
            leaves[key] = run.choices.get(key, value)
    if leaves.get("budget.steps", MISSING) is None:  # the world's own, which another run may have spelt out
        leaves["budget.steps"] = run.config.get("mdp.budget")
    return leaves


def _is_informative(key: str, varied: Mapping[str, list[Any]]) -> bool:
    """Whether a key differs even among runs that chose the same file for the group it belongs to."""
    words = key.split(".")
    groups = [".".join(words[:n]) for n in range(1, len(words))]
    chosen = next((varied[group] for group in groups if group in varied), None)
    if chosen is None:
        return True
    pairs = {(repr(choice), repr(value)) for choice, value in zip(chosen, varied[key], strict=True)}
    return len(pairs) > len({choice for choice, _ in pairs})


def _sort_key(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (0, float(value), "")
    return (1, 0.0, format_value(value))


def _by_seed(run: RunRecord) -> tuple[tuple[int, float, str], str]:
    return _sort_key(run.seed), str(run.directory)
