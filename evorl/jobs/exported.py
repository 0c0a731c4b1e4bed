"""A policy as a small run directory of its own, without optimisers, replay, records and games in flight.

It holds ``.hydra/config.yaml``, one checkpoint, and ``evaluation.json`` with the measurements of ``evorl.evaluate`` and
their conditions. ``evorl.evaluate run=DIR`` gives the same numbers again, and ``init=DIR`` starts a run from it. It
cannot be resumed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evorl.cli.config import read_run_config
from evorl.jobs.job import CONFIG, config_yaml
from evorl.record import checkpoint, provenance
from evorl.record.provenance import POLICY_ONLY
from evorl.rl.core import inherited
from evorl.util import run_directory
from evorl.util.names import making
from evorl.util.stop import signals_wait
from evorl.util.types import StateDict


@signals_wait()
def export(target: Path, run_dir: Path, policy: StateDict, report: Mapping[str, Any]) -> None:
    """Write a learner's policy (of its state), evaluated in ``report``, to a new directory, at once or not at all.

    Its config has the report's seed and number of episodes. A policy of a population becomes that of a single run.
    """
    config = read_run_config(run_dir, "run") | {"ec": {}, "init": None, "replay": None, "resume": None}
    config |= {"seed": report["seed"], "eval": {**config["eval"], "episodes": report["episodes"]}}
    step = int(report["step"])
    state = {"policy": policy["policy"], "moments": policy["moments"], **inherited(policy)}
    versions = provenance.versions()
    made = {name: versions[name] for name in ("python", "torch", "numpy", "gymnasium")}
    made |= {"cpu": provenance.machine()["cpu"], "kernels": provenance.kernels()}

    with making(target, "export"):
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        checkpoint.save(new, step, {"run": {"steps": step, "best": [report["fitness"], step], "learner": state}}, 1)
        run_directory.make_folder(new, ".hydra")
        run_directory.replace(new, CONFIG, config_yaml(config))
        run_directory.write_json(new, POLICY_ONLY, {**report, "made": made})
        new.chmod(0o755)
        new.rename(target)  # which may be there, and empty
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
