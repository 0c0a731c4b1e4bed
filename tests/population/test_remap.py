"""A resumed population with other genes: who lives keeps its values by name, whatever the search."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from evolution_runs import LR, QUICK, journal
from harness import experiment_of, fingerprint, go, newest

from evorl import evaluate
from evorl.ec.core import unpack, unpack_evaluations
from evorl.ec.space import Space
from evorl.population.genes import genes
from evorl.population.remap import remap_genes

BEFORE = (*QUICK, "mdp=cartpole", "ec.train_steps=128", LR)
OTHER = (
    *("ec.genes.rl.lr={low:1e-4,high:1e-3,log:true}", "+ec.genes.rl.clip=[0.1,0.3]"),
    "+ec.genes.rl.gamma={choices:[0.9,0.95]}",  # without the config's own 0.99
)
SEARCHES = {
    "pbt": ("ec=pbt", "ec.asynchronous=false"),
    "pbt-asynchronous": ("ec=pbt", "ec.slots=2"),
    "sga": ("ec=sga", "ec.lifetime=train"),
    "steady": ("ec=nsga2", "ec.lifetime=train", "ec.offspring=1"),
    "openai_es": ("ec=openai_es", "ec.lifetime=train", "ec.sigma=0.2"),
    "cem-asynchronous": ("ec=cem", "ec.lifetime=train", "ec.asynchronous=true", "ec.slots=2"),
    "pso": ("ec=pso", "ec.lifetime=train"),
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the run of a search, or of a learner alone, and makes it where no test has asked for it before."""
    place = tmp_path_factory.mktemp("begun")
    alone = (*(word for word in QUICK if not word.startswith("ec.")), "mdp=cartpole", "budget.steps=128")
    words = {name: (*BEFORE, *words, "budget.steps=2000") for name, words in SEARCHES.items()} | {"alone": alone}

    def run_of(name: str) -> Path:
        if not (place / name).exists():
            assert go(*words[name], f"hydra.run.dir={place / name}") == 0
        return place / name

    return run_of


@pytest.fixture
def run(begun: Callable[[str], Path], tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the run of a search."""
    return Path(shutil.copytree(begun(request.param), tmp_path / request.param))


def within(genes: dict[str, Any]) -> bool:
    return 1e-4 <= genes["rl.lr"] <= 1e-3 and 0.1 <= genes["rl.clip"] <= 0.3 and genes["rl.gamma"] in (0.9, 0.95)


@pytest.mark.slow_cases(but=("sga",))
@pytest.mark.parametrize("run", SEARCHES, indirect=True)
def test_a_population_goes_on_with_other_genes(run: Path) -> None:
    past = journal(run)
    assert all(tuple(one["genes"]) == ("rl.lr",) for one in past)
    there = run.with_name("halves")
    shutil.copytree(run, there)
    assert go(f"resume={run}", *OTHER, "budget.steps=5000") == 0
    assert journal(run)[: len(past)] == past
    now = journal(run)[len(past) :]
    assert len(now) > 6 and all(within(one["genes"]) for one in now)
    assert len({one["genes"]["rl.clip"] for one in now}) > 2, "what is new is not searched"
    written = yaml.safe_load((run / ".hydra" / "config.yaml").read_text())["ec"]["genes"]["rl"]
    assert written["lr"] == {"low": 1e-4, "high": 1e-3, "log": True} and written["clip"] == [0.1, 0.3]

    assert go(f"resume={there}", *OTHER, "budget.steps=3500") == 0
    stop = newest(there)["run"]["steps"]
    assert go(f"resume={there}", "budget.steps=5000") == 0
    assert journal(there) == journal(run)
    assert fingerprint(there, aside=[stop]) == fingerprint(run, aside=[stop])


@pytest.mark.parametrize("run", ["pbt"], indirect=True)
def test_who_lives_keeps_its_values_by_name(run: Path) -> None:
    before, now = (experiment_of(*BEFORE, *words, "ec=pbt") for words in ((), ("+ec.genes.rl.clip=[0.1,0.15]",)))
    state = newest(run)["run"]
    assert now.ec is not None and before.ec is not None
    old, new = (Space(genes(one.ec.genes, one)) for one in (before, now) if one.ec is not None)
    evolver = now.ec.evolver(new)
    found = remap_genes(state, now, evolver, new, None)
    assert remap_genes(state, before, evolver, old, None) is state
    pairs = [
        (unpack_evaluations(state["evolver"]["population"]), unpack_evaluations(found["evolver"]["population"])),
        (unpack_evaluations(state["leader"]), unpack_evaluations(found["leader"])),
    ]
    pairs_of_one = [(a.individual, b.individual) for was, be in pairs for a, b in zip(was, be, strict=True)]
    waiting = [(unpack(one["queue"])) for one in (state["evolver"], found["evolver"])]
    assert len(pairs_of_one) > 4
    for a, b in [*pairs_of_one, *zip(*waiting, strict=True)]:
        was, be = old.values(a.genes), new.values(b.genes)
        assert be["rl.lr"] == pytest.approx(was["rl.lr"], rel=1e-12)
        assert 0.1 < float(be["rl.clip"]) < 0.15  # drawn, since 0.2 is none of its range
        np.testing.assert_equal(b._replace(genes=0), a._replace(genes=0))


@pytest.mark.parametrize("run", ["sga"], indirect=True)
def test_a_gene_that_is_gone(run: Path) -> None:
    past = len(journal(run))
    assert go(f"resume={run}", "~ec.genes.rl.lr", "+ec.genes.rl.passes=[1,3]", "budget.steps=3000") == 0
    assert {tuple(one["genes"]) for one in journal(run)[past:]} == {("rl.passes",)}
    assert go(f"resume={run}", "~ec.genes", "budget.steps=4000") == 0
    assert journal(run)[-1]["genes"] == {}


@pytest.mark.parametrize("run", ["sga"], indirect=True)
def test_an_old_checkpoint_is_evaluated_with_the_genes_of_then(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    step = newest(run)["run"]["steps"]
    words = (f"run={run}", f"checkpoint={step}", "individual=best", "episodes=2")
    assert evaluate.main(words) == 0
    want = capsys.readouterr().out
    assert go(f"resume={run}", *OTHER, f"budget.steps={step + 1}") == 0
    capsys.readouterr()
    assert evaluate.main(words) == 0
    assert capsys.readouterr().out == want


@pytest.mark.slow
@pytest.mark.parametrize("run", ["sga"], indirect=True)
def test_genes_that_change_places(run: Path) -> None:
    """Taken away and given again a gene comes last, and its coordinate with it."""
    assert go(f"resume={run}", *OTHER, "budget.steps=3000") == 0
    state = newest(run)["run"]
    again = ("~ec.genes.rl.lr", f"+{OTHER[0]}")
    assert go(f"resume={run}", *again, f"budget.steps={state['steps'] + 1}") == 0
    found, experiment = newest(run)["run"], experiment_of(*BEFORE, "ec=sga")
    assert [list(one["genes"]["rl"]) for one in (state, found)] == [["lr", "clip", "gamma"], ["clip", "gamma", "lr"]]

    def people(state: dict[str, Any]) -> dict[int, Any]:
        space, population = Space(genes(state["genes"], experiment)), state["evolver"]["population"]
        return {one.individual.id: space.values(one.individual.genes) for one in unpack_evaluations(population)}

    before, after = people(state), people(found)
    kept = before.keys() & after.keys()
    assert len(kept) > 2
    for number in kept:
        assert after[number] == pytest.approx(before[number], rel=1e-9)


@pytest.mark.parametrize("run", ["sga"], indirect=True)
def test_the_best_keeps_the_genes_that_it_was_evaluated_with(run: Path) -> None:
    best = json.loads((run / "result.json").read_bytes())["best"]
    assert best["genes"]["rl.lr"] not in (0.5, 0.4)
    (run / "result.json").unlink()  # as if it had been killed just before its end
    other = ("ec.genes.rl.lr=[0.4,0.5]", "budget.fitness=1")  # reached already
    assert go(f"resume={run}", *other) == 0
    assert json.loads((run / "result.json").read_bytes())["best"]["genes"] == best["genes"]


@pytest.mark.parametrize("run", ["sga"], indirect=True)
def test_what_has_ended_needs_a_larger_budget(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(f"resume={run}", OTHER[0]) == 2
    steps = json.loads((run / "result.json").read_bytes())["steps"]
    assert f"has ended; another value needs budget.steps={2 * steps}\n" in capsys.readouterr().err
    before = newest(run)["run"]["evolver"]
    written_otherwise = "ec.genes.rl.lr={log:true,high:0.1,low:0.00001}"
    assert go(f"resume={run}", written_otherwise, f"budget.steps={steps + 1}") == 0
    assert newest(run)["run"]["evolver"].keys() == before.keys()


REFUSED = {
    "typo": ("pbt", "ec.genes.rl.lrr=[1e-4,1e-3]", "did you mean ec.genes.rl.lr?"),
    "typo of a new one": ("pbt", "+ec.genes.rl.clpi=[0.1,0.2]", "did you mean ec.genes.rl.clip?"),
    "twice": ("pbt", "+ec.genes.rl.lr=[1e-4,1e-3]", "without the plus"),
    "impossible": ("pbt", "ec.genes.rl.lr=[-1,1]", "its range reaches"),
    "none": ("alone", "+ec.genes.rl.lr=[1e-4,1e-3]", "that run is no evolution"),
    "several": ("pbt", "ec.genes.rl.lr=1,2", "takes one value here"),
    "another key": ("pbt", "ec.population=7", "is 6 in that run, and stays"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_go_on_so_is_refused(
    case: str, begun: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    name, word, message = REFUSED[case]
    run = begun(name)
    before = sorted((file, file.stat().st_mtime_ns) for file in run.rglob("*"))
    assert go(f"resume={run}", word, "budget.steps=9000") == 2
    assert message in capsys.readouterr().err
    assert sorted((file, file.stat().st_mtime_ns) for file in run.rglob("*")) == before


@pytest.mark.slow
def test_a_strategy_that_travels_by_seed_goes_on_with_other_genes(tmp_path: Path) -> None:
    """Its workers follow: the same individuals as in one process, which is given them whole."""
    words = (*QUICK, "mdp=pong", "mdp.rounds=1", "ec=openai_es", "+ec.genes.mdp.bat_speed=[2,6]", "budget.steps=1500")
    others = ("ec.genes.mdp.bat_speed=[3,4]", "+ec.genes.mdp.ball_speed=[4,9]", "budget.steps=6000")
    for cluster in ("local", "processes"):
        run = tmp_path / cluster
        assert go(*words, f"cluster={cluster}", f"hydra.run.dir={run}") == 0
        assert go(f"resume={run}", *others) == 0
    alone, together = (journal(tmp_path / cluster) for cluster in ("local", "processes"))
    assert alone == together and {*alone[-1]["genes"]} == {"mdp.bat_speed", "mdp.ball_speed"}
    centres = [newest(tmp_path / cluster)["run"]["evolver"]["centre"] for cluster in ("local", "processes")]
    np.testing.assert_equal(*centres)


@pytest.mark.slow
@pytest.mark.parametrize("run", ["cem-asynchronous"], indirect=True)
def test_what_changed_on_the_way_is_not_replayed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert go(f"resume={run}", *OTHER, "budget.steps=3000") == 0
    assert go(f"replay={run}", f"hydra.run.dir={run.with_name('again')}") == 2
    assert "were changed on the way" in capsys.readouterr().err
