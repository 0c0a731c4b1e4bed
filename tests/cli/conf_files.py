"""The files of conf/, and the words of a command line that choose each of them."""

from __future__ import annotations

from pathlib import Path

from evorl.cli import config, overrides

FILES = sorted(config.CONF.rglob("*.yaml"))
NEEDED = {
    ("mdp", "gymnasium"): ["mdp.id=CartPole-v1"],
    ("mdp", "openspiel"): ["mdp.game=kuhn_poker"],
    ("mdp", "pettingzoo"): ["mdp.id=mpe2.simple_spread_v3"],
    ("mdp", "remote"): ["mdp.listen=127.0.0.1:7777"],
    ("opponents", "runs"): ["opponents.runs=[RUN_DIR]"],
}
"""Words without which a file is refused."""


def name(path: Path) -> str:
    return str(path.relative_to(config.CONF).with_suffix(""))


def split(path: Path) -> tuple[str, str]:
    """The group of a file and how it is chosen there; no group for the main file."""
    inside = name(path)
    group, _, choice = inside.rpartition("/") if inside.startswith("hydra/") else inside.partition("/")
    return (group, choice) if choice else ("", group)


def words_of(path: Path) -> list[str]:
    group, choice = split(path)
    if group == overrides.TUNED:  # a pair of world and algorithm takes its file by itself
        world, _, algorithm = choice.rpartition("_")
        return [f"mdp={world}", f"rl={algorithm}"]
    needed = NEEDED.get((group, choice), [])
    return [f"{'+' if group in overrides.FOLDERS else ''}{group}={choice}", *needed] if group else []
