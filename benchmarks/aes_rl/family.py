"""The algorithms, worlds and sizes of this folder's sweeps."""

from __future__ import annotations

from evorl.analysis.runs import RunRecord

TITLES = {
    "td3": "TD3", "sac": "SAC", "cem": "CEM", "cem_rl": "CEM-RL", "p_cem_rl": "P-CEM-RL", "acem_rl": "ACEM-RL",
    "one_plus_one_rl": "(1+1)-ES", "aes_rl": "AES-RL",
}  # fmt: skip
UNTRAINED = "AES-RL, none trained"
FIVE_SLOTS = "AES-RL, 5 slots"
WORLDS = {
    "halfcheetah": "HalfCheetah", "hopper": "Hopper", "walker2d": "Walker2d", "swimmer": "Swimmer", "ant": "Ant",
    "humanoid": "Humanoid",
}  # fmt: skip
COLOURS = dict(
    zip(
        [*TITLES.values(), FIVE_SLOTS, UNTRAINED],
        ["C0", "C9", "C2", "C1", "C5", "C4", "C6", "C3", "C8", "C7"],
        strict=True,
    )
)
SMALL = ("rl.net.hidden=[64,64]", "rl.batch=100", "rl.lr=1e-3", "record.tensorboard=false")
"""The network and batch of profile=ci, which are those of our reference measurement."""


def algorithm(run: RunRecord) -> str:
    """Its title in the tables."""
    name = TITLES[run.choices["rl"] if run.choices["ec"] == "none" else run.choices["ec"]]
    return UNTRAINED if run.config.get("ec.trained_share") == 0 else name
