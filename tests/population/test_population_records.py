"""What an evolution leaves for people: its journal, evaluations of its best, and individuals evaluated again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harness import experiment_of, go, newest, rows

from evorl.analysis.population import read_population_log
from evorl.analysis.runs import read_run
from evorl.evaluate import main as evaluate
from evorl.population import loop
from evorl.population.loop import Population
from evorl.report import main as report
from evorl.rl.core import NotFinite

QUICK = (
    *("record.tensorboard=false", "eval.episodes=2", "rl.slots=4", "rl.horizon=16", "rl.minibatch=32", "rl.passes=2"),
    *("rl.net.hidden=[8]", "ec.population=4", "ec.episodes=3"),
)
PBT = (
    *("mdp=cartpole", "ec=pbt", "ec.train_steps=128", "+ec.genes.rl.lr={low:1e-5,high:1e-1,log:true}"),
    *("budget.steps=3000", "eval.every=500"),
)
PROBLEM = ("mdp=problem", "mdp.id=zdt1", "mdp.dimensions=3", "ec=nsga2", "budget.steps=40", "eval.every=20")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("evolved")
    cases = {"pbt": PBT, "problem": PROBLEM, "es": ("mdp=cartpole", "ec=openai_es", "budget.steps=600")}
    for name, words in cases.items():
        assert go(*QUICK, *words, f"hydra.run.dir={place / name}") == 0
    assert go(*QUICK[:-2], "mdp=cartpole", "budget.steps=64", f"hydra.run.dir={place / 'one'}") == 0
    return place


def journal(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "population.jsonl").read_text().splitlines()]


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert evaluate([*words, "json=true"]) == 0, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_line_of_the_journal_says_all_of_an_individual(runs: Path) -> None:
    for one in journal(runs / "pbt"):
        assert {*one} == {
            *("id", "parents", "role", "birth", "genes", "cost", "objectives", "results", "step", "seconds")
        }
        assert {*one["objectives"]} == {"fitness"} and 1e-5 <= one["genes"]["rl.lr"] <= 1e-1
        assert one["objectives"]["fitness"] == one["results"]["fitness"] and one["seconds"] > 0
    assert {*journal(runs / "problem")[0]["objectives"]} == {"f1", "f2"}


def test_a_sum_of_results_is_an_objective_with_a_name(tmp_path: Path) -> None:
    words = ("mdp=pong", "mdp.rounds=1", "mdp.round_steps=20", "ec=nsga2", "budget.steps=100", "eval.every=0")
    objectives = "ec.objectives=[{fitness:1,lazy:0.5},{busy:-1}]"
    assert go(*QUICK, *words, objectives, f"hydra.run.dir={tmp_path / 'run'}") == 0
    one = journal(tmp_path / "run")[0]
    assert [*one["objectives"]] == ["fitness+0.5*lazy", "-1*busy"]
    assert one["objectives"]["-1*busy"] == pytest.approx(-one["results"]["busy"])


def test_a_best_individual_that_cannot_be_evaluated_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its fitness is of other episodes than those on which it meets a NaN."""

    def fails(*given: Any) -> Any:
        raise NotFinite("the reward of slot 0 is not finite: nan")

    monkeypatch.setattr(loop, "evaluate_policy", fails)
    budget = ("budget.steps=1500", "eval.every=250")
    assert go(*QUICK, *PBT[:-2], *budget, f"hydra.run.dir={tmp_path / 'run'}") == 0
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert result["steps"] >= 1500 and result["eval"]["return_mean"] is None
    assert all(row.get("eval/return_mean") is None for row in rows(tmp_path / "run"))
    said = re.findall(r"individual (\d+) cannot be evaluated at step \d+: the reward of", "".join(capsys.readouterr()))
    assert said[-1] == str(result["best"]["individual"]) and all(a != b for a, b in pairwise(said))


@pytest.mark.slow
def test_the_same_best_individual_is_not_played_again(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []
    real = loop.evaluate_policy
    monkeypatch.setattr(loop, "evaluate_policy", lambda *given: played.append(1) or real(*given))
    experiment = experiment_of(*QUICK, *PBT)
    assert experiment.ec is not None
    population = Population(experiment, experiment.ec)
    try:
        leaders, evaluated = [], []
        for _ in range(8):
            population.iterate()
            found = population.evaluate()
            leaders.append(population.leader)
            evaluated.append({name: x for name, x in found.items() if name.startswith("eval/")})
        changes = sum(a is not b for a, b in zip([None, *leaders], leaders, strict=False))
        assert len(played) == changes < 8
        for k in range(1, 8):
            assert (evaluated[k] == evaluated[k - 1]) or leaders[k] is not leaders[k - 1]
    finally:
        population.close()


def test_evaluations_are_written_at_their_steps(runs: Path) -> None:
    evaluated = [row for row in rows(runs / "pbt") if "eval/return_mean" in row]
    assert len(evaluated) >= 3 and len({row["step"] for row in evaluated}) == len(evaluated)
    best = [row for row in rows(runs / "problem") if "eval/f1_mean" in row]
    assert len(best) == 2 and not any("eval/return_mean" in row for row in rows(runs / "problem"))
    leader = max(journal(runs / "problem"), key=lambda one: one["objectives"]["f1"])["objectives"]
    assert [best[-1]["eval/f1_mean"], best[-1]["eval/f2_mean"]] == [leader["f1"], leader["f2"]]  # an individual's own
    assert "episodes" not in json.loads((runs / "problem" / "result.json").read_bytes())["eval"]


# ------------------------------------------------------------------ evaluated again


def test_the_best_individual_again_gives_what_was_recorded(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded = json.loads((runs / "pbt" / "result.json").read_bytes())
    again = said(capsys, f"run={runs / 'pbt'}", "individual=best")
    assert again["individual"] == recorded["best"]["individual"]
    assert {name: again[name] for name in recorded["eval"]} == recorded["eval"]
    assert said(capsys, f"run={runs / 'pbt'}", f"individual={again['individual']}") == again
    assert said(capsys, f"run={runs / 'pbt'}") == again


def test_every_individual_of_the_present_population_can_be_evaluated(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in newest(runs / "pbt")["run"]["evolver"]["population"]["individuals"]["id"]:
        assert said(capsys, f"run={runs / 'pbt'}", f"individual={number}", "episodes=1")["individual"] == number
    for number in json.loads((runs / "pbt" / "result.json").read_bytes())["best"]["candidates"]:
        assert said(capsys, f"run={runs / 'pbt'}", f"individual={number}", "episodes=1")["individual"] == number
    newborn = newest(runs / "es")["run"]["evolver"]["population"]["individuals"]["id"][0]
    assert said(capsys, f"run={runs / 'es'}", f"individual={newborn}", "episodes=1")["individual"] == newborn


def test_individuals_of_a_generation_under_way_can_be_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A budget ends between two generations; the front in the report has individuals of the last one, too."""
    words = ("mdp=cartpole", "ec=nsga2", "ec.objectives=[fitness,{length:-1}]", "budget.steps=300", "eval.every=0")
    assert go(*QUICK, *words, "eval.candidates=0", f"hydra.run.dir={tmp_path / 'run'}") == 0
    arrived = newest(tmp_path / "run")["run"]["evolver"]["arrived"]["individuals"]["id"]
    assert len(arrived) and {*arrived} == {one["id"] for one in journal(tmp_path / "run")[-len(arrived) :]}
    for number in arrived:
        again = said(capsys, f"run={tmp_path / 'run'}", f"individual={number}", "episodes=1")
        assert again["individual"] == number


@pytest.mark.parametrize("name", ["pbt", "es"])
def test_an_exported_individual_is_a_single_run(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = said(capsys, f"run={runs / name}", f"export={tmp_path / name}")
    again = said(capsys, f"run={tmp_path / name}")
    assert {**again, "individual": first["individual"]} == first
    assert evaluate([f"run={tmp_path / name}", "individual=best"]) == 2
    assert "this run has no population" in capsys.readouterr().err
    assert evaluate([f"run={runs / 'problem'}", f"export={tmp_path / 'none'}"]) == 2
    assert "export: a problem has no policy" in capsys.readouterr().err and not (tmp_path / "none").exists()


def test_an_individual_of_a_problem_has_its_objectives_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = json.loads((runs / "problem" / "result.json").read_bytes())["best"]
    again = said(capsys, f"run={runs / 'problem'}", "individual=best")
    assert [again["f1"], again["f2"]] == best["objectives"] and again["genes"] == best["genes"]


@pytest.mark.parametrize(("run", "word", "line"), [
    ("one", "individual=3", "evorl: individual: this run has no population"),
    ("pbt", "individual=bset", "did you mean best?"),
    ("pbt", "individual=99999", "evorl: individual: '99999' is none that this checkpoint holds: best, "),
    ("pbt", "individual=-1", "evorl: individual: "),
    ("problem", "video=true", "evorl: video: a problem has no policy to film"),
    ("problem", "episodes=3", "evorl: episodes: a problem has no episodes"),
    ("problem", "device=cpu", "evorl: device: a problem has no episodes"),
])  # fmt: skip
def test_individuals_that_cannot_be(
    run: str, word: str, line: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert evaluate([f"run={runs / run}", word]) == 2
    told = capsys.readouterr().err
    assert line in told and told.count("\n") == 1


@pytest.mark.slow
def test_a_report_of_an_evolution(runs: Path, tmp_path: Path) -> None:
    assert report([str(runs / "problem"), f"out={tmp_path / 'report'}"]) == 0
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert {"population.csv", "population_front.png", "population_family.svg", "population_genes.png"} <= names


@pytest.mark.slow_cases(but=("sga-[{busy:-2}]-<lambda>",))
@pytest.mark.parametrize(
    ("ec", "objectives", "ranks"),
    [
        ("sga", "[lazy]", lambda one: one["results"]["lazy"]),
        ("sga", "[{busy:-2}]", lambda one: -2 * one["results"]["busy"]),
        ("nsga2", "[lazy,fitness]", lambda one: one["results"]["fitness"]),
        ("nsga2", "[{busy:1},{fitness:1,lazy:1}]", lambda one: one["results"]["fitness"]),
        ("nsga2", "[lazy,{fitness:-1}]", lambda one: one["results"]["lazy"]),
    ],
)
def test_the_best_is_the_best_at_what_evolves(
    ec: str,
    objectives: str,
    ranks: Callable[[dict[str, Any]], float],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Everywhere: the run's result, its metrics, the individual that is evaluated again, and the report's ranking."""
    words = (
        "mdp=pong",
        "mdp.rounds=2",
        "mdp.round_steps=60",
        f"ec={ec}",
        f"ec.objectives={objectives}",
        "ec.together=4",
    )
    assert go(*QUICK, *words, "budget.steps=6000", "eval.every=0", f"hydra.run.dir={tmp_path / 'run'}") == 0
    told = journal(tmp_path / "run")
    fittest = max(told, key=lambda one: one["results"]["fitness"])
    best = max(told, key=ranks)  # the first of equal ones
    assert len({ranks(one) for one in told}) > 1 and len({one["results"]["fitness"] for one in told}) > 1
    assert ec == "nsga2" or ranks(fittest) < ranks(best)
    result = json.loads((tmp_path / "run" / "result.json").read_bytes())
    said_of = result["best"]  # by replays of the two best: four episodes are for no more
    last_first = [*reversed(told)]  # of equal ones
    assert said_of["candidates"] == [one["id"] for one in sorted(last_first, key=ranks, reverse=True)[:2]]
    best = next(one for one in told if one["id"] == said_of["individual"])
    assert said_of["individual"] in said_of["candidates"] and said_of["first_fitness"] == pytest.approx(ranks(best))
    assert result["fitness"] == said_of["fitness"] == said_of["heldout"]["mean"]
    assert said_of["luck"] == pytest.approx(ranks(best) - result["fitness"])
    assert said(capsys, f"run={tmp_path / 'run'}", "individual=best")["individual"] == best["id"]
    log = read_population_log(read_run(tmp_path / "run"))
    assert log is not None and log.fitness.tolist() == pytest.approx([ranks(one) for one in told])
