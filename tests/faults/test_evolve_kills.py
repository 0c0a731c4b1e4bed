"""Populations whose workers are killed and stopped: a killed worker costs a re-evaluation, and no bit."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import RayRun, kill_actor, kill_worker, replaced
from cluster_victims import relatives, send
from evolution_runs import CASES, QUICK, evaluated, journal
from harness import fingerprint, go, start

from evorl.population.train_evaluator import TrainEvaluator

WORDS = {
    "es": (*CASES["es"][:-1], "ec.population=24", "checkpoint.every=4000", "budget.steps=60000"),
    "es-normal": (*CASES["es-normal"][:-1], "ec.population=24", "ec.slots=24", "budget.steps=60000"),
    "cem": ("mdp=cartpole", "ec=cem", "ec.population=24", "ec.together=4", "budget.steps=60000"),
    "front": (*CASES["front"][:-1], "budget.steps=60000"),
    "rounds": (*CASES["rounds"][:-1], "ec.train_steps=512", "checkpoint.every=4000", "budget.steps=20000"),
    "league": (*CASES["league"][:-1], "checkpoint.every=4000", "budget.steps=20000"),
    "psro": (*CASES["psro"][:-1], "checkpoint.every=4000", "budget.steps=12000"),
}
CLUSTER = ("cluster=processes", "cluster.workers=2", "cluster.deadline_s=5")


def bothered(place: Path, words: tuple[str, ...], kills: int, stops: int) -> Counter[signal.Signals]:
    """Run in processes of its own, of which so many die or stop; return how many did before it was over.

    A run ends by itself where 20 processes die over the same work. On a busy machine none would begin before the next
    signal, so there is a new line in the journal between every four of them.
    """
    place.mkdir()
    driver = start(*QUICK, *words, *CLUSTER, "hydra.run.dir=run", cwd=place)
    signals = [signal.SIGKILL] * kills + [signal.SIGSTOP] * stops
    random.Random(7).shuffle(signals)
    sent: Counter[signal.Signals] = Counter()
    lines = 0

    def wait_for_a_line() -> None:
        nonlocal lines
        path, before = place / "run" / "population.jsonl", lines
        while lines == before and driver.poll() is None:
            time.sleep(0.01)
            lines = path.read_bytes().count(b"\n") if path.exists() else 0

    for number in signals:
        if sent.total() % 4 == 0:
            wait_for_a_line()
        draw = random.Random(sent.total())
        time.sleep(draw.uniform(0.05, 0.4))
        victims = sorted(relatives(place / "tmp") - {driver.pid})
        if driver.poll() is not None:
            break
        if victims:
            send(number, {draw.choice(victims)})
            sent[number] += 1
    assert driver.wait(900) == 0, (place / "err").read_text()
    return sent


def payoffs(directory: Path) -> bytes | None:
    """The tables of a population whose policies play each other."""
    path = directory / "payoffs.jsonl"
    return path.read_bytes() if path.exists() else None


def unbothered(place: Path, words: tuple[str, ...]) -> Path:
    assert go(*QUICK, *words, f"hydra.run.dir={place}") == 0
    return place


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A case's run that is left alone, made once."""
    place = tmp_path_factory.mktemp("calm")
    return cache(lambda case: unbothered(place / case, WORDS[case]))


@pytest.mark.fault
@pytest.mark.parametrize("case", ["es-normal", "rounds", "league", "psro"])
def test_killed_workers_cost_no_bit(case: str, calm: Callable[[str], Path], tmp_path: Path) -> None:
    assert bothered(tmp_path / "bothered", WORDS[case], kills=5, stops=0)[signal.SIGKILL] >= 3
    assert journal(tmp_path / "bothered" / "run") == journal(calm(case))
    assert evaluated(tmp_path / "bothered" / "run") == evaluated(calm(case))
    assert payoffs(tmp_path / "bothered" / "run") == payoffs(calm(case))


@pytest.mark.slow
def test_a_killed_worker_costs_one_evaluation_and_no_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun once more is what it was at, once; who else was in flight is evaluated once."""
    begun, evaluate, fatal = tmp_path / "begun", TrainEvaluator.evaluate, {"2", "7", "13"}

    def noted(self: TrainEvaluator, packed: Any) -> Any:
        (number,) = map(str, packed["id"])
        with begun.open("a") as file:
            file.write(f"{number}\n")
        if number in fatal and begun.read_text().split().count(number) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return evaluate(self, packed)

    monkeypatch.setattr(TrainEvaluator, "evaluate", noted)
    assert go(*QUICK, *CASES["rounds"], *CLUSTER, f"hydra.run.dir={tmp_path / 'run'}") == 0
    told = [str(line["id"]) for line in journal(tmp_path / "run")]
    times = Counter(begun.read_text().split())
    assert {number for number, count in times.items() if count > 1} == fatal <= {*told}
    assert times.total() == len(times) + len(fatal) <= len(told) + 6 + len(fatal)  # six are in flight at its end


@pytest.mark.fault
@pytest.mark.timeout(1800)  # two runs, of which the league's take five minutes each
@pytest.mark.parametrize("case", WORDS)
def test_many_killed_and_stopped_workers_cost_no_bit(case: str, tmp_path: Path) -> None:
    steps = {"front": 400_000, "rounds": 400_000, "league": 500_000, "psro": 120_000}.get(case, 1_000_000)
    kills, least = (120, 100) if case == "league" else (40, 20)
    words = (*WORDS[case][:-1], f"budget.steps={steps}")
    sent = bothered(tmp_path / "bothered", words, kills, stops=8)
    assert sent[signal.SIGKILL] >= least and sent[signal.SIGSTOP] >= 4
    calm = unbothered(tmp_path / "calm", words)
    assert journal(tmp_path / "bothered" / "run") == journal(calm)
    assert evaluated(tmp_path / "bothered" / "run") == evaluated(calm)
    assert payoffs(tmp_path / "bothered" / "run") == payoffs(calm)


@pytest.mark.fault
@pytest.mark.parametrize("case", ["es-normal", pytest.param("rounds", marks=pytest.mark.fault)])
def test_on_ray_killed_workers_cost_no_bit_either(case: str, run: Callable[..., RayRun], tmp_path: Path) -> None:
    """Those who go by seed and those who send all; with the actors that carry them."""
    words = (*WORDS[case][:-1], f"budget.steps={1_000_000 if case == 'es-normal' else 400_000}")
    it = run(*QUICK, *words, "cluster=ray", "cluster.workers=2", "cluster.deadline_s=20")
    assert it.until_rows(1), it.said()
    kills, draw = 0, random.Random(case)
    while kills < 10:
        assert not it.over, (kills, it.said())
        time.sleep(draw.uniform(0, 0.4))
        kills += draw.choice([kill_worker, kill_actor])(it, draw)
    it.finish()
    assert replaced(it.directory) >= 5
    assert journal(it.directory) == journal(unbothered(tmp_path / "calm", words))
    assert evaluated(it.directory) == evaluated(tmp_path / "calm")


@pytest.mark.fault
@pytest.mark.parametrize("case", ["es", "rounds"])
def test_a_killed_driver_goes_on_from_its_last_checkpoint(
    case: str, calm: Callable[[str], Path], tmp_path: Path
) -> None:
    driver = start(*QUICK, *WORDS[case], "hydra.run.dir=run", cwd=tmp_path)
    while len(list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))) < 2:
        assert driver.poll() is None, (tmp_path / "err").read_text()
        time.sleep(0.01)
    driver.kill()
    assert driver.wait() == -signal.SIGKILL
    assert go(f"resume={tmp_path / 'run'}") == 0
    assert journal(tmp_path / "run") == journal(calm(case))
    assert fingerprint(tmp_path / "run") == fingerprint(calm(case))
