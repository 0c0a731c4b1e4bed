"""Tables as LaTeX for the package booktabs: one tabular each, to ``\\input`` into a paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from evorl.analysis.tables import numeric_columns
from evorl.util.text import printable

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {sign: f"\\{sign}" for sign in "&%$#_{}"}
_SPECIAL |= {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}  # in the default encoding other signs
_SIGNS = {
    "±": r"$\pm$",
    "\u2009": r"\,",
    "–": "--",
    "…": r"\dots{}",
    "·": r"$\cdot$",
    "−": "$-$",
    "→": r"$\to$",
    "²": "$^2$",
    "³": "$^3$",
}
_NEGATIVE = re.compile(r"(?<![\w.)-])-(?=[\d.]|nan|inf)")
_INTERVAL = re.compile(r"[-\d.e+\u2009]+( (±|\[).*)?|")


def to_latex(rows: Sequence[Mapping[str, str]], title: str) -> str:
    """Return a table whose cells are text as a tabular with booktabs' rules; ``title`` becomes a comment above it.

    Columns of numbers, with or without intervals, are set to the right.
    """
    right = numeric_columns(rows) | {key for key in rows[0] if all(_INTERVAL.fullmatch(row[key]) for row in rows)}
    columns = "".join("r" if key in right else "l" for key in rows[0])
    head = " & ".join(_cell(key) for key in rows[0])
    body = "".join(" & ".join(map(_cell, row.values())) + " \\\\\n" for row in rows)
    title = printable(" ".join(title.split()))  # a line break would end the comment
    return (
        f"% {title} (needs \\usepackage{{booktabs}})\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head} \\\\\n"
        f"\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


def _cell(text: str) -> str:
    """Escape a cell; a cell that begins with a bracket would be taken for an argument of the line break before it."""
    text = printable(" ".join(text.split("\n")))
    escaped = "".join(_SPECIAL.get(sign) or _SIGNS.get(sign, sign) for sign in _NEGATIVE.sub("−", text))
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped
