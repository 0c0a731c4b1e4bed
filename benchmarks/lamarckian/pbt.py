"""PBT + PPO on vector Pong: ours against Ray Tune's PBT over RLlib's PPO, in turn on the same cores, seed by seed.

Both have the same world, population, genes (critic weight in [0, 1], learning rate in [1e-5, 0.01]), network and steps
of training between two decisions of a member. Ours is ``evorl.run +experiment=lamarckian/pbt_pong`` in as many worker
processes as there are cores, with PPO as in conf/tuned/pong_ppo (256 games, whitened inputs) and rl.compile=true; what
the peer has stands in tune.py. The compiler's work is done before, as for whoever ran it once (its seconds are told);
then the clock runs from the command, start-up included, until the fitness 0.8 (12 points of 20 ahead) or the cut-off:
ours is the mean of 60 games of the deterministic policy, which take time too, the peer's the mean of the last 100
training games. Steps are those of training alone, over the whole population: per second between the first and the last
result, in all up to the first result with that fitness. The last row has the medians of the seeds' ratios.

    python benchmarks/lamarckian/pbt.py profile=ci|paper [--seeds N] [--seconds S] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "speed"))

from common import OURS, PEERS, ROOT, machine, page, save, start
from ours import experiment
from solve import rows

from evorl.cluster.local import Local
from evorl.training.train import Run

OUR_NAME, PEER_NAME = "evorl", "Ray Tune + RLlib"
FITNESS, ROUNDS = 0.8, 20
EPISODES = 60


class Profile(NamedTuple):
    seeds: int
    population: int
    interval: int
    """Steps of training between two decisions of a member."""
    seconds: float
    """Cut-off."""


PROFILES = {"ci": Profile(2, 4, 262_144, 900.0), "paper": Profile(1, 30, 1_000_000, 3600.0)}
Result = tuple[float, int, float]
"""Seconds since the command, training steps of the whole population, best fitness so far."""


OWN = ("+experiment=lamarckian/pbt_pong", "rl.compile=true")


def compiling() -> float:
    """Seconds of a run's first batch, for which the gradient step is compiled."""
    run = Run(replace(experiment(OWN), ec=None, cluster=Local()))
    began = time.perf_counter()
    run.iterate()
    run.close()
    return time.perf_counter() - began


def ours(profile: Profile, seed: int) -> list[Result]:
    with TemporaryDirectory() as folder:
        place = Path(folder) / "run"
        words = [
            *OWN, f"ec.population={profile.population}",
            f"ec.train_steps={profile.interval}", "cluster=processes", f"cluster.workers={os.cpu_count()}",
            f"seed={seed}", f"hydra.run.dir={place}",
        ]  # fmt: skip
        began = time.perf_counter()
        process = subprocess.Popen([OURS, "-m", "evorl.run", *words], cwd=ROOT, stdout=subprocess.DEVNULL)
        found: list[Result] = []
        try:
            steps, best = 0, 0.0
            for row in rows(place / "population.jsonl", process):
                steps += row["cost"] - round(EPISODES * row["results"]["length"])
                best = max(best, row["objectives"]["fitness"])
                found.append((time.perf_counter() - began, steps, best))
                if best >= FITNESS or found[-1][0] > profile.seconds:
                    return found
        finally:
            process.terminate()
            process.wait()
    raise SystemExit(f"evorl.run {' '.join(words)} ended with {process.returncode}")


def peer(profile: Profile, seed: int) -> tuple[list[Result], dict[str, str]]:
    net = experiment(OWN).rl.net
    settings = {
        "seconds": profile.seconds, "fitness": FITNESS, "rounds": ROUNDS, "population": profile.population,
        "interval": profile.interval, "seed": seed, "began": time.time(), "net": {
            "fcnet_hiddens": list(net.hidden), "fcnet_activation": net.activation, "vf_share_layers": net.shared,
        },
    }  # fmt: skip
    process = start(PEERS, str(Path(__file__).resolve().parent / "tune.py"), json.dumps(settings))
    assert process.stdout is not None
    lines = [line for line in process.stdout if line.startswith('{"rows"')]
    if process.wait() or not lines:
        raise SystemExit(f"tune.py ended with {process.returncode}")
    said = json.loads(lines[0])
    return [(t, steps, best) for t, steps, best in said["rows"]], said["versions"]


def rate(found: list[Result]) -> float:
    (began, before, _), (ended, after, _) = found[0], found[-1]
    return (after - before) / (ended - began)


def arrival(found: list[Result]) -> Result:
    """The first result at the fitness, else the last one."""
    return next((one for one in found if one[2] >= FITNESS), found[-1])


def row(name: str, found: list[Result], own: list[Result]) -> list[str]:
    """Of the table; times are lower bounds where the fitness was never reached."""
    seconds, steps, best = arrival(found)
    sign = "" if best >= FITNESS else ">= "
    ratio = rate(own) / rate(found)
    ours_seconds, _, ours_best = arrival(own)
    time_ratio = f"{sign}{seconds / ours_seconds:.1f}" if ours_best >= FITNESS else "evorl not there"
    return [
        name,
        f"{rate(found):,.0f}",
        f"{ratio:.1f}",
        f"{sign}{seconds:.0f}",
        time_ratio,
        f"{best:.3f}",
        f"{steps:,}",
    ]


def middle(cells: list[str]) -> str:
    """The median of ratios as they are shown: some may be lower bounds, or words where ours missed the fitness."""
    if not all(cell.removeprefix(">= ").replace(".", "").isdigit() for cell in cells):
        return "-"
    bounds = sorted((float(cell.removeprefix(">= ")), cell) for cell in cells)
    lower = any(cell.startswith(">=") for _, cell in bounds[: len(bounds) // 2 + 1])
    return f"{'>= ' if lower else ''}{median([number for number, _ in bounds]):.1f}"


def shown(data: dict[str, Any]) -> list[str]:
    """The page of what was measured, as its JSON file has it."""
    header = [
        f"PBT + PPO, population {data['profile']['population']}", "steps per second", "evorl's over it",
        f"seconds to fitness {FITNESS}", "over evorl's", "best fitness", "training steps",
    ]  # fmt: skip
    table = []
    for one in data["runs"]:
        table += [row(f"{name}, seed {one['seed']}", one[name], one[OUR_NAME]) for name in (OUR_NAME, PEER_NAME)]
    peers = table[1::2]
    ratios = [middle([cells[column] for cells in peers]) for column in (2, 4)]
    table.append(["median of the ratios", "", f"**{ratios[0]}**", "", f"**{ratios[1]}**", "", ""])
    return page("PBT + PPO on vector Pong", __doc__, header, table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", choices=[f"profile={name}" for name in PROFILES])
    parser.add_argument("--seconds", type=float, help="cut-off of each, instead of the profile's")
    parser.add_argument("--seeds", type=int, help="how many, instead of the profile's")
    parser.add_argument("--out", type=Path, help="folder for the results, else they are only printed")
    options = parser.parse_args()
    profile = PROFILES[options.profile.partition("=")[2]]
    profile = profile._replace(seconds=options.seconds or profile.seconds, seeds=options.seeds or profile.seeds)
    facts: dict[str, Any] = machine()
    data: dict[str, Any] = {"profile": profile._asdict(), "runs": []}
    with TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        facts["compiler, before the clock"] = f"{compiling():.0f} s"
        for seed in range(profile.seeds):
            facts[f"load before seed {seed}"] = round(os.getloadavg()[0], 2)
            own = ours(profile, seed)
            print(f"seed {seed}: {own[-1]}", flush=True)
            theirs, facts["peers"] = peer(profile, seed)
            data["runs"].append({"seed": seed, OUR_NAME: own, PEER_NAME: theirs})
            save(options.out, facts, shown(data), data)  # a later seed may be stopped


if __name__ == "__main__":
    main()
