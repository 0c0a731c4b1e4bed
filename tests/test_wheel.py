"""The wheel carries everything: installed without the checkout, it trains from any directory."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", place], cwd=ROOT, check=True, capture_output=True)
    return place


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    return next(dist.glob("evorl_suite-*.whl"))


@pytest.fixture(scope="module", params=["the wheel by pip", "the source distribution by uv"])
def clean(request: pytest.FixtureRequest, dist: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with evorl and our dependencies (by path), but not the checkout."""
    place = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (place / "lib" / version / "site-packages" / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if request.param.endswith("pip"):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "-q", "install"]
        install = [*pip, "--no-index", "--no-deps", wheel]
    else:
        source = next(dist.glob("evorl_suite-*.tar.gz"))
        uv = [Path(sys.executable).parent / "uv", "pip", "install", "--python", python]
        install = [*uv, "--offline", "--no-cache", "--no-deps", "--no-build-isolation", "--reinstall", source]
    done = subprocess.run(install, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "bin"


def test_every_config_file_is_in_the_wheel(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"evorl/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")} <= inside
    clients = {f"evorl/clients/{path.relative_to(ROOT / 'clients')}" for path in (ROOT / "clients").rglob("*.*")}
    assert {f"evorl/templates/{path.name}" for path in (ROOT / "evorl" / "templates").iterdir()} <= inside
    assert {name for name in clients if "__pycache__" not in name} <= inside
    assert not any(name.startswith("tests/") for name in inside)
    assert [name for name in inside if name.startswith("hydra_plugins/")] == ["hydra_plugins/evorl_sweeper.py"]


def test_it_trains_from_another_directory(clean: Path, tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True)

    where = run(str(clean / "python"), "-c", "import evorl.cli.config; print(evorl.cli.config.CONF)")
    assert Path(where.stdout.strip()).is_relative_to(clean.parent), where
    done = run(str(clean / "evorl"), "run", "+debug=tiny", "mdp=cartpole", "budget.steps=512", "hydra.run.dir=here")
    assert done.returncode == 0, done.stderr
    evaluated = run(str(clean / "evorl"), "evaluate", "run=here", "episodes=2")
    assert evaluated.returncode == 0, evaluated.stderr
    told = run(str(clean / "evorl"), "report", "here", "out=told")
    assert told.returncode == 0, told.stderr
    tables = run(str(clean / "evorl"), "reproduce")
    assert tables.returncode == 2 and tables.stderr.count("\n") == 1 and "clone the repository" in tables.stderr
    assert (tmp_path / "here" / "result.json").is_file() and (tmp_path / "told" / "index.html").is_file()
