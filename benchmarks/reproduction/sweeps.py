"""What the reproducers share: their command line, sweeps of named experiments, and the runs of these.

A sweep is one command, ``evorl.run --multirun``; the same command goes on with a sweep that was stopped. It lies in a
folder of its own below that of the runs, which is runs/FOLDER/PROFILE for the programs of benchmarks/FOLDER.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import OURS, ROOT

from evorl.analysis.runs import RunRecord, find_runs, read_runs
from evorl.util.errors import BadRequest

TWO_AT_ONCE = ("hydra/launcher=ray", "hydra.launcher.ray.init.num_cpus=2")
"""A launcher for two cores; each job has one thread."""
CLUSTER = ("hydra/launcher=ray",)
"""A launcher for whatever Ray has; hydra.launcher.ray.init.address=auto joins a cluster."""
ALONE = ()
"""No launcher: the jobs follow each other in one process."""


class Sweep(NamedTuple):
    name: str
    """Of its folder."""
    words: tuple[str, ...]
    launcher: tuple[str, ...] = TWO_AT_ONCE


def command(sweep: Sweep, runs: Path, also: Sequence[str] = ()) -> list[str]:
    """The sweep as words of a command line."""
    place = f"hydra.sweep.dir={runs / sweep.name}"
    return [str(OURS), "-m", "evorl.run", "--multirun", *sweep.launcher, place, *sweep.words, *also]


def carry_out(sweep: Sweep, runs: Path, also: Sequence[str] = ()) -> bool:
    """Begin or go on with a sweep; whether all its jobs have finished."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled"}
    return subprocess.run(command(sweep, runs, also), cwd=ROOT, env=environment).returncode == 0


def runs_of(runs: Path, names: Sequence[str]) -> list[RunRecord]:
    """The runs of some sweeps, as far as they are."""
    try:
        return read_runs(find_runs([runs / name for name in names if (runs / name).is_dir()]))[0]
    except BadRequest:  # none has begun
        return []


class Asked(NamedTuple):
    """The command line of a reproducer."""

    profile: str
    runs: Path
    out: Path | None
    also: list[str]
    """Words for every job."""
    draw: bool


def asked(doc: str | None, sweeps: dict[str, list[Sweep]]) -> Asked:
    """Read the command line, and carry out its profile's sweeps; ``--print`` prints them and ends the program."""
    folder = Path(sys.argv[0]).resolve().parent.name
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in sweeps])
    parser.add_argument("also", nargs="*", metavar="KEY=VALUE", help="for every job; the last word for a key counts")
    parser.add_argument("--runs", type=Path, help=f"default runs/{folder}/PROFILE")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    parser.add_argument("--draw", action="store_true", help="make no runs")
    parser.add_argument("--print", action="store_true", help="print the commands of the sweeps, and do nothing")
    options = parser.parse_intermixed_args()
    profile = options.profile.partition("=")[2]
    runs = (options.runs or ROOT / "runs" / folder / profile).absolute()
    if options.print:
        for sweep in sweeps[profile]:
            print(shlex.join(command(sweep, runs, options.also)))
        raise SystemExit(0)
    done = [options.draw or carry_out(sweep, runs, options.also) for sweep in sweeps[profile]]
    if not all(done):
        print("some jobs have not finished; the same command goes on with them", file=sys.stderr)
    return Asked(profile, runs, options.out, options.also, options.draw)
