"""Registry of metric names, shared by all algorithms, each with its unit and description.

A word in angle brackets stands for a name defined by the world: a named reward or a result of an
episode. ``python -m evorl.record.metrics`` prints ``docs/metrics.md``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from evorl.util import plugins, yaml_text
from evorl.util.errors import Failure, nearest

DECLARATION = "metrics.yaml"
"""The file in which a plugin declares its metrics."""
_log = logging.getLogger("evorl")


class Metric(NamedTuple):
    """Unit and description of a metric."""

    unit: str
    description: str
    held: bool = False
    """Whether a value holds until the next one, as that of a counter: figures draw it as steps and do not smooth it."""


METRICS: dict[str, Metric] = {
    # Training episodes, played with the stochastic policy.
    "train/return": Metric(
        "return",
        "undiscounted return, sum of all named rewards of the world as it is, mean over the last 100 episodes, in "
        "whole games",
    ),
    "train/return_<reward>": Metric("return", "return of one named reward as the learner gets it, if it gets several"),
    "train/episode_length": Metric(
        "env steps, or a length reported by the world", "mean length of the last 100 episodes"
    ),
    "train/episodes": Metric("episodes", "episodes finished since the start of the run"),
    "train/<result>": Metric("defined by the world", "mean of a named result (win, score) over the last 100 episodes"),
    # Evaluation: complete episodes on separate seeds, with frozen normalisers.
    "eval/return_mean": Metric("return", "mean return of the deterministic policy"),
    "eval/return_std": Metric("return", "standard deviation over episodes"),
    "eval/return_min": Metric("return", "minimum over episodes"),
    "eval/return_max": Metric("return", "maximum over episodes"),
    "eval/stochastic_return_mean": Metric("return", "mean return of the stochastic policy"),
    "eval/stochastic_return_std": Metric("return", "standard deviation over episodes"),
    "eval/stochastic_return_min": Metric("return", "minimum over episodes"),
    "eval/stochastic_return_max": Metric("return", "maximum over episodes"),
    "eval/length_mean": Metric(
        "env steps, or a length reported by the world", "mean length of the deterministic policy's episodes"
    ),
    "eval/<result>_mean": Metric("defined by the world", "mean of a named result, deterministic policy"),
    # Updates: means over the minibatches of an update.
    "loss/policy": Metric("-", "negated objective of the policy"),
    "loss/value": Metric("reward²", "loss of the value function, without its coefficient"),
    "loss/clone_policy": Metric("nats", "KL divergence from the policy that acted, without its coefficient"),
    "loss/clone_value": Metric("reward²", "distance to the values of the critic that acted, without its coefficient"),
    "loss/total": Metric("-", "loss given to the optimiser: the sum of all terms with their coefficients"),
    "policy/entropy": Metric("nats", "mean entropy of the action distribution"),
    "policy/kl": Metric("nats", "KL(old ‖ new), estimated by the mean of r - 1 - ln r"),
    "policy/clip_fraction": Metric(
        "fraction",
        "ppo, impact: actions whose probability ratio the clip stops; vtrace: those whose ratio is above rho_bar",
    ),
    "policy/ratio": Metric("-", "mean probability ratio of the present policy to the one that acted"),
    "policy/kl_target": Metric("nats", "impact: KL(target network's policy ‖ present policy), mean over states"),
    "policy/rejected": Metric("fraction", "decisions that the KL mask excludes"),
    "policy/temperature": Metric("reward per nat", "weight of the entropy in SAC's objective"),
    "policy/epsilon": Metric("fraction", "dqn, r2d2: probability of a random action in training episodes"),
    "policy/lag": Metric("updates", "asynchronous: age of the acting weights, mean over the last 100 batches"),
    "policy/lag_max": Metric("updates", "asynchronous: maximum over the last 100 batches"),
    "policy/dropped_fragments": Metric(
        "fragments", "asynchronous: batches dropped as too old, since the start of the run"
    ),
    "value/explained_variance": Metric(
        "fraction", "1 - Var(target - value) / Var(target); 1 is perfect, 0 is a constant"
    ),
    "value/q": Metric("return", "mean of the critics' values of the sampled actions"),
    "value/target_gap": Metric(
        "fraction",
        "norm of critic weights minus target weights, divided by the first; dqn: just before the target follows",
    ),
    "replay/size": Metric("transitions", "transitions in the replay"),
    "replay/size_<part>": Metric(
        "rollouts", "vtrace, impact: rollouts that a part of the replay holds; queue, circular: also those done with"
    ),
    "replay/waiting": Metric("rollouts", "vtrace, impact: rollouts that wait for the next gradient step"),
    "replay/dropped": Metric(
        "rollouts", "vtrace, impact: rollouts that left a full queue unused, since the start of the run"
    ),
    "replay/age_<part>": Metric(
        "gradient steps", "vtrace, impact: age of the rollouts of a part in the last minibatch, since their arrival"
    ),
    "replay/ratio_<part>": Metric(
        "-",
        "vtrace, impact: mean ratio of the present policy to the one that acted, in a part of the minibatches",
    ),
    "replay/kl_<part>": Metric("nats", "vtrace, impact: as policy/kl, for a part of the minibatches"),
    "replay/clip_fraction_<part>": Metric(
        "fraction", "vtrace, impact: as policy/clip_fraction, for a part of the minibatches"
    ),
    "replay/candidates": Metric(
        "-",
        "rl.sampling=attentive: transitions drawn for each one that is chosen (lambda), before the updates of this row",
    ),
    "replay/candidates_<part>": Metric(
        "-", "vtrace, impact: rollouts that elite or attentive draws for each one that it chooses (lambda)"
    ),
    "replay/encoded_<part>": Metric(
        "fraction",
        "vtrace, impact: candidates of elite or attentive that were encoded when they were drawn last; see lag",
    ),
    "replay/distance_<part>": Metric(
        "defined by the distance", "vtrace, impact: mean distance of the rollouts that elite or attentive chose last"
    ),
    "replay/samples_per_step": Metric(
        "transitions", "transitions learned from for each one collected after the warm-up"
    ),
    "replay/beta": Metric("-", "prioritised replay: exponent of the weights that undo its bias"),
    "optimizer/lr": Metric("-", "current learning rate"),
    "optimizer/grad_norm": Metric("-", "mean global norm of the gradient, before clipping"),
    "optimizer/updates": Metric("gradient steps", "gradient steps since the start of the run"),
    # Opponents.
    "opponents/size": Metric("opponents", "opponents in the pool", held=True),
    "opponents/score": Metric(
        "fraction", "share of the last games that the learner wins, a draw counting half, mean over the opponents met"
    ),
    "opponents/score_worst": Metric("fraction", "the same against the opponent that is hardest to beat"),
    "opponents/exploitability": Metric("fraction", "what that opponent scores above one half; 0 if none does"),
    "opponents/score_latest": Metric("fraction", "the same against the policy of the last update"),
    "league/snapshots": Metric("snapshots", "league: snapshots that its agents play; psro: policies", held=True),
    "league/resets": Metric("agents", "league: exploiters that began anew, since the start of the run", held=True),
    "league/score": Metric(
        "fraction", "league: share of the games that its best agent wins, a draw counting half, mean over the snapshots"
    ),
    "league/score_worst": Metric("fraction", "league: the same against the snapshot that is hardest to beat"),
    "league/gain": Metric(
        "return", "psro: what the newest oracles earn more than the mixtures that they answer, both sides added up"
    ),
    "league/value": Metric("return", "psro: what side 0 earns if both sides play the meta-strategy"),
    "league/regret": Metric("return", "psro: NashConv of the meta-strategy within the table; nash: 0"),
    # Populations.
    "population/best": Metric("fitness", "best fitness so far", held=True),
    "population/mean": Metric("fitness", "mean fitness of the current population"),
    "population/std": Metric("fitness", "standard deviation of the fitness in the current population"),
    "population/score": Metric(
        "fraction",
        "in place of population/best where games against each other rank the population: league: score of the best "
        "agent; psro: largest share of the mixtures; else: highest objective that is made of points so far",
        held=True,
    ),
    "population/score_mean": Metric("fraction", "the same in place of population/mean"),
    "population/score_std": Metric("fraction", "the same in place of population/std"),
    "population/evaluations": Metric("individuals", "individuals evaluated since the start of the run", held=True),
    "population/generation": Metric(
        "generations",
        "completed generations; pbt: evaluations that every member has completed; acem_rl, one_plus_one_rl and "
        "aes_rl: individuals that were learned from",
        held=True,
    ),
    "population/failed": Metric("individuals", "individuals without a fitness since the start of the run", held=True),
    "population/diversity": Metric(
        "fraction",
        "mean deviation of the genes, relative to their ranges; without genes: of the weights, relative to their size",
    ),
    "population/age": Metric("evaluations", "mean number of evaluations since the current individuals were created"),
    "population/survived": Metric("fraction", "share of the population that was kept from the previous generation"),
    "population/exploits": Metric(
        "individuals",
        "members replaced by a copy of a better one, since the start of the run",
        held=True,
    ),
    "population/sigma": Metric("-", "cma_es, one_plus_one: step size; others: mean standard deviation of a parameter"),
    "population/update_weight": Metric("fraction", "aes_rl: weight p of the last individual in the mean"),
    "population/success_rate": Metric("fraction", "one_plus_one_rl: better individuals among the last trials"),
    "population/trained_share": Metric("fraction", "trained individuals in the current population"),
    "population/elites_trained": Metric("fraction", "cem_rl, p_cem_rl, acem_rl: trained individuals among the elite"),
    "population/mean_norm": Metric("-", "norm of the mean of the distribution"),
    "population/variance_norm": Metric("-", "norm of the variance of the distribution"),
    "population/staleness": Metric(
        "individuals", "individuals that the evolver learned from between proposing the last one and learning from it"
    ),
    "population/cap": Metric(
        "environment steps",
        "openai_es: limit on the episode length of the next generation, if below the world's own limit",
    ),
    "population/coverage": Metric("fraction", "share of archive cells that hold an individual"),
    "population/beyond": Metric(
        "fraction", "share of the last generation outside the archive's ranges, placed in edge cells"
    ),
    "selection/heldout": Metric(
        "fitness",
        "fitness of the individual named best, on episodes that had no part in choosing it",
        held=True,
    ),
    "selection/luck": Metric("fitness", "its fitness when it was evaluated first, minus the held-out one", held=True),
    "selection/steps": Metric(
        "env steps",
        "environment steps of the replays that named this individual; no other number counts them",
        held=True,
    ),
    "optimizer/update_ratio": Metric(
        "fraction", "norm of the last parameter update divided by the norm of the parameters"
    ),
    # Evolution with a shared critic.
    "critic/lag": Metric("env steps", "environment steps that the slowest critic has not learned for yet"),
    "critic/gradient_steps": Metric("gradient steps", "of the slowest critic, since the start of the run"),
    "train/uncounted_steps": Metric(
        "env steps", "environment steps of evaluations of the mean, which no other number counts"
    ),
    "speed/play_seconds": Metric("s", "time that workers spent playing since the previous row"),
    "speed/train_actor_seconds": Metric("s", "time that workers spent training individuals since the previous row"),
    "speed/train_critic_seconds": Metric("s", "time that workers spent training critics since the previous row"),
    "speed/wait_seconds": Metric("s", "time that workers had nothing to do between their jobs since the previous row"),
    # Classes outside evorl.
    "custom/<name>": Metric("defined by the class", "a metric of a class outside evorl"),
    # Speed and cluster.
    "speed/steps_per_second": Metric("env steps/s", "since the previous row, without evaluation and saving"),
    "speed/sample_seconds": Metric("s", "time spent on sampling since the previous row"),
    "speed/update_seconds": Metric("s", "time spent on updates since the previous row"),
    "speed/all_reduce_seconds": Metric("s", "rl.learners: time spent on sums over the learners since the previous row"),
    "speed/learners_wait_seconds": Metric(
        "s", "rl.learners: time the first learner waited for the others before these sums since the previous row"
    ),
    "speed/encode_seconds": Metric("s", "time spent on the features of replayed rollouts in the last update"),
    "speed/prefetch_seconds": Metric("s", "of a second thread: time spent on the distances of the next candidates"),
    "speed/prefetch_wait": Metric("s", "time that the learner waited for that thread"),
    "speed/learner_wait": Metric("s", "asynchronous: time the learner waited for a batch, mean per batch"),
    "speed/actor_wait": Metric("s", "asynchronous: time an actor waited before it continued to play, mean per batch"),
    "cluster/replaced": Metric("workers", "worker processes that died or hung and were replaced, since the start"),
    "cluster/refused": Metric(
        "messages", "messages and connections from outside the run, refused by its driver or a worker, since the start"
    ),
    "cluster/sent": Metric(
        "bytes", "arrays sent to other machines, by the driver and by workers that relay them, since the start"
    ),
    # Hardware: in one row every five seconds, for the time since the row before that had them.
    "hardware/cpu": Metric("cores", "processor time of the run's processes on the driver's machine, per second"),
    "hardware/cpu_<process>": Metric(
        "cores", "the same of one process: driver, worker_N, learner_N; others: all that these started"
    ),
    "hardware/memory": Metric("MiB", "memory of these processes; pages that they share count in each of them"),
    "hardware/memory_<process>": Metric("MiB", "the same of one process"),
    "hardware/machine_cpu": Metric("fraction", "share of the cores of the machine that work, whoever they work for"),
    "hardware/machine_memory": Metric("fraction", "share of the machine's memory that is in use"),
    "hardware/network_sent": Metric("bytes/s", "sent by the machine to others"),
    "hardware/network_received": Metric("bytes/s", "received by the machine from others"),
    "hardware/energy_cpu": Metric(
        "J", "energy of the machine's processors (RAPL) since the last reading, where it may be read"
    ),
    "hardware/energy_gpu_<gpu>": Metric("J", "energy of a GPU since the last reading"),
    "hardware/gpu_<gpu>": Metric("fraction", "share of the time in which a GPU worked, whoever it worked for"),
    "hardware/gpu_memory_<gpu>": Metric("MiB", "memory of a GPU that is in use"),
}


class UnregisteredMetric(Failure, ValueError):
    """A name of a metric that is in no list and of no package."""


def declared() -> Mapping[str, Metric]:
    """Return the metrics that the ``metrics.yaml`` of installed plugins declare; a file with an error has a warning."""
    return _declared(tuple(plugins.installed().values()))


@cache
def _declared(known: tuple[plugins.Plugin, ...]) -> Mapping[str, Metric]:
    metrics: dict[str, Metric] = {}
    for plugin in known:
        try:
            metrics |= read_declaration(plugin)
        except (OSError, ValueError) as error:
            _log.warning("plugin %s: its metrics have no units: %s", plugin.root, error)
    return metrics


def read_declaration(plugin: plugins.Plugin) -> dict[str, Metric]:
    """Read ``metrics.yaml`` beside a plugin's root module: ``NAME: [unit, description]`` for ``PACKAGE/NAME``.

    There are none without the file. Raises ValueError for a file that is not of that form.
    """
    if plugin.folder is None or not (path := plugin.folder / DECLARATION).is_file():
        return {}
    rows = yaml_text.parse(path.read_bytes()) or {}
    if not isinstance(rows, dict):
        raise ValueError(f"{path} is no mapping of names")
    for name, row in rows.items():
        if not (isinstance(name, str) and isinstance(row, list) and len(row) == 2):
            raise ValueError(f"{path}: {name}: expected [unit, description]")
        check([f"{plugin.root}/{name}"], [plugin.root])
    return {f"{plugin.root}/{name}": Metric(str(row[0]), str(row[1])) for name, row in rows.items()}


def is_unregistered(name: str) -> bool:
    """Return whether no entry of `METRICS` matches this name, with or without a name defined by the world."""
    return name not in METRICS and not _pattern().fullmatch(name)


def check(names: Iterable[str], packages: Collection[str] = ()) -> None:
    """Raise `UnregisteredMetric` for the first name that is not registered and not PACKAGE/NAME of ``packages``."""
    for name in names:
        package, _, rest = name.partition("/")
        if is_unregistered(name) and not (package in packages and re.fullmatch(r"[^\s/]+(/[^\s/]+)*", rest)):
            own = " or ".join(f"{root}/NAME" for root in ("custom", *packages))
            raise UnregisteredMetric(
                f"{name!r} is not a registered metric (docs/metrics.md){nearest(name, METRICS)}; a class of your own "
                f"names its metrics {own}"
            )


def page() -> str:
    """Return the text of ``docs/metrics.md``."""
    lines = ["# Metrics", "", *_INTRODUCTION, "", "| name | unit | description |", "|---|---|---|"]
    lines += [f"| `{name}` | {each.unit} | {each.description} |" for name, each in METRICS.items()]
    return "\n".join(lines) + "\n"


_INTRODUCTION = (
    'In Python `evorl.load("latest").metrics` is a frame of these names, and `.plot("policy/entropy")` draws one.',
    "",
    "Every line of `metrics.jsonl` has `step` (environment steps of the whole run), `time` (seconds since the start of",
    "the run, without the time between a stop and a resume) and some of the metrics below. A number that is not finite",
    "is `null`. A word in angle brackets stands for a name defined by the world.",
    "",
    "```json",
    '{"step": 3072, "time": 0.36, "policy/entropy": 0.6839, "train/return": 23.16, "train/episode_length": 23.16}',
    "```",
    "",
    "A loss or an evolution of your own writes `custom/NAME`, or `PACKAGE/NAME` with the name of its package (that of",
    "`trust`). Any other name ends the run with a line that tells it. A [plugin](plugins.md) declares units and",
    "descriptions of its metrics in `metrics.yaml`.",
    "",
    "This page is generated by `python -m evorl.record.metrics`.",
)


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile("|".join(re.sub(r"<\w+>", r"[^/\\s]+", name) for name in METRICS if "<" in name))


if __name__ == "__main__":
    print(page(), end="")
