"""Replays in place, as those of CUDA graphs are. Whole runs are in training/test_device.py and test_gpu.py."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
import second_memory
import torch
from torch import Tensor

from evorl.nets import capture


def test_what_a_step_writes_is_written_into_the_arguments_that_it_is_given() -> None:
    def step(weight: Tensor, moment: Tensor, x: Tensor) -> dict[str, Tensor]:
        leaf = weight.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((leaf * x).square().sum(), leaf)
        moment[:2].mul_(0.5).add_(gradient[:2])  # through a view
        torch._fused_adam_(
            [weight], [gradient], [moment.clone()], [moment.square()], [], [torch.ones(())],
            lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
        return {"norm": gradient.norm(), "moment": moment}

    def arguments(seed: int) -> list[Tensor]:
        return list(torch.randn(3, 4, generator=torch.Generator().manual_seed(seed)))

    replay, found = second_memory.graphed(step, *arguments(0)), []
    for seed in (1, 2, 3):
        given, expected = arguments(seed), arguments(seed)
        found.append((replay(*given), step(*expected)))
        assert all(torch.equal(x, y) for x, y in zip(given, expected, strict=True))
        assert torch.equal(given[2], arguments(seed)[2])
    for stats, expected in found:  # later replays do not change them
        assert stats.keys() == expected.keys()
        assert torch.equal(stats["norm"], expected["norm"])
    assert torch.equal(found[0][0]["moment"], found[0][1]["moment"])


def test_what_a_step_reads_beside_its_arguments_stays() -> None:
    scale, shift = torch.tensor([2.0, 3.0]), torch.tensor([1.0, 1.0])
    replay = second_memory.graphed(lambda x: ((scale * x).detach() + shift,), torch.ones(2))
    assert {id(x) for x in replay.constants} == {id(scale), id(shift)}


def test_no_garbage_is_collected_while_a_graph_is_made() -> None:
    """It may hold graphs, and CUDA gives none back while it captures another."""
    seen = list[bool]()

    def graph(record: capture.Trace) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        seen.append(gc.isenabled())
        return second_memory.graph(record)

    def fails(record: capture.Trace) -> tuple[Callable[[], None], tuple[Tensor, ...]]:
        raise RuntimeError("out of memory")

    example, cpu = torch.ones(2), torch.device("cpu")
    capture.by_graph(graph, cpu, lambda x: (x + 1,), example)
    with pytest.raises(RuntimeError, match="out of memory"):
        capture.by_graph(fails, cpu, lambda x: (x + 1,), example)
    assert seen == [False]
    assert gc.isenabled()
    capture.by_graph(graph, cpu, lambda x: (x + 1,), example)  # what failed has let others go on
