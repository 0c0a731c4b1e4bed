"""Gradient steps as machine code: the numbers of `capture`, kept for others, the same bits again."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from harness import NEEDS_COMPILER
from torch import Tensor

from evorl.nets import compiled as module
from evorl.nets.capture import Trace, capture
from evorl.nets.compiled import compiled, require_compiler
from evorl.util.errors import BadRequest
from evorl.util.seed import generator

torch.set_num_threads(1)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where libraries are kept; the folder's name is one that a shell would split."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "two words"))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")  # spares trying what the processor can do: half the time
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of other processes
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / "two words" / "evorl"


def step(theta: Tensor, velocity: Tensor, rate: Tensor, rows: Tensor, x: Tensor) -> dict[str, Tensor]:
    """Momentum descent on a small network's squared outputs over some rows; theta and velocity in place."""
    leaf = theta.detach().requires_grad_()
    hidden = torch.tanh_(x.index_select(0, rows) @ leaf.view(3, 4))
    loss = (hidden.log_softmax(-1) * torch.tensor([1.0, 2.0, 3.0, 4.0])).square().mean()
    (gradient,) = torch.autograd.grad(loss, leaf)
    velocity.mul_(0.5).add_(gradient)
    theta.sub_(rate * velocity)
    return {"loss": loss.detach(), "norm": gradient.norm()}


def arguments() -> tuple[Tensor, ...]:
    draw = generator("compiled").standard_normal
    theta, x = (torch.from_numpy(draw(shape)).float() for shape in (12, (9, 3)))
    return theta, torch.zeros(12), torch.tensor(0.1), torch.tensor([4, 0, 7, 7, 2]), x


def three_steps(replay: object) -> list[Tensor]:
    """All that three steps, each at another rate on other rows, return and leave."""
    assert callable(replay)
    given = arguments()
    found = []
    for shift in range(3):
        theta, velocity, rate, rows, x = given
        found += list(replay(theta, velocity, rate * (shift + 1), (rows + shift) % 9, x).values())
    return [*found, *given]


@pytest.mark.slow
@NEEDS_COMPILER
@pytest.mark.learn
def test_code_does_what_the_replay_does_and_is_made_once(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[[str], str]
) -> None:
    first = compiled(step, *arguments())
    for got, want in zip(three_steps(first), three_steps(capture(step, *arguments())), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    (library,) = kept.glob("*.so")
    assert [*kept.iterdir()] == [library]
    assert [*tmp_path.iterdir()] == [kept.parent]

    fewer = (*arguments()[:3], torch.tensor([1, 2]), arguments()[4])  # other shapes are another function
    results = [make(step, *fewer)(*map(torch.clone, fewer)) for make in (compiled, capture)]
    for got, want in zip(*(one.values() for one in results), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
    assert len([*kept.iterdir()]) == 2

    def never(record: Trace) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(module, "_compile", never)
    again = three_steps(compiled(step, *arguments()))
    assert all(map(torch.equal, three_steps(first), again))
    monkeypatch.setenv("PATH", "")  # no compiler there
    there = elsewhere("[x.tolist() for x in three_steps(compiled(step, *arguments()))]")
    assert there == str([x.tolist() for x in again])
    with pytest.raises(AssertionError, match="compiled again"):
        compiled(step, *arguments()[:3], torch.tensor([1]), arguments()[4])


def test_equal_texts_are_of_equal_functions() -> None:
    def text(power: float = 2.0, place: int = 0, constant: float = 1.0, name: str = "y") -> str:
        def function(x: Tensor, y: Tensor) -> dict[str, Tensor]:
            leaf = x.detach().requires_grad_()
            out = ((leaf * torch.tensor([constant, 1.0])).pow(power) + (x, y)[place]).sum()
            return {name: torch.autograd.grad(out, leaf)[0]}

        return Trace.of(function, torch.ones(2), torch.zeros(2)).text

    assert text() == text()
    others = [text(power=3.0), text(place=1), text(constant=1.5), text(name="z")]
    assert len({text(), *others}) == 5


def test_a_record_that_writes_in_place_has_a_text_of_its_own() -> None:
    def text(late: bool) -> str:
        def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
            first = x + 1
            if not late:
                y.add_(first)
            second = y * 2
            if late:
                y.add_(first)
            return (second,)

        return Trace.of(function, torch.ones(2), torch.zeros(2)).text

    assert text(True) != text(False)


@pytest.mark.slow
@NEEDS_COMPILER
def test_what_is_missing_is_said(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_compiler(torch.device("cpu"))
    assert kept.stat().st_mode & 0o777 == 0o700
    kept.chmod(0o770)
    with pytest.raises(BadRequest, match="not yours alone"):
        require_compiler(torch.device("cpu"))
    (kept.parent / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept.parent / "file"))
    with pytest.raises(BadRequest, match="has no place for what it makes"):
        require_compiler(torch.device("cpu"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BadRequest, match="no no-such-compiler: apt install g") as raised:
        require_compiler(torch.device("cpu"))
    assert raised.value.key == "rl.compile"
    with pytest.raises(BadRequest, match="for the CPU"):
        require_compiler(torch.device("cuda"))


@pytest.mark.learn
@pytest.mark.slow
@NEEDS_COMPILER
def test_a_compiler_that_fails_says_so_and_leaves_no_library(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[[str], str]
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho the disk is on fire >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(subprocess.CalledProcessError) as raised:
        elsewhere("compiled(step, *arguments())")
    assert "the disk is on fire" in raised.value.stderr
    assert not [*kept.glob("[!.]*")]
    assert {*tmp_path.iterdir()} == {kept.parent, broken}
