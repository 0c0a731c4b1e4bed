"""Learners that take gradient steps together: the steps of one learner, and how their processes end."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import LSTM, WORLDS, experiment_of, go, learners_of
from mutating import check_mutation

from evorl.cluster.processes import watched
from evorl.rl.data_parallel import Collective, Leader, LearnerLost, Split
from evorl.rl.policy_gradient import PolicyGradient
from evorl.rl.rollout_replay import RolloutLearner
from evorl.rl.sac import Learner as SACLearner
from evorl.rl.vtrace import Learner as VTraceLearner
from evorl.training.train import Run

SMALL = ("record.tensorboard=false", "rl.net.hidden=[16]", "rl.horizon=8", "rl.lr=1e-3")
ROLLOUTS = ("rl=vtrace", "rl.slots=6", "rl.batch=12", "rl.fill_in=12", "rl.asynchronous=false", "rl.threads=1")
TRANSITIONS = ("rl.batch=10", "rl.samples_per_step=2", "rl.warm_up=20", "rl.slots=2")
PARTS = ("rl.sampling={queue:0.5,uniform:0,elite:0.25,prioritized:0.25}",)
CASES = {
    # 6 slots x 8 decisions in minibatches of 16, which neither 3 nor 5 divide; 2 slots at once with an LSTM
    "ppo": (*WORLDS["cartpole"], "rl=ppo", "rl.slots=6", "rl.minibatch=16", "rl.passes=2"),
    "ppo-lstm": (*WORLDS["duel"], *LSTM, "rl=ppo", "rl.slots=10", "rl.minibatch=40", "rl.passes=2"),
    "a2c": (*WORLDS["cartpole"], "rl=a2c", "rl.slots=5", "rl.optimizer=rmsprop_tf"),
    "reinforce": (*WORLDS["pendulum"], "rl=reinforce", "rl.slots=5"),
    "vtrace": (*WORLDS["pong"], *ROLLOUTS, *PARTS),
    # half of its ratios are 1 but for the last bits, so a threshold of 1 would count them by chance
    "vtrace-sum": (*WORLDS["duel"], *LSTM, *ROLLOUTS, "rl.reduction=sum", "rl.optimizer=rmsprop", "rl.clone_policy=0.1",
                   "rl.clone_value=0.1", "rl.kl_mask=0.5", "rl.kl_mask_to=behaviour", "rl.rho_bar=1.01"),
    "impact": (*WORLDS["cartpole"], "rl=impact", "rl.slots=6", "rl.batch=6", "rl.asynchronous=false", "rl.threads=1",
               "rl.target_every=2"),
    "dqn": ("mdp=cartpole", "rl=dqn", *TRANSITIONS, "rl.sampling=prioritized", "rl.noisy=true", "rl.target_every=3"),
    "r2d2": ("mdp=cartpole", "rl=r2d2", *TRANSITIONS, *LSTM, "rl.length=4", "rl.burn_in=2", "rl.target_every=3"),
    "td3": ("mdp=pendulum", "rl=td3", *TRANSITIONS),
    "sac": ("mdp=pendulum", "rl=sac", *TRANSITIONS, "rl.normalize_inputs=true"),
}  # fmt: skip
N = {**dict.fromkeys(CASES, 3), **dict.fromkeys(("reinforce", "vtrace-sum", "sac"), 2)}


def run_of(case: str, learners: int) -> Run:
    words = {word.partition("=")[0]: word for word in (*SMALL, *CASES[case], f"rl.learners={learners}")}
    return Run(experiment_of(*words.values()))


def tensors(run: Run) -> list[torch.Tensor]:
    learner: Any = run.learner
    return list(learner.tensors())


def learned(case: str, learners: int) -> tuple[dict[str, Any], dict[str, float]]:
    """The learner's tensors after some gradient steps, and the metrics of the last batch."""
    run = run_of(case, learners)
    try:
        while run.updates < 5:
            metrics = run.iterate().metrics
        found = {str(i): x.clone() for i, x in enumerate(tensors(run))}
    finally:
        run.close()
    return found, {name: x for name, x in metrics.items() if not name.startswith("speed/")}


def check_case(case: str) -> None:
    """Up to the order of sums: weights and moments within 1e-5, a step of Adam being 1e-3; statistics within 1e-4."""
    (one, metrics), (several, others) = learned(case, 1), learned(case, N[case])
    assert metrics.keys() == others.keys()
    for name, x in metrics.items():
        assert others[name] == pytest.approx(x, rel=1e-4, abs=1e-6), name
    for name, tensor in one.items():
        assert torch.allclose(several[name], tensor, rtol=1e-4, atol=1e-5), name


@pytest.mark.slow_cases(but=("ppo", "sac"))
@pytest.mark.parametrize("case", CASES)
def test_several_learners_take_the_steps_of_one(case: str) -> None:
    check_case(case)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "function", "old", "new"),
    [
        ("ppo", Collective.mean, "self.step.rows / self.step.total", "1 / self.size"),  # shares of unequal size
        ("ppo", Collective.take, "self._whole(", "dict("),  # statistics of one share
        ("ppo", PolicyGradient._step, "if self.hyper.normalize_advantage:", "if False:"),
        ("vtrace", RolloutLearner._learn, "error[self._order] =", "error[:] ="),
        ("vtrace", RolloutLearner._tensor, "[:, self._order]", ""),
        ("vtrace-sum", VTraceLearner._total, "learners * x.sum()", "x.sum()"),
        ("sac", SACLearner._step, "self._mean(stats[\"policy/entropy\"])", "stats[\"policy/entropy\"]"),
    ],
)  # fmt: skip
def test_the_comparison_notices(case: str, function: Any, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, check_case, (case,), function, old, new)


@pytest.mark.slow
def test_a_number_of_learners_has_its_bits() -> None:
    first, second = (learned("ppo", 3)[0] for _ in range(2))
    assert all(torch.equal(x, second[name]) for name, x in first.items())


def test_shares_are_rows_in_order_and_as_equal_as_can_be() -> None:
    leader = Leader.__new__(Leader)
    leader.size = 3
    given = [torch.zeros(()), Split(torch.arange(22).view(2, 11), 1), Split(torch.arange(11), 0)]
    shares = leader._shares(0, given)
    assert [(told.first, told.rows, told.total) for told, _ in shares] == [(0, 4, 11), (4, 4, 11), (8, 3, 11)]
    for told, (scalar, columns, numbers) in shares:
        assert numbers.tolist() == [*range(told.first, told.first + told.rows)]
        assert torch.equal(columns, torch.stack([numbers, numbers + 11])) and scalar.shape == ()


def check_moves() -> None:
    """A state goes on with another number of learners, and back, as with one all the time."""
    straight, moved = run_of("vtrace", 1), run_of("vtrace", 1)
    try:
        for learners in (1, 3, 1):
            state = moved.state_dict()
            moved.close()
            moved = run_of("vtrace", learners)
            moved.load_state_dict(state)
            for _ in range(4):
                straight.iterate(), moved.iterate()
        pairs = zip(tensors(straight), tensors(moved), strict=True)
        assert all(torch.allclose(x, y, rtol=1e-4, atol=1e-5) for x, y in pairs)
    finally:
        straight.close()
        moved.close()


def test_a_state_does_not_depend_on_the_number_of_learners() -> None:
    check_moves()


@pytest.mark.slow
def test_the_moves_notice_learners_that_begin_with_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    check_mutation(monkeypatch, check_moves, (), Leader.take_step, "if self.stale:", "if False:")


# ------------------------------------------------------------------ processes


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def listening() -> set[str]:
    """Addresses where this process accepts TCP connections, as the kernel writes them."""
    mine = {os.readlink(one.path) for one in os.scandir("/proc/self/fd") if os.path.islink(one.path)}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    return {words[1].partition(":")[0] for words in lines if words[3] == "0A" and f"socket:[{words[9]}]" in mine}


def test_a_closed_run_leaves_nothing() -> None:
    run_of("a2c", 2).close()  # what torch opens once
    gc.collect()
    before = files()
    run = run_of("a2c", 3)
    assert len(learners_of(os.getpid())) == 2
    run.iterate()
    assert listening() <= {"0100007F"}  # 127.0.0.1
    run.close()
    del run
    gc.collect()
    assert learners_of(os.getpid()) == [] and files() == before


@pytest.mark.slow_cases(but=("9-was killed by SIGKILL",))
@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGKILL, "was killed by SIGKILL"), (signal.SIGTERM, "was killed by SIGTERM"),
     (signal.SIGSTOP, "was stopped by a signal for 0.2 s")],
)  # fmt: skip
def test_a_learner_that_is_lost_is_named_and_the_others_end(
    number: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched, "STOPPED_S", 0.2)
    monkeypatch.setattr(watched, "TICK_S", 0.1)
    run = run_of("a2c", 3)
    try:
        run.iterate()
        victim = learners_of(os.getpid())[1]
        os.kill(victim, number)
        with pytest.raises(LearnerLost, match=rf"^learner 2 \(process {victim}\) {told}$"):
            for _ in range(1000):
                run.iterate()
        assert learners_of(os.getpid()) == []
        run.state_dict()  # the first learner has its state still
    finally:
        run.close()


def test_a_learner_that_was_stopped_for_a_moment_goes_on() -> None:
    run, whole = run_of("a2c", 2), run_of("a2c", 2)
    try:
        (victim,) = set(learners_of(os.getpid())) - set(learners_of(os.getpid())[1:])
        os.kill(victim, signal.SIGSTOP)
        time.sleep(0.1)
        os.kill(victim, signal.SIGCONT)
        for _ in range(3):
            run.iterate(), whole.iterate()
        assert all(torch.equal(x, y) for x, y in zip(tensors(run), tensors(whole), strict=True))
    finally:
        run.close()
        whole.close()


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rl=a3c", "rl.learners=2"), "rl.learners: this learner takes its gradient steps alone"),
        (("rl=ppo", "rl.learners=2", "rl.compile=true"), "rl.learners: a compiled gradient step is one learner's"),
        (("rl=ppo", "rl.net.lstm=8", "rl.slots=4", "rl.horizon=64", "rl.minibatch=64", "rl.learners=2"),
         "rl.learners: the smallest minibatch has 1 slots"),
        (("rl=vtrace", "rl.learners=6"), "rl.learners: must divide the rollouts of a minibatch (16 of queue, 16 of "
         "uniform); the nearest is 4"),
        (("rl=vtrace", "rl.learners=2", "rl.clone_value=1", "rl.clone_error=norm"), "rl.learners: the norm of all"),
        (("rl=dqn", "rl.learners=65"), "rl.learners: must be at most rl.batch, 64"),
        (("rl=ppo", "rl.learners=2", "ec=pbt", "+ec.genes.rl.lr=[1e-4,1e-2]"), "rl.learners: individuals train"),
        (("rl=ppo", "ec=pbt", "+ec.genes.rl.learners=[1,2]"), "rl.learners"),
        (("rl=ppo", "rl.learners=0"), "rl.learners"),
    ],
)  # fmt: skip
def test_what_cannot_be_shared_is_refused(
    words: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go("mdp=cartpole", *words, f"hydra.run.dir={tmp_path / 'run'}") == 2
    assert told in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert learners_of(os.getpid()) == []
