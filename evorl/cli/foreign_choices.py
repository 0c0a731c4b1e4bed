"""Names of algorithms, worlds and devices that are no choices of evorl, and what to type instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

RAINBOW = (
    "rl=dqn rl.double=true rl.dueling=true rl.noisy=true rl.n_step=3 rl.distribution=c51 rl.sampling=prioritized, "
    "or on Atari games +experiment=rainbow"
)
ALGORITHMS = {
    "rainbow": RAINBOW,
    **dict.fromkeys(("ddqn", "double_dqn"), "rl=dqn rl.double=true"),
    "dueling_dqn": "rl=dqn rl.dueling=true",
    "c51": "rl=dqn rl.distribution=c51",
    **dict.fromkeys(("qrdqn", "qr_dqn"), "rl=dqn rl.distribution=qr"),
    "noisy_dqn": "rl=dqn rl.noisy=true",
    **dict.fromkeys(("apex", "apex_dqn", "ape_x"), "+experiment=ape_x"),
    "drqn": "rl=r2d2",
    "impala": "rl=vtrace",
    "appo": "rl=impact",
    **dict.fromkeys(("recurrent_ppo", "recurrentppo", "ppo_lstm"), "rl=ppo rl.net.lstm=128"),
    **dict.fromkeys(("pg", "vpg"), "rl=reinforce"),
    **dict.fromkeys(("es", "openaies"), "ec=openai_es"),
    **dict.fromkeys(("cma", "cmaes"), "ec=cma_es"),
    "ga": "ec=sga",
    "pb2": "ec=pbt +ec.genes.rl.lr=[1e-5,1e-2]",
    "cemrl": "ec=cem_rl rl=td3",
}
"""By name in lower case: what to type for an algorithm or evolution."""
CLASSIC = ("acrobot", "cartpole", "mountaincar", "pendulum")
GPUS = re.compile(r"gpu|cuda.+|nvidia", re.IGNORECASE)


def algorithm(name: str) -> str | None:
    """Return what to type for an algorithm; None if it is not known."""
    return ALGORITHMS.get(name.lower().replace("-", "_"))


def world(name: str, ids: Mapping[str, str], extras: Callable[[str], list[str]]) -> str | None:
    """Return what to type for a world; None if nothing is known of it.

    ``ids`` are the choices by gymnasium's id, ``extras`` returns the choices that need an extra.
    """
    if name in ids:
        return f"mdp={ids[name]}"
    if game := atari_game(name):
        frames = "_noframeskip" if "NoFrameskip" in name else ""
        return f"mdp=atari{frames} mdp.game={game}"
    family = name.lower().replace("-", "_")
    ready = CLASSIC if family.startswith("classic") else extras(family)
    if ready:
        return " or ".join([f"mdp={ready[0]}", *ready[1:]])
    if family in ("gym", "gymnasium", "openai_gym"):
        return "mdp=gymnasium mdp.id=ID"
    if re.fullmatch(r"([\w.]+:)?[\w/]+-v\d+", name):
        return f"mdp=gymnasium mdp.id={name}"
    if re.fullmatch(r"[A-Za-z_][\w.]*[.:][A-Za-z_]\w*", name):
        module, _, kind = name.replace(":", ".").rpartition(".")
        return f"mdp=gymnasium mdp.id={module}:{kind} 'trust=[{module.partition('.')[0]}]'"
    return None


def atari_game(name: str) -> str | None:
    """Return ale-py's name of a game: of breakout, Breakout, ALE/Breakout-v5 or BreakoutNoFrameskip-v4."""
    from evorl.mdp.atari.scores import RANDOM_AND_HUMAN

    plain = re.sub(r"^ALE/|(NoFrameskip|Deterministic)?-v\d+$|(NoFrameskip|Deterministic)$", "", name)
    games = {game.replace("_", ""): game for game in RANDOM_AND_HUMAN}
    return games.get(re.sub(r"[\W_]", "", plain.lower()))


def device(name: object) -> str:
    """Return what to type for a device, as ``; did you mean cuda?``; an empty string if it is no GPU's name."""
    if not isinstance(name, str) or not GPUS.fullmatch(name):
        return ""
    import torch

    if torch.cuda.is_available():
        return "; did you mean cuda?"
    return "; a GPU is device=cuda, and here is none: device=cpu"
