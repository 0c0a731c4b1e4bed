"""The word ``latest``: the run below runs/ that began last, for every command."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from harness import go

from evorl import evaluate, report
from evorl.record import latest
from evorl.util.errors import BadRequest


def run(name: str, started: str | None, lock: int = 0) -> Path:
    place = Path("runs", name)
    (place / ".hydra").mkdir(parents=True)
    (place / ".hydra" / "config.yaml").write_text("seed: 1\n", encoding="utf-8")
    (place / ".lock").touch()
    os.utime(place / ".lock", ns=(lock, lock))
    if started is not None:
        (place / "provenance.json").write_text(started, encoding="utf-8")
    return place


def began(time: str) -> str:
    return json.dumps({"started": time, "resumed": [{"started": "2030"}]})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_one_that_began_last() -> None:
    run("b/20260101-000000-s0", began("2026-01-01T00:00:00+00:00"))
    newest = run("a/20260102-000000-s0", began("2026-01-02T00:00:00+00:00"))
    run("c/20260103-000000-s0", "{torn")
    run("d/20260104-000000-s0", None)
    (Path("runs/e")).mkdir()
    assert latest.named("latest") == str(newest)
    second = run("a/20260102-000000-s0-1", began("2026-01-02T00:00:00+00:00"), lock=1)
    assert latest.named("latest") == str(second)
    assert latest.named("runs/b") == "runs/b"
    Path("latest").mkdir()
    assert latest.named("latest") == "latest"


def test_without_a_run() -> None:
    with pytest.raises(BadRequest, match=r"^resume: there is no run below runs/ here$"):
        latest.named("latest", "resume")


def test_every_command_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("+debug=tiny", "mdp=cartpole", "record.tensorboard=false", "eval.episodes=1", "budget.steps=256")
    for words in ([f"{key}=latest"] for key in ("resume", "init", "replay")):
        assert go(*words) == 2
    assert evaluate.main(["run=latest"]) == 2 and report.main(["latest"]) == 2
    assert capsys.readouterr().err.count("there is no run below runs/ here\n") == 5
    assert go(*tiny, "seed=1") == 0
    (first,) = Path("runs/cartpole-ppo-none").iterdir()
    assert go("resume=latest", "budget.steps=512") == 0
    assert json.loads((first / "result.json").read_bytes())["steps"] == 512
    capsys.readouterr()
    assert evaluate.main(["run=latest", "json=true"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["run"] == first.name
    assert go(*tiny, "seed=2", "init=latest", "hydra.run.dir=other") == 0
    assert f"init: {first.absolute()}" in Path("other/.hydra/config.yaml").read_text(encoding="utf-8")
    assert report.parse(["latest"])[0] == [str(first)]
