"""Other versions of Python, where they are installed: a new environment trains, evolves, films and reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # a new environment is 5 GB where PyTorch brings CUDA

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.12", "3.13")


def interpreter(version: str) -> str | None:
    """A Python of this version on the path, or one of pyenv."""
    found = shutil.which(f"python{version}")
    if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
        return found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return next((str(path / "bin" / "python") for path in sorted(pyenv.glob(f"{version}.*"))), None)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_new_environment_of_another_python_runs_everything(version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} here")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}

    def run(*words: str) -> None:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"

    place, tiny = tmp_path / "venv", "+debug=tiny mdp=cartpole"
    train = [f"VENV={place}", f"PYTHON={python}", f"ARGS={tiny} hydra.run.dir={tmp_path / 'run'}"]
    try:
        run("make", "train", *train)
        module, several = (str(place / "bin" / "python"), "-m"), ("ec=sga", "ec.population=4", "ec.lifetime=play")
        workers = ("cluster=processes", "cluster.workers=2")
        run(*module, "evorl.run", *tiny.split(), *several, *workers, f"hydra.run.dir={tmp_path / 'several'}")
        ray = ("cluster=ray", "cluster.workers=1", "rl.members=2")
        run(*module, "evorl.run", *tiny.split(), *ray, f"hydra.run.dir={tmp_path / 'ray'}")
        run(*module, "evorl.evaluate", f"run={tmp_path / 'run'}", "episodes=2", "video=true")
        run(*module, "evorl.report", str(tmp_path), f"out={tmp_path / 'report'}")
    finally:
        shutil.rmtree(place, ignore_errors=True)
