"""Keys of other suites, and the evorl key for each: what users of CleanRL, Stable-Baselines3 or RLlib type first."""

from __future__ import annotations

from collections.abc import Collection

KEYS = {
    "algo": "rl",
    "algorithm": "rl",
    "agent": "rl",
    "lr": "rl.lr",
    "learning_rate": "rl.lr",
    "gamma": "rl.gamma",
    "gae_lambda": "rl.lam",
    "ent_coef": "rl.entropy_coef",
    "vf_coef": "rl.critic_coef",
    "clip_coef": "rl.clip",
    "clip_range": "rl.clip",
    "max_grad_norm": "rl.max_grad_norm",
    "total_timesteps": "budget.steps",
    "total_steps": "budget.steps",
    "timesteps": "budget.steps",
    "n_envs": "rl.slots",
    "num_envs": "rl.slots",
    "n_steps": "rl.horizon",
    "num_steps": "rl.horizon",
    "batch_size": "rl.minibatch",
    "n_epochs": "rl.passes",
    "update_epochs": "rl.passes",
}
"""By word: the key of evorl that takes the same value."""
ENVIRONMENT = ("env", "env_id", "env_name", "gym_id", "environment")
"""Words for the environment, whose value decides between a world of evorl and an id of gymnasium."""


def translate(word: str, value: str, worlds: Collection[str]) -> str | None:
    """Return evorl's KEY=VALUE words for another suite's ``word=value``; None if the word is not in the table.

    ``worlds`` are the choices of ``mdp``. A dashed spelling (``env-id``) counts as the underscored one.
    """
    word = word.replace("-", "_")
    if word in ENVIRONMENT:
        return f"mdp={value}" if value in worlds else f"mdp=gymnasium mdp.id={value}"
    if word in KEYS:
        return f"{KEYS[word]}={value.lower() if KEYS[word] == 'rl' else value}"
    return None
