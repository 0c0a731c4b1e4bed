"""The duel that is balanced by learners: the line through its games, and the whole program made tiny."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from harness import experiment_of

from benchmarks.balance import duel
from benchmarks.balance.archetypes import ARCHERS, KNIGHTS, Restricted
from benchmarks.balance.duel import GENES, HIGH, LOW, OWN, SIZES, evened, gates, measured, units, values
from benchmarks.balance.model import Line, fitted, logit, smallest_even, through
from evorl.cli.config import experiment_of_words
from evorl.ops.student_t import t_quantile
from evorl.population.balance_evaluator import play_game
from evorl.reproduction import papers
from evorl.reproduction.loop import Request, first_job, reproduce
from evorl.util import seed as seeds


def test_the_line_is_that_of_least_squares() -> None:
    """Against the normal equations of one gene, written out."""
    draw = np.random.default_rng(0)
    x, rate = draw.uniform(-1, 1, 12), draw.uniform(0.2, 0.8, 12)
    line = fitted(x[:, None], rate, 100)
    y = [math.log((100 * r + 0.5) / (100 * (1 - r) + 0.5)) for r in rate]
    mean_x, mean_y = sum(x) / 12, sum(y) / 12
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    intercept = mean_y - slope * mean_x
    residual = sum((b - intercept - slope * a) ** 2 for a, b in zip(x, y, strict=True)) / 10
    assert line.slope[0] == pytest.approx(slope) and line.intercept == pytest.approx(intercept)
    assert line.half_width[0] == pytest.approx(t_quantile(10) * math.sqrt(residual / spread))


def test_the_line_of_a_known_game_is_got_back_and_moved() -> None:
    true = Line(1.2, np.array([2.0, -1.0]), np.zeros(2))
    x = np.random.default_rng(1).uniform(-0.5, 0.5, (40, 2))
    line = fitted(x, np.array([true.rate(one) for one in x]), 10**7)
    assert line.intercept == pytest.approx(1.2, abs=1e-3) and line.slope == pytest.approx([2, -1], abs=1e-3)
    moved = through(line, np.array([0.1, 0.2]), 0.5, 10**7)
    assert moved.rate(np.array([0.1, 0.2])) == pytest.approx(0.5) and (moved.slope == line.slope).all()
    assert np.isfinite(logit(np.array([0.0, 1.0]), 10)).all()


def test_the_smallest_even_change_is_the_nearest_of_a_grid() -> None:
    draw = np.random.default_rng(2)
    for _ in range(20):
        line = Line(float(draw.normal()), draw.normal(size=2), np.zeros(2))
        low, high = -draw.uniform(0.1, 1, 2), draw.uniform(0.1, 1, 2)
        best = smallest_even(line, low, high)
        assert (best >= low).all() and (best <= high).all()
        grid = np.stack(np.meshgrid(*(np.linspace(a, b, 300) for a, b in zip(low, high, strict=True))), -1)
        odds = np.abs(line.intercept + grid @ line.slope)
        own = abs(line.intercept + line.slope @ best)
        assert own <= odds.min() + 1e-9  # as even as the bounds allow
        if own < 1e-9:
            even = odds < 0.01
            assert np.hypot(*best) <= np.hypot(*np.moveaxis(grid[even], -1, 0)).min() + 0.05
    assert smallest_even(Line(1.0, np.zeros(2), np.zeros(2)), -np.ones(2), np.ones(2)).tolist() == [0, 0]


def test_genes_are_told_in_units_of_their_ranges() -> None:
    assert units(OWN).tolist() == [0] * 4 and (units(HIGH) - units(LOW)).tolist() == [1] * 4
    assert values(np.zeros(4)) == dict(zip(GENES, OWN.tolist(), strict=True))
    game = evened(Line(0.8, np.array([1.0, 1.0, -1.0, -1.0]), np.zeros(4)))
    assert units(np.array([*game.values()])) == pytest.approx([-0.2, -0.2, 0.2, 0.2], abs=1e-3)


def test_gates_and_the_words_of_a_result() -> None:
    assert [*gates([0.8, 0.8], [0.46, 0.52]).values()] == ["passed", "passed"]
    assert [*gates([0.7, 0.7], [0.46, 0.46]).values()] == ["failed", "failed"]
    told = measured({"start": [0.8, 0.82], "balanced": {"rates": [0.5, 0.52]}})
    assert told.startswith("the knight wins 0.810 ± 0.127 of the designer's games (2 learners) and 0.510 ± 0.127 of")


def test_ranges_hold_the_designer_s_values_and_jobs_compose() -> None:
    assert ((LOW < OWN) & (OWN < HIGH)).all()
    for size in SIZES.values():
        start = experiment_of_words(first_job(duel.fresh("start", size, size.fresh, 0, {}).words))
        for name, (own, _, _) in GENES.items():
            node = start.mdp
            for part in name.split("."):
                node = getattr(node, part)
            assert node == own
        search = experiment_of_words(first_job(duel.search(size).words))
        assert search.ec.train_steps == size.child and search.ec.lifetime == "balance"


def test_an_archetype_does_without_its_skill() -> None:
    words = ("+experiment=balance/duel", "mdp.ground.limit=3", "rl.net.hidden=[8]")
    experiment = experiment_of(*words)
    learner = experiment.rl.learner(experiment.mdp.spec, 0, torch.device("cpu"))
    seen: list[tuple[int, int]] = []
    act = learner.act

    def watched(inputs, legal, *rest):  # type: ignore[no-untyped-def]
        assert not legal[::2, 3].any() and not legal[1::2, 2].any()
        decision = act(inputs, legal, *rest)
        seen.extend((row % 2, int(skill)) for row, skill in enumerate(decision.played[:, 0]))
        return decision

    learner.act = watched
    forbidden = [KNIGHTS["without charge"], ARCHERS["without shoot"]]
    play_game(experiment.mdp, Restricted(learner, forbidden), seeds.Episodes(0, evaluation=True), 8, experiment)
    used = set(seen)
    assert (0, 3) not in used and (1, 2) not in used and {(0, 2), (1, 3)} <= used


@pytest.mark.slow
def test_a_tiny_search_is_judged_and_reported(tmp_path: Path) -> None:
    asked = Request("balance/duel", "tiny", ("record.tensorboard=false",), tmp_path / "runs", tmp_path / "out", False)
    reproduce(papers.table("balance/duel"), asked)
    told = json.loads((tmp_path / "out" / "duel.json").read_text())
    assert [row[0] for row in told["rows"]] == ["designer's", "even in the search", "balanced"]
    found = told["data"]
    assert len(found["search"]) >= 3 and len(found["archetypes"]["rates"]) == 4
    genes = {f"mdp.{name}" for name in GENES}
    assert all(genes <= one.keys() for one in found["search"])
    page = (tmp_path / "out" / "duel.md").read_text()
    assert "without charge" in page and "points for a tenth of its range" in page and "duel_front.png" in page
    films = [film.name for film in (tmp_path / "out").glob("*.mp4")]
    assert "duel_most_changed.mp4" in films and all(f"[film]({name})" in page for name in films)
