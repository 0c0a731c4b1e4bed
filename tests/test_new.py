"""What ``evorl.new`` makes: small, formatted, passes its own tests; and what it refuses."""

from __future__ import annotations

import errno
import runpy
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from plugin_packages import on_path, write

from evorl import new
from evorl.cli.plugin_check import Nonconformity, check_files
from evorl.ec.core import Evolution
from evorl.mdp.core import World
from evorl.nets.encoders import Encoder
from evorl.replay.samplers.core import Sampler
from evorl.rl.core import Hyper

ROOT = Path(__file__).parents[1]
BASES = {"algorithm": Hyper, "evolver": Evolution, "world": World, "network": Encoder, "sampler": Sampler}
NATURAL = ("walk", "state", "strategy", "space", "learner", "minibatch", "options", "memory", "maze", "check", "yes")
USED = {
    "algorithm": ("learner", "minibatch"), "evolver": ("strategy", "space"), "world": ("walk", "state"),
    "network": ("options",), "sampler": ("options", "memory"),
}  # fmt: skip
"""Natural names whose classes the modules of such a package use."""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def code(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


@pytest.mark.parametrize("what", [*new.KINDS, "package"])
def test_it_makes_a_package(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert new.main([what, "my_lab"]) == 0
    kinds = [*new.KINDS] if what == "package" else [what]
    made = {str(path.relative_to("my_lab")) for path in Path("my_lab").rglob("*") if path.is_file()}
    assert made == {*new.files("my_lab", kinds)}
    text = "\n".join(path.read_text() for path in Path("my_lab").rglob("*.*") if path.is_file())
    assert not {"NAME", "CLASS", "PACKAGE"} & {*text.replace(":", " ").replace(".", " ").split()}
    out = capsys.readouterr().out
    assert out.startswith("my_lab: a plugin of evorl with a") and " -m pip install -e 'my_lab[test]'\n" in out
    ruff, settings = Path(sys.executable).parent / "ruff", ("--config", ROOT / "pyproject.toml", ".")
    for words in (("check",), ("format", "--diff")):
        done = subprocess.run([ruff, *words, *settings], cwd="my_lab", capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_it_is_short() -> None:
    made = new.files("my_lab", [*new.KINDS])
    for kind, lines in {"algorithm": 100, "evolver": 60, "world": 60, "network": 40, "sampler": 40}.items():
        assert code(made[f"my_lab/{kind}.py"]) <= lines


def test_names_become_names_of_classes() -> None:
    assert new.class_name("my_pg") == "MyPg" and new.class_name("a2_c") == "A2C" and new.class_name("walk") == "Walk"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "expected algorithm|evolver|world|network|sampler|package NAME, such as: "),
        (["algorithm"], "expected algorithm|evolver|world|network|sampler|package NAME, such as: "),
        (
            ["algoritm", "my_pg"],
            "makes one of algorithm, evolver, world, network, sampler, package, not 'algoritm'; did you mean a",
        ),
        (["algorithm", "My-pg"], "'My-pg' is no name of a Python package: small letters, digits and _, such as my_pg"),
        (["algorithm", "../x"], "'../x' is no name of a Python package"),
        (["algorithm", "class"], "'class' is no name of a Python package"),
        (["algorithm", "there"], "there exists already, and is left as it is; choose another name"),
        (["algorithm", "link"], "link exists already"),
        (["algorithm", "ppo"], "ppo is the name of the choice rl=ppo; choose another, such as my_ppo"),
        (["world", "pbt"], "pbt is the name of the choice ec=pbt"),
        (["sampler", "elite"], "elite is the name of evorl's rl.sampling=elite"),
        (["network", "nature"], "nature is the name of evorl's rl.net.encoder=nature"),
        (["world", "json"], "json is the name of a module that this Python has"),
        (["world", "evorl"], "evorl is the name of a module"),
        (["world", "tests"], "tests is the name of the folder of tests"),
        (["world", "test_world"], "test_world is the name of a file of its tests"),
        (["world", "walk"], "walk is the name of a class, Walk, that its modules use; choose another, such as my_walk"),
        (["world", "state"], "state is the name of a class, State, that its modules use"),
        (["evolver", "strategy"], "strategy is the name of a class, Strategy, that its modules use"),
        (["evolver", "space"], "space is the name of a class, Space, that its modules use"),
        (["algorithm", "learner"], "learner is the name of a class, Learner, that its modules use"),
        (["algorithm", "minibatch"], "minibatch is the name of a class, Minibatch, that its modules use"),
        (["sampler", "options"], "options is the name of a class, Options, that its modules use"),
        (["network", "options"], "options is the name of a class, Options, that its modules use"),
        (["package", "walk"], "walk is the name of a class, Walk, that its modules use"),
        *((["world", word], f"{word} is the name of a value in YAML") for word in ("null", "true", "no", "on", "nan")),
    ],
)
def test_it_refuses(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("there").mkdir()
    Path("link").symlink_to("nowhere")
    before = sorted(Path().rglob("*"))
    assert new.main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"evorl: {line}") and err.count("\n") == 1
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize("what", new.KINDS)
def test_a_name_makes_a_package_that_works_or_is_refused(what: str) -> None:
    for name in NATURAL:
        if new.main([what, name]) == 2:
            continue
        folder, kind = Path(name).absolute(), new.class_name(name)
        with on_path(folder):
            made = getattr(import_module(f"{name}.{what}"), kind)
            assert issubclass(made, BASES[what]) and made.__module__ == f"{name}.{what}"
            assert runpy.run_path(str(folder / "tests" / f"test_{what}.py"))[kind] is made
    assert {name for name in NATURAL if not Path(name).exists()} == {"yes", *USED[what]}


def test_a_place_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir("/proc")
    assert new.main(["world", "my_w"]) == 2
    assert capsys.readouterr().err == "evorl: cannot make my_w: /proc cannot be written\n"


def test_a_failure_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write_text = Path.write_text

    def failing(path: Path, *words: Any, **keys: Any) -> int:
        if path.suffix == ".yaml":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *words, **keys)

    monkeypatch.setattr(Path, "write_text", failing)
    assert new.main(["world", "my_w"]) == 2
    assert capsys.readouterr().err == "evorl: cannot make my_w: No space left on device\n"
    assert [*Path().iterdir()] == []


def test_a_signal_waits_until_all_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    write_text = Path.write_text

    def interrupted(path: Path, *words: Any, **keys: Any) -> int:
        if path.suffix == ".yaml":
            signal.raise_signal(signal.SIGINT)
        return write_text(path, *words, **keys)

    monkeypatch.setattr(Path, "write_text", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs behind
    try:
        assert new.main(["world", "my_w"]) == 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGINT, before)
    assert [*Path().iterdir()] == [Path("my_w")]
    assert {path.name for path in Path("my_w").rglob("*.*")} >= {"my_w.yaml", "pyproject.toml", "world.py"}


@pytest.mark.slow
def test_its_tests_pass(tmp_path: Path) -> None:
    folder = write(tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "12 passed" in done.stdout, done.stdout


@pytest.mark.slow_cases("conf/mine--conf/mine is not read", "conf/rl/mine.yaml.txt--conf/rl/mine.yaml.txt is not read")
@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("conf/ec/sga.yaml", "_target_: evorl.ec.sga.SGA\n", "conf/ec/sga.yaml has the name of a choice of evorl"),
        ("conf/er/mine.yaml", "a: 1\n", "conf/er/mine.yaml belongs to no group"),
        ("conf/rl/mine.yaml", "a: 1\n", "conf/rl/mine.yaml cannot be chosen: rl: names no _target_"),
        (
            "conf/rl/mine.yml",
            "_target_: evorl.rl.ppo.PPO\n",
            "conf/rl/mine.yml is not read, since it is no file *.yaml",
        ),
        ("conf/rl/mine.yaml.txt", "", "conf/rl/mine.yaml.txt is not read"),
        ("conf/mine", "", "conf/mine is not read"),
        ("metrics.yml", "a: [x, y]\n", "metrics.yml is not read; call it metrics.yaml"),
        ("conf/rl/mine.yaml", "_target_: evorl.rl.ppo.PPO\nlr: x\n", "conf/rl/mine.yaml cannot be chosen: rl.lr: "),
        ("metrics.yaml", "a/b c: [x, y]\n", "'my_lab/a/b c' is not a registered metric"),
    ],
)
def test_files_that_break_a_rule(tmp_path: Path, path: str, text: str, line: str) -> None:
    folder = write(tmp_path) / "my_lab"
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(text)
    with on_path(folder.parent), pytest.raises(Nonconformity) as told:
        check_files(folder)
    assert str(told.value).startswith(line)


def test_files_that_are_no_choices_may_lie_beside_them(tmp_path: Path) -> None:
    folder = write(tmp_path) / "my_lab"
    (folder / "conf" / "rl" / "__pycache__").mkdir()
    for path in ("README.md", "__init__.py", "rl/__init__.py", "rl/__pycache__/__init__.cpython-311.pyc", ".gitkeep"):
        (folder / "conf" / path).touch()
    with on_path(folder.parent):
        check_files(folder)
