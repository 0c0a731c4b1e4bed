"""Errors that name what is wrong, and the nearest right name."""

from __future__ import annotations

import itertools
import traceback

import pytest

from evorl.cluster.core import caller_error
from evorl.mdp.core import WorldError
from evorl.util.errors import BadRequest, nearest, one_edit, reason, wrong_data


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
            assert one_edit(a, b) == (b in edits(a, "ab")), (a, b)


@pytest.mark.parametrize(
    ("word", "choice"),
    [
        *(("lr", "rl"), ("li", "lr"), ("learning_rate", "lr"), ("ec", "entropy_coef")),
        *(("gama", "gamma"), ("entropy", "entropy_coef"), ("zzz", "")),
    ],
)
def test_nearest(word: str, choice: str) -> None:
    assert nearest(word, ["clip", "gamma", "entropy_coef", "lr" if word != "lr" else "rl"]) == (
        f"; did you mean {choice}?" if choice else ""
    )


@pytest.mark.parametrize(
    ("word", "choice"), [("discount", "gamma"), ("gae_lambda", "lam"), ("run", ""), ("null", ""), ("gamm", "gamma")]
)
def test_nearest_by_what_is_said(word: str, choice: str) -> None:
    said = {"gamma": "discount per decision; null is 1", "lam": "GAE's lambda", "x": "a run directory to go on with"}
    assert nearest(word, said, lambda: said) == (f"; did you mean {choice}?" if choice else "")


def test_a_bad_request_gains_the_prefixes_of_its_callers() -> None:
    error = BadRequest("must be positive", "lr")
    assert str(error) == "lr: must be positive"
    assert str(error.under("rl")) == "rl.lr: must be positive"
    assert str(BadRequest("no").under("rl")) == "rl: no"


def test_the_reason_of_an_error_is_its_true_cause_also_where_only_its_traceback_came() -> None:
    def chained() -> RuntimeError:
        try:
            raise OSError("a rock\nin the sea")
        except OSError as cause:
            error = RuntimeError("the voyage failed")
            error.__cause__ = cause
            return error

    assert reason(RuntimeError("alone")) == "RuntimeError: alone"
    assert reason(RuntimeError("two\nof\nthree")) == "RuntimeError: two … three"
    assert reason(BadRequest("no", "rl.lr")) == "rl.lr: no"
    cause = chained().__cause__
    assert cause is not None and reason(chained()) == reason(cause) == "OSError: a rock … in the sea"
    trace = "".join(traceback.format_exception(cause))
    assert reason(RuntimeError(f"member 3 failed:\n{trace}")) == "OSError: a rock"


@pytest.mark.parametrize("remote", [False, True], ids=["here", "in a member"])
@pytest.mark.parametrize(
    ("error", "wrong"),
    [
        (KeyError("actor"), True), (RuntimeError("size mismatch"), True), (RecursionError("deep"), True),
        (WorldError("no server"), False), (OSError("full"), False),
    ],
)  # fmt: skip
def test_what_data_of_the_wrong_kind_raises_is_the_same_in_a_member(
    error: Exception, wrong: bool, remote: bool
) -> None:
    """A plain RuntimeError is PyTorch's for tensors of another shape."""
    raised = caller_error(0, error, ()) if remote else error
    with pytest.raises(BadRequest if wrong else type(raised)), wrong_data(BadRequest):
        raise raised
