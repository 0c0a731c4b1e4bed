"""An asynchronous evolution once more from its journal: however it ended, told in whatever order; what is refused."""

from __future__ import annotations

import json
import math
import shutil
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from evolution_runs import ASYNCHRONOUS, journal
from harness import fingerprint, go

from evorl.cluster.local import LocalGroup
from evorl.ec.core import Evaluation
from evorl.population import loop
from evorl.population.loop import Population
from evorl.record.core import Recorder
from evorl.training.core import Progress

QUICK = (
    *("record.tensorboard=false", "eval.episodes=2", "eval.every=0", "rl.slots=4", "rl.horizon=16"),
    *("rl.minibatch=32", "rl.passes=2", "rl.net.hidden=[8]", "ec.population=6", "ec.episodes=3"),
)
TOGETHER = (*ASYNCHRONOUS["sga-normal"][:-3], "ec.together=2", "ec.slots=6", "budget.steps=1500")
CASES = {"pbt": ASYNCHRONOUS["pbt"], "together": TOGETHER}
STOP = 9
"""Tasks after which a run is stopped."""


def state(directory: Path) -> Any:
    """All bits of the population in the newest checkpoint, those in flight included. Less what an evaluation notes of
    the replays that name the best individual: a run that was stopped has not had its last one."""
    found = fingerprint(directory)["state"]["run"]
    return {name: x for name, x in found.items() if name not in ("selected", "considered")}


@pytest.fixture
def shuffled() -> Iterator[pytest.MonkeyPatch]:
    """Results arrive in the order opposite to that of asking; undone for the replay, which knows no such order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalGroup, "first", lambda self, futures: futures[-1])
        yield patch


def stopped(patch: pytest.MonkeyPatch, tasks: int) -> None:
    """As by Ctrl-C at the end of a task; within one, more may be in flight than the journal has asked for."""
    iterate, told = Population.iterate, count(1)

    def interrupted(self: Population) -> Progress:
        progress = iterate(self)
        if next(told) == tasks:
            signal.raise_signal(signal.SIGINT)
        return progress

    patch.setattr(Population, "iterate", interrupted)


def ticking(patch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by a second whenever it is read."""
    clock = count()
    patch.setattr(Recorder, "time", property(lambda self: float(next(clock))))


def repeated(first: Path, again: Path) -> None:
    assert go(f"replay={first}", f"hydra.run.dir={again}") == 0
    assert journal(again) == journal(first)
    assert state(again) == state(first)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_its_clock_ended(case: str, shuffled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ticking(shuffled)
    first, again = tmp_path / "first", tmp_path / "again"
    assert go(*QUICK, *CASES[case], "budget.seconds=20", f"hydra.run.dir={first}") == 0
    shuffled.undo()
    assert journal(first)[-1]["step"] < int(CASES[case][-1].partition("=")[2])
    repeated(first, again)
    ends = [json.loads((one / "result.json").read_bytes()) for one in (first, again)]
    assert ends[0]["best"] == ends[1]["best"] and ends[0]["eval"] == ends[1]["eval"]


@pytest.mark.slow
@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped(case: str, resumed: bool, shuffled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first = tmp_path / "first"
    stopped(shuffled, STOP)
    assert go(*QUICK, *CASES[case], f"hydra.run.dir={first}") == 130
    if resumed:
        assert go(f"resume={first}") == 0
    shuffled.undo()
    repeated(first, tmp_path / "again")


@pytest.mark.slow
def test_a_run_that_ended_with_those_that_failed(shuffled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They cost no step, and are told all the same."""
    real = loop.to_evaluation

    def failing(one: Any, answer: Any) -> Any:
        return real(one, answer) if one.id < 8 else (Evaluation(one, (math.nan,)), "it fell", 0.0)

    first = tmp_path / "first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "to_evaluation", failing)
        stopped(shuffled, 13)
        assert go(*QUICK, *CASES["pbt"], f"hydra.run.dir={first}") == 130
        shuffled.undo()
        assert [line["cost"] for line in journal(first)[-2:]] == [0, 0]
        repeated(first, tmp_path / "again")


@pytest.mark.slow
def test_a_repetition_is_stopped_and_goes_on_beyond(shuffled: pytest.MonkeyPatch, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    assert go(*QUICK, *CASES["pbt"][:-1], "budget.steps=2000", f"hydra.run.dir={first}") == 0
    shuffled.undo()
    with pytest.MonkeyPatch.context() as patch:
        stopped(patch, 4)
        assert go(f"replay={first}", f"hydra.run.dir={again}") == 130
    assert go(f"resume={again}") == 0
    assert journal(again) == journal(first) and state(again) == state(first)
    for one in (first, again):
        assert go(f"resume={one}", "budget.steps=3000") == 0
    assert journal(again)[-1]["step"] >= 3000
    assert journal(again) == journal(first) and state(again) == state(first)


@pytest.mark.slow
def test_a_repetition_has_another_budget_where_it_is_given_one(tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert go(*QUICK, *CASES["pbt"], f"hydra.run.dir={first}") == 0
    assert go(f"replay={first}", "budget.steps=1000", f"hydra.run.dir={tmp_path / 'part'}") == 0
    part = journal(tmp_path / "part")
    assert part == journal(first)[: len(part)] and part[-2]["step"] < 1000 <= part[-1]["step"]


# ------------------------------------------------------------------ journals that cannot be repeated


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "run"
    assert go(*QUICK, *CASES["pbt"][:-1], "budget.steps=1200", f"hydra.run.dir={place}") == 0
    return place


DAMAGED = {
    "half a line": (b'{"id": 1, "par\n', "line 3 of {file} is damaged: Input data was truncated"),
    "no text": (b"\xff\xfe\n", "line 3 of {file} is damaged: "),
    "no line of it": (b"[1]\n", "line 3 of {file} is damaged: Expected `object`, got `array`"),
    "a step that no run has": (
        b'{"id": 1, "step": 1152921504606846976}\n',
        "line 3 of {file} is damaged: Expected `int` <= 9007199254740992",
    ),
    "without an id": (b'{"step": 1, "genes": {}}\n', "line 3 of {file} is damaged: Object missing required field `id`"),
}


@pytest.mark.slow_cases(but=("no text", "a step that no run has", "without an id"))
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_line_is_told_before_anything_is_written(
    damage: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, said = DAMAGED[damage]
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:2], bad, *lines[3:]]))
    capsys.readouterr()
    for words in ((f"replay={tmp_path / 'run'}",), (*QUICK, *CASES["pbt"], f"init={tmp_path / 'run'}")):
        assert go(*words, f"hydra.run.dir={tmp_path / 'again'}") == 2
        err = capsys.readouterr().err
        assert err.startswith(f"evorl: {words[-1].partition('=')[0]}: {said.format(file=file)}")
        assert err.count("\n") == 1
        assert not (tmp_path / "again").exists()


def test_a_journal_without_a_line(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    file.write_bytes(b'{"id": 0, "genes"')  # half a line, which its writer may not have ended
    capsys.readouterr()
    assert go(f"replay={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'again'}") == 2
    assert capsys.readouterr().err == f"evorl: replay: {file} has no whole line\n"
    assert not (tmp_path / "again").exists()


def test_a_journal_that_tells_a_far_end_is_repeated_up_to_its_last_line(whole: Path, tmp_path: Path) -> None:
    """Else its replay would evaluate individuals for ever, which the last step seems to ask for."""
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    *lines, last = file.read_text().splitlines()
    file.write_text("".join(f"{line}\n" for line in [*lines, json.dumps(json.loads(last) | {"step": 1 << 53})]))
    assert go(f"replay={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'again'}") == 0
    assert journal(tmp_path / "again") == journal(whole)


def test_another_runs_journal(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[3]["id"] = 77
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert go(f"replay={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'again'}") == 2
    err = capsys.readouterr().err
    assert (
        "evorl: replay: line 4 of population.jsonl is individual 77, which is not in flight: "
        "the journal is of another run or version\n" in err
    )
    assert "Traceback" not in err


@pytest.mark.slow
def test_what_comes_to_something_else_is_no_repetition(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines[3:5]:
        line["objectives"]["fitness"] += 1e-9
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()
    assert go(f"replay={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'again'}") == 0
    told = "".join(capsys.readouterr())
    assert told.count("this replay differs: individual ") == 1 and f"individual {lines[3]['id']} has objectives" in told


def test_people_without_a_line_in_their_journal(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(whole, tmp_path / "run")
    file = tmp_path / "run" / "population.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    capsys.readouterr()
    words = (*QUICK, *CASES["pbt"], f"init={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'again'}")
    assert go(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evorl: init: {file} has no line of individual ") and err.count("\n") == 1
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("hydra.verbose=true", "hydra.verbose: evorl keeps no log of Hydra's; leave it out"),
        ("hydra.job.chdir=true", "hydra.job.chdir: runs stay in the working directory; leave it out"),
        ("hydra.sweep.dir=x", "hydra.sweep.dir: is for --multirun; hydra.run.dir=x names the directory of one run"),
    ],
)
def test_keys_of_hydra_that_do_nothing(
    word: str, line: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert go(f"replay={whole}", word, f"hydra.run.dir={tmp_path / 'again'}") == 2
    assert capsys.readouterr().err == f"evorl: {line}\n"
    assert not (tmp_path / "again").exists()
