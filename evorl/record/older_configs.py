"""Configs of runs that an older version began, with the keys that they have today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OPTIONS = ("alpha", "beta", "eta")
"""Keys of ``rl`` that priorities had."""
FOOTBALL, REMOTE = "evorl.mdp.football.Football", "evorl.mdp.remote.Remote"
P_CEM_RL = "evorl.ec.p_cem_rl.PCEMRL"
PARALLEL_CRITIC = {"critic_job": 1000, "critics": 1, "max_critic_lag": None}
"""Keys of ``ec`` of a parallel critic, by default."""
PETTING_ZOO = "evorl.mdp.pettingzoo.PettingZoo"
EQUAL = {"rule": 1.0, "runs": 1.0, "past": 1.0}
"""Weights of opponents by default."""
PER_REWARD = ("gamma", "lam")
"""Keys of ``rl`` that may have a value for each named reward."""


def with_present_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of a run with the keys that it has today.

    * Learners of transitions had ``prioritized``, ``attentive`` and the options of priorities beside ``sampling``;
      learners of rollouts had a ``share`` in each part of ``replay``.
    * Evolution with a shared critic had ``tell_warm_up``.
    * The reward of football was ``goal``.
    * ``mdp.time_limit`` of football beyond the scenario's own limit was ignored, and is refused today.
    * ``mdp.results`` of PettingZoo's environments took ``return`` and ``length``, which are evorl's own today.
    * ``mdp.time_limit`` beside ``mdp.kwargs.max_episode_steps`` was ignored, but with ``mdp.vector=true``, where the
      lesser one was the limit. Both together are refused today.
    * ``opponents.weights`` and ``opponents.explore`` were ignored by choices that have none, ``rl.epsilon_spread`` with
      one slot, ``mdp.processes`` without a command or with ``protocol=godot_rl``, and the keys of a parallel critic
      where P-CEM-RL has a serial one. They are refused today.

    Any other config is returned as it is.
    """
    rl, ec, mdp = ({**part} if isinstance(part := config.get(key), Mapping) else {} for key in ("rl", "ec", "mdp"))
    if "tell_warm_up" in ec:
        ec["warm_up_actions"] = _of_warm_up(ec.pop("tell_warm_up"), rl)
    if ec.get("_target_") == P_CEM_RL and not ec.get("parallel_critic"):
        ec |= {key: x for key, x in PARALLEL_CRITIC.items() if key in ec}
    if mdp.get("_target_") == FOOTBALL:
        rl |= {key: _of_football(rl[key]) for key in PER_REWARD if isinstance(rl.get(key), Mapping)}
    if rl.get("epsilon_spread") and rl.get("slots") == 1:
        rl["epsilon_spread"] = 0.0
    rl, opponents = _of_replay(rl), _of_opponents(config.get("opponents"))
    present = {"rl": rl, "ec": ec, "mdp": _of_limits(_of_world(mdp)), "opponents": opponents}
    return {**config, **{key: part for key, part in present.items() if part}}


def _of_world(mdp: dict[str, Any]) -> dict[str, Any]:
    kind, names = mdp.get("_target_"), mdp.get("results")
    if kind == REMOTE and "processes" in mdp and (mdp.get("command") is None or mdp.get("protocol") == "godot_rl"):
        return {**mdp, "processes": 1}
    if kind == FOOTBALL and isinstance(limit := mdp.get("time_limit"), int) and limit > _steps_of(mdp.get("scenario")):
        return {**mdp, "time_limit": None}
    if kind == PETTING_ZOO and isinstance(names, list):
        return {**mdp, "results": [name for name in names if name not in ("return", "length")]}
    return mdp


def _steps_of(scenario: Any) -> int:
    """The steps after which a game of football ends (`evorl.mdp.football.world.SCENARIOS`)."""
    if scenario == "1_vs_1_easy":
        return 500
    return 400 if str(scenario).startswith("academy") and scenario != "academy_single_goal_versus_lazy" else 3000


def _of_limits(mdp: dict[str, Any]) -> dict[str, Any]:
    """One limit of steps, of two."""
    kwargs, limit = mdp.get("kwargs"), mdp.get("time_limit")
    if not isinstance(limit, int) or not isinstance(kwargs, Mapping) or "max_episode_steps" not in kwargs:
        return mdp
    if mdp.get("vector"):
        own = kwargs["max_episode_steps"]
        kwargs = {**kwargs, "max_episode_steps": min(limit, own) if isinstance(own, int) else limit}
    return {**mdp, "kwargs": kwargs, "time_limit": None}


def _of_opponents(opponents: Any) -> dict[str, Any]:
    """What had no effect is what it is by default."""
    if not isinstance(opponents, Mapping):
        return {}
    choice = opponents.get("choice")
    no_weights = {"weights": dict(EQUAL)} if "weights" in opponents and choice != "weights" else {}
    return {**opponents, **no_weights, **({"explore": 0.0} if choice == "cycle" else {})}


def _of_warm_up(told: Any, rl: Mapping[str, Any]) -> str:
    """What plays before the critic learns: ``rl.warm_up_actions``, which has no effect today, went before."""
    if rl.get("warm_up_actions") == "policy":
        return "policy"
    return "told" if told else "uniform"


def _of_football(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"scoring" if name == "goal" else name: value for name, value in values.items()}


def _of_replay(rl: dict[str, Any]) -> dict[str, Any]:
    parts = rl.get("replay")
    if isinstance(parts, Mapping) and any(isinstance(part, Mapping) and "share" in part for part in parts.values()):
        return {**rl, **_of_rollouts(parts)}
    return _of_transitions(rl) if "attentive" in rl or "prioritized" in rl else rl


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
