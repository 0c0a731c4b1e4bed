"""Numbers as text."""

from __future__ import annotations

import pytest

from evorl.util.numbers import format_number, short_texts


@pytest.mark.parametrize(("value", "text"), [(14.62, "+14.62"), (-0.0123, "-0.0123"), (12345.6, "+12\u2009346")])
def test_signed(value: float, text: str) -> None:
    assert format_number(value, signed=True) == text


@pytest.mark.parametrize(
    ("texts", "short"),
    [
        (["0.0026898442988547346", "5.7789895212801815e-05"], ["0.00269", "5.779e-05"]),
        (["0.123456", "0.123457"], ["0.123456", "0.123457"]),  # unlike ones stay unlike
        (["0.123456", "0.123456"], ["0.1235", "0.1235"]),
        (["123456", "ppo", "true", "", "1 2 3", "-0.98765"], ["123456", "ppo", "true", "", "1 2 3", "-0.9877"]),
        (["170 ± 110", "0.25 ± 0.11"], ["170 ± 110", "0.25 ± 0.11"]),
        ([], []),
    ],
)
def test_long_numbers_are_shortened_as_far_as_they_differ(texts: list[str], short: list[str]) -> None:
    assert short_texts(texts) == short
