"""Small evolutions that several test modules run, and what two of them compare."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness import fingerprint

QUICK = (
    *("record.tensorboard=false", "eval.episodes=2", "eval.every=0", "rl.slots=4", "rl.horizon=16"),
    *("rl.minibatch=32", "rl.passes=2", "rl.net.hidden=[8]", "ec.population=6", "ec.episodes=3"),
)
PONG = ("mdp=pong", "mdp.rounds=2", "mdp.round_steps=60")
LR = "+ec.genes.rl.lr={low:1e-5,high:1e-1,log:true}"
CASES = {
    "es": ("mdp=cartpole", "ec=openai_es", "budget.steps=2000"),
    "es-lstm": ("mdp=cartpole", "ec=openai_es", "rl.net.lstm=4", "budget.steps=1500"),
    "es-normal": ("mdp=cartpole", "ec=openai_es", "rl.normalize_inputs=true", "ec.slots=4", "budget.steps=2000"),
    "es-cap": ("mdp=cartpole", "ec=openai_es", "ec.cap=1.2", "ec.slots=4", "budget.steps=2000"),
    "es-whiten": (*PONG, "ec=openai_es", "rl.normalize_inputs=whiten", "ec.together=2", "budget.steps=5000"),
    "front": (*PONG, "ec=nsga2", "ec.objectives=[{fitness:1,lazy:1},{fitness:1,busy:1}]", "budget.steps=5000"),
    "worlds": (*PONG, "ec=sga", "+ec.genes.mdp.bat_speed=[2,6]", "ec.seeds=fresh", "budget.steps=5000"),
    "rounds": ("mdp=cartpole", "ec=pbt", "ec.asynchronous=false", "ec.train_steps=128", LR, "budget.steps=4000"),
    "league": (
        *(*PONG, "ec=league", "ec.train_steps=256", "ec.snapshot=512", "ec.longest=512", "ec.opponents=3", LR),
        *("rl.normalize_inputs=true", "budget.steps=8000"),
    ),
    "psro": (
        *(*PONG, "ec=psro", "ec.population=2", "ec.slots=3", "ec.train_steps=256", "ec.games=4", LR),
        *("rl.normalize_inputs=true", "budget.steps=6000"),
    ),
    "coevolution": (
        *(*PONG, "ec=coevolution", "ec.asynchronous=false", "ec.population=4", "ec.train_steps=256", LR),
        "budget.steps=6000",
    ),
    "front-train": (*PONG, "ec=nsga2", "ec.lifetime=train", "ec.train_steps=128", LR, "budget.steps=6000"),
    "balance": (
        *(*PONG, "ec=nsga2", "ec.lifetime=balance", "ec.train_steps=128", "+ec.genes.mdp.bat_speed=[2,6]"),
        *("ec.objectives=[evenness,{change:-1}]", "budget.steps=4000"),
    ),
    "reward": (
        *("mdp=cartpole", "ec=nsga2", "ec.lifetime=train", "ec.train_steps=128", "ec.reward.kind=potential"),
        *("ec.reward.hidden=2", LR, "budget.steps=4000"),
    ),
    "steady": ("mdp=cartpole", "ec=sga", "ec.offspring=1", "ec.slots=3", "ec.together=1", "budget.steps=1500"),
    "problem": ("mdp=problem", "mdp.id=zdt1", "mdp.dimensions=5", "ec=nsga2", "budget.steps=100"),
}
ASYNCHRONOUS = {
    "pbt-population": (
        *(*PONG, "ec=pbt", "ec.opponents=population", "ec.population=3", "ec.train_steps=256", LR),
        *("rl.normalize_inputs=true", "budget.steps=5000"),
    ),
    "league-free": (
        *(*PONG, "ec=league", "ec.asynchronous=true", "ec.train_steps=256", "ec.snapshot=512", "ec.longest=512"),
        "budget.steps=6000",
    ),
    "pbt": ("mdp=cartpole", "ec=pbt", "ec.train_steps=128", LR, "ec.inherit_optimizer=true", "budget.steps=4000"),
    "cem": ("mdp=cartpole", "ec=cem", "ec.asynchronous=true", "ec.together=1", "ec.slots=4", "budget.steps=1500"),
    "es-cap-free": (
        *("mdp=cartpole", "ec=openai_es", "ec.cap=1.2", "rl.normalize_inputs=true", "ec.asynchronous=true"),
        *("ec.together=1", "ec.slots=4", "budget.steps=1500"),
    ),
    "sga-normal": (
        *("mdp=cartpole", "ec=sga", "rl.normalize_inputs=true", "ec.asynchronous=true", "ec.together=1", "ec.slots=4"),
        "budget.steps=1500",
    ),
}


def journal(directory: Path) -> list[dict[str, Any]]:
    """Lines of population.jsonl, without what the clock says."""
    lines = (directory / "population.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def in_old_form(run: dict[str, Any]) -> dict[str, Any]:
    """The state of a population with the keys of checkpoints of older versions."""
    shared = "critics" in run
    names = {
        "in_flight": "flying", "failures_in_a_row": "in_vain", "warm_start": "origin", "leader_genes": "values",
        "journal_lines": "_done", "task": "given",
    }  # fmt: skip
    gone = "failures_in_a_row" if shared else "journal_lines"
    old = {names.get(key, key): part for key, part in run.items() if key != gone}
    old["flying"] = {
        number: {names.get(key, key): part for key, part in request.items()}
        for number, request in old["flying"].items()
    }
    return {**old, "evolver": {**run["evolver"], "trains": True}} if shared else old


def evaluated(directory: Path) -> Any:
    """The best individual's learner, digested, and what the run says of it."""
    result = json.loads((directory / "result.json").read_bytes())
    return result["best"], result["eval"], result["steps"], fingerprint(directory)["state"]["run"]["learner"]
