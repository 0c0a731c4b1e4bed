"""Conformance check of the files beside a plugin's root module: its choices and the metrics that it declares."""

from __future__ import annotations

from pathlib import Path

from evorl.cli import config
from evorl.cli.overrides import FOLDERS, GROUPS, TUNED
from evorl.record.metrics import read_declaration
from evorl.util.conformance import Nonconformity as Nonconformity
from evorl.util.errors import BadRequest
from evorl.util.plugins import Plugin


def check_files(folder: Path) -> None:
    """Raise `Nonconformity`, with one sentence, unless the files of the plugin in this folder keep these rules.

    ``folder`` is that of the root module, whose name it has; the plugin need not be installed.

    * Each file of ``conf/`` is a choice of a group, can be chosen, and makes an object of the group. It is named
      ``*.yaml``, as no other is read. A README, ``__init__.py`` and hidden files may be beside them.
    * None has the name of a choice of evorl, which would be taken in its place.
    * ``metrics.yaml``, if there is one, has a unit and a description for each name.
    """
    root, conf = folder.name, folder / "conf"
    if (folder / "metrics.yml").exists():
        raise Nonconformity("metrics.yml is not read; call it metrics.yaml")
    try:
        read_declaration(Plugin(root, "", folder))
    except ValueError as error:
        raise Nonconformity(str(error)) from None
    for path in sorted(path.relative_to(conf) for path in conf.rglob("*")):
        if not (conf / path).is_dir() and not _is_beside(path):
            _check_choice(root, conf, path)


def _is_beside(path: Path) -> bool:
    """Whether a file of ``conf/`` is none that an author means as a choice."""
    hidden = any(part.startswith(".") or part == "__pycache__" for part in path.parts)
    return hidden or path.stem == "README" or path.name == "__init__.py"


def _check_choice(root: str, conf: Path, path: Path) -> None:
    group, choice = str(path.parent), path.stem
    known = (*GROUPS, *FOLDERS, TUNED)
    if path.suffix != ".yaml":
        name = f"{choice.removesuffix('.yaml')}.yaml"
        raise Nonconformity(f"conf/{path} is not read, since it is no file *.yaml; call a choice {name}")
    if group.partition("/")[0] not in known:
        raise Nonconformity(f"conf/{path} belongs to no group; there are {', '.join(known)}")
    if (config.CONF / path).exists():
        raise Nonconformity(f"conf/{path} has the name of a choice of evorl, which is taken in its place")
    word = f"{'+' if group.partition('/')[0] in FOLDERS else ''}{group}={choice}"
    try:
        with config.opened(extra=str(conf)) as hydra:
            composed = config.resolved(config.compose(hydra, [word, f"trust=[{root}]"]))
            config.experiment(composed, (root,))
    except BadRequest as error:
        raise Nonconformity(f"conf/{path} cannot be chosen: {error}") from None
