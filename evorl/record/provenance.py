"""``provenance.json``: what is needed to reproduce a run. It contains nothing about the user."""

from __future__ import annotations

import logging
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import evorl
from evorl.util import plugins, run_directory

_PACKAGES = (
    *("torch", "numpy", "gymnasium", "hydra-core", "omegaconf", "ray", "pyzmq", "msgspec"),
    *("mujoco", "ale-py", "box2d", "wandb", "tensorboard"),
)
POLICY_ONLY = "evaluation.json"
"""What a directory with a policy alone holds: its evaluation and its provenance (evorl/jobs/exported.py)."""
FILE_NAME = "provenance.json"
_log = logging.getLogger("evorl")
_GIT_TIMEOUT_S = 5.0  # usually it takes a hundredth of a second, on a busy machine it has taken more than a half


class Source(NamedTuple):
    """The checkpoint that a run with ``init=`` started from, wherever it lies."""

    step: int
    digest: str | None
    """Checksum of its manifest (`checkpoint.digest`); None in a run of an earlier version."""


def write_provenance(
    run_dir: Path,
    seed: int,
    words: Sequence[str],
    source: Source | None = None,
    packages: Sequence[str] = (),
) -> None:
    """Write ``provenance.json``; a resumed run appends to the list "resumed" of the existing file.

    ``words``: those of the run. ``packages``: root modules outside evorl whose code the run uses. A damaged file is set
    aside: a run goes on without it.
    """
    present = provenance(seed, words)
    if packages:
        present["plugins"] = plugins.versions(packages)
    if source is not None:
        present |= {"init_step": source.step, "init_digest": source.digest}
    if run_directory.exists_at_all(run_dir, FILE_NAME):
        try:
            first = run_directory.read_json(run_dir, FILE_NAME)
            first.setdefault("resumed", []).append(present)
            present = first
        except (OSError, ValueError, AttributeError) as error:
            aside = run_directory.set_aside(run_dir, FILE_NAME)
            _log.warning("%s is damaged (%s); it is kept as %s", FILE_NAME, error, aside)
    run_directory.write_json(run_dir, FILE_NAME, present)


def source_of(run_dir: Path) -> Source | None:
    """Return the checkpoint that a run started from (``init_step``, ``init_digest``); None if it has none."""
    try:
        known = run_directory.read_json(run_dir, FILE_NAME)
        step, digest = known.get("init_step"), known.get("init_digest")
    except (OSError, ValueError, AttributeError):
        return None
    return Source(step, digest if isinstance(digest, str) else None) if type(step) is int else None


def plugins_of(run_dir: Path) -> dict[str, str]:
    """Return the plugins that a run was last carried out with, and their versions; empty if it does not tell."""
    try:
        known = run_directory.read_json(run_dir, FILE_NAME)
        record = [known, *known.get("resumed", [])][-1].get("plugins", {})
        return {str(root): version for root, version in record.items() if isinstance(version, str)}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def provenance(seed: int, words: Sequence[str]) -> dict[str, Any]:
    """Return versions, git commit, program and words of the run, seed, machine, threads and the time (UTC)."""
    torch = sys.modules.get("torch")
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        # The program's path may contain a user name, and so may its words: those of a notebook, of a worker of Ray.
        "argv": [*(Path(program).name for program in sys.argv[:1]), *words],
        "seed": seed,
        "versions": versions(),
        "git": git(Path(evorl.__file__).parent.parent),
        "machine": machine(),
        "threads": torch.get_num_threads() if torch else None,
    }


def versions() -> dict[str, str]:
    """Return the versions of Python, evorl and the packages that can change a result, without importing them."""
    releases = {"python": platform.python_version(), "evorl": evorl.__version__}
    for name in _PACKAGES:
        try:
            releases[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return releases


def git(root: Path) -> dict[str, Any] | None:
    """Return the commit of a checkout and whether tracked files differ; None without a checkout or git."""
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=True,
            timeout=_GIT_TIMEOUT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # git must not write to the repository
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid")), None)
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


def machine() -> dict[str, Any]:
    """Return platform, processor, `kernels` (None if PyTorch is not loaded), cores and memory (GiB)."""
    return {
        "platform": platform.platform(),
        "cpu": _cpu(),
        "kernels": kernels() if "torch" in sys.modules else None,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def kernels() -> str:
    """Return the instructions that PyTorch's kernels use, such as AVX2. Those for others give other last bits."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
