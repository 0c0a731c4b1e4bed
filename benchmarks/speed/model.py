"""How many environment steps a second a run makes on up to 6,000 cores: a model of what its driver has to do.

Constants marked `measured` are of this machine and of whole parts of evorl: a member's fragment, the learner's update,
what a message costs the driver's thread, a copy in memory, one encrypted connection. Those marked `assumed` are of a
cluster that nobody has run this on. One member a worker, one worker a core. The batch of a synchronous run grows with
the workers, so this says what machines could do, not how well a policy learns. For n workers, a bytes of an answer
(fragment and state) and w bytes of weights:

    t(sync)  = out + play + max(n (call + 2 a / memory), n a / wire) + n learn           for n fragments
    t(async) = max(take + learn, (a + w) / wire)                                         for one
    steps/s  = n fragment / t(sync)        or        fragment min(n / play, 1 / t(async))

`out` is the time until the last worker has its weights: down a tree of hosts, each of which sends up to 4 copies on
(a star, where the driver sends one to each worker, is shown beside it). `call` and `take`, which sends the weights with
the call for the next fragment, are a straight line through 16 and 256 idle workers. Within one host nothing goes over
the wire. The check compares the model with whole runs here, where the driver and its workers share the cores.

    python benchmarks/speed/model.py [--seconds 3] [--out DIR]
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from common import HERE, ROOT, arguments, machine, save, table
from constants import place, ran, work
from scaling import Place, Work, crowded, fed, stream, sync

PPO = "mdp=pong rl=ppo rl.slots=16 rl.horizon=128 rl.minibatch=512"
NET = "rl.net.hidden=[128,64] rl.net.activation=relu rl.net.shared=true"
A3C = f"mdp=pong rl=a3c rl.slots=16 rl.horizon=128 {NET}"
CASES = {"Pong, PPO": PPO, "Pong, A3C": A3C}
SLOW, SLOW_S = "1 ms a step, PPO", 1e-3  # assumed: all but the world as in Pong
LARGE = 10e6  # bytes of a large network's weights, assumed
FAST = 10  # assumed: a learner on a GPU, times as fast as on one core here
COUNTS = (1, 2, 8, 64, 256, 1000, 2000, 6000)
PAGE = ROOT / "docs" / "cluster.md"
BEGIN, END = "<!-- benchmarks/speed/model.py writes from here -->", "<!-- to here -->"
Curves = dict[str, Callable[[int], float]]


def check(works: dict[str, Work], p: Place, seconds: float) -> list[dict[str, Any]]:
    """The model against runs of this machine."""
    cores = os.cpu_count() or 1
    models: dict[str, tuple[str, Callable[[int], float]]] = {
        "Pong, PPO, synchronous": (PPO, partial(sync, works["Pong, PPO"], p)),
        "Pong, PPO, asynchronous": (
            f"{PPO} rl.asynchronous=true",
            lambda n: crowded(works["Pong, PPO"], p, n, cores),
        ),
        "Pong, A3C": (A3C, lambda n: crowded(works["Pong, A3C"], p, n, cores)),
    }
    rows = []
    for name, (words, model) in models.items():
        for n in range(1, min(2, cores) + 1):
            rows.append({"run": name, "workers": n, "model": model(n), "measured": ran(words, n, seconds)})
            print(rows[-1], flush=True)
    return rows


def forecasts(works: dict[str, Work], p: Place) -> Curves:
    """Steps per second against workers."""
    pong, slow, a3c = works["Pong, PPO"], works[SLOW], works["Pong, A3C"]
    fast, large = replace(slow, learn_s=slow.learn_s / FAST), replace(slow, weights=LARGE)
    return {
        "Pong: synchronous": lambda n: sync(pong, p, n),
        "Pong: asynchronous": lambda n: stream(pong, p, n),
        "Pong: A3C": lambda n: stream(a3c, p, n),
        "1 ms: synchronous": lambda n: sync(slow, p, n),
        "1 ms: synchronous, weights of 10 MB": lambda n: sync(large, p, n),
        "1 ms: the same, from the driver to each worker": lambda n: sync(large, p, n, "star"),
        "1 ms: the same, weights that have not changed": lambda n: sync(large, p, n, "none"),
        "1 ms: asynchronous": lambda n: stream(slow, p, n),
        "1 ms: asynchronous, weights of 10 MB": lambda n: stream(large, p, n),
        f"1 ms: asynchronous, learner {FAST} times as fast": lambda n: stream(fast, p, n),
    }


# ------------------------------------------------------------------ pages


def number(x: float) -> str:
    """Three digits of it."""
    return f"{float(f'{x:.3g}'):,.0f}" if x >= 100 else f"{x:.3g}"


def constants(works: dict[str, Work], p: Place) -> list[list[str]]:
    rows = []
    for name, w in works.items():
        play = "measured, and 1 ms a step" if name == SLOW else "measured"
        rows += [
            [f"{name}: a member's fragment, env steps", f"{w.fragment:,.0f}", "measured"],
            [f"{name}: its time for it, ms", number(1e3 * w.play_s), play],
            [f"{name}: the learner's, ms", number(1e3 * w.learn_s), "measured"],
            [f"{name}: weights, kB", number(w.weights / 1e3), "measured"],
            [f"{name}: answer, kB", number(w.answer / 1e3), "measured"],
            [f"{name}: **workers to a learner**", f"**{number(fed(w, p))}**", "play / (take + learn)"],
        ]  # fmt: skip
    return [
        *rows,
        ["driver: a call and its answer, µs", number(1e6 * p.call[0]), "measured"],
        ["driver: the same, more for each worker, µs", number(1e6 * p.call[1]), "measured"],
        ["driver: an answer of a stream, and weights back, µs", number(1e6 * p.take[0]), "measured"],
        ["driver: the same, more for each worker, µs", number(1e6 * p.take[1]), "measured"],
        ["a copy in memory, GB/s", number(p.memory / 1e9), "measured"],
        ["one encrypted connection, GB/s", number(p.curve / 1e9), "measured on loopback"],
        ["a host's network, GB/s", number(p.network / 1e9), "assumed"],
        ["one hop, µs", number(1e6 * p.latency_s), "assumed"],
        ["cores of a host", str(p.cores), "assumed"],
        ["hosts that a host of a tree sends to", str(p.degree), "chosen"],
    ]


def quoted(results: dict[str, Any]) -> list[str]:
    """What docs/cluster.md shows of the results."""
    checked = [
        [f"{row['run']}, {row['workers']} worker{'s' * (row['workers'] > 1)}", number(row["model"]),
         number(row["measured"]), f"{row['model'] / row['measured']:.2f}"]
        for row in results["check"]
    ]  # fmt: skip
    curves = [[name, *map(number, rates)] for name, rates in results["steps per second"].items()]
    m = results["machine"]
    return [
        f"Taken on {m['date'][:10]}, on {m['cores']} cores ({m['cpu']}) under a load of {m['load']}.", "",
        *table(["constant", "value", "from"], results["constants"]), "",
        *table(["steps/s on this machine", "model", "run", "model / run"], checked), "",
        *table(["steps/s, by workers", *map(str, COUNTS)], curves),
    ]  # fmt: skip


def quote(results: dict[str, Any]) -> None:
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, "", *quoted(results), "", END + rest.split(END)[1]]))


def draw(curves: Curves, path: Path) -> None:
    import matplotlib
    import numpy as np

    matplotlib.use("agg")
    from matplotlib import pyplot

    counts = [int(n) for n in np.unique(np.geomspace(1, 6000, 150).round())]
    with pyplot.rc_context({"svg.hashsalt": "evorl", "font.size": 9}):
        figure, both = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
        for axes, begin in zip(both, ("Pong", "1 ms"), strict=True):
            for name, curve in curves.items():
                if name.startswith(begin):
                    axes.loglog(counts, [curve(n) for n in counts], label=name)
            axes.set(xlabel="workers", ylabel="environment steps per second (model)")
            axes.grid(alpha=0.3)
            axes.legend(fontsize=7)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    args = arguments(__doc__, seconds=3.0)
    facts = machine()
    works = {name: work(words, args.seconds) for name, words in CASES.items()}
    pong = works["Pong, PPO"]
    works[SLOW] = replace(pong, play_s=pong.play_s + pong.fragment * SLOW_S)
    p = place(int(pong.weights), args.seconds / 3)
    curves = forecasts(works, p)
    results: dict[str, Any] = {
        "machine": facts,
        "work": {name: asdict(w) for name, w in works.items()},
        "place": asdict(p),
        "constants": constants(works, p),
        "check": check(works, p, args.seconds),
        "workers": COUNTS,
        "steps per second": {name: [curve(n) for n in COUNTS] for name, curve in curves.items()},
    }
    words = (__doc__ or "").split("\n\n    python ")[0]
    lines = ["# A model of large clusters", "", words, "", *quoted(results), "", "![](model.svg)"]
    save(args.out, facts, lines, results)
    if args.out is not None:
        draw(curves, args.out / "model.svg")
        if args.out.resolve() == HERE / "results":
            quote(results)


if __name__ == "__main__":
    main()
