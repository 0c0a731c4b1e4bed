"""The command that begins a package of your own: an algorithm, evolver, network, world or sampler, with tests.

    python -m evorl.new algorithm my_pg     makes the folder my_pg/, a plugin of evorl
    python -m evorl.new package my_lab      one with all five

docs/plugins.md describes the next steps.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":  # start as the command evorl, which handles signals during start-up
    from evorl.__main__ import main as evorl

    sys.exit(evorl(["new", *sys.argv[1:]]))

import keyword
import os
import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from evorl.cli import config
from evorl.cli.groups import options
from evorl.cli.overrides import GROUPS
from evorl.nets import encoders
from evorl.replay.samplers import registry
from evorl.util import command
from evorl.util.errors import BadRequest, nearest
from evorl.util.text import say

TEMPLATES = Path(__file__).parent / "templates"


class Kind(NamedTuple):
    """What a package can have."""

    group: str
    """The config group of its file; empty for a network and a sampler, which have none."""
    metrics: str
    """Its lines of metrics.yaml."""
    words: str
    """What trains with it."""


KINDS: Mapping[str, Kind] = {
    "algorithm": Kind("rl", "penalty: [reward, how much the penalty takes off the objective]", "mdp=cartpole rl={}"),
    "evolver": Kind(
        "ec", "worst_parent: [fitness, fitness of the worst parent]",
        "mdp=cartpole ec={} ec.episodes=2 rl.net.hidden=[16] budget.steps=200_000",
    ),
    "world": Kind("mdp", "", "mdp={}"),
    "network": Kind("", "", "mdp=cartpole rl=ppo rl.net.encoder={}"),
    "sampler": Kind("", "", "mdp=cartpole rl=dqn rl.sampling={}"),
}  # fmt: skip
ENTRY = """
[project.entry-points."{group}"]
{name} = "{name}.{kind}:{class_name}"
"""
GROUPS_OF_ENTRIES = {"network": encoders.KINDS.group, "sampler": registry.KINDS.group}
PYTEST = """
[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run ``evorl.new`` with these arguments and return its exit code."""
    return config.command_line(new, words)


def new(words: Sequence[str]) -> None:
    """Make a package. Raises `BadRequest` with nothing written."""
    if {"-h", "--help"} & {*words}:
        print((__doc__ or "").strip())
        return
    what, name = _checked(words)
    kinds = [*KINDS] if what == "package" else [what]
    place = Path(name)
    for path, text in files(name, kinds).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, encoding="utf-8")
    say(f"{place}: a plugin of evorl with {'an' if what[0] in 'ae' else 'a'} {what}" if what != "package" else
        f"{place}: a plugin of evorl with an {', '.join(kinds)}")  # fmt: skip
    say(f"next: {command.python()} -m pip install -e '{place}[test]'")
    for kind in kinds:
        say(f"      {command.run(*KINDS[kind].words.format(name).split())}")
    say(f"      {command.python()} -m pytest {place}")


def files(name: str, kinds: Sequence[str]) -> dict[str, str]:
    """Return the files of a package with this name: their texts by path below its folder."""
    kind_name = class_name(name)
    entries = [
        ENTRY.format(group=GROUPS_OF_ENTRIES[kind], name=name, kind=kind, class_name=kind_name)
        for kind in kinds
        if kind in GROUPS_OF_ENTRIES
    ]
    made = {
        "pyproject.toml": "".join([_filled("pyproject.toml", name), *entries, PYTEST]),
        f"{name}/__init__.py": f'"""{kind_name}: a plugin of evorl."""\n',
        "tests/test_files.py": _filled("test_files.py", name),
    }
    if metrics := [KINDS[kind].metrics for kind in kinds if KINDS[kind].metrics]:
        head = f"# The metrics that the package records as {name}/...: [unit, description]"
        made[f"{name}/metrics.yaml"] = "\n".join([head, *metrics, ""])
    for kind in kinds:
        made[f"{name}/{kind}.py"] = _filled(f"{kind}.py", name)
        made[f"tests/test_{kind}.py"] = _filled(f"test_{kind}.py", name)
        if group := KINDS[kind].group:
            made[f"{name}/conf/{group}/{name}.yaml"] = _filled(f"{group}.yaml", name)
    return made


def class_name(name: str) -> str:
    """``my_pg`` as the name of a class: MyPg."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _filled(template: str, name: str) -> str:
    text = (TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
    return re.sub(r"\b(?:NAME|PACKAGE)\b", name, re.sub(r"\bCLASS\b", class_name(name), text))


def _checked(words: Sequence[str]) -> tuple[str, str]:
    """Return what is to be made and its name. Raises `BadRequest`."""
    several = (*KINDS, "package")
    if len(words) != 2:
        raise BadRequest(f"expected {'|'.join(several)} NAME, such as: {command.line('new', 'algorithm', 'my_pg')}")
    what, name = words
    if what not in several:
        raise BadRequest(f"makes one of {', '.join(several)}, not {what!r}{nearest(what, several)}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise BadRequest(f"{name!r} is no name of a Python package: small letters, digits and _, such as my_pg")
    if os.path.lexists(name):
        raise BadRequest(f"{name} exists already, and is left as it is; choose another name")
    if taken := _taken(name):
        raise BadRequest(f"{name} is the name of {taken}; choose another, such as my_{name}")
    return what, name


def _taken(name: str) -> str:
    """What else has this name, in words; empty if nothing has it."""
    for key, own in {"rl.sampling": registry.KINDS.own, "rl.net.encoder": encoders.KINDS.own}.items():
        if name in own:
            return f"evorl's {key}={name}"
    with config.opened() as hydra:
        for group in GROUPS:
            if name in options(hydra, group):
                return f"the choice {group}={name}"
    if name == "tests" or find_spec(name) is not None:
        return "a module that this Python has" if name != "tests" else "the folder of tests"
    return ""
