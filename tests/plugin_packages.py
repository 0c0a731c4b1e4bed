"""Plugins for tests: what ``evorl.new`` makes, installed as far as Python looks: a folder on its path with metadata."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evorl import new


def write(place: Path, name: str = "my_lab", kinds: Sequence[str] = tuple(new.KINDS)) -> Path:
    """Write a package as ``evorl.new`` does; return the folder that is to be on the path."""
    folder = place / f"of_{name}"
    for path, text in new.files(name, kinds).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def add_metadata(folder: Path) -> Path:
    """Write the metadata of an installed distribution beside its modules, as an installer does."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [line for group, points in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points.items()))]
    (info / "entry_points.txt").write_text("\n".join([*lines, ""]))
    return folder


@contextmanager
def on_path(*folders: Path) -> Iterator[None]:
    """Let Python find what is in these folders; afterwards it has never seen their modules."""
    before, known = sys.path[:], {*sys.modules}
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before
        for name in {*sys.modules} - known:
            if any((folder / name.partition(".")[0]).exists() for folder in folders):
                del sys.modules[name]
