"""evorl.zoo lists the policies that tables keep, and evorl.load takes their names."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import evorl
from evorl.cli.config import CONF, experiment_of_run, experiment_of_words
from evorl.reproduction import papers
from evorl.reproduction.kept_policies import KeptPolicy, find, kept_policies
from evorl.training.experiment import Experiment
from evorl.util.errors import BadRequest
from evorl.zoo import main

ROOT = Path(__file__).parents[1]


def test_every_policy_is_listed_with_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    kept, tables = kept_policies(), papers.names()
    assert len(kept) >= 30
    assert {policy.table for policy in kept} <= {*tables}
    assert main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert len(listed) == len(kept) + 2  # the header and the last line
    assert any(line.split()[:3] == ["suite/ppo_pong", "Pong", "PPO"] for line in listed)
    assert any(line.split()[:3] == ["suite/pbt_pong", "Pong", "PPO"] for line in listed)
    assert {*map(len, listed[:-1])} == {len(listed[0])}, "columns"
    rows = {line.split()[0]: " ".join(line.split()) for line in listed}
    assert "IQM of all runs" in listed[0] and "Swimmer-v5 PPO 341.3 ± 1.725 339 [291, 346]" in rows["suite/ppo_swimmer"]
    assert "Football academy_empty_goal_close PPO 0.9667 ± 0.1795 - 51 200" in rows["lamarckian/close_numbers"]
    assert "Atari pong PPO" in rows["lamarckian/pong"] and "evorl/Marvin-v0 PPO" in rows["marvin/walk"]


def own_rows(result: dict[str, Any]) -> list[list[str]]:
    """The rows of a table that are of evorl's runs; a last one may compare the others."""
    others = ("Stable-Baselines3", "CleanRL", "Ray Tune", "median of the ratios")
    return [row for row in result["rows"] if not any(name in row[0] for name in others)]


def test_the_page_names_every_table_without_a_policy_for_each_row() -> None:
    """And how many policies there are for how many rows. A table that lists its policies has kept them all."""
    page = (ROOT / "docs" / "reproduce.md").read_text()
    told = re.findall(r"^\| `(\w+/\w+)` \| (\d+) of (\d+) \|", page, re.MULTILINE)
    kept = Counter(policy.table for policy in kept_policies())
    found = []
    for name in papers.names():
        if (file := papers.results(name) / f"{name.rpartition('/')[2]}.json").exists():
            result = json.loads(file.read_text())
            if kept[name] < (rows := len(own_rows(result))):
                found.append((name, f"{kept[name]}", f"{rows}"))
            listed = [len(also["rows"]) for also in result["also"] if also["header"][0].startswith("policy")]
            assert listed in ([], [kept[name]]), name
    assert sorted(told) == sorted(found)


def pair(experiment: Experiment) -> Any:
    """The world, of Atari with its protocol, and the learner with its settings; a schedule may have another length."""
    world, learner = experiment.mdp, asdict(experiment.rl)
    for schedule in learner.values():
        if isinstance(schedule, dict):
            schedule.pop("steps", None)
    return type(world), getattr(world, "id", None), getattr(world, "sticky", None), type(experiment.rl), learner


@pytest.mark.slow
def test_every_tuned_pair_but_those_of_atari_has_a_policy_at_its_settings() -> None:
    kept = [pair(experiment_of_run(policy.directory)) for policy in kept_policies()]
    tuned = [file.stem.rpartition("_") for file in sorted((CONF / "tuned").glob("*.yaml"))]
    missing = [
        f"{world} {algorithm}"
        for world, _, algorithm in tuned
        if not world.startswith("atari") and pair(experiment_of_words([f"mdp={world}", f"rl={algorithm}"])) not in kept
    ]
    assert tuned and not missing


def test_one_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dqn_lunarlander"]) == 0
    text = capsys.readouterr().out
    assert "LunarLander-v3" in text and "evorl.reproduce suite/off_policy" in text
    assert find("suite/dqn_lunarlander").digest in text


def test_the_score_of_a_policy_is_that_of_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["suite/ppo_swimmer"]) == 0
    told = capsys.readouterr().out
    assert "339 [291, 346]: the interquartile mean" in told and "suite/results/on_policy.md" in told
    assert "policies/ppo_swimmer/.hydra/config.yaml" in told
    assert find("aes_rl/cem_swimmer").score().startswith("309 ["), "at the end of its run, not at 20,000 steps"
    tables: dict[str, list[KeptPolicy]] = {}
    for policy in kept_policies():
        tables.setdefault(policy.table, []).append(policy)
    for name, kept in tables.items():
        for policy in kept:
            assert policy.page.exists(), policy.name
            of_two_samplers = "_uniform_elite_" in policy.name  # the table tells the samples of each, and no return
            assert bool(policy.score()) == (papers.table(name).policy_scores is not None and not of_two_samplers)


def test_one_is_loaded_and_plays_as_it_did() -> None:
    """The same episodes as when it was kept. All of them reach the limit of steps, so rounding changes no number."""
    with evorl.load("zoo/suite/ppo_cartpole") as loaded:
        kept = json.loads((loaded.directory / "evaluation.json").read_text())
        assert kept["stochastic_return_min"] == kept["return_min"] == 500
        played = loaded.evaluate()
        assert played == {name: kept[name] for name in played} and len(played) == 10
        assert loaded.experiment.eval.episodes == kept["episodes"] and loaded.experiment.seed == kept["seed"]
        assert loaded.policy.act([0.0, 0.0, 0.2, 0.0]) == 1, "the pole falls to the right, and the cart follows"


@pytest.mark.parametrize("name", ["pong_ppo", "PPO/pong", "suite/pong_ppo"])
def test_the_parts_of_a_name_may_have_another_order(name: str) -> None:
    assert find(name).name == "suite/ppo_pong"
    assert evorl.load(f"zoo/{name}").directory == find("suite/ppo_pong").directory


def test_one_tells_how_it_was_evaluated_and_has_no_metrics() -> None:
    loaded = evorl.load("zoo/suite/ppo_cartpole")
    assert (loaded.state, loaded.fitness) == ("finished", 500.0)
    assert repr(loaded).endswith("/ppo_cartpole', finished, fitness 500)")
    assert loaded.result is not None and loaded.result["episodes"] == 20
    with pytest.raises(BadRequest, match=r"ppo_cartpole has recorded no metrics$"):
        loaded.plot()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ppo_ponk"], "did you mean suite/ppo_pong?"),
        (["pong_pppo"], "did you mean suite/ppo_pong?"),
        (["cartpol_ppo"], "did you mean suite/ppo_cartpole?"),
        (["suite/ppo_pon"], "did you mean suite/ppo_pong?"),
        (["pong_pbt"], "'pong_pbt' is lamarckian/pbt_pong or suite/pbt_pong"),
        (["suite/ppo_pong", "suite/a2c_pong"], "one policy at a time"),
        (["cartpole"], None),
    ],
)
def test_other_words_are_refused(words: list[str], why: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    assert (code, why is None) in ((2, False), (0, True)) and (why or "") in capsys.readouterr().err


def test_a_name_that_several_have_needs_its_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    doubled = [policy for policy in kept_policies() if policy.directory.name.startswith("ppo_pong")]
    monkeypatch.setattr(
        "evorl.reproduction.kept_policies.kept_policies",
        lambda: [*doubled, *(type(policy)(**{**vars(policy), "name": "other/ppo_pong"}) for policy in doubled)],
    )
    with pytest.raises(BadRequest, match="suite/ppo_pong or other/ppo_pong"):
        find("ppo_pong")
