"""A3C: a member's gradient, followed by the learner, is A2C's update; and it learns from members elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import go
from test_updates import BOX, MULTI, SMALL, learner_of, random_batch

from evorl.rl.a2c import A2C
from evorl.rl.a3c import A3C, Gradient
from evorl.rl.core import NotFinite
from evorl.util.schedule import Anneal

torch.set_num_threads(1)
KEYS: dict[str, Any] = {"lr": Anneal(start=1e-2, end=1e-3, steps=100), "entropy_coef": 0.02, "max_grad_norm": 0.1}


@pytest.mark.parametrize("spec", [MULTI, BOX], ids=["multi", "box"])
@pytest.mark.parametrize("lstm", [0, 5])
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop_tf"])
def test_following_a_members_gradient_is_a2cs_update(optimizer: str, lstm: int, spec: Any) -> None:
    keys = {**KEYS, "net": replace(SMALL, lstm=lstm), "optimizer": optimizer}
    together, member, learner = (learner_of(kind(**keys), spec) for kind in (A2C, A3C, A3C))
    for iteration in range(3):
        batch = random_batch(together, 8, 5, iteration)
        member.load_weights(learner.weights())
        update_input = member.to_update_input(batch, 10 * iteration)
        got = learner.update(Gradient(**vars(update_input)), 10 * iteration, iteration)
        want = together.update(batch, 10 * iteration, iteration)
        torch.testing.assert_close(learner.theta, together.theta, rtol=1e-5, atol=1e-7)
        assert want.steps == got.steps == 1 and set(want.metrics) == set(got.metrics)
        assert got.metrics == pytest.approx(want.metrics, rel=1e-4, abs=1e-6)


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    learner = learner_of(A3C(net=SMALL), MULTI)
    update_input = learner.to_update_input(random_batch(learner, 8, 5), 0)
    update_input.gradient[3] = torch.nan
    with pytest.raises(NotFinite, match="grad_norm is nan"):
        learner.update(update_input, 0, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [("asynchronous", False), ("normalize_inputs", True), ("normalize_rewards", True), ("correction", "vtrace")],
)
def test_what_a3c_cannot_do_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{key}: "):
        A3C(**{key: value})


@pytest.mark.learn
def test_members_in_other_processes_teach_it_cartpole(tmp_path: Path) -> None:
    words = ("mdp=cartpole", "rl=a3c", "rl.members=3", "rl.slots=8", "seed=1", "budget.steps=900000")
    ends = ("budget.fitness=400", "eval.every=20000", "checkpoint.every=0", "record.tensorboard=false")
    where = ("cluster=processes", "cluster.workers=2", f"hydra.run.dir={tmp_path / 'run'}")
    assert go(*words, *ends, *where) == 0
    assert json.loads((tmp_path / "run" / "result.json").read_bytes())["fitness"] >= 400
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    played = [row for row in rows if "policy/lag" in row]
    assert all(row["policy/lag_max"] <= 12 for row in played) and {"speed/actor_wait", "speed/learner_wait"} <= {
        *played[0]
    }
