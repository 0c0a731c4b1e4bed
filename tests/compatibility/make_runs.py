"""Keep small runs of this release for later ones: ``python tests/compatibility/make_runs.py`` in its checkout.

It writes ``VERSION/NAME/``, what is needed of the directory of a run, sweep or search, and ``VERSION/NAME.json``, what
the policy of a run does. What is there already is never written again: it is what later releases promise to read.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import torch  # noqa: E402
from plugin_packages import add_metadata, on_path  # noqa: E402

import evorl  # noqa: E402
from evorl.api.policy import Policy  # noqa: E402
from evorl.nets.distributions import draw_noise  # noqa: E402
from evorl.record.provenance import kernels, machine  # noqa: E402
from evorl.run import main as run  # noqa: E402
from evorl.util import seed as seeds  # noqa: E402

FROZEN = sorted(HERE.glob("frozen_*"))
SMALL = ("record.tensorboard=false", "eval.every=0", "eval.episodes=2", "checkpoint.keep=1", "seed=5")
LEARNER = ("rl.slots=4", "rl.horizon=32", "rl.net.hidden=[8]", "budget.steps=512", "checkpoint.every=0")
RUNS = {
    "ppo": ("mdp=cartpole", "rl=ppo", "rl.minibatch=64", "rl.normalize_inputs=true", *LEARNER),
    "population": (
        *("mdp=cartpole", "rl=ppo", "ec=pbt", "ec.population=3", "ec.episodes=1", "ec.train_steps=128"),
        *("eval.candidates=2", "rl.minibatch=64", "+ec.genes.rl.gamma=[0.9,0.99]", *LEARNER),
    ),
    "plugin": ("mdp=frozen_lab", "rl=frozen_lab", "rl.minibatch=64", *LEARNER),
    "network": (
        *("mdp=cartpole", "rl=ppo", "rl.minibatch=64", "rl.normalize_inputs=whiten"),
        *("rl.net.encoder=frozen_net", "+rl.net.own.frozen_net.waves=4", *LEARNER),
    ),
    "replay": (
        *("mdp=cartpole", "rl=dqn", "~tuned", "rl.sampling=prioritized", "rl.capacity=256", "rl.warm_up=64"),
        *("rl.batch=8", "rl.net.hidden=[8]", "budget.steps=256", "checkpoint.every=0"),
    ),
}
"""The words of each run, by name."""
JOBS = ("--multirun", "mdp=cartpole", "rl=ppo", "rl.minibatch=64", *LEARNER)
SEVERAL = {
    "sweep": (*JOBS, "rl.gamma=0.9,0.99"),
    "search": (
        *(*JOBS, "rl.lr=tag(log,interval(1e-4,1e-2))", "hydra/sweeper=evorl", "hydra.sweeper.jobs=3"),
        "hydra.sweeper.evolver.population=3",
    ),
}
"""The words of each sweep and search, by name."""
KEPT = ("metrics.jsonl", "population.jsonl", "result.json", "checkpoints", "sweep.json", "search.json", "best.json")


def installed(place: Path) -> list[Path]:
    """Copy the frozen plugins to a place, with the metadata of installed distributions; return what is to be on the
    path."""
    return [add_metadata(Path(shutil.copytree(plugin, place / f"of_{plugin.name}"))) for plugin in FROZEN]


def rounding() -> dict[str, str]:
    """What decides the last bits of PyTorch's sums: instructions, and the processor's maker, by whom MKL chooses."""
    return {"kernels": kernels(), "maker": re.split(r"\W", machine()["cpu"])[0]}


def decisions(policy: Policy) -> dict[str, Any]:
    """What a policy does on eight observations: deterministic actions, drawn actions, log-probabilities, values."""
    shape = policy.spec.inputs[0].shape
    seen = seeds.generator("compatibility").uniform(-0.2, 0.2, (8, *shape)).astype(np.float32)
    noise = torch.from_numpy(draw_noise(policy.spec.action, seeds.generator("compatibility", 1), (8,)))
    drawn = policy.learner.act((torch.from_numpy(seen),), None, noise, None, None)
    return {
        "observations": seen.tolist(), "actions": policy.act(seen), "drawn": drawn.played[:, 0].tolist(),
        "log_prob": drawn.log_prob.tolist(), "value": drawn.value[:, 0].tolist(), **rounding(),
    }  # fmt: skip


def keep(directory: Path, place: Path) -> None:
    """Copy what is needed of a directory of a run, sweep or search: nothing of the machine that made it."""
    place.mkdir(parents=True)
    for name in KEPT:
        if (directory / name).is_dir():
            shutil.copytree(directory / name, place / name, symlinks=True)
        elif (directory / name).exists():
            shutil.copy(directory / name, place / name)
    for job in directory.glob("[0-9]*"):
        keep(job, place / job.name)
    if (directory / ".hydra").exists():
        _keep_config(directory, place)


def _keep_config(directory: Path, place: Path) -> None:
    (place / ".hydra").mkdir()
    shutil.copy(directory / ".hydra" / "config.yaml", place / ".hydra")
    chosen = yaml.safe_load((directory / ".hydra" / "hydra.yaml").read_text())["hydra"]["runtime"]["choices"]
    (place / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump({"hydra": {"runtime": {"choices": chosen}}}))
    made = json.loads((directory / "provenance.json").read_text())
    known = {key: made[key] for key in ("seed", "versions", "plugins") if key in made}
    (place / "provenance.json").write_text(json.dumps(known, indent=1) + "\n")


def make() -> None:
    """Make the runs that this release lacks."""
    release = HERE / evorl.__version__
    with tempfile.TemporaryDirectory() as folder, on_path(*installed(Path(folder))):
        for name, words in {**RUNS, **SEVERAL}.items():
            if (release / name).exists():
                continue
            directory = Path(folder) / name
            key = "hydra.run.dir" if name in RUNS else "hydra.sweep.dir"
            assert run([*words, *SMALL, f"{key}={directory}"]) == 0
            keep(directory, release / name)
            if name in RUNS:
                told = decisions(evorl.load(release / name).policy)
                (release / f"{name}.json").write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    make()
