"""The notebooks of the docs run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from harness import script

notebooks = script("notebooks")
BOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    book = notebooks.executed(path, tmp_path)
    assert all(cell.outputs for cell in book.cells if cell.cell_type == "code" and not cell.source.endswith(";"))


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_with_its_outputs(path: Path) -> None:
    book = nbformat.read(path, 4)
    nbformat.validate(book)
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.outputs)
    assert "/tmp/" not in path.read_text() and "/root" not in path.read_text()
