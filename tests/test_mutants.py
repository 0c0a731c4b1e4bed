"""The list of planted defects, and the program that plants them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from mutants import LIST, ROOT, Defect, defects, selection

LEAST = 64


def test_every_defect_can_be_planted() -> None:
    assert [defect.what for defect in defects() if not can_be_planted(defect)] == [], "choose another text, or defect"


def can_be_planted(defect: Defect) -> bool:
    """Whether its text occurs once, and its tests are there."""
    tests = [(ROOT / file, test or "test_") for file, _, test in (one.partition("::") for one in defect.tests)]
    known = all(path.name.startswith("test_") and f"def {test}" in path.read_text() for path, test in tests)
    return known and defect.old != defect.new and (ROOT / defect.file).read_text().count(defect.old) == 1


def test_every_package_has_defects() -> None:
    packages = {path.parent.name for path in ROOT.glob("evorl/*/__init__.py")}
    counts = Counter(Path(defect.file).parts[1] for defect in defects())
    assert packages <= {package for package, count in counts.items() if count > 1}
    assert counts.total() >= LEAST


def test_the_selection_is_that_of_make_test() -> None:
    command = subprocess.run(["make", "-n", "tests"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f'-m "{selection()}"' in command


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository: two defects, of which the only fast test notices one."""
    files = {
        "Makefile": "FAST := not slow\n",
        "conftest.py": "from hypothesis import settings\n\nsettings.register_profile('unshrunk')\n",
        "pytest.ini": "[pytest]\nmarkers = slow\n",
        "sums.py": "def plus(a, b):\n    return a + b\n\n\ndef minus(a, b):\n    return a - b\n",
        "test_sums.py": (
            "import pytest\nfrom sums import minus, plus\n\n\ndef test_plus():\n    assert plus(1, 2) == 3\n\n\n"
            "@pytest.mark.slow\ndef test_minus():\n    assert minus(1, 2) == -1\n"
        ),
        LIST: "".join(
            f'[[defect]]\nfile = "sums.py"\nold = "{old}"\nnew = "{new}"\ntests = ["test_sums.py"]\nwhat = "{old}"\n'
            for old, new in (("a + b", "a - b"), ("a - b", "a * b"))
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def begun(checkout: Path, copies: Path) -> subprocess.Popen[str]:
    """The program with all defects of a checkout, and its copies in a folder."""
    copies.mkdir()
    code = (
        f"from pathlib import Path\nimport mutants\nmutants.FORKED_WITH = ()\nmutants.run([], Path({str(checkout)!r}))"
    )
    environment = {"PYTHONPATH": str(ROOT / "tests"), "TMPDIR": str(copies), "PATH": "/usr/bin:/bin"}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_defect_that_no_fast_test_notices_survives(checkout: Path, tmp_path: Path) -> None:
    before = (checkout / "sums.py").read_text()
    program = begun(checkout, tmp_path / "copies")
    lines = program.communicate(timeout=60)[0].splitlines()
    assert program.returncode == 1
    assert lines[0].startswith("without a defect: exit code 0")
    assert lines[1].startswith("caught   sums.py: a + b") and lines[2].startswith("SURVIVED sums.py: a - b")
    assert lines[-1] == "1 of 2 defects caught"
    assert (checkout / "sums.py").read_text() == before and not [*(tmp_path / "copies").iterdir()]


def test_nothing_is_planted_where_tests_fail_without_a_defect(checkout: Path, tmp_path: Path) -> None:
    (checkout / "sums.py").write_text("def plus(a, b):\n    return a * b\n\n\ndef minus(a, b):\n    return a * b\n")
    program = begun(checkout, tmp_path / "copies")
    told = program.communicate(timeout=60)[0]
    assert program.returncode == 1
    assert told.startswith("without a defect: exit code 1") and "defects caught" not in told


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_neither_copies_nor_processes(checkout: Path, tmp_path: Path, number: int) -> None:
    sleep = "import os, subprocess, sys\nfrom pathlib import Path\n\nPath('began').write_text(str(os.getpid()))\n"
    (checkout / "test_sums.py").write_text(
        f"{sleep}subprocess.run([sys.executable, '-c', 'import time; time.sleep(99)'])\n"
    )
    program = begun(checkout, tmp_path / "copies")
    while not (began := [*(tmp_path / "copies").glob("*/began")]) or not (group := began[0].read_text()):
        assert program.poll() is None
        time.sleep(0.05)
    program.send_signal(number)
    program.communicate(timeout=60)
    assert program.returncode == 128 + number
    assert not [*(tmp_path / "copies").iterdir()]
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # what was killed may not have been waited for yet
        try:
            os.killpg(int(group), 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("processes are left")
