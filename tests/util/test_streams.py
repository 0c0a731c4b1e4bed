"""Printing never fails, whatever the encoding of the terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

SAID = "144.9 ± 229 … Müller ř \u2588 runs/caf\udce9"
SHOWN = {
    "ascii": b"144.9 +/- 229 ? M?ller ? ? runs/caf\xe9\n",
    "latin-1": b"144.9 \xb1 229 ? M\xfcller ? ? runs/caf\xe9\n",
    "iso8859-2": b"144.9 +/- 229 ? M\xfcller \xf8 ? runs/caf\xe9\n",
    "utf-8": "144.9 ± 229 … Müller ř \u2588 runs/caf".encode() + b"\xe9\n",
}


@pytest.mark.parametrize("encoding", SHOWN)
def test_what_the_encoding_lacks_is_a_question_mark_and_a_name_has_its_bytes(encoding: str) -> None:
    code = (
        "import sys; from evorl.util.streams import ignore_write_errors as tolerant; tolerant(); "
        f"said = {SAID!a}; print(said); print(said, file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (SHOWN[encoding], SHOWN[encoding])


def test_a_table_on_a_terminal_without_its_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from evorl.record.terminal import Terminal, print_summary
    from evorl.util.streams import _stream

    class Screen(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    place = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    opened = _stream(place, io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    screen = Screen(opened.detach(), encoding="ascii", errors=opened.errors, line_buffering=True)
    best = [{"id": 1, "genes": "größe"}]
    with Terminal(100, stream=screen, individuals=lambda: best) as terminal:
        terminal.update(10, {"eval/return_mean": 1.0})
        terminal.print_line("Müller … ±")
    result = {"steps": 1, "seconds": 1.0, "eval": {f"return_{part}": 2.0 for part in ("mean", "std", "min", "max")}}
    print_summary(result, tmp_path, screen)
    screen.flush()
    os.close(place)
    text = (tmp_path / "out").read_bytes()
    assert b"M?ller ? +/-" in text and b"gr??e" in text and b"2 +/- 2, 2 to 2" in text
