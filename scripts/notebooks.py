"""Execute the notebooks of docs/notebooks in place: python scripts/notebooks.py [NAME...]"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"
PATIENCE_S = 600


def executed(path: Path, place: Path) -> nbformat.NotebookNode:
    """Return a notebook with the outputs of its cells, executed in a folder. Raises `CellExecutionError`."""
    book = nbformat.read(path, 4)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # commands are printed as python -m ...
    NotebookClient(book, timeout=PATIENCE_S, resources={"metadata": {"path": str(place)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times, which differ each time
        if cell.cell_type == "code":
            cell.outputs = _without(str(place), _joined(cell.outputs))
    return book


def _joined(outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs of a cell, with what it printed in one piece, and without what libraries warn of."""
    joined: list[nbformat.NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type == "stream" and joined and joined[-1].output_type == "stream":
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def _without(folder: str, outputs: Sequence[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs without the path of the temporary folder that they were made in."""
    for output in outputs:
        if output.output_type == "stream":
            output.text = output.text.replace(f"{folder}/", "")
    return list(outputs)


def main(names: Sequence[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            with TemporaryDirectory() as place:
                nbformat.write(executed(path, Path(place)), path)
            print(path)


if __name__ == "__main__":
    main(sys.argv[1:])
