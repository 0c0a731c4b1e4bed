"""Compare two checkouts of evorl: the same commands must leave the same bits.

``python scripts/compare_checkouts.py BEFORE AFTER [--out DIR] [--only WORD] [--jobs N] [--renamed OLD=NEW ...]
[--skip PATTERN ...]``

Each case runs its first commands in both checkouts, each in a folder of its own, and compares what they leave. Then it
copies the folder of BEFORE, runs the later commands (resume, evaluate, report, ...) with BEFORE in the folder and with
AFTER in the copy, and compares again. Only what the clock says may differ, and keys of checkpoints by ``--renamed``.
Versions whose configs have other keys are compared by their numbers: ``--skip '*.yaml' '*.json' '*.safetensors'``.
The interpreter of this program runs them.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

# ------------------------------------------------------------------ what may differ

TIMES = {
    "*.jsonl": {"time", "seconds", "speed"},  # speed/*: steps per second, seconds of sampling and updates, waits
    "jobs.jsonl": {"began", "trained", "ended", "worker"},  # whichever worker is free takes a job
    "result*.json": {"seconds", "steps_per_second"},
    # offsets in files whose lines hold times; seconds of jobs
    "state.json": {"recorder.time", "recorder.offset", "recorder.told", "recorder.files", "run.clock"},
    "manifest.json": {"sha256", "files.state.json"},  # checksums of the times in state.json
    "*.csv": {"seconds", "steps_per_second"},
}
"""Keys that depend on the clock, by file. A key is written with dots, and counts with all that lies below it."""

CHECKSUMS = {"file", "files.tensors.safetensors"}
"""Those of files that hold keys of checkpoints, which may have been renamed."""

READINGS = {"hardware"}
"""Keys of readings, which only some rows have."""

SKIPPED = ("provenance.json", "hydra.yaml", "multirun.yaml", "events.out.*", ".lock", "*.html", "*.md", "*.[ps][nv]g")
"""Files that are not compared: they name commits, commands and folders, or show what is compared elsewhere."""

# ------------------------------------------------------------------ the table


@dataclass(frozen=True)
class Case:
    """Commands that both checkouts run. The first word is run, evaluate or report."""

    first: tuple[str, ...]
    later: tuple[str, ...] = ()
    repeats: bool = True  # whether the first commands leave the same bits twice; else only BEFORE runs them


TINY = "run +debug=tiny record.tensorboard=false checkpoint.every=700"
EVOLVE = f"{TINY} rl.slots=4 rl.horizon=16 rl.minibatch=32 rl.passes=2 rl.net.hidden=[8] ec.population=6 ec.episodes=3"
SHARE = (
    f"{TINY} mdp=pendulum mdp.time_limit=50 rl=td3 rl.net.hidden=[8] rl.batch=16 rl.warm_up=200 rl.capacity=1000 "
    "ec.population=4 ec.critic_ratio=0.2 ec.actor_ratio=0.1"
)
PONG = "mdp=pong mdp.rounds=2 mdp.round_steps=60"
ATARI = "mdp=atari mdp.size=36 mdp.time_limit=40 rl.slots=2"
MIXTURE = "'rl.sampling={queue:0.25,uniform:0,elite:0.25,attentive:0.25,prioritized:0.25}'"
TRAIN = "ec.lifetime=train ec.train_steps=128 '+ec.genes.rl.lr={low:1e-4,high:1e-2,log:true}'"
SEARCH = "mdp=cartpole budget.steps=600 hydra/sweeper=evorl 'rl.lr=tag(log,interval(1e-4,1e-2))'"
SWEEP = f"{TINY} --multirun hydra.sweep.dir=sweep"
EVALUATE = "evaluate run=run episodes=3"
PICTURES = "report run out=report"

LEARNERS = f"""
ppo                  1500 mdp=cartpole rl=ppo eval.every=700
ppo-continuous       1500 mdp=pendulum rl=ppo rl.normalize_inputs=true rl.normalize_rewards=true
ppo-lstm             1500 mdp=cartpole rl=ppo rl.net.lstm=8 rl.members=2
ppo-limits           1500 {PONG} rl=ppo rl.value_clip=0.2 rl.target_kl=0.01 rl.net.shared=true
ppo-schedules        1500 {PONG} 'rl.lr={{start:3e-3,end:0,steps:4e3}}' 'rl.entropy_coef={{start:1e-2,end:0,steps:4e3}}'
ppo-whiten           1500 {PONG} rl.normalize_inputs=whiten rl.net.output=tanh rl.net.activation=silu
ppo-std-of-state     1500 mdp=pendulum rl=ppo rl.net.std=state
ppo-asynchronous     1500 mdp=cartpole rl=ppo rl.asynchronous=true rl.correction=vtrace rl.members=3
a2c                  1500 mdp=cartpole rl=a2c rl.normalize_advantage=true
a2c-continuous       1500 mdp=pendulum rl=a2c rl.normalize_inputs=true rl.net.bias=false
a2c-lstm             1500 mdp=duel rl=a2c rl.net.lstm=8
a2c-asynchronous     1500 mdp=pendulum rl=a2c rl.asynchronous=true rl.correction=vtrace rl.members=2
a3c                  1500 mdp=cartpole rl=a3c rl.members=2
a3c-lstm             1500 mdp=pendulum rl=a3c rl.members=2 rl.net.lstm=8
reinforce            1500 mdp=cartpole rl=reinforce
reinforce-continuous 1500 mdp=pendulum rl=reinforce rl.baseline=false rl.normalize_rewards=true
reinforce-lstm       1500 mdp=cartpole rl=reinforce rl.net.lstm=8 rl.normalize_inputs=whiten
td3                  1500 mdp=pendulum rl=td3 rl.warm_up=200 rl.batch=16
sac-attentive        1500 mdp=pendulum rl=sac rl.warm_up=200 rl.batch=16 rl.sampling=attentive
dqn                  1500 mdp=cartpole rl=dqn rl.warm_up=200 rl.batch=16
dqn-attentive        1500 mdp=cartpole rl=dqn rl.warm_up=200 rl.batch=16 rl.sampling=attentive
dqn-prioritized      1500 mdp=cartpole rl=dqn rl.warm_up=200 rl.batch=16 rl.sampling=prioritized rl.distribution=c51
r2d2                 1500 mdp=cartpole rl=r2d2 rl.warm_up=200 rl.batch=8 rl.length=4 rl.burn_in=2 rl.net.lstm=8
vtrace               1500 mdp=cartpole rl=vtrace rl.slots=4 rl.horizon=8 rl.batch=8 rl.fill_in=16
vtrace-mixture       1500 mdp=cartpole rl=vtrace rl.slots=4 rl.horizon=8 rl.batch=8 rl.fill_in=16 {MIXTURE}
impact               1500 mdp=cartpole rl=impact rl.slots=4 rl.horizon=8 rl.batch=8 rl.asynchronous=false
pong-self            1500 {PONG} mdp.opponent=self mdp.reward.lazy=0.1
pong-battle           600 {PONG} 'mdp.delay_ms=[0,0.1]'
duel                 1500 mdp=duel mdp.ground.limit=10 'rl.gamma={{damage:0.99,win:1.0}}'
halfcheetah          1500 mdp=halfcheetah mdp.time_limit=100
marvin               1500 mdp=marvin mdp.time_limit=100
gymnasium            1500 mdp=gymnasium mdp.id=MountainCarContinuous-v0 mdp.frame_skip=2 mdp.time_limit=100
gymnasium-vector     1500 mdp=gymnasium mdp.id=CartPole-v1 mdp.vector=true
atari                 256 {ATARI} rl.net.shared=true rl.minibatch=64
atari-lstm            256 {ATARI} rl=a2c rl.net.lstm=8
processes            1500 mdp=cartpole rl.members=3 cluster=processes cluster.workers=2 rl.normalize_inputs=true
ray                  1500 mdp=cartpole rl.members=2 cluster=ray cluster.workers=2
"""
"""Runs of a learner: the name, the budget (a resume has half as much more) and the words."""

POPULATIONS = f"""
pbt-asynchronous     3000 mdp=cartpole ec=pbt ec.inherit_optimizer=true {TRAIN}
sga-asynchronous     1000 mdp=cartpole ec=sga ec.asynchronous=true ec.together=2 rl.normalize_inputs=true
es-limits            1500 mdp=cartpole ec=openai_es rl.normalize_inputs=true ec.cap=1.2 ec.slots=4 ec.optimizer=sgd
steady-state         1000 mdp=cartpole ec=sga ec.offspring=1 ec.slots=3 ec.together=1 rl.net.lstm=4
genes-of-the-world   4000 {PONG} ec=sga '+ec.genes.mdp.bat_speed=[2,6]' ec.seeds=fresh ec.weights=layers
front                4000 {PONG} ec=nsga2 'ec.objectives=[{{fitness:1,lazy:1}},{{fitness:1,busy:1}}]' ec.episodes=2
problem                60 mdp=problem ec=cma_es
problem-dtlz2          60 mdp=problem mdp.id=dtlz2 mdp.dimensions=7 ec=nsga3 ec.divisions=2
problem-zdt5           40 mdp=problem mdp.id=zdt5 mdp.dimensions=80 ec=nsga2 ec.offspring=1
es-processes         1000 mdp=cartpole ec=openai_es cluster=processes cluster.workers=2
sga-processes        3000 mdp=cartpole ec=sga cluster=processes cluster.workers=2 {TRAIN}
nsga2-ray              60 mdp=problem mdp.id=zdt1 mdp.dimensions=5 ec=nsga2 cluster=ray cluster.workers=2
"""
"""Runs of a population, likewise. An asynchronous one has an order of its own in one process."""

SHARED = """
cem_rl               1200 ec=cem_rl ec.trained=2
cem_rl-processes     1200 ec=cem_rl ec.trained=2 ec.warm_up_actions=told cluster=processes cluster.workers=2
p_cem_rl             1200 rl=sac ec=p_cem_rl ec.trained=4 ec.train_together=2
p_cem_rl-beside      1200 ec=p_cem_rl ec.trained=2 ec.parallel_critic=true ec.critic_job=30
acem_rl              1200 rl=ddpg ec=acem_rl ec.slots=3 ec.critic_job=30
one_plus_one_rl      1200 ec=one_plus_one_rl ec.mean_episodes=2 ec.critic_job=30
aes_rl               1200 ec=aes_rl ec.slots=3 ec.scale=200 ec.critic_job=30 ec.critics=2 ec.max_critic_lag=200
"""
"""Runs of a population with a shared critic, likewise."""

EVOLVERS = {
    **dict.fromkeys(("cem", "cma_es", "cso", "openai_es", "pso", "random", "sga"), ""),
    **dict.fromkeys(("nsga2", "nsga3"), "'ec.objectives=[fitness,{length:-1}]'"),
    "map_elites": "'+ec.descriptors={length:[0,500,5]}'",
    "one_plus_one": "ec.population=3",
    "pbt": "ec.asynchronous=false",
}
"""What each evolver needs beside its name, for policies that play and for learners that train."""

THEN = {
    **dict.fromkeys(("ppo", "front", "pbt-asynchronous"), (EVALUATE, PICTURES)),
    **dict.fromkeys(("ppo-continuous", "ppo-lstm", "duel", "openai_es", "sga-train", "map_elites"), (EVALUATE,)),
    "problem": (EVALUATE,),
}
"""What is done with some of them after the resume."""


def runs(start: str, table: str) -> dict[str, Case]:
    """The cases of a table: a run, its resume, and what is done with it then."""
    cases = {}
    for line in table.strip().splitlines():
        name, steps, words = line.split(maxsplit=2)
        first = f"{start} {words} budget.steps={steps} hydra.run.dir=run"
        cases[name] = Case((first,), (f"run resume=run budget.steps={int(steps) * 3 // 2}", *THEN.get(name, ())))
    return cases


CASES = runs(TINY, LEARNERS) | runs(EVOLVE, POPULATIONS) | runs(SHARE, SHARED)
for evolver, needs in EVOLVERS.items():
    CASES |= runs(EVOLVE, f"{evolver} 1000 mdp=cartpole ec={evolver} ec.lifetime=play {needs}")
    CASES |= runs(EVOLVE, f"{evolver}-train 3000 mdp=cartpole ec={evolver} {TRAIN} {needs}")
TUNED = "rl=ppo budget.steps=4096 eval.episodes=2"
CASES["tuned"] = Case(tuple(f"run mdp={name} {TUNED} hydra.run.dir={name}" for name in ("pendulum", "pong")))
CASES["another-cluster"] = Case(
    (f"{TINY} mdp=duel rl.members=2 budget.steps=1500 hydra.run.dir=run",),
    ("run resume=run budget.steps=2500 cluster=processes cluster.workers=2",),
)
CASES["other-genes"] = Case(
    (f"{EVOLVE} mdp=cartpole ec=cem {TRAIN} budget.steps=3000 hydra.run.dir=run",),
    ("run resume=run budget.steps=4500 '+ec.genes.rl.clip=[0.1,0.3]'",),
)
CASES["replay"] = Case(
    (f"{EVOLVE} mdp=cartpole ec=pbt {TRAIN} cluster=processes budget.steps=3000 hydra.run.dir=run",),
    ("run replay=run hydra.run.dir=again", "run replay=run cluster=local hydra.run.dir=here"),
    repeats=False,
)
CASES["replay-jobs"] = Case(
    (f"{SHARE} ec=aes_rl ec.scale=200 ec.critic_job=30 cluster=processes budget.steps=1200 hydra.run.dir=run",),
    ("run replay=run cluster=local hydra.run.dir=here",),
    repeats=False,
)
CASES["init"] = Case(
    (f"{TINY} mdp=cartpole rl=ppo budget.steps=1000 hydra.run.dir=run",),
    (
        f"{TINY} mdp=cartpole rl=ppo init=run init_optimizer=true seed=1 budget.steps=1000 hydra.run.dir=next",
        f"{TINY} mdp=cartpole rl=a2c init=run seed=1 budget.steps=1000 hydra.run.dir=other",
        f"{EVOLVE} mdp=cartpole ec=sga rl.net.hidden=[64,64] init=run budget.steps=1000 hydra.run.dir=pupils",
        f"{EVOLVE} mdp=cartpole ec=cem rl.net.hidden=[64,64] init=pupils budget.steps=1000 hydra.run.dir=more",
    ),
)
CASES["sweep"] = Case(
    (f"{SWEEP} mdp=cartpole budget.steps=600 seed=1,2",),
    (f"{SWEEP} mdp=cartpole budget.steps=600 seed=1,2,3", "report sweep out=report"),
)
for evolver in ("sga", "pbt"):  # a search goes on with more jobs
    search = f"{SWEEP} {SEARCH} hydra.sweeper.evolver={evolver} hydra.sweeper.evolver.population=2"
    CASES[f"search-{evolver}"] = Case(
        (f"{search} hydra.sweeper.jobs=4",), (f"{search} hydra.sweeper.jobs=6", "report sweep out=report")
    )
for experiment in ("marvin/ours", "lamarckian/nsga2_pong", "lamarckian/pbt_pong", "lamarckian/ppo_gym_pong"):
    CASES[experiment] = Case((f"run --cfg job +experiment={experiment}",))

# ------------------------------------------------------------------ running


class Failed(Exception):
    """A command ended with another exit code than 0."""


def environment(checkout: Path) -> dict[str, str]:
    """The environment in which `import evorl` finds the checkout, in the processes of its clusters too."""
    return {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}


def carry_out(commands: tuple[str, ...], checkout: Path, folder: Path) -> None:
    """Run the commands in the folder, which has the same name for all meanwhile; paths are saved in configs."""
    place = folder.with_name("here")
    if folder.exists():
        folder.rename(place)
    place.mkdir(parents=True, exist_ok=True)
    try:
        for command in commands:
            carry_out_one(command, checkout, place)
    finally:
        place.rename(folder)


def carry_out_one(command: str, checkout: Path, folder: Path) -> None:
    """Run a command; what an evaluation and --cfg print goes into files, to be compared."""
    command_name, *words = shlex.split(command)
    if command_name == "evaluate" and "json: bool" in (checkout / "evorl" / "evaluate.py").read_text():
        words.append("json=true")  # what older versions print without being asked
    done = subprocess.run(
        [sys.executable, "-m", f"evorl.{command_name}", *words],
        cwd=folder, env=environment(checkout), stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        last = "\n    ".join(done.stderr.strip().splitlines()[-6:])
        raise Failed(f"{checkout} exits {done.returncode}: python -m evorl.{command}\n    {last}")
    if command_name == "evaluate":
        with (folder / "evaluations.jsonl").open("a") as file:
            file.write(done.stdout.strip().splitlines()[-1] + "\n")
    elif "--cfg" in words:
        (folder / "config.yaml").write_text(done.stdout)


def checked(checkout: Path) -> Path:
    """The checkout, which `import evorl` finds in the environment of its commands."""
    words = [sys.executable, "-c", "import evorl; print(evorl.__file__)"]
    output = subprocess.run(
        words, cwd="/", env=environment(checkout), capture_output=True, text=True, check=True
    ).stdout
    if not Path(output.strip()).is_relative_to(checkout):
        raise SystemExit(f"{checkout}: import evorl finds {output}")
    return checkout


# ------------------------------------------------------------------ comparing


def rows(path: Path) -> Iterator[Any]:
    """The parts of a file that are compared one by one."""
    if path.suffix == ".jsonl":
        yield from (json.loads(line) for line in path.read_text().splitlines())
    elif path.suffix == ".json":
        yield json.loads(path.read_bytes())
    elif path.suffix == ".yaml":
        yield yaml.safe_load(path.read_text())  # as keys: their order is that of the files of conf/
    elif path.suffix == ".csv":
        with path.open(newline="") as file:
            yield from csv.DictReader(file)
    elif path.suffix == ".safetensors":
        yield tensors(path.read_bytes())
    else:
        yield from path.read_text().splitlines()


def tensors(data: bytes) -> dict[str, Any]:
    """What a .safetensors file holds: each tensor's description and checksum, and that of the whole file."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    by_name: dict[str, Any] = {"__metadata__": header.pop("__metadata__", None)}
    for name, entry in header.items():
        first, last = entry.pop("data_offsets")
        by_name[name] = {**entry, "sha256": hashlib.sha256(data[start + first : start + last]).hexdigest()}
    return {**by_name, "file": hashlib.sha256(data).hexdigest()}


def flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every number and word of a row by its key, as text, so that 1 and 1.0 differ."""
    if isinstance(value, dict | list) and value:
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            yield from flat(part, f"{key}.{name}" if key else str(name))
    else:
        yield key or "line", repr(value)


def timed(key: str, names: set[str]) -> bool:
    """Whether a key is one of these names or below it (seconds, run.seconds, speed/..., seconds ±95%)."""
    return any(re.search(rf"(^|\.){re.escape(name)}($|[./ ])", key) for name in names)


def renamed_row(row: dict[str, str], renamed: Mapping[str, str]) -> dict[str, str]:
    """A flat row with the new names of its keys, without those that have none and without checksums of old names."""
    for old, new in renamed.items():
        part = re.compile(rf"(?<![^./]){re.escape(old)}(?![^./])")
        row = {part.sub(new, key): x for key, x in row.items() if new or not part.search(key)}
    return {key: x for key, x in row.items() if not (renamed and timed(key, CHECKSUMS))}


def difference(path: str, first: Path, second: Path, renamed: Mapping[str, str]) -> str | None:
    """The first difference between two files: row, key and both values."""
    names = set().union(*(keys for pattern, keys in TIMES.items() if fnmatch(Path(path).name, pattern)))
    for number, pair in enumerate(zip_longest(rows(first), rows(second), fillvalue="(no row)"), 1):
        if pair[0] == pair[1] and repr(pair[0]) == repr(pair[1]):
            continue
        before, after = (renamed_row({k: x for k, x in flat(row) if not timed(k, READINGS)}, renamed) for row in pair)
        for key in [*before, *(key for key in after if key not in before)]:
            old, new = before.get(key, "(missing)"), after.get(key, "(missing)")
            if old != new and (not timed(key, names) or "(missing)" in (old, new)):
                return f"{path}, row {number}, {key}: {old:.40} -> {new:.40}"
    return None


def compared(first: Path, second: Path, renamed: Mapping[str, str], skipped: tuple[str, ...] = SKIPPED) -> str | None:
    """The first difference between what two folders hold: in configs, then in rows of numbers, then in the rest."""

    def files(folder: Path) -> set[str]:
        paths = (path for path in folder.rglob("*") if path.is_file() or path.is_symlink())
        return {str(path.relative_to(folder)) for path in paths if not any(fnmatch(path.name, p) for p in skipped)}

    def order(name: str) -> tuple[bool, bool, str]:
        return not name.endswith(".yaml"), not name.endswith(".jsonl"), name

    names = files(first)
    if not names:
        return "nothing to compare"
    if names != files(second):
        return f"files: {', '.join(sorted(names ^ files(second))[:4])}"
    differences = (difference(name, first / name, second / name, renamed) for name in sorted(names, key=order))
    return next(filter(None, differences), None)


def shown(difference: str, commands: tuple[str, ...]) -> str:
    """A difference and the commands that lead to it."""
    return "\n    ".join((difference, *(f"python -m evorl.{command}" for command in commands)))


def outcome(
    case: Case, before: Path, after: Path, place: Path, renamed: Mapping[str, str], skipped: tuple[str, ...] = SKIPPED
) -> str | None:
    """What differs between the checkouts in a case, or why it fails; None where nothing does."""
    old, new, crossed = place / "before", place / "after", place / "crossed"
    try:
        carry_out(case.first, before, old)
        if case.repeats:
            carry_out(case.first, after, new)
            if text := compared(old, new, renamed, skipped):
                return shown(text, case.first)
        if case.later:
            shutil.copytree(old, crossed, symlinks=True)
            carry_out(case.later, before, old)
            carry_out(case.later, after, crossed)
            if text := compared(old, crossed, renamed, skipped):
                return shown(f"{text} (AFTER on a copy of BEFORE's directory)", case.first + case.later)
    except Failed as failure:
        return str(failure)
    except (OSError, ValueError, IndexError) as failure:  # a file or an output that is not as it should be
        return repr(failure)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--out", type=Path, help="a new folder for the runs; else a temporary one")
    parser.add_argument("--only", default="", help="only cases with this word in their names or commands")
    parser.add_argument("--jobs", type=int, default=1, help="cases at once")
    parser.add_argument("--renamed", nargs="*", default=[], metavar="OLD=NEW", help="keys of checkpoints; OLD= is gone")
    parser.add_argument("--skip", nargs="*", default=[], metavar="PATTERN", help="names of files that are not compared")
    arguments = parser.parse_args()
    renamed = dict(words.split("=") for words in arguments.renamed)
    before, after = (checked(path.resolve()) for path in (arguments.before, arguments.after))
    out = (arguments.out or Path(tempfile.mkdtemp(prefix="compare-"))).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise SystemExit(f"{out} is not empty")
    chosen = {
        name: case for name, case in CASES.items() if arguments.only in " ".join((name, *case.first, *case.later))
    }
    start = time.monotonic()

    def check(name: str) -> bool:
        begun = time.monotonic()
        place = out / name.replace("/", "-")
        text = outcome(CASES[name], before, after, place, renamed, (*SKIPPED, *arguments.skip))
        print(f"{time.monotonic() - begun:6.1f} s  {name:22} {text or 'equal'}", flush=True)
        return text is None

    with ThreadPoolExecutor(arguments.jobs) as pool:
        equal = list(pool.map(check, chosen))
    same = bool(equal) and all(equal)
    if same and arguments.out is None:
        shutil.rmtree(out)
    kept = f"; runs in {out}" if out.exists() else ""
    print(f"{sum(equal)} of {len(equal)} cases equal in {time.monotonic() - start:.0f} s{kept}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
