"""A policy as a small run directory of its own, without optimisers, replay, records and games in flight.

It holds ``.hydra/config.yaml``, one checkpoint, and ``evaluation.json`` with what ``evorl.evaluate`` told of the policy
and where. ``evorl.evaluate run=DIR`` tells the same again, and ``init=DIR`` starts a run from it. It cannot be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evorl.cli.config import read_run_config
from evorl.jobs.job import POLICY_ONLY, config_yaml
from evorl.record import checkpoint, provenance
from evorl.rl.core import inherited
from evorl.util import files
from evorl.util.types import StateDict


def export(target: Path, run_dir: Path, policy: StateDict, report: Mapping[str, Any]) -> None:
    """Write a learner's policy (of its state), evaluated in ``report``, to a new directory.

    A policy of a population becomes that of a single run.
    """
    config = read_run_config(run_dir, "run") | {"ec": {}, "init": None, "replay": None, "resume": None}
    step = int(report["step"])
    state = {"policy": policy["policy"], "moments": policy["moments"], **inherited(policy)}
    checkpoint.save(target, step, {"run": {"steps": step, "best": [report["fitness"], step], "learner": state}}, 1)
    (target / ".hydra").mkdir()
    files.replace(target / ".hydra" / "config.yaml", config_yaml(config))
    versions = provenance.versions()
    made = {name: versions[name] for name in ("python", "torch", "numpy", "gymnasium")}
    files.write_json(
        target / POLICY_ONLY,
        {**report, "made": {**made, "cpu": provenance.machine()["cpu"], "kernels": _kernels()}},
    )


def _kernels() -> str:
    """The instructions that torch uses; other ones round differently."""
    import torch

    return torch.backends.cpu.get_cpu_capability()
