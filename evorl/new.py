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
from symtable import symtable
from tempfile import TemporaryDirectory
from typing import NamedTuple

from evorl.cli import config
from evorl.cli.groups import options
from evorl.cli.overrides import GROUPS, parse
from evorl.nets import encoders
from evorl.replay.samplers import registry
from evorl.util import command, yaml_text
from evorl.util.errors import BadRequest, nearest
from evorl.util.names import check_can_be_made, making
from evorl.util.stop import signals_wait
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
    what, kinds, name = _checked(words)
    place = Path(name)
    _write(place, files(name, kinds))
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


def _write(place: Path, texts: Mapping[str, str]) -> None:
    """Write files below a new folder, all or none. Raises `BadRequest`."""
    check_can_be_made(place, [place.absolute().parent])
    with signals_wait(), making(place), TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as folder:
        made = Path(folder, place.name)  # a folder within, since the temporary one is closed to others
        for path, text in texts.items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text, encoding="utf-8")
        made.rename(place)


def _filled(template: str, name: str) -> str:
    text = (TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
    return re.sub(r"\b(?:NAME|PACKAGE)\b", name, re.sub(r"\bCLASS\b", class_name(name), text))


def _checked(words: Sequence[str]) -> tuple[str, list[str], str]:
    """Return what is to be made, the kinds that are in it, and its name. Raises `BadRequest`."""
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
    kinds = [*KINDS] if what == "package" else [what]
    if taken := _taken(name) or _taken_within(name, kinds):
        raise BadRequest(f"{name} is the name of {taken}; choose another, such as my_{name}")
    return what, kinds, name


def _taken(name: str) -> str:
    """What else has this name, in words; empty if nothing has it."""
    if not name == parse([f"mdp={name}"])[0].value() == yaml_text.parse(name.encode()):
        return "a value in YAML"
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


def _taken_within(name: str, kinds: Sequence[str]) -> str:
    """What has this name, or that of its class, within a package of these kinds; empty if nothing has it."""
    if f"tests/{name}.py" in files(name, kinds):
        return "a file of its tests"
    modules = [text for path, text in files("NAME", kinds).items() if path.endswith(".py")]
    bound = {word for text in modules for word in symtable(text, "NAME", "exec").get_identifiers()}
    return f"a class, {class_name(name)}, that its modules use" if class_name(name) in bound else ""
