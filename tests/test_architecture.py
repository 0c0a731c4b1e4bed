"""What the code may and may not be made of."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "evorl").rglob("*.py"))
EXECUTING = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__"}
LOADERS = {("torch", "load"), ("np", "load"), ("numpy", "load"), ("torch", "save")}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def executed(tree: ast.AST) -> Iterator[str]:
    """Every place where bytes could become code."""
    yield from (name for name in imported(tree) if name.partition(".")[0] in EXECUTING)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield node.func.id
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from (f"{a}.{b}" for a, b in LOADERS if (node.value.id, node.attr) == (a, b))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield "allow_pickle"


@pytest.mark.parametrize(
    "text", ["import pickle", "from marshal import loads", "eval('1')", "torch.load(p)", "f(allow_pickle=True)"]
)
def test_the_gate_sees_what_executes(text: str) -> None:
    assert [*executed(ast.parse(text))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_bytes_are_data(path: Path) -> None:
    assert [*executed(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, node.name


@pytest.mark.parametrize("path", sorted((ROOT / "evorl" / "util").glob("*.py")), ids=lambda path: path.name)
def test_util_knows_nobody(path: Path) -> None:
    ours = [name for name in imported(ast.parse(path.read_text())) if name.partition(".")[0] == "evorl"]
    assert all(name.startswith("evorl.util") for name in ours), ours


def test_layers() -> None:
    done = subprocess.run([Path(sys.executable).parent / "lint-imports"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_start_up_is_light() -> None:
    """The doors' first line must not wait for torch and the like."""
    heavy = "{'torch', 'gymnasium', 'matplotlib', 'wandb', 'tensorboard', 'ray', 'rich'}"
    code = f"import sys, evorl.run, evorl.evaluate, evorl.report; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
