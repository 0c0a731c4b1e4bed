"""NashConv of the meta-strategy after each epoch, ec=psro with PPO beside OpenSpiel's psro_v2, on Kuhn and Leduc poker.

The first epoch of ec=psro is self-play; OpenSpiel's runs begin with random play, whose answers are their first epoch.
They are as in its psro_v2_example.py: policies chosen "probabilistic", Q-based policy gradient with the rates of that
program. Their network has our size, a payoff as many games, and an oracle as many episodes. Another arm has exact best
responses as oracles, so that only its payoffs are noisy: what PSRO does with perfect oracles. NashConv is OpenSpiel's
for all, of the policies' tables: means over the seeds, and in brackets the lowest and the highest. A step is a move of
a game, of training or for payoffs. The areas of the figure reach from the lowest to the highest seed; dotted is random
play. NashConv *falls* in a seed if it is lower after the last epoch than after the first one, and than of random play.
That, and the numbers of epochs and seeds, were fixed before the runs.

    python benchmarks/openspiel/psro.py [--out benchmarks/openspiel/results] [--seeds 5]
"""

from __future__ import annotations

import importlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.speed.common import arguments, machine, page, save, start_run, versions

EPOCHS = {"kuhn_poker": 10, "leduc_poker": 4}
TRAIN = {"kuhn_poker": 5_000, "leduc_poker": 12_000}
"""Steps of an oracle, which learns both sides."""
MOVES = {"kuhn_poker": 2.4, "leduc_poker": 4.5}
"""Of an episode, about: by these OpenSpiel's oracles have their number of episodes."""
GAMES = 400
"""Of a pair of policies here; there each of the two places of the table has half of them."""
WORDS = {
    "kuhn_poker": ("ec.anew=true", "rl.slots=32", "rl.horizon=8", "rl.minibatch=64", "rl.entropy_coef=0.05"),
    "leduc_poker": ("rl.slots=64", "rl.horizon=16", "rl.minibatch=256", "rl.entropy_coef=0.1"),
}
ALWAYS = (
    *("rl=ppo", "ec=psro", f"ec.games={GAMES}", "ec.episodes=2", "eval.episodes=2", "eval.every=0"),
    *("rl.gamma=1", "rl.passes=4", "rl.lr=3e-3", "rl.net.hidden=[64]", "checkpoint.every=0"),
    *("budget.steps=1_000_000_000", "record.tensorboard=false", "record.hardware=false"),
)
EVORL, EXACT, GRADIENT = "evorl, PPO", "OpenSpiel, exact best responses", "OpenSpiel, policy gradient"
ARMS = {EVORL: "C0", EXACT: "C2", GRADIENT: "C1"}
FEWER = {(EXACT, "leduc_poker"): 1, (GRADIENT, "kuhn_poker"): 1, (GRADIENT, "leduc_poker"): 0}
"""Seeds of arms that take long: OpenSpiel's agents make some 600 moves a second, its mixtures walk through the game."""
UNIFORM = {"kuhn_poker": 11 / 12, "leduc_poker": 4.747222222222222}
"""NashConv of random play."""
Curve = list[tuple[int, float]]
"""Steps and NashConv after each epoch."""
Results = dict[str, dict[str, list[dict[str, Any]]]]
"""The runs of each game and arm."""


def ours(game: str, seed: int) -> Curve:
    from benchmarks.openspiel.nash_conv import distances

    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "run"
        own = (f"mdp.game={game}", f"seed={seed}", f"ec.train_steps={TRAIN[game]}", f"hydra.run.dir={directory}")
        run, table = start_run(["mdp=openspiel", *ALWAYS, *WORDS[game], *own]), directory / "payoffs.jsonl"
        while run.poll() is None and not (table.exists() and table.read_bytes().count(b"\n") >= EPOCHS[game]):
            time.sleep(0.2)
        run.send_signal(signal.SIGINT)  # it saves, and ends
        run.wait()
        return [(distance.step, distance.mixture) for distance in distances(directory)][: EPOCHS[game]]


# ------------------------------------------------------------------ OpenSpiel's


class Moves:
    """Counts the moves of games."""

    def __init__(self) -> None:
        self.count = 0


def theirs(game: str, seed: int, exact: bool) -> Curve:
    for name in (
        "open_spiel.python.algorithms.lp_solver",
        "open_spiel.python.jax.dqn",
        "open_spiel.python.jax.policy_gradient",
    ):
        sys.modules[name] = ModuleType(name)  # imported by modules of which nothing that needs them is used here
    torch_agents = importlib.import_module("open_spiel.python.pytorch.policy_gradient")
    torch_agents.PolicyGradient.copy_with_noise = _copy
    vars(sys.modules["open_spiel.python.jax.dqn"])["DQN"] = object
    vars(sys.modules["open_spiel.python.jax.policy_gradient"])["PolicyGradient"] = torch_agents.PolicyGradient
    import pyspiel
    import torch
    from open_spiel.python import policy, rl_environment
    from open_spiel.python.algorithms.psro_v2 import (
        abstract_meta_trainer,
        best_response_oracle,
        psro_v2,
        rl_oracle,
        rl_policy,
    )

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    np.random.seed(seed)  # the generators that the library draws from
    importlib.import_module("random").seed(seed)
    moves, loaded = Moves(), pyspiel.load_game(game)
    environment = rl_environment.Environment(loaded)
    stepped, sampled = environment.step, abstract_meta_trainer.sample_episode

    def step(actions: Any) -> Any:
        moves.count += 1
        return stepped(actions)

    def sample_episode(state: Any, policies: Any) -> Any:
        moves.count += not (state.is_terminal() or state.is_chance_node())
        return sampled(state, policies)

    environment.step, abstract_meta_trainer.sample_episode = step, sample_episode
    if exact:
        start = [policy.TabularPolicy(loaded) for _ in range(2)]
        oracle = best_response_oracle.BestResponseOracle(game=loaded, policy=start[0])
    else:
        keys = {
            "info_state_size": environment.observation_spec()["info_state"][0],
            "num_actions": environment.action_spec()["num_actions"], "loss_str": "qpg", "loss_class": False,
            "hidden_layers_sizes": [64], "entropy_cost": 0.001, "critic_learning_rate": 1e-2,
            "pi_learning_rate": 1e-3, "num_critic_before_pi": 8, "optimizer_str": "adam",
        }  # fmt: skip
        episodes = TRAIN[game] / MOVES[game] / 2  # of each side
        oracle = rl_oracle.RLOracle(environment, rl_policy.PGPolicy, keys, number_training_episodes=episodes)
        start = [rl_policy.PGPolicy(environment, side, **keys) for side in range(2)]
        for agent in start:
            agent.freeze()
    solver = psro_v2.PSROSolver(
        loaded, oracle, sims_per_entry=GAMES // 2, initial_policies=start, sample_from_marginals=True,
        training_strategy_selector="probabilistic", meta_strategy_method=_nash,
    )  # fmt: skip
    return list(_epochs(solver, policy.TabularPolicy(loaded), EPOCHS[game], moves))


def _copy(agent: Any, sigma: float = 0.0) -> Any:
    """The agent from which the next oracle goes on. That of the library, which copies no weights, fails."""
    keys = {name: x for name, x in agent._kwargs.items() if name not in ("self", "__class__")}
    made = type(agent)(**keys)
    for network in ("_pi_network", "_critic_network"):
        getattr(made, network).load_state_dict(getattr(agent, network).state_dict())
    return made


def _nash(solver: Any, return_joint: bool = False) -> Any:
    """Its nash_strategy, which needs cvxpy, by our linear program."""
    from open_spiel.python.algorithms.psro_v2.meta_strategies import get_joint_strategy_from_marginals

    from evorl.ops.payoffs import nash

    mixtures = [*nash(np.array(solver.get_meta_game()[0]))[:2]]
    return (mixtures, get_joint_strategy_from_marginals(mixtures)) if return_joint else mixtures


def _epochs(solver: Any, blank: Any, epochs: int, moves: Moves) -> Iterator[tuple[int, float]]:
    from evorl.mdp.openspiel.equilibrium import nash_conv_of

    tables: list[Any] = []
    for _ in range(epochs):
        solver.iteration()
        for k in range(len(tables), len(solver.get_policies()[0])):
            made = blank.__copy__()
            for row, state in enumerate(made.states):
                chances = solver.get_policies()[state.current_player()][k].action_probabilities(state)
                made.action_probability_array[row] = 0
                made.action_probability_array[row, [*chances]] = [*chances.values()]
            tables.append(made)
        yield moves.count, nash_conv_of(tables, solver.get_meta_strategies())


# ------------------------------------------------------------------ all


def curve(job: tuple[str, str, int]) -> tuple[Curve, float]:
    arm, game, seed = job
    began = time.monotonic()
    sys.stdout = open("/dev/null", "w")  # noqa: SIM115 (the library prints what it does)
    steps = ours(game, seed) if arm == EVORL else theirs(game, seed, arm == EXACT)
    return steps, time.monotonic() - began


def rows(results: Results) -> Iterator[list[str]]:
    for game, arms in results.items():
        for arm, runs in arms.items():
            curves = np.array([run["curve"] for run in runs])  # [seeds, epochs, 2]
            if not len(curves):
                continue
            first, highest, last = curves[:, 0, 1], curves[:, :, 1].max(1), curves[:, -1, 1]
            each = [f"{x:.3f}" for x in (UNIFORM[game], first.mean(), highest.mean())]
            reached = f"{last.mean():.3f} ({last.min():.3f} to {last.max():.3f})"
            fallen = int((curves[:, -1, 1] < np.minimum(curves[:, 0, 1], UNIFORM[game])).sum())
            steps, seconds = curves[:, -1, 0].mean(), np.mean([run["seconds"] for run in runs])
            falls = f"in {fallen} of {len(runs)}"
            yield [f"{game}, {arm}", *each, reached, falls, f"{steps:,.0f}", f"{seconds:.0f}"]


def draw(results: Results, out: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.subplots(2, len(results))
    for column, (game, arms) in enumerate(results.items()):
        for arm, runs in arms.items():
            if not runs:
                continue
            curves = np.array([run["curve"] for run in runs])  # [seeds, epochs, 2]
            for row, x in enumerate((curves.mean(0)[:, 0], np.arange(1, curves.shape[1] + 1))):
                axis = axes[row, column]
                axis.plot(x, curves[:, :, 1].mean(0), color=ARMS[arm], label=arm)
                axis.fill_between(x, curves[:, :, 1].min(0), curves[:, :, 1].max(0), color=ARMS[arm], alpha=0.2, lw=0)
        for row, label in enumerate(("steps (moves of games)", "epoch")):
            axis = axes[row, column]
            axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
            axis.axhline(UNIFORM[game], color="grey", ls=":", lw=1)
            axis.set(xlabel=label, ylabel="NashConv", ylim=(0, None), title=game if row == 0 else None)
    axes[0, 0].legend()
    figure.savefig(out / "psro.png", dpi=110)


def main() -> None:
    args = arguments(__doc__, seeds=5)
    facts = machine() | {"open_spiel": versions("open_spiel")["open_spiel"]}
    jobs = [
        (arm, game, seed) for arm in ARMS for game in EPOCHS for seed in range(args.seeds)
        if seed < FEWER.get((arm, game), args.seeds)
    ]  # fmt: skip
    results: Results = {game: {arm: [] for arm in ARMS} for game in EPOCHS}
    columns = [
        "NashConv of random play",
        "of the first epoch",
        "highest",
        "of the last",
        "falls in seeds",
        "steps",
        "seconds a run",
    ]
    header = ["game, oracles", *columns]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for (arm, game, seed), (steps, seconds) in zip(jobs, pool.map(curve, jobs), strict=True):
            results[game][arm].append({"seed": seed, "curve": steps, "seconds": round(seconds, 1)})
            print(f"{game}, {arm}, seed {seed}: {steps[-1][1]:.3f} after {seconds:.0f} s", file=sys.stderr, flush=True)
            lines = [
                *page("PSRO on Kuhn and Leduc poker", __doc__, header, [*rows(results)]),
                "",
                "![curves](psro.png)",
            ]
            save(args.out, facts, lines, {"settings": {"all": ALWAYS, **WORDS}, "train": TRAIN, "games": results})
    if args.out is not None:
        draw(results, args.out)


if __name__ == "__main__":
    main()
