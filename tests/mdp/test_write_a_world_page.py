"""docs/write_a_world.md: its blocks of code are files, which test_docs.py writes before it types the commands."""

from __future__ import annotations

import re
from pathlib import PurePath

from page_commands import ROOT, blocks, ours

PAGE = ROOT / "docs" / "write_a_world.md"
FILES = {text.splitlines()[0]: text for label, text in blocks(PAGE) if label in ("python", "yaml")}


def test_every_file_has_a_name_and_a_command_that_uses_it() -> None:
    assert len(FILES) == 6
    for name in FILES:
        assert re.fullmatch(r"# [\w/]+\.\w+", name)
        module = PurePath(name).stem.removeprefix("# ")
        assert any(re.search(rf"\b{module}\b", line) for line in ours(PAGE)), name


def test_first_world_is_short() -> None:
    code = next(text for text in FILES.values() if "@dataclass" in text)
    body = code[code.index("@dataclass") :]
    assert sum(bool(line.strip()) for line in body.splitlines()) <= 31
