"""The command that rebuilds tables: what it lists, refuses, prints, resumes, and does not do twice."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import forked
import pytest
from matplotlib.figure import Figure

from evorl import reproduce
from evorl.analysis.reproduced import Content
from evorl.analysis.runs import RunRecord
from evorl.cli.overrides import parse
from evorl.reproduction import judging, loop, overview, pages, papers, parts
from evorl.reproduction.parts import ROOT, Inputs, Measurement, Sweep
from evorl.reproduction.table import Analysis, Picture, Profile, Results, Table
from evorl.util.errors import BadRequest

NAMES = [f"{folder}/{short}" for folder, paper in papers.papers().items() for short in paper.tables]


@pytest.mark.parametrize("own", [{}, {"RAY_AUTH_MODE": "token"}])
def test_a_sweep_on_ray_is_as_private_as_any_other(monkeypatch: pytest.MonkeyPatch, own: dict[str, str]) -> None:
    """Who reaches a Ray without a token runs code on it, and other users of the machine do."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    code = "import os, sys; sys.exit(len(os.environ.get('RAY_AUTH_MODE', '')))"
    assert parts._run([sys.executable, "-c", code]) == len(own.get("RAY_AUTH_MODE", ""))


# ------------------------------------------------------------------ the list and the pages


def test_every_program_that_declares_a_table_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    declared = {
        f"{path.parent.name}/{path.stem}"
        for path in papers.PROGRAMS.glob("*/*.py")
        if re.search(r"^TABLE = ", path.read_text(), re.MULTILINE)
    }
    assert declared == {*NAMES}
    assert reproduce.main([]) == 0
    told = capsys.readouterr().out
    for name in NAMES:
        assert re.search(rf"^  {name} +(reproduced|scaled|partial|not run)", told, re.MULTILINE)
        assert f"python -m evorl.reproduce {name} profile=" in told
    assert told.count("core hours: ") == len(NAMES)
    assert all(one.why in told for paper in papers.papers().values() for one in paper.unmeasured)


def test_tables_of_a_paper_share_a_folder_only_for_the_same_runs() -> None:
    """They lie in the same folder, so one would refuse what another has left there."""
    shared: dict[tuple[str, str, str], Sweep] = {}
    for name in NAMES:
        for profile, what in papers.table(name).profiles.items():
            for part in what.parts:
                if isinstance(part, Sweep):
                    place = name.partition("/")[0], profile, part.name
                    assert shared.setdefault(place, part).words == part.words, (name, *place)


def test_the_page_of_all_tables_is_current() -> None:
    assert overview.PAGE.read_text() == overview.page(), "python -m evorl.reproduce --page writes it"


@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_table_says_what_its_numbers_say(name: str) -> None:
    out, short = papers.results(name), name.rpartition("/")[2]
    told = pages.read(out, short)
    if told is None:  # not run so far
        assert not (out / f"{short}.md").exists()
        return
    assert {*told} == {*Content.__annotations__}
    assert (out / f"{short}.md").read_text() == pages.markdown(told)
    assert told["machine"]["command"] == overview.command(name, told["profile"])
    assert all(len(row) == len(told["header"]) for row in told["rows"])
    assert all((out / f"{figure}.png").exists() for figure in told["figures"])


def test_a_table_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["elite_replay/correction"]) == 0
    told = capsys.readouterr().out
    assert "Espeholt et al. 2018" in told and "profile=paper" in told and "no correction -9.8 [-14.8, -4.5]" in told


def test_a_smaller_size_than_that_of_the_result_is_told_its_own_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["marvin/walk"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert {"python -m evorl.reproduce marvin/walk profile=ci out=DIR",
            "python -m evorl.reproduce marvin/walk profile=paper"} <= {*told}  # fmt: skip


def test_the_size_of_a_result_is_its_status() -> None:
    told = pages.read(papers.results("elite_replay/elite"), "elite")
    assert told is not None
    assert overview.status(told) == "scaled" and overview.status(None) == "not run"
    assert overview.status({**told, "profile": "paper"}) == "reproduced"
    assert overview.status({**told, "profile": "paper", "settings": ["budget.steps=1"]}) == "scaled"
    assert overview.status({**told, "profile": "paper", "made_of": None}) == "partial"


def test_the_list_tells_the_size_that_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The declaration may have changed since."""
    read = pages.read

    def of_then(out: Path, name: str) -> Content | None:
        told = read(out, name)
        return told and {**told, "size": f"{name} as it was then"}

    monkeypatch.setattr(pages, "read", of_then)
    assert "| elite as it was then |" in overview.page()


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["marvin/wlak", "profile=ci"], "'marvin/wlak' is no table; did you mean marvin/walk?"),
        (["pbt"], "'pbt' is no table; did you mean lamarckian/pbt?"),
        (["marvin/walk", "profile=papre"], "profile: 'papre' is none of ci, paper; did you mean paper?"),
        (["marvin/walk", "seed=1"], "profile: choose one: ci, paper"),
        (["marvin/walk", "profil=ci"], "profil: unknown key; did you mean profile?"),
        (["marvin/walk", "--print"], "profile: --print needs one: ci, paper"),
        (["marvin/walk", "profile=ci", "ec.sigm=1"], "ec.sigm: unknown key; did you mean ec.sigma?"),
        (["marvin/walk", "profile=ci", "--drwa"], "--drwa is no flag; did you mean --draw?"),
        (["--check", "--page"], "--page stands alone: it writes benchmarks/README.md and does nothing else"),
        (["marvin/walk", "profile=ci", "ec.sigma=1"],
         "ec.sigma=1 changes what is measured; say where runs and result go: runs=DIR out=DIR"),
        (["marvin/walk", "profile=ci", "run=here"], "run: unknown key; did you mean runs?"),
        (["elite_replay/dqn", "profile=ci", "rl.double=true"],
         "rl.double=true changes what is measured; say where runs and result go: runs=DIR out=DIR"),
        (["marvin/walk", "profile=ci", "ec.sigm=1", "runs=here", "out=here"],
         "ec.sigm: unknown key; did you mean ec.sigma?"),
        (["marvin/walk", "aes_rl/rules"], "one table at a time: marvin/walk or aes_rl/rules"),
        (["profile=ci"], "name a table: PAPER/TABLE; python -m evorl.reproduce lists all"),
    ],
)  # fmt: skip
def test_a_typo_gets_the_nearest_name(
    words: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    assert reproduce.main(words) == 2
    assert capsys.readouterr().err == f"evorl: {line}\n" and not [*tmp_path.iterdir()]


def test_an_installation_without_programs_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(papers, "PROGRAMS", tmp_path / "benchmarks")
    assert reproduce.main(["marvin/walk", "profile=ci"]) == 2
    assert capsys.readouterr().err.startswith("evorl: the tables are programs in benchmarks/ of a checkout, and ")


# ------------------------------------------------------------------ what a command line asks for


def test_print_shows_the_commands_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    words = ["profile=ci", "rl.warm_up=1000", "seed=1,2", "--print", f"runs={tmp_path}", f"out={tmp_path}"]
    assert reproduce.main(["aes_rl/rules", *words]) == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    sweeps = papers.table("aes_rl/rules").profiles["ci"].parts
    for line, sweep in zip(lines, sweeps, strict=True):
        assert line[1:4] == ["-m", "evorl.run", "--multirun"] and f"hydra.sweep.dir={tmp_path / sweep.name}" in line
        assert line[-2:] == ["rl.warm_up=1000", "seed=1,2"]


def test_runs_may_lie_below_any_name(tmp_path: Path) -> None:
    for name in ("José", "evorl (copy)", "a=b", "a,b", "it's"):
        words = parts.Sweep("one", ("mdp=pong",)).command(tmp_path / name)
        place = next(word for word in parse(words[4:]) if word.key_or_group == "hydra.sweep.dir")
        assert place.value() == str(tmp_path / name / "one")


def test_what_is_no_sweep_is_printed_as_a_comment(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["lamarckian/asynchronous", "profile=ci", "--print"]) == 0
    names = ["asynchronous-0", "synchronous-0", "synchronous-1", "asynchronous-1"]  # in turn, and back
    measured = "measured by benchmarks/lamarckian/asynchronous.py"
    assert capsys.readouterr().out.splitlines() == [f"# asynchronous/{name}: {measured}" for name in names]


@pytest.mark.parametrize("profile", ["ci", "paper"])
def test_the_runs_of_a_profile_are_its_own(profile: str) -> None:
    asked = reproduce.parsed("marvin/walk", papers.table("marvin/walk"), [f"profile={profile}", "seed=0,1"], False)
    assert asked is not None and asked.also == ("seed=0,1",)
    assert asked.runs == ROOT / "runs" / "marvin" / profile
    assert asked.out == ROOT / "benchmarks" / "marvin" / "results"


def test_where_a_job_runs_changes_nothing_that_is_measured() -> None:
    words = [
        "seed=1,2",
        "hydra.launcher.ray.init.address=auto",
        "hydra/launcher=ray",
        "cluster=ray",
        "cluster.workers=2",
    ]
    assert parts.settings([*words, "rl.lr=1", "+mdp.x=2"]) == ["rl.lr=1", "+mdp.x=2"]


def test_the_first_job_of_a_sweep() -> None:
    words = [
        "seed=1,2",
        "+experiment=marvin/original,marvin/ours",
        "rl.net.hidden=[4,5]",
        "hydra/launcher=ray",
        "seed=7,8",
    ]
    assert loop.first_job(words) == ["seed=7", "+experiment=marvin/original", "rl.net.hidden=[4,5]"]


# ------------------------------------------------------------------ a small table, rebuilt


SMALL = ("+debug=tiny", "mdp=cartpole", "budget.steps=256", "record.tensorboard=false")


def words_of(given: Inputs) -> list[str]:
    return list(given.words)


def analyse(there: Results) -> Analysis | None:
    done = [run for run in there.runs if run.result is not None]
    rows = [[str(run.seed), f"{run.steps:.0f}"] for run in done]
    made = Figure()
    made.subplots().plot([len(rows)])
    pictures = [Picture("small", "Seeds", made)]
    return Analysis(header=["seed", "steps"], rows=rows, pictures=pictures, data=there.measured) if rows else None


TABLE = Table(
    title="A small table",
    of="CartPole",
    claim="it is played",
    source="ours",
    about="Two seeds.",
    profiles={
        "ci": Profile("two seeds", 0.0, [Sweep("pair", ("seed=1,2", *SMALL)), Measurement("told/word", words_of)]),
    },
    analyse=analyse,
    measured=lambda data: str(data),
)


def asked(place: Path, *also: str, draw: bool = False) -> loop.Request:
    return loop.Request("test/small", "ci", also, place / "runs", place / "out", draw)


def told(place: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((place / "out" / "small.json").read_text())
    return found


def test_a_stopped_reproduction_goes_on_and_a_finished_one_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def run(command: Sequence[str]) -> int:
        done = forked.evorl("run", *command[3:], cwd=tmp_path)
        said.append(done.stdout)
        return done.returncode

    monkeypatch.setattr(parts, "_run", run)
    loop.reproduce(TABLE, asked(tmp_path))
    page = (tmp_path / "out" / "small.md").read_text()
    assert told(tmp_path)["rows"] == [["1", "256"], ["2", "256"]] and "| 1 | 256 |" in page
    assert told(tmp_path)["data"] == {"told/word": []} and "- seeds of the runs: 1-2\n" in page
    assert (tmp_path / "out" / "small.svg").exists() and "![Seeds](small.png)" in page
    made = told(tmp_path)["machine"]
    assert made["command"] == "python -m evorl.reproduce test/small profile=ci out=DIR" and "drawn" not in made

    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    capsys.readouterr()
    loop.reproduce(TABLE, asked(tmp_path))
    assert capsys.readouterr().out.startswith("test/small is done: ")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    monkeypatch.setattr(pages, "machine", lambda command: {"cpu": "of the drawing", "load": 99.0})
    monkeypatch.setattr(pages, "load", lambda: 99.0)
    loop.reproduce(TABLE, asked(tmp_path, draw=True))
    drawn = told(tmp_path)["machine"].pop("drawn")
    assert told(tmp_path)["machine"] == {**made, "drawn": drawn}  # the processor and the load of the runs, not of today
    longer = replace(TABLE, profiles={"ci": replace_words(TABLE.profiles["ci"], "seed=1,2,3")})
    with pytest.raises(pytest.fail.Exception):  # what is asked for is more than what is there
        loop.reproduce(longer, asked(tmp_path))

    monkeypatch.setattr(parts, "_run", run)
    (tmp_path / "runs" / "pair" / "1" / "result.json").unlink()  # as if it had been killed before its end
    loop.reproduce(TABLE, asked(tmp_path, draw=True))
    assert told(tmp_path)["rows"] == [["1", "256"]] and told(tmp_path)["made_of"] is None
    others = told(tmp_path)["machine"]  # of other runs than the kept result: what they have recorded
    assert others["cpu"] == made["cpu"] and others["evorl"] == made["evorl"] and "load" not in others
    assert others["command"] == made["command"] and others["date"] <= others["drawn"]
    loop.reproduce(TABLE, asked(tmp_path))
    assert "pair/0 has finished" in said[-1] and "pair/1 goes on" in said[-1]
    assert told(tmp_path)["rows"] == [["1", "256"], ["2", "256"]] and told(tmp_path)["made_of"]


def replace_words(profile: Profile, seeds: str) -> Profile:
    return profile._replace(parts=[Sweep("pair", (seeds, *SMALL)), *profile.parts[1:]])


def test_jobs_that_failed_are_told_and_nothing_is_drawn_of_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: 1)
    with pytest.raises(SystemExit, match="1"):
        loop.reproduce(TABLE, asked(tmp_path))
    with pytest.raises(BadRequest, match="holds nothing of test/small that has ended"):
        loop.reproduce(TABLE, asked(tmp_path, draw=True))
    assert not (tmp_path / "out").exists()
    monkeypatch.setattr(parts, "_run", lambda command: 2)
    with pytest.raises(SystemExit, match="2"):
        loop.reproduce(TABLE, asked(tmp_path))
    monkeypatch.setattr(parts, "_run", lambda command: 1)
    one = replace(TABLE, analyse=lambda found: Analysis(header=["n"], rows=[["0"]]))
    with pytest.raises(SystemExit, match="1"):
        loop.reproduce(one, asked(tmp_path))
    assert "the same command goes on with them" in capsys.readouterr().err and told(tmp_path)["made_of"] is None


def test_a_measurement_waits_for_the_runs_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be of these runs, and is made once."""
    tried: list[Sequence[str]] = []
    monkeypatch.setattr(parts, "_run", lambda command: tried.append(command) or 1)
    two = [Sweep("first", SMALL), Measurement("told", words_of), Sweep("second", SMALL)]
    gated = Analysis(header=["n"], rows=[["0"]], gates={"all seeds": "passed", "most": "failed"})
    one = replace(TABLE, profiles={"ci": Profile("few", 0.0, two)}, analyse=lambda found: gated)
    with pytest.raises(SystemExit, match="1"):
        loop.reproduce(one, asked(tmp_path))
    assert len(tried) == 2 and not (tmp_path / "runs" / "told.json").exists()
    assert told(tmp_path)["gates"] == {"all seeds": "passed so far", "most": "failed"}
    assert "**Partial:** not all of its runs have ended." in (tmp_path / "out" / "small.md").read_text()
    for name in ("first", "second"):
        (tmp_path / "runs" / name / "0").mkdir(parents=True)
        (tmp_path / "runs" / name / "0" / "result.json").write_text("{}")
    monkeypatch.setattr(parts, "_run", lambda command: 0)
    monkeypatch.setattr(parts, "read_index", lambda place: {"0": ["seed=1"]})
    loop.reproduce(one, asked(tmp_path))
    assert (tmp_path / "runs" / "told.json").exists()
    assert told(tmp_path)["gates"] == {"all seeds": "passed", "most": "failed"} and told(tmp_path)["made_of"]


def test_a_smaller_size_does_not_replace_a_larger_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    found = Analysis(header=["n"], rows=[["1"]])
    both = replace(TABLE, profiles={**TABLE.profiles, "paper": TABLE.profiles["ci"]})
    pages.write(tmp_path / "out", "small", pages.content(both, found, "paper", [], {}, None), found)
    with pytest.raises(BadRequest, match="out has the result of profile=paper, which a smaller one does not"):
        loop.reproduce(both, asked(tmp_path))


def test_a_result_elsewhere_names_its_own_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts.Sweep, "carry_out", lambda *given: True)
    words = "evorl.evaluate run=benchmarks/test/results/policies/a"
    one = replace(
        TABLE, about=f"To play: `{words}`.", analyse=lambda found: Analysis(header=["n"], rows=[["0"]], notes=[words])
    )  # fmt: skip
    loop.reproduce(one, asked(tmp_path))
    here = f"evorl.evaluate run={tmp_path}/out/policies/a"
    assert told(tmp_path)["about"] == f"To play: `{here}`." and told(tmp_path)["notes"] == [here]
    assert here in (tmp_path / "out" / "small.md").read_text()


def test_peers_that_are_missing_are_told_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_run", lambda command: pytest.fail("a run was made"))
    monkeypatch.setattr(loop, "PEERS", tmp_path / "none")
    with pytest.raises(BadRequest, match="make peers"):
        loop.reproduce(replace(TABLE, peers=True), asked(tmp_path))


def test_a_measurement_is_made_once(tmp_path: Path) -> None:
    made: list[Inputs] = []
    one = Measurement("a/b", lambda given: made.append(given) or {"n": len(made)})
    assert one.results(tmp_path) is None
    for _ in range(2):
        assert one.carry_out(tmp_path, ["rl.lr=1", "cluster=ray"])
    assert made == [Inputs(["rl.lr=1"], tmp_path / "a" / "b")]
    assert parts.measured_of(tmp_path, [one, Measurement("c", len)]) == {"a/b": {"n": 1}}
    assert one.carry_out(tmp_path, ["rl.lr=1"])  # where it ran does not matter
    with pytest.raises(BadRequest, match=r"was measured with rl\.lr=1; give another folder"):
        one.carry_out(tmp_path, ["rl.lr=2"])


def test_a_kept_film_is_never_half_written(tmp_path: Path) -> None:
    film, out = tmp_path / "film.mp4", tmp_path / "out"
    film.write_bytes(b"new")
    out.mkdir()
    (out / "best.mp4").write_bytes(b"old")
    reader = (out / "best.mp4").open("rb")  # of the old film, which a write in place would change
    found = Analysis(header=["n"], rows=[["1"]], files={"best.mp4": film})
    pages.write(out, "small", pages.content(TABLE, found, "ci", [], {}, None), found)
    assert (out / "best.mp4").read_bytes() == b"new"
    with reader:
        assert reader.read() == b"old"


@pytest.mark.parametrize("before", range(6))
def test_a_kept_policy_outlives_a_kill(before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before whichever step of its files the process is killed, the next one has the old or the new policy."""
    place, steps = tmp_path / "policy", [0]

    def evaluate(command: Sequence[str], **_: Any) -> None:
        export = Path(command[-1].removeprefix("export="))
        export.mkdir()
        (export / "evaluation.json").write_text("new")

    def counted(step: Any) -> Any:
        def act(*where: Any, **how: Any) -> Any:
            steps[0] += 1
            if steps[0] == before + 1:
                raise KeyboardInterrupt
            return step(*where, **how)

        return act

    place.mkdir()
    (place / "evaluation.json").write_text("old")
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", evaluate)
        patched.setattr(judging.shutil, "rmtree", counted(judging.shutil.rmtree))
        patched.setattr(Path, "rename", counted(Path.rename))
        with suppress(KeyboardInterrupt):
            judging.keep(tmp_path, [], place)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda *_, **__: 1 / 0)  # its run is gone, and nothing new comes
        with pytest.raises(ZeroDivisionError):
            judging.keep(tmp_path, [], place)
    assert (place / "evaluation.json").read_text() == ("old" if before < 4 else "new")


def test_seeds_are_told_as_ranges() -> None:
    assert pages.ranges([3, 0, 1, 2, 7, 9, 8]) == "0-3, 7-9" and pages.ranges([5]) == "5" and pages.ranges([]) == ""


def test_what_runs_of_two_machines_have_recorded() -> None:
    def run(started: str, cpu: str) -> RunRecord:
        machine = {"cpu": cpu, "cores": 2, "platform": "Linux"}
        made = {"started": started, "machine": machine, "versions": dict.fromkeys(pages.VERSIONS, "1")}
        return RunRecord(directory=Path(), config={}, provenance=made)

    found = pages.recorded([run("2026-01-02T10:00:00+00:00", "a"), run("2026-01-01T10:00:00+00:00", "b")])
    first, last = found.pop("date").split(" to ")
    assert first < last and found["evorl"]["torch"] == "1"
    assert {name: found[name] for name in ("cpu", "cores", "platform")} == {
        "cpu": "a, b",
        "cores": 2,
        "platform": "Linux",
    }
    assert pages.recorded([RunRecord(directory=Path(), config={})]) == {}


def test_numbers_of_numpy_are_kept_and_what_is_no_number_is_null(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    found = Analysis(header=["n"], rows=[["1"]], data={"low": np.float64("nan"), "high": np.float64(2.5)})
    result = pages.content(TABLE, found, "ci", [], {}, None)
    pages.write(tmp_path / "out", "small", result, found)
    assert told(tmp_path)["data"] == {"low": None, "high": 2.5}


def test_a_signal_stops_the_sweep_first(tmp_path: Path) -> None:
    sweep = (
        "import pathlib, signal, sys, time; place = pathlib.Path(sys.argv[1])\n"
        "signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.2), (place / 'saved').touch(), sys.exit(143)))\n"
        "(place / 'began').touch(); time.sleep(60)"
    )
    program = "import sys; from evorl.reproduction.parts import _run; _run([sys.executable, '-c', *sys.argv[1:]])"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", program, sweep, str(tmp_path)], env=env)
    while not (tmp_path / "began").exists():
        assert process.poll() is None
        signal.sigtimedwait([], 0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 128 + signal.SIGTERM and (tmp_path / "saved").exists()
