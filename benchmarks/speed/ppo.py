"""PPO end to end, environment steps per second: ours and Stable-Baselines3's, in one run, alternating.

CartPole-v1, Pendulum-v1 and Pong with Stable-Baselines3's own default settings for both; our Pong with our defaults
against Stable-Baselines3 given the same games, batch, passes, minibatch and network, and against it at its defaults.
We run as we come and, beside it, with rl.compile=true, which makes machine code of the gradient step beforehand.
Each contestant runs with 1 and with 2 threads (--threads N: up to N), and its better median counts; a setting whose
first sample is less than half as fast as the contestant's best is not asked again. A sample is the updates begun within
--seconds, at least one: collecting, learning, episode statistics; start-up and one update of warm-up are left out.

    python benchmarks/speed/ppo.py [--samples 5] [--seconds 2] [--out DIR]
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from common import OURS, PEERS, Worker, alternate, arguments, machine, median, page, save
from ours import experiment

SB3_DEFAULTS = (
    "rl=ppo rl.members=1 rl.slots=8 rl.horizon=2048 rl.passes=10 rl.minibatch=64 rl.lr=3e-4 rl.gamma=0.99 rl.lam=0.95 "
    "rl.clip=0.2 rl.critic_coef=0.5 rl.entropy_coef=0 rl.max_grad_norm=0.5 rl.value_clip=null rl.target_kl=null "
    "rl.normalize_advantage=true rl.normalize_inputs=false rl.normalize_rewards=false "
    "rl.net.hidden=[64,64] rl.net.activation=tanh rl.net.shared=false rl.net.lstm=0"
)
OUR_PONG = "mdp=pong rl=ppo"
OWN = {"evorl": "", "evorl, compiled": "rl.compile=true"}
"""Ours, and the words that each adds."""


@dataclass(frozen=True)
class Peer:
    settings: dict[str, Any]
    aim: float
    """How many times its rate ours is to be."""
    program: tuple[str, ...] = ("sb3.py", "rate")
    """Of this folder, with the words before its settings."""


@dataclass(frozen=True)
class Case:
    name: str
    words: str
    """Ours."""
    peers: dict[str, Peer]
    compiles: bool = True
    """Whether rl.compile is for such a network."""

    @property
    def own(self) -> dict[str, str]:
        """Ours, and the words that each adds."""
        return OWN if self.compiles else {"evorl": ""}


def defaults(world: str) -> dict[str, Any]:
    """Stable-Baselines3's PPO as it comes, in 8 environments."""
    return {"world": world, "envs": 8, "ppo": {}}


def same_pong() -> dict[str, Any]:
    """Our Pong defaults as Stable-Baselines3's settings; what has no bearing on speed stays its own."""
    rl: Any = experiment(OUR_PONG.split()).rl
    if rl.net.lstm:
        raise SystemExit("sb3.py builds memoryless policies only")
    ppo = {"n_steps": rl.horizon, "batch_size": rl.minibatch, "n_epochs": rl.passes, "target_kl": rl.target_kl}
    net = {"hidden": list(rl.net.hidden), "activation": rl.net.activation, "shared": rl.net.shared}
    return {"world": "pong", "envs": rl.members * rl.slots, "ppo": ppo, **net}


def cases() -> list[Case]:
    pong = {"SB3, our settings": Peer(same_pong(), 5.0), "SB3, its defaults": Peer(defaults("pong"), 20.0)}
    return [
        Case(world, f"mdp={mdp} {SB3_DEFAULTS}", {"SB3, its defaults": Peer(defaults(peer), aim)})
        for world, mdp, peer, aim in (
            ("CartPole-v1", "cartpole", "CartPole-v1", 1.75),
            ("Pendulum-v1", "pendulum", "Pendulum-v1", 1.75),
            ("Pong at SB3's defaults", "pong", "pong", 5.0),
        )
    ] + [Case("Pong", OUR_PONG, pong)]


Rates = dict[str, dict[str, list[float]]]
"""Of each contestant at each thread setting, in steps per second."""


def measure(case: Case, threads: int, samples: int, seconds: float) -> tuple[Rates, dict[str, str]]:
    """Every sample, and the peers' versions."""
    with ExitStack() as stack:
        workers: dict[tuple[str, str], Worker] = {}
        for count in map(str, range(1, threads + 1)):
            for name, more in case.own.items():
                ours = Worker(OURS, "ours.py", *case.words.split(), *more.split(), f"rl.threads={count}")
                workers[name, count] = stack.enter_context(ours)
            for name, peer in case.peers.items():
                settings = json.dumps({**peer.settings, "threads": int(count)})
                workers[name, count] = stack.enter_context(Worker(PEERS, *peer.program, settings))
        ask = {key: lambda _, w=w: w.rate(seconds) for key, w in workers.items()}
        first = alternate(ask, range(1))
        top = {name: max(rates[0] for (n, _), rates in first.items() if n == name) for name, _ in first}
        kept = {key: ask[key] for key, rates in first.items() if rates[0] >= top[key[0]] / 2}
        rest = alternate(kept, range(1, samples))
        by_program: Rates = {name: {} for name, _ in first}
        for (name, count), rates in first.items():
            by_program[name][count] = rates + rest.get((name, count), [])
        peers = [worker.versions for (name, _), worker in workers.items() if name in case.peers]
        return by_program, {package: version for peer in peers for package, version in peer.items()}


def best(rates: dict[str, list[float]]) -> tuple[float, str]:
    """The better median and its thread setting."""
    return max((median(samples), threads) for threads, samples in rates.items())


def summary(case: Case, rates: Rates) -> dict[str, Any]:
    ratios = {
        name: {ours: round(best(rates[ours])[0] / best(rates[name])[0], 3) for ours in case.own} for name in case.peers
    }
    settings = {name: peer.settings for name, peer in case.peers.items()}
    return {"ours": case.words, "peers": settings, "rates": rates, "ratios": ratios}


def rows(case: Case, result: dict[str, Any]) -> list[list[str]]:
    lines = []
    for name, rates in result["rates"].items():
        threads = best(rates)[1]
        medians = [f"{median(samples):,.0f}" for samples in rates.values()]
        spread = f"{min(rates[threads]):,.0f} to {max(rates[threads]):,.0f}"
        ratios = [f"{ratio:.2f}" for ratio in result["ratios"].get(name, {}).values()]
        ratios += [""] * (len(OWN) - len(ratios))
        aim = f"{case.peers[name].aim:g}" if name in case.peers else ""
        lines.append([f"{case.name}: {name}", *medians, spread, *ratios, aim])
    return lines


def compare(cases: list[Case], title: str, text: str, args: Any) -> None:
    """Measure all cases; save the page and the figures after each. ``text`` is what the page says of them."""
    facts, results, lines = machine() | {"peers": {}}, {}, []
    head = ["environment steps per second", *(f"threads: {count + 1}" for count in range(args.threads))]
    head += ["range at the better", "evorl is faster by", "compiled by", "aim"]
    for case in cases:
        print(case.name, flush=True)
        rates, versions = measure(case, args.threads, args.samples, args.seconds)
        facts["peers"] |= versions
        results[case.name] = summary(case, rates)
        lines += rows(case, results[case.name])
        save(args.out, facts, page(title, text, head, lines), {"cases": results})


def main() -> None:
    args = arguments(__doc__, samples=5, seconds=2.0, threads=2)
    compare(cases(), "PPO, environment steps per second", __doc__, args)


if __name__ == "__main__":
    main()
