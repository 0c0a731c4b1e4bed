"""Searches over whole jobs: what a command asks, their course with jobs of arithmetic, and whole ones that train."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from harness import QUICK, go
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import OmegaConf

from evorl.analysis import sweeps
from evorl.cli import config
from evorl.cli.hydra_internals import Hydra
from evorl.ec.core import Individual
from evorl.ec.space import Gene
from evorl.jobs import best_job, search, search_loop
from evorl.training.experiment import Evaluation
from evorl.util.errors import BadRequest
from evorl.util.files import write_json

SWEEPER = "hydra/sweeper=evorl"
LR = "rl.lr=tag(log,interval(1e-4,1e-2))"
PLAY_EACH_OTHER = ("coevolution", "league", "psro")
EVOLVERS = sorted(
    path.stem
    for path in (config.CONF / "ec").glob("*.yaml")
    if path.stem not in ("none", *PLAY_EACH_OTHER) and not path.stem.endswith("_rl")
)


@pytest.fixture(scope="module")
def hydra() -> Iterator[Hydra]:
    with config.opened() as found:
        yield found


def composed(hydra: Hydra, *words: str) -> Any:
    return config.compose(hydra, [SWEEPER, *words], mode=RunMode.MULTIRUN)


def asked(hydra: Hydra, *words: str) -> search.Search:
    return search.read_search(composed(hydra, *words), hydra)


# ------------------------------------------------------------------ what a command asks


def test_hydra_finds_it_and_its_file_restates_the_defaults() -> None:
    names = {f"{one.__module__}.{one.__name__}" for one in Plugins.instance().discover(Sweeper)}
    assert search.TARGET in names
    said: Any = OmegaConf.to_container(OmegaConf.load(config.CONF / "hydra" / "sweeper" / "evorl.yaml"))
    assert said.pop("_target_") == search.TARGET
    assert {name: said[name] for name in ("jobs", "parallel", "direction")} == vars(search.Keys())


@pytest.mark.parametrize(
    ("word", "gene"),
    [
        ("rl.lr=interval(1e-4,1e-2)", Gene("rl.lr", 1e-4, 1e-2)),
        (LR, Gene("rl.lr", 1e-4, 1e-2, log=True)),
        ("rl.passes=int(interval(2,8))", Gene("rl.passes", 2, 8, integer=True)),
        ("rl.passes=tag(log,int(interval(2,64)))", Gene("rl.passes", 2, 64, log=True, integer=True)),
        ("rl.passes=range(2,8)", Gene("rl.passes", 2, 7, integer=True)),
        ("rl.passes=range(2,9,3)", Gene("rl.passes", choices=(2, 5, 8))),
        ("rl.clip=choice(0.1,0.2,0.4)", Gene("rl.clip", choices=(0.1, 0.2, 0.4))),
        ("rl.clip=0.1,0.2", Gene("rl.clip", choices=(0.1, 0.2))),
        ("rl.normalize_inputs=true,false", Gene("rl.normalize_inputs", choices=(True, False))),
        ("rl.net.hidden=[8],[16,16]", Gene("rl.net.hidden", choices=("[8]", "[16,16]"))),
        ("rl=glob(a*)", Gene("rl", choices=("a2c", "a3c"))),
        ("+mdp.depth='a b',c", Gene("+mdp.depth", choices=("'a b'", "c"))),
    ],
)
def test_ranges_are_genes(hydra: Hydra, word: str, gene: Gene) -> None:
    found = asked(hydra, "mdp=cartpole", word, "rl.gamma=0.5")
    assert found.space.genes == (gene,)
    assert found.words == {"mdp": "cartpole", "rl.gamma": "0.5"}


def test_values_come_back_from_the_words_of_a_job(hydra: Hydra) -> None:
    found = asked(hydra, LR, "rl.passes=range(1,9)", "rl.normalize_inputs=true,false", "rl.net.hidden=[8],[16]")
    draw = np.random.default_rng(0)
    for one in found.evolution.evolver(found.space).ask(20):
        words = found.job(one, int(draw.integers(9)), None)
        rl = config.resolved(config.compose(hydra, words))["rl"]
        values = found.space.values(one.genes)
        got = (rl["lr"], rl["passes"], rl["normalize_inputs"], str(rl["net"]["hidden"]))
        assert got == tuple(values.values())


def test_extremes_reach_every_end_and_every_choice(hydra: Hydra) -> None:
    found = asked(hydra, "mdp=cartpole", "rl.gamma=interval(0.5,0.75)", "rl.passes=1,2,3")
    assert [words[1:] for words in found.extremes()] == [
        ["rl.gamma=0.5", "rl.passes=1"], ["rl.gamma=0.75", "rl.passes=1"],
        ["rl.gamma=0.5", "rl.passes=2"], ["rl.gamma=0.5", "rl.passes=3"],
        ["rl.gamma=0.6545084971874737", "rl.passes=2"],
    ]  # fmt: skip


PBT = "hydra.sweeper.evolver=pbt"
NSGA2 = "hydra.sweeper.evolver=nsga2"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["rl.lr=interval(-1,1)"], "rl.lr: expected float >= 0.0, got -1.0"),
        (["rl.lr=tag(log,interval(0,1))"], "rl.lr: the gene rl.lr is logarithmic and needs low > 0; got 0.0"),
        (["rl.lr=interval(2,1)"], "rl.lr: the gene rl.lr needs low <= high, both finite; got 2.0 and 1.0"),
        (["rl.lrr=interval(1,2)"], "rl.lrr: unknown key; did you mean rl.lr?"),
        (["rl.lr=0.1"], "hydra/sweeper: nothing to search; give a key a range: 'rl.lr=tag(log,interval(1e-5,1e-2))'"),
        (["rl.passes=interval(2,4)"], "rl.passes: expected int, got 3.23606797749979"),
        (
            [LR, "hydra.sweeper.evolver.objectives=[]"],
            "hydra.sweeper.evolver.objectives: needs a result to maximise, as [fitness]",
        ),
        ([LR, "seed=1,2"], "seed: is no gene; give it one value"),
        ([LR, "seed=abc"], "seed: expected int, got 'abc'"),
        ([LR, "seed=null"], "seed: expected int, got null"),
        (
            [LR, "hydra.sweeper.evolver=asha", "budget=null"],
            "budget: expected a mapping with the keys steps, seconds, fitness, got null",
        ),
        (
            [LR, "hydra.sweeper.evolver=asha", "budget.steps=800", "checkpoint=null"],
            "checkpoint: expected a mapping with the keys every, keep, got null",
        ),
        ([LR, "hydra.sweeper.jobs=0"], "hydra.sweeper.jobs: expected int >= 1, got 0"),
        ([LR, "hydra.sweeper.direction=up"], "hydra.sweeper.direction: expected one of maximize, minimize, got 'up'"),
        (
            [LR, "hydra.sweeper.evolver.popul=3"],
            "hydra.sweeper.evolver.popul: unknown key; did you mean hydra.sweeper.evolver.population?",
        ),
        (
            [LR, "hydra.sweeper.evolver.slots=3"],
            "hydra.sweeper.evolver.slots: is of a population within one run; here whole jobs are evaluated",
        ),
        (
            [LR, "hydra.sweeper.evolver=openai_es", "hydra.sweeper.evolver.cap=2"],
            "hydra.sweeper.evolver.cap: is of a population within one run; here whole jobs are evaluated",
        ),
        (
            [LR, PBT, "hydra.sweeper.evolver.objectives=[fitness,length]"],
            "hydra.sweeper.evolver.objectives: this evolver takes one; nsga2, nsga3 and random take several",
        ),
        (
            [LR, "hydra.sweeper.evolver._target_=os.system"],
            "hydra.sweeper.evolver._target_: os.system is outside evorl; "
            "to run its code add 'trust=[os]' to the command line",
        ),
        ([LR, "hydra.sweeper.evolver=bpt"], "hydra.sweeper.evolver: no evolver bpt; did you mean pbt?"),
        ([LR, "hydra.sweep.subdir=a"], "hydra.sweep.subdir: the jobs of a search are numbered"),
        ([LR, PBT, "ec=sga"], "ec: jobs that start from their parents' runs train one learner each; leave it out"),
        (
            [PBT, "rl.net.hidden=[8],[16]"],
            "hydra.sweeper.evolver.lifetime: train: jobs start from their parents' runs, whose policies would not all "
            "fit (parameter hidden.0.weight has shape [2, 4, 8], the network wants [2, 4, 16])",
        ),
        (["init_optimizer=true", LR], "init_optimizer: goes with init=RUN_DIR"),
        (
            [LR, NSGA2, "hydra.sweeper.evolver.objectives=[fitness,{secnds: -1}]"],
            "hydra.sweeper.evolver.objectives: there is no result secnds; did you mean seconds?; there are: "
            "episodes, fitness, length, return, return_max, return_min, return_std, seconds, steps, stochastic_return, "
            "stochastic_return_max, stochastic_return_min, stochastic_return_std",
        ),
        (
            [LR, "hydra.sweeper.evolver=map_elites"],
            "hydra.sweeper.evolver.descriptors: map_elites needs at least one, as {name: [low, high, cells]}",
        ),
        (
            [LR, "hydra.sweeper.evolver=aes_rl"],
            "hydra.sweeper.evolver: its individuals share a critic, which jobs cannot; choose another, such as pbt",
        ),
        (
            [LR, "hydra.sweeper.evolver=asha"],
            "budget.steps: needs one value: the steps of a job that is never stopped early",
        ),
        (
            [LR, "hydra.sweeper.evolver=asha", "budget.steps=range(100,200)"],
            "budget.steps: needs one value: the steps of a job that is never stopped early",
        ),
        (
            [LR, "hydra.sweeper.evolver=hyperband", "budget.steps=80"],
            "budget.steps: 80 steps are fewer than the 81 units (R) that they are given in",
        ),
        (
            [LR, "hydra.sweeper.evolver=asha", "hydra.sweeper.evolver.lifetime=play", "budget.steps=800"],
            "hydra.sweeper.evolver.lifetime: what is stopped early is training; take lifetime=train",
        ),
        (
            [LR, "hydra.sweeper.evolver=league"],
            "hydra.sweeper.evolver: its individuals play each other, which jobs cannot; choose another",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sweep"
    assert go("--multirun", "mdp=cartpole", *QUICK, SWEEPER, *words, f"hydra.sweep.dir={place}") == 2
    assert capsys.readouterr().err == f"evorl: {line}\n"
    assert not place.exists()


def test_optimisers_that_jobs_inherit_are_all_of_one_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (PBT, "hydra.sweeper.evolver.inherit_optimizer=true", "rl=a2c", "rl.optimizer=adam,rmsprop")
    assert go("--multirun", "mdp=cartpole", SWEEPER, *words, f"hydra.sweep.dir={tmp_path / 'sweep'}") == 2
    line = "evorl: hydra.sweeper.evolver.inherit_optimizer: needs the same rl.optimizer in all jobs\n"
    assert capsys.readouterr().err == line and not (tmp_path / "sweep").exists()


# ------------------------------------------------------------------ its course, with jobs of arithmetic


class Return(NamedTuple):
    return_value: float = 0.0


class Sums:
    """A launcher whose jobs are a function of their words; None is a failure."""

    def __init__(self, place: Path, function: Callable[[Mapping[str, float]], float | None]) -> None:
        self.place, self.function = place, function
        self.batches: list[int] = []
        self.jobs: dict[int, list[str]] = {}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> list[Return]:
        self.batches.append(len(job_overrides))
        for number, words in enumerate(job_overrides, initial_job_idx):
            self.jobs[number] = [*words]
            x = dict(word.split("=", 1) for word in words)
            home = self.place / x.get("hydra.sweep.subdir", str(number))
            home.mkdir(exist_ok=True)
            value = self.function({name: float(x[name]) for name in ("rl.gamma", "rl.lr")})
            if value is not None:
                evaluated = {"return_mean": value, "return_std": 0.1, "episodes": 4, "dull_mean": math.nan}
                evaluated["length_mean"] = 1 / float(x["rl.lr"])
                result = {"fitness": value, "steps": 10, "seconds": 0.5, "eval": evaluated}
                write_json(home / "result.json", result)
        return [Return()] * len(job_overrides)


STOPPING = ("asha", "hyperband")
"""Evolvers that stop jobs early: a promoted one goes on in its directory."""
DESCRIBED = "+hydra.sweeper.evolver.descriptors.length=[100, 10000, 5]"


def bowl(x: Mapping[str, float]) -> float:
    return -((x["rl.gamma"] - 0.9) ** 2) - (x["rl.lr"] - 1e-3) ** 2


def told(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / search_loop.TOLD).read_bytes().splitlines()]


def worth(row: Mapping[str, Any]) -> float:
    return float(row["objectives"]["fitness"])


def searched(
    hydra: Hydra, place: Path, name: str, *words: str, function: Callable[[Mapping[str, float]], float | None] = bowl
) -> Sums:
    place.mkdir(exist_ok=True)
    own = [f"ec@hydra.sweeper.evolver={name}", "hydra.sweeper.evolver.population=6", "hydra.sweeper.jobs=40"]
    own += [DESCRIBED] if name == "map_elites" and not any("descriptors" in word for word in words) else []
    own += ["budget.steps=8100"] if name in STOPPING else []
    given = [f"hydra.sweep.dir={place}", "rl.gamma=interval(0.8,0.99)", LR, *own, *words]
    launcher = Sums(place, function)
    search_loop.run_search(composed(hydra, *given), hydra, launcher)
    return launcher


def cut(place: Path, there: Path, batches: int) -> int:
    """A copy as if killed once so many batches had been told of; how many jobs these had."""
    there.mkdir()
    shutil.copy(place / sweeps.SEARCH_FILE, there)
    rows = [row for row in told(place) if row["batch"] < batches]
    (there / search_loop.TOLD).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return len(rows)


@pytest.mark.slow_cases(but=("cma_es", "pbt"))
@pytest.mark.parametrize("name", EVOLVERS)
def test_every_evolver_searches_and_goes_on_with_the_same_proposals(hydra: Hydra, tmp_path: Path, name: str) -> None:
    if name == "map_elites":
        pytest.importorskip("ribs")
    whole = searched(hydra, tmp_path / "whole", name, "hydra.sweeper.parallel=4")
    rows = told(tmp_path / "whole")
    homes = [row["job"] for row in rows]
    assert [*dict.fromkeys(homes)] == [str(n) for n in range(len({*homes}))] and max(whole.batches) <= 4
    assert len({*homes}) == (sum(not row["parents"] for row in rows) if name in STOPPING else 40)
    assert len({row["id"] for row in rows}) == 40
    fitness = [worth(row) for row in rows]
    assert name in ("random", "map_elites", *STOPPING) or np.median(fitness[-12:]) > np.median(fitness[:6])
    for batches in (1, len(whole.batches) // 2, len(whole.batches)):
        done = cut(tmp_path / "whole", tmp_path / f"cut{batches}", batches)
        again = searched(hydra, tmp_path / f"cut{batches}", name, "hydra.sweeper.parallel=4")
        assert again.jobs == {n: _elsewhere(words, tmp_path, batches) for n, words in whole.jobs.items() if n >= done}
        assert told(tmp_path / f"cut{batches}") == rows


def _elsewhere(words: list[str], place: Path, batches: int) -> list[str]:
    return [word.replace(str(place / "whole"), str(place / f"cut{batches}")) for word in words]


def _torn(text: bytes) -> bytes:
    return text[: text.rindex(b'"objectives"')]


def _garbled(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:7], b"\x00\xff" * 9 + b"\n", *lines[8:]])


def _other(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    return b"".join([*lines[:13], lines[13].replace(b'"batch":', b'"patch":'), *lines[14:]])


@pytest.mark.parametrize("damaged", [_torn, _garbled, _other, lambda text: b"\n", lambda text: text[:1]])
def test_a_damaged_population_file_is_told_again_from_the_results_of_the_jobs(
    hydra: Hydra, tmp_path: Path, capsys: pytest.CaptureFixture[str], damaged: Callable[[bytes], bytes]
) -> None:
    whole = searched(hydra, tmp_path, "sga", "hydra.sweeper.jobs=24", "hydra.sweeper.parallel=4")
    path = tmp_path / search_loop.TOLD
    before = path.read_bytes()
    path.write_bytes(damaged(before))
    capsys.readouterr()
    again = searched(hydra, tmp_path, "sga", "hydra.sweeper.jobs=24", "hydra.sweeper.parallel=4")
    assert path.read_bytes() == before and again.jobs.items() <= whole.jobs.items()
    said = capsys.readouterr().out
    assert f"of {path} is damaged: the jobs from there on are told again" in said and "Traceback" not in said


def test_a_search_made_longer_and_wider_goes_on_as_a_long_one(hydra: Hydra, tmp_path: Path) -> None:
    searched(hydra, tmp_path / "whole", "nsga2")
    searched(hydra, tmp_path / "short", "nsga2", "hydra.sweeper.jobs=15", "hydra.sweeper.parallel=4")
    searched(hydra, tmp_path / "short", "nsga2", "hydra.sweeper.parallel=5")
    whole, longer = (
        [(row["id"], row["genes"], row["parents"]) for row in told(tmp_path / n)] for n in ("whole", "short")
    )
    assert whole == longer


@pytest.mark.parametrize("name", ["asha", "sga"])
@pytest.mark.parametrize(("last", "fails"), [(5, False), (10, False), (13, True)])
def test_jobs_that_began_are_proposed_again_whatever_is_parallel(
    hydra: Hydra, tmp_path: Path, name: str, last: int, fails: bool
) -> None:
    """Asked one by one, an asynchronous evolver promotes or breeds where it had proposed a new job."""
    words = ("hydra.sweeper.evolver.asynchronous=true",) if name == "sga" else ("hydra.sweeper.evolver.eta=2",)
    calls = count()

    def ends(x: Mapping[str, float]) -> float | None:
        if next(calls) < last:
            return bowl(x)
        if fails:
            return None
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        searched(hydra, tmp_path, name, *words, "hydra.sweeper.jobs=14", "hydra.sweeper.parallel=7", function=ends)
    begun = sweeps.read_index(tmp_path)
    again = searched(hydra, tmp_path, name, *words, "hydra.sweeper.parallel=1")
    first = list(again.jobs.values())[:7]
    assert all([word for word in job if "subdir" not in word] in begun.values() for job in first)
    assert again.batches[0] == 7 and {*again.batches[1:]} == {1} and len(told(tmp_path)) == 40


def test_several_objectives_and_costs(hydra: Hydra, tmp_path: Path) -> None:
    searched(hydra, tmp_path, "nsga2", "hydra.sweeper.evolver.objectives=[fitness,{length: -1, seconds: 2}]")
    for row in told(tmp_path):
        results = row["results"]
        assert row["objectives"] == {
            "fitness": results["fitness"], "-1*length+2*seconds": -results["length"] + 2 * results["seconds"],
        }  # fmt: skip


def test_to_minimize_is_to_maximize_the_negative(hydra: Hydra, tmp_path: Path) -> None:
    searched(hydra, tmp_path / "up", "sga")
    down = searched(hydra, tmp_path / "down", "sga", "hydra.sweeper.direction=minimize", function=lambda x: -bowl(x))
    assert [row["genes"] for row in told(tmp_path / "up")] == [row["genes"] for row in told(tmp_path / "down")]
    assert all(row["objectives"] == {"-1*fitness": -row["results"]["fitness"]} for row in told(tmp_path / "down"))
    assert len(down.jobs) == 40


@pytest.mark.slow_cases(but=("sga", "pso"))
@pytest.mark.parametrize("name", [name for name in EVOLVERS if name not in ("random", "map_elites")])
def test_what_fails_has_no_fitness_and_no_children(hydra: Hydra, tmp_path: Path, name: str) -> None:
    def half(x: Mapping[str, float]) -> float | None:
        luck = int(x["rl.gamma"] * 1e6) % 6
        return None if luck < 2 else float("nan") if luck == 2 else bowl(x)

    searched(hydra, tmp_path, name, function=half)
    rows = told(tmp_path)
    lost = {row["id"] for row in rows if "failed" in row}
    assert lost and len(rows) == 40
    assert all(row["objectives"] == {"fitness": None} for row in rows if row["id"] in lost)
    assert not lost & {parent for row in rows for parent in row["parents"]}
    why = {row["failed"] for row in rows if "failed" in row}
    assert why <= {"it has no result", "its fitness is no number"}


def test_children_start_from_their_best_parent_with_a_seed_of_their_own(hydra: Hydra, tmp_path: Path) -> None:
    words = ("hydra.sweeper.evolver.lifetime=train", "hydra.sweeper.evolver.inherit_optimizer=true")
    jobs = searched(hydra, tmp_path, "sga", *words).jobs
    rows = told(tmp_path)
    fitness = {row["id"]: worth(row) for row in rows}
    assert len({row["id"] for row in rows if len(row["parents"]) == 2}) > 3
    for row in rows:
        given = dict(word.split("=", 1) for word in jobs[int(row["job"])])
        best = max(row["parents"], key=fitness.__getitem__, default=None)
        home = None if best is None else f"'{tmp_path / next(one['job'] for one in rows if one['id'] == best)}'"
        assert (given.get("init"), given.get("init_optimizer")) == (home, None if home is None else "true")
    assert len({word for words in jobs.values() for word in words if word.startswith("seed=")}) == 40
    plain = searched(hydra, tmp_path / "plain", "sga", "seed=3").jobs
    assert {word for words in plain.values() for word in words if word.startswith("seed=")} == {"seed=3"}


def test_pbt_judges_jobs_by_their_episodes(hydra: Hydra, tmp_path: Path) -> None:
    """Welch's test knows their number, mean and deviation from the result."""
    words = ("hydra.sweeper.evolver.exploit=ttest",)
    searched(hydra, tmp_path, "pbt", *words, function=lambda x: 100 * bowl(x))
    assert any(row["role"] == "exploited" for row in told(tmp_path))
    x = search_loop._sample_like(2.0, 0.5, 7)
    assert (len(x), x.mean(), x.std()) == pytest.approx((7, 2.0, 0.5))
    assert search_loop._sample_like(2.0, 0.0, 1).tolist() == [2.0]


def test_another_search_is_refused(hydra: Hydra, tmp_path: Path) -> None:
    searched(hydra, tmp_path, "sga", "hydra.sweeper.jobs=6")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for word, line in {
        "hydra.sweeper.evolver.population=8": "hydra.sweeper.evolver.population: .* was begun with 6, and has 8 now",
        "rl.gamma=interval(0.8,0.9)": "genes.rl.gamma.high: .* was begun with 0.99, and has 0.9 now",
        "mdp=cartpole": "mdp: .* was begun with nothing, and has cartpole now",
        "hydra.sweeper.direction=minimize": "hydra.sweeper.direction: .* was begun with maximize, and has minimize now",
    }.items():
        with pytest.raises(BadRequest, match=line):
            searched(hydra, tmp_path, "sga", word)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    changed = [{**row, "genes": {**row["genes"], "rl.gamma": 0.5}} for row in told(tmp_path)]
    (tmp_path / search_loop.TOLD).write_text("".join(json.dumps(row) + "\n" for row in changed))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(BadRequest, match="is of another search or another version of evorl"):
        searched(hydra, tmp_path, "sga")
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}


def test_what_began_with_more_jobs_is_another_search_before_it_was_told(hydra: Hydra, tmp_path: Path) -> None:
    """One of them would lie where a later job of this one is to be."""
    searched(hydra, tmp_path, "sga", "hydra.sweeper.jobs=6")
    (tmp_path / search_loop.TOLD).unlink()
    with pytest.raises(BadRequest, match="was begun with 6, and has 4 now") as refused:
        searched(hydra, tmp_path, "sga", "hydra.sweeper.evolver.population=4")
    assert refused.value.key == "hydra.sweeper.evolver.population"
    searched(hydra, tmp_path, "sga", "hydra.sweeper.parallel=4", "hydra.sweeper.jobs=8")
    assert len(told(tmp_path)) == 8


@pytest.mark.slow
def test_other_genes_are_refused_before_anything_is_written_while_nothing_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "sweep"
    words = ("--multirun", "mdp=cartpole", *QUICK, SWEEPER, "hydra.sweeper.jobs=1", "budget.steps=128")
    words += (f"hydra.sweep.dir={place}", "hydra.sweeper.evolver=sga")
    assert go(*words, LR) == 0
    found = told(place)
    (place / search_loop.TOLD).unlink()  # as if killed in the first batch
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.rglob("*")}
    capsys.readouterr()
    for word, key in {"rl.lr=interval(0.5,0.6)": "rl.lr", "rl.clip=choice(0.5,0.6)": "rl.lr"}.items():
        assert go(*words, word) == 2
        assert capsys.readouterr().err.startswith(f"evorl: {key}: job 0 was begun with ")
        assert before == {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in tmp_path.rglob("*")}
    assert go(*words, LR) == 0 and told(place) == found


# ------------------------------------------------------------------ what is said in the end


def concluded(hydra: Hydra, place: Path, capsys: pytest.CaptureFixture[str], lost: int, *words: str) -> tuple[str, str]:
    """What is printed at the end of a search whose jobs have returns of 0, 1, 2 and so on, but one that has NaN."""
    numbers = count()
    own = ("hydra.sweeper.evolver.population=4", *words)
    searched(hydra, place, "sga", *own, function=lambda _: math.nan if (n := next(numbers)) == lost else float(n))
    capsys.readouterr()
    search_loop.print_outcome(
        asked(hydra, "ec@hydra.sweeper.evolver=sga", "rl.gamma=interval(0.8,0.99)", LR, *own), place
    )
    said = capsys.readouterr()
    return said.out, said.err


@pytest.mark.parametrize(("jobs", "lost"), [(4, 1), (6, 1), (6, 5)])
def test_the_end_counts_a_last_batch_in_which_a_job_failed(
    hydra: Hydra, tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: int, lost: int
) -> None:
    """Batches are of four."""
    out, err = concluded(hydra, tmp_path, capsys, lost, f"hydra.sweeper.jobs={jobs}")
    best = max(job for job in range(jobs) if job != lost)
    assert out.startswith(f"best: job {best}, fitness {best}: rl.gamma=")
    assert f"\n{jobs} of {jobs} jobs evaluated: " in out
    assert err == f"evorl: 1 of {jobs} jobs failed, and have no fitness:\n  {lost}: its fitness is no number\n"


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_the_luckiest_job_is_not_named_best(
    hydra: Hydra, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, direction: str
) -> None:
    """Job 1 has 9 in its own four episodes, and 1 in any other; job 2 has 5 in all."""
    sign = 1 if direction == "maximize" else -1
    world = SimpleNamespace(evaluation_world=lambda: SimpleNamespace(sides=1), close=lambda: None)
    experiment: Any = SimpleNamespace(eval=Evaluation(episodes=60), mdp=world)
    own, later = {"0": 1.0, "1": 9.0, "2": 5.0, "3": 4.0}, {"0": 1.0, "1": 1.0, "2": 5.0, "3": 2.0}
    asked_for: list[tuple[str, str, int]] = []

    def replay(search: Any, job: str, policy: Any, purpose: str, episodes: int) -> tuple[Any, int]:
        asked_for.append((job, purpose, episodes))
        return np.full(episodes, later[job]), episodes  # as the search has it: more is better

    learner: Any = SimpleNamespace()
    monkeypatch.setattr(best_job, "_policy", lambda run, trust: best_job.Policy(experiment, learner))
    monkeypatch.setattr(best_job, "_replay", replay)
    numbers = count()
    words = ("hydra.sweeper.evolver.population=4", "hydra.sweeper.jobs=4", f"hydra.sweeper.direction={direction}")
    searched(hydra, tmp_path, "sga", *words, function=lambda _: sign * own[str(next(numbers))])
    search = asked(hydra, "ec@hydra.sweeper.evolver=sga", "rl.gamma=interval(0.8,0.99)", LR, *words)
    capsys.readouterr()
    search_loop.print_outcome(search, tmp_path)
    said = f"best: job 2, fitness {5 * sign} ({5 * sign} to {5 * sign}) in 62 held-out episodes, {5 * sign} in its own"
    assert capsys.readouterr().out.startswith(said)
    found = sweeps.read_best(tmp_path)
    assert found is not None and found["candidates"] == ["1", "2", "3", "0"] and found["selected_by"] == "held-out"
    assert (found["fitness"], found["first_fitness"], found["luck"]) == (5 * sign, 5 * sign, 0)
    assert found["heldout"] == {"mean": 5 * sign, "low": 5 * sign, "high": 5 * sign, "confidence": 0.95, "episodes": 62}
    assert asked_for == [
        *((job, "select 0", 7) for job in "1230"), *((job, "select 1", 15) for job in "21"), ("2", "held out", 62),
    ]  # fmt: skip
    search_loop.print_outcome(search, tmp_path)  # nothing is played again
    assert len(asked_for) == 7
    capsys.readouterr()
    rows = [row | {"results": row["results"] | {"steps": 10 + (row["job"] == "3")}} for row in told(tmp_path)]
    assert best_job.name_best(search, tmp_path, rows) == found | {"candidate_steps": [10, 10, 11, 10]}
    assert len(asked_for) == 14, "a job that went on has another policy"
    del asked_for[7:]
    for damaged in (found | {"candidates": 4}, {"jobs": 4, "candidates": ["1"]}, found | {"job": "99"}, []):
        write_json(tmp_path / "best.json", damaged)
        search_loop.print_outcome(search, tmp_path)
        assert capsys.readouterr().out.startswith(said)
    assert len(asked_for) == 5 * 7


def test_where_no_objective_is_a_number_all_jobs_failed(
    hydra: Hydra, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = "hydra.sweeper.jobs=4", "hydra.sweeper.evolver.objectives=[dull]"
    head, *lines = concluded(hydra, tmp_path, capsys, 1, *few)[1].splitlines()
    assert head.startswith("evorl: all of 4 jobs failed, and so the search ends; ")
    assert lines == [f"  {job}: its {'fitness' if job == 1 else 'dull'} is no number" for job in range(4)]


WRONG = {
    "nsga2": ("hydra.sweeper.evolver.objectives=[fitness,lenght]", "hydra.sweeper.evolver.objectives=[fitness,length]"),
    "map_elites": (DESCRIBED.replace("length", "lenght"), DESCRIBED),
}


@pytest.mark.slow_cases(but=("nsga2",))
@pytest.mark.parametrize("name", WRONG)
def test_a_name_found_wrong_after_the_first_jobs_costs_no_job(hydra: Hydra, tmp_path: Path, name: str) -> None:
    """The jobs stay, and nothing keeps the mended command from going on with them."""
    if name == "map_elites":
        pytest.importorskip("ribs")
    wrong, right = WRONG[name]
    with pytest.raises(BadRequest, match="no result lenght; did you mean length") as refused:
        searched(hydra, tmp_path, name, wrong)
    assert refused.value.key in ("hydra.sweeper.evolver.objectives", "hydra.sweeper.evolver.descriptors.lenght")
    assert not (tmp_path / search_loop.TOLD).exists() and len([*tmp_path.glob("*/result.json")]) == 6
    again = searched(hydra, tmp_path, name, right)
    whole = searched(hydra, tmp_path / "whole", name, right)
    assert again.jobs == whole.jobs and told(tmp_path) == told(tmp_path / "whole")
    with pytest.raises(BadRequest, match="was begun with"):
        searched(hydra, tmp_path, name, wrong)


def test_a_job_whose_objective_is_no_number_has_none(hydra: Hydra, tmp_path: Path) -> None:
    """Whatever else its result holds is only not known."""
    words = ("hydra.sweeper.evolver.objectives=[fitness,{dull: 1, length: 1}]", "hydra.sweeper.jobs=6")
    searched(hydra, tmp_path / "dull", "nsga2", *words)
    assert not (tmp_path / "dull" / search_loop.TOLD).exists()  # as all have failed
    searched(hydra, tmp_path / "other", "nsga2", "hydra.sweeper.jobs=6")
    assert all(row["results"]["dull"] is None and "failed" not in row for row in told(tmp_path / "other"))


@pytest.mark.parametrize(("name", "why"), [("fitness", None), ("length", "its length is no number")])
def test_a_job_whose_policy_could_not_be_evaluated_has_its_fitness_alone(
    hydra: Hydra, tmp_path: Path, name: str, why: str | None
) -> None:
    own = (NSGA2.replace("hydra", "ec@hydra", 1), "hydra.sweeper.evolver.population=3", "rl.gamma=interval(0.8,0.99)")
    search = asked(hydra, *own, LR, f"hydra.sweeper.evolver.objectives=[{name}]")
    found = search_loop.SearchState(search, tmp_path)
    Sums(tmp_path, bowl).launch(found.next() or [], 0)
    write_json(tmp_path / "1/result.json", {"fitness": 1, "steps": 10, "seconds": 0.5, "eval": {"return_mean": None}})
    assert found.take()
    assert [row.get("failed") for row in told(tmp_path)] == [None, why, None]


@pytest.mark.parametrize(("value", "known"), [(3.0, 60), (None, 1)])
def test_of_a_jobs_episodes_the_spread_is_known_where_its_return_is_a_number(value: float | None, known: int) -> None:
    """A return that is not finite is null in the journal, and the search goes on."""
    results = {"fitness": value, "return": value, "return_std": value and 2.0, "episodes": 60.0, "length": 9.0}
    row = {"results": results, "objectives": {"return": value}, "cost": 1}
    found = search_loop._evaluation(Individual(0, np.zeros(0)), row).result
    assert [len(found[name]) for name in ("fitness", "return", "length")] == [known, known, 1]
    if value is not None:
        assert found["return"].mean() == pytest.approx(3.0) and found["return"].std() == pytest.approx(2.0)
