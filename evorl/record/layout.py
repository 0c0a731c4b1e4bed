"""Layout of metrics on pages: sections, and in each the charts with the metrics that share one.

TensorBoard's custom scalars and W&B's reports have the same layout. A metric that no list below names has a chart of
its own, in the section of its prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from evorl.record.metrics import METRICS, declared

SECTIONS: dict[str, tuple[str, ...]] = {
    "Learning": ("train/", "eval/"),
    "Losses and policy": ("loss/", "policy/", "value/", "optimizer/", "custom/"),
    "Population": ("population/", "selection/"),
    "Opponents": ("opponents/", "league/"),
    "Speed and system": ("",),
}
"""Title of each section and the prefixes of its metrics; the first match counts."""

OF_PLUGINS = "Losses and policy"
"""The section of metrics that plugins declare."""
TOGETHER: dict[str, tuple[str, ...]] = {
    "return": ("train/return", "eval/return_mean", "eval/stochastic_return_mean"),
    "episode length": ("train/episode_length", "eval/length_mean"),
    "results": ("train/<result>", "eval/<result>_mean"),
    "fitness": ("population/best", "population/mean", "selection/heldout"),
    "score": ("population/score", "population/score_mean"),
    "processor time": ("hardware/cpu", "hardware/cpu_<process>"),
    "memory": ("hardware/memory", "hardware/memory_<process>"),
    "network": ("hardware/network_sent", "hardware/network_received"),
    "energy": ("hardware/energy_cpu", "hardware/energy_gpu_<gpu>"),
    "share of the machine": ("hardware/machine_cpu", "hardware/machine_memory", "hardware/gpu_<gpu>"),
    "seconds": tuple(name for name in METRICS if name.startswith("speed/") and name.endswith("_seconds")),
}
"""Title and metrics of each chart that shows several."""

_IN_TABLES = re.compile(r"eval/.*_(min|max|std)")


def charts() -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the charts of each section: title and registered names, with words in angle brackets."""
    shared = {name: title for title, names in TOGETHER.items() for name in names}
    sections: dict[str, dict[str, tuple[str, ...]]] = {title: {} for title in SECTIONS}
    for name in METRICS:
        if not _IN_TABLES.fullmatch(name):
            title = shared.get(name, name)
            sections[_section(name)][title] = TOGETHER.get(title, (name,))
    for name in declared():
        sections[OF_PLUGINS][name] = (name,)
    return sections


def charts_of(names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the charts that show some of these metrics, and which; metrics without a chart are left out."""
    homes: dict[str, list[str]] = {}
    for name in sorted(names):
        if (home := name if name in declared() else registered(name)) is not None:
            homes.setdefault(home, []).append(name)
    sections = {
        section: {
            title: [name for chart in several for name in homes.get(chart, [])] for title, several in shown.items()
        }
        for section, shown in charts().items()
    }
    kept = {section: {t: charts for t, charts in shown.items() if charts} for section, shown in sections.items()}
    return {section: shown for section, shown in kept.items() if shown}


@cache
def registered(name: str) -> str | None:
    """Return the entry of `METRICS` that a name belongs to; None if there is none."""
    return next((entry for entry in METRICS if re.match(pattern(entry), name)), None)


@cache
def pattern(entry: str) -> str:
    """Return the regular expression, for `re.match`, of the names that belong to an entry of `METRICS` and no other.

    A word in angle brackets stands for a name; of several entries that match, the one with the longest text before
    that word counts.
    """
    if "<" not in entry:
        return f"{re.escape(entry)}$"
    narrower = [
        _plain(other)
        for other in METRICS
        if other != entry
        and re.fullmatch(_plain(entry), re.sub("<.*?>", "x", other))
        and len(other.partition("<")[0]) > len(entry.partition("<")[0])
    ]
    others = f"(?!(?:{'|'.join(narrower)})$)" if narrower else ""
    return f"{others}{_plain(entry)}$"


def _plain(entry: str) -> str:
    return r"[^/\s]+".join(re.escape(part) for part in re.split(r"<\w+>", entry))


def _section(name: str) -> str:
    return next(title for title, prefixes in SECTIONS.items() if name.startswith(prefixes))
