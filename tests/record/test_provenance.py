import getpass
import json
import math
import subprocess
import sys
import time
from pathlib import Path

from evorl.record.provenance import git, provenance, write_provenance
from evorl.util.files import write_json


def test_contains_what_is_needed_to_reproduce_a_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/home/someone/evorl/run.py", "--config-dir=/home/someone"])
    write_provenance(tmp_path, 3, ["mdp=pong"])
    found = json.loads((tmp_path / "provenance.json").read_text())
    assert found["seed"] == 3 and found["argv"] == ["run.py", "mdp=pong"]
    assert found["versions"]["python"] == sys.version.split()[0]
    assert {"evorl", "torch", "numpy", "gymnasium", "hydra-core", "ray"} <= found["versions"].keys()
    assert found["machine"]["cores"] >= 1 and found["machine"]["memory_gib"] > 0
    assert found["machine"].keys() == {"platform", "cpu", "kernels", "cores", "memory_gib"}  # no host name
    assert "someone" not in json.dumps(found)


def test_a_resumed_run_keeps_its_origin(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    for word in "abc":
        write_provenance(tmp_path, 0, [word])
    found = json.loads((tmp_path / "provenance.json").read_text())
    assert found["argv"] == ["a"] and [later["argv"] for later in found["resumed"]] == [["b"], ["c"]]


def test_imports_nothing_heavy() -> None:
    code = (
        "import sys; from evorl.record import core, provenance, terminal; provenance.provenance(0, ['x']);"
        "assert not {'torch', 'wandb', 'tensorboard', 'rich', 'ray', 'gymnasium', 'numpy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(["git", "-C", root, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def test_git_commit_and_dirt(tmp_path: Path) -> None:
    assert git(tmp_path) is None
    _git(tmp_path, "init")
    (tmp_path / "file").write_text("one")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-m", "one")
    commit = _git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "untracked").write_text("")
    assert git(tmp_path) == {"commit": commit, "dirty": False}
    (tmp_path / "file").write_text("two")
    assert git(tmp_path) == {"commit": commit, "dirty": True}


def test_git_that_hangs_or_is_missing_is_left_out(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / ".git").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git(tmp_path) is None  # missing
    fake = tmp_path / "git"
    fake.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setattr("evorl.record.provenance._GIT_TIMEOUT_S", 0.5)
    began = time.monotonic()
    assert git(tmp_path) is None
    assert time.monotonic() - began < 5


def test_no_user_name_in_what_we_add(monkeypatch) -> None:
    monkeypatch.setenv("LOGNAME", "zaphod-the-user")
    monkeypatch.setenv("A_SECRET", "zaphod-the-secret")
    assert getpass.getuser() == "zaphod-the-user"
    assert "zaphod" not in json.dumps(provenance(0, []))


def test_write_json_is_valid_json_in_place(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_json(path, {"a": [1, 2.5, None]})
    write_json(path, {"fitness": math.nan, "best": -math.inf, "x": 0.1, "n": 2**60, "deep": {"s": "é"}})
    expected = {"fitness": None, "best": None, "x": 0.1, "n": 2**60, "deep": {"s": "é"}}
    assert json.loads(path.read_text(), parse_constant=lambda word: 1 / 0) == expected
    assert [file.name for file in tmp_path.iterdir()] == ["result.json"]
