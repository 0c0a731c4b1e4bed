"""Configs of runs that older versions began: what they replayed, under the keys of today."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import QUICK, experiment_of, fingerprint, go

from evorl.analysis.runs import read_run
from evorl.cli.config import compose, experiment_of_run, opened, read_run_config, resolved
from evorl.mdp.football import Football
from evorl.mdp.football.world import SCENARIOS
from evorl.record.older_configs import FOOTBALL, P_CEM_RL, PETTING_ZOO, REMOTE, with_present_keys

ATTENTIVE = {"candidates": 4.0, "anneal": 100_000, "distance": "cosine"}
PRIORITY = {"alpha": 0.6, "beta": 0.4}
KEPT = Path(__file__).parents[2] / "benchmarks" / "elite_replay" / "results" / "policies"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (
            {"sampling": "uniform", "attentive": ATTENTIVE, "prioritized": True, **PRIORITY, "lr": 1.0},
            {"sampling": "prioritized", "replay": {"attentive": ATTENTIVE, "prioritized": PRIORITY}, "lr": 1.0},
        ),
        (
            {"sampling": "attentive", "attentive": ATTENTIVE, "prioritized": False, **PRIORITY, "eta": 0.9},
            {"sampling": "attentive", "replay": {"attentive": ATTENTIVE, "prioritized": {**PRIORITY, "eta": 0.9}}},
        ),
        (
            {"sampling": "uniform", "attentive": ATTENTIVE, "alpha": 0.2},  # SAC's temperature
            {"sampling": "uniform", "replay": {"attentive": ATTENTIVE}, "alpha": 0.2},
        ),
        (
            {"replay": {"queue": {"share": 0.5, "capacity": None}, "elite": {"share": 0.5, "lag": 0}}},
            {"replay": {"queue": {"capacity": None}, "elite": {"lag": 0}}, "sampling": {"queue": 0.5, "elite": 0.5}},
        ),
    ],
)
def test_keys_of_older_versions(before: dict[str, Any], now: dict[str, Any]) -> None:
    assert with_present_keys({"rl": before, "seed": 3}) == {"rl": now, "seed": 3}
    assert with_present_keys({"rl": now}) == {"rl": now}


@pytest.mark.parametrize(
    ("told", "rl", "now"), [(True, "uniform", "told"), (False, "uniform", "uniform"), (True, "policy", "policy")]
)
def test_evolution_with_a_shared_critic_had_another_key(told: bool, rl: str, now: str, tmp_path: Path) -> None:
    words = ("mdp=pendulum", "rl=td3", "ec=cem_rl", f"rl.warm_up_actions={rl}")
    with opened() as hydra:
        config = resolved(compose(hydra, words))
    del config["ec"]["warm_up_actions"]
    config["ec"]["tell_warm_up"] = told
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config))
    assert experiment_of_run(tmp_path) == experiment_of(*words, f"ec.warm_up_actions={now}")


def test_the_reward_of_football_had_another_name() -> None:
    football, soccer = {"_target_": FOOTBALL}, {"_target_": "evorl.mdp.soccer.Soccer"}
    rl = {"gamma": {"goal": 0.9}, "lam": {"goal": 0.8}, "lr": {"start": 1.0}}
    now = {"gamma": {"scoring": 0.9}, "lam": {"scoring": 0.8}, "lr": {"start": 1.0}}
    assert with_present_keys({"mdp": football, "rl": rl}) == {"mdp": football, "rl": now}
    assert with_present_keys({"mdp": football, "rl": {"gamma": 0.9}}) == {"mdp": football, "rl": {"gamma": 0.9}}
    assert with_present_keys({"mdp": soccer, "rl": rl}) == {"mdp": soccer, "rl": rl}
    assert Football().spec.rewards == ("scoring",)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_limit_of_football_beyond_the_scenarios_own_was_ignored(scenario: str) -> None:
    own = SCENARIOS[scenario]
    for limit, today in ((None, None), (9, 9), (own, own), (own + 1, None)):
        config = {"_target_": FOOTBALL, "scenario": scenario, "time_limit": limit}
        (found,) = with_present_keys({"mdp": config}).values()
        assert found == {**config, "time_limit": today}
        assert Football(scenario=scenario, time_limit=today).longest_episode == min(limit or own, own)


def test_results_of_pettingzoo_took_the_place_of_evorls_own() -> None:
    zoo = {"_target_": PETTING_ZOO, "results": ["return", "caught", "length"]}
    assert with_present_keys({"mdp": zoo})["mdp"] == {**zoo, "results": ["caught"]}


@pytest.mark.parametrize(("vector", "limit"), [(None, 50), (False, 50), (True, 10)])
def test_environments_had_two_limits(vector: bool | None, limit: int) -> None:
    mdp = {"time_limit": 10, "kwargs": {"g": 9.0, "max_episode_steps": 50}, "vector": vector}
    now = {**mdp, "time_limit": None, "kwargs": {"g": 9.0, "max_episode_steps": limit}}
    assert with_present_keys({"mdp": mdp}) == {"mdp": now} == with_present_keys({"mdp": now})


@pytest.mark.parametrize(
    "odd",
    [{}, {"rl": 3}, {"rl": {"replay": 3}}, {"rl": None, "ec": {}}, {"rl": {"replay": {"queue": 1, "elite": "share"}}}],
)
def test_what_is_no_config_stays_as_it_is(odd: dict[str, Any]) -> None:
    assert with_present_keys(odd) == odd


def test_a_policy_that_was_kept_can_be_read() -> None:
    """Its config is as the version wrote it that trained it."""
    run = KEPT / "cartpole_uniform_elite_strategy_3"
    assert "share" in (run / ".hydra" / "config.yaml").read_text()
    shares = {"queue": 0.5, "uniform": 0.25, "elite": 0.25}
    rl: Any = experiment_of_run(run).rl
    assert {name: share for name, share in rl.sampling.items() if share} == shares
    assert read_run(run).config["rl.sampling.elite"] == 0.25


def with_former_keys(run: Path) -> None:
    """Turn the config of a run of DQN into that of an older version."""
    config = read_run_config(run, "run")
    replay, rl = config["rl"].pop("replay"), config["rl"]
    rl |= {"attentive": replay["attentive"], **replay["prioritized"], "prioritized": rl["sampling"] == "prioritized"}
    rl["sampling"] = "uniform"
    (run / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config))


def test_an_older_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    words = (*QUICK, "mdp=cartpole", "rl=dqn", "rl.sampling=prioritized", "rl.batch=16", "rl.warm_up=100")
    words = tuple(word for word in words if not word.startswith(("rl.minibatch", "rl.passes")))
    whole, older = tmp_path / "whole", tmp_path / "older"
    for run in (whole, older):
        assert go(*words, "budget.steps=200", f"hydra.run.dir={run}") == 0
    with_former_keys(older)
    for run in (whole, older):
        assert go(f"resume={run}", "budget.steps=300") == 0
    assert fingerprint(older) == fingerprint(whole)
    assert experiment_of_run(older).rl == experiment_of_run(whole).rl == experiment_of(*words).rl


def test_settings_of_opponents_that_were_ignored_are_what_they_are_by_default() -> None:
    weights = {"rule": 4.0, "runs": 1.0, "past": 1.0}
    before = {"choice": "hard", "explore": 0.1, "weights": weights}
    assert with_present_keys({"opponents": before})["opponents"] == {**before, "weights": dict.fromkeys(weights, 1.0)}
    assert with_present_keys({"opponents": {**before, "choice": "cycle"}})["opponents"]["explore"] == 0
    used = {"opponents": {**before, "choice": "weights"}}
    assert with_present_keys(used) == used and with_present_keys({"opponents": {"x": 1}}) == {"opponents": {"x": 1}}


def test_what_had_no_effect_and_is_refused_today_is_as_by_default() -> None:
    remote = {"_target_": REMOTE, "command": None, "processes": 4}
    found = with_present_keys({"mdp": remote, "rl": {"slots": 1, "epsilon_spread": 7.0}})
    assert found == {"mdp": {**remote, "processes": 1}, "rl": {"slots": 1, "epsilon_spread": 0.0}}
    several = {"mdp": {**remote, "command": "game", "protocol": "evorl"}, "rl": {"slots": 2, "epsilon_spread": 7.0}}
    assert with_present_keys(several) == several
    serial = {"_target_": P_CEM_RL, "parallel_critic": False, "critics": 3, "max_critic_lag": 9, "trained": 2}
    assert with_present_keys({"ec": serial}) == {"ec": {**serial, "critics": 1, "max_critic_lag": None}}
    beside = {"ec": {**serial, "parallel_critic": True}}
    assert with_present_keys(beside) == beside
