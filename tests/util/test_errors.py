"""Errors that name what is wrong, and the nearest right name."""

from __future__ import annotations

import itertools

import pytest

from evorl.util.errors import BadRequest, _one_edit, nearest


def edits(word: str, letters: str) -> set[str]:
    """Every word one edit away, from the definition."""
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    return {
        *(a + b[1:] for a, b in cuts if b),
        *(a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1),
        *(a + c + b[1:] for a, b in cuts if b for c in letters),
        *(a + c + b for a, b in cuts for c in letters),
    }


def test_one_edit_is_what_the_definition_says() -> None:
    words = ["".join(letters) for n in range(5) for letters in itertools.product("ab", repeat=n)]
    for a, b in itertools.product(words, words):
        if a != b:
            assert _one_edit(a, b) == (b in edits(a, "ab")), (a, b)


@pytest.mark.parametrize(
    ("word", "choice"), [("lr", "rl"), ("li", "lr"), ("gama", "gamma"), ("entropy", "entropy_coef"), ("zzz", "")]
)
def test_nearest(word: str, choice: str) -> None:
    assert nearest(word, ["clip", "gamma", "entropy_coef", "lr" if word != "lr" else "rl"]) == (
        f"; did you mean {choice}?" if choice else ""
    )


def test_a_bad_request_gains_the_prefixes_of_its_callers() -> None:
    error = BadRequest("must be positive", "lr")
    assert str(error) == "lr: must be positive"
    assert str(error.under("rl")) == "rl.lr: must be positive"
    assert str(BadRequest("no").under("rl")) == "rl: no"
