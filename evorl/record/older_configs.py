"""Configs of runs that an older version began, with the keys that they have today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPTIONS = ("alpha", "beta", "eta")
"""Keys of ``rl`` that priorities had."""


def with_present_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a run with what it replays under ``rl.sampling`` and ``rl.replay``.

    Learners of transitions had ``prioritized``, ``attentive`` and the options of priorities beside ``sampling``;
    learners of rollouts had a ``share`` in each part of ``replay``. Any other config is returned as it is.
    """
    rl = config.get("rl")
    if not isinstance(rl, Mapping):
        return dict(config)
    parts = rl.get("replay")
    if isinstance(parts, Mapping) and any(isinstance(part, Mapping) and "share" in part for part in parts.values()):
        return {**config, "rl": {**rl, **_of_rollouts(parts)}}
    if "attentive" in rl or "prioritized" in rl:
        return {**config, "rl": _of_transitions(rl)}
    return dict(config)


def _of_rollouts(parts: Mapping[str, Any]) -> dict[str, Any]:
    sampling, options = {}, {}
    for name, part in parts.items():
        options[name] = dict(part) if isinstance(part, Mapping) else part
        if isinstance(part, Mapping) and "share" in part:
            sampling[name] = options[name].pop("share")
    return {"sampling": sampling, "replay": options}


def _of_transitions(rl: Mapping[str, Any]) -> dict[str, Any]:
    moved, options = {"attentive", "prioritized"}, {}
    if "attentive" in rl:
        options["attentive"] = rl["attentive"]
    if "prioritized" in rl:  # else alpha is SAC's temperature
        moved |= {*OPTIONS}
        options["prioritized"] = {key: rl[key] for key in OPTIONS if key in rl}
    sampling = "prioritized" if rl.get("prioritized") else rl.get("sampling", "uniform")
    return {**{key: x for key, x in rl.items() if key not in moved}, "sampling": sampling, "replay": options}
