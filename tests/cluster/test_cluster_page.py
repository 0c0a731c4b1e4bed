"""docs/cluster.md lists every config key of the clusters with its default."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_keys_and_defaults() -> None:
    page = (ROOT / "docs" / "cluster.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| ([^|]*?) \|", page, re.MULTILINE)
    for column, name in ((1, "processes"), (2, "ray")):
        conf = yaml.safe_load((ROOT / "conf" / "cluster" / f"{name}.yaml").read_text())
        del conf["_target_"]
        assert {row[0]: yaml.safe_load(row[column]) for row in rows if row[column]} == conf
