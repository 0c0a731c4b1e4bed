import hashlib
import json
import logging
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from evorl.record import checkpoint
from evorl.record.checkpoint import DamagedCheckpoint
from evorl.record.lock import lock
from evorl.util import run_directory
from evorl.util.errors import BadRequest

DTYPES = (
    "bool",
    *(f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)
TORCH = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def same(a: Any, b: Any) -> bool:
    """Equal in kind, dtype, shape and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, torch.Tensor):
        a, b = a.contiguous(), b.contiguous()
        return a.dtype == b.dtype and a.shape == b.shape and same(_bytes(a), _bytes(b))
    return a == b or (a != a and b != b)


def _bytes(tensor: torch.Tensor) -> np.ndarray:
    return tensor.reshape(-1).view(torch.uint8).numpy()


def example() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "steps": 12,
        "net": {"0.weight": torch.arange(12.0).reshape(3, 4), "bf": torch.ones(3, dtype=torch.bfloat16)},
        "rng": {"state": rng.integers(0, 2**64, 4, np.uint64), "has": False, "big": 2**127 + 1},
        "best": -math.inf,
        "empty": {},
        "names": ["a", "b", [1, None, 2.5]],
        "arrays": {name: rng.integers(0, 2, (2, 3)).astype(name) for name in DTYPES},
        "odd": {"zero": np.zeros((0, 3), np.float32), "scalar": np.array(7, np.uint64), "t": torch.tensor(True)},
        "none": None,
    }


def save(run_dir: Path, step: int, state: dict[str, Any] | None = None, keep: int = 2, best: int | None = None) -> Path:
    return checkpoint.save(run_dir, step, {"step": step} if state is None else state, keep, best)


def names(run_dir: Path) -> set[str]:
    return {path.name for path in (run_dir / "checkpoints").iterdir()}


# ------------------------------------------------------------------ what goes in comes out


def test_round_trip(tmp_path: Path) -> None:
    state = example()
    path = save(tmp_path, 12, state)
    assert path == tmp_path / "checkpoints" / "12"
    assert same(checkpoint.load(path), state)
    newest = checkpoint.newest(tmp_path)
    assert newest is not None and newest[0] == path and same(newest[1], state)
    assert {file.name for file in path.iterdir()} == {"tensors.safetensors", "state.json", "manifest.json"}
    assert (tmp_path / "checkpoints" / "latest").read_text() == "12\n"


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
arrays = hnp.arrays(st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
lists = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5).filter(
    lambda x: isinstance(x, list)
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    words = draw(st.binary(min_size=8, max_size=8))
    seed = int.from_bytes(words, "little") >> 1
    return torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).to(draw(st.sampled_from(TORCH)))


keys = st.text(max_size=6) | st.sampled_from(["a/b", "~", "~1", "/", "", "a", "~01"])
states = st.recursive(scalars | arrays | lists | tensors(), lambda inner: st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=50)
@given(state=st.dictionaries(keys, states, max_size=5))
def test_any_state_round_trips(tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]) -> None:
    assert same(checkpoint.load(save(tmp_path_factory.mktemp("run"), 1, state)), state)


def test_other_programs_can_read_it(tmp_path: Path) -> None:
    path = save(tmp_path, 12, example())
    with safetensors.safe_open(path / "tensors.safetensors", "pt") as file:
        assert set(file.keys()) >= {"net/0.weight", "net/bf", "rng/state", "arrays/uint16", "odd/zero"}
        assert torch.equal(file.get_tensor("net/0.weight"), torch.arange(12.0).reshape(3, 4))
        assert file.get_tensor("net/bf").dtype == torch.bfloat16
        assert file.get_tensor("odd/scalar").item() == 7 and file.get_tensor("odd/zero").shape == (0, 3)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["step"] == 12
    for name, entry in manifest["files"].items():
        content = (path / name).read_bytes()
        assert entry == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_loaded_arrays_are_writable_and_aligned(tmp_path: Path) -> None:
    state = {str(i): np.zeros(i, name) for i, name in enumerate(DTYPES)} | {"t": torch.zeros(3)}
    loaded = checkpoint.load(save(tmp_path, 1, state))
    loaded.pop("t").add_(1)
    for array in loaded.values():
        array[:] = 1
        assert array.flags.aligned and array.flags.writeable


def test_views_and_foreign_byte_orders_are_saved_by_value(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    parameter = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    state = {"t": base.T, "s": base[:, ::2], "big": base.astype(">i8"), "p": parameter, "pt": parameter.t()}
    loaded = checkpoint.load(save(tmp_path, 1, state))
    assert all(np.array_equal(loaded[name], state[name]) for name in ("t", "s", "big"))
    assert torch.equal(loaded["p"], parameter) and torch.equal(loaded["pt"], parameter.t())
    assert type(loaded["p"]) is torch.Tensor and not loaded["p"].requires_grad


def test_numpy_scalars_become_numbers(tmp_path: Path) -> None:
    loaded = checkpoint.load(save(tmp_path, 1, {"a": np.float32(0.1), "b": np.int64(3), "c": np.bool_(True)}))
    assert same(loaded, {"a": float(np.float32(0.1)), "b": 3, "c": True})


@pytest.mark.parametrize(
    "value", [(1, 2), {1: 2}, {1, 2}, b"x", object(), [np.zeros(1)], [{"a": 1}], np.zeros(1, complex), np.array(["x"])]
)
def test_error_for_an_unsupported_value_names_its_key(tmp_path: Path, value: object) -> None:
    save(tmp_path, 1)
    with pytest.raises(TypeError, match=r"^there/here"):
        save(tmp_path, 2, {"there": {"here": value}})
    assert names(tmp_path) == {"1", "latest"}


def test_loading_a_numpy_state_needs_no_torch(tmp_path: Path) -> None:
    path = save(tmp_path, 1, {"a": np.zeros(3), "b": 1})
    code = (
        "import sys; from pathlib import Path; from evorl.record.checkpoint import load;"
        "load(Path(sys.argv[1])); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True)


# ------------------------------------------------------------------ which are kept


def test_keeps_the_newest_and_the_best(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, step * 10, keep=2, best=20 if step >= 2 else None)
        assert (tmp_path / "checkpoints" / "latest").read_text() == f"{step * 10}\n"
    assert checkpoint.steps(tmp_path) == [20, 60, 70]
    save(tmp_path, 80, keep=1, best=80)
    assert names(tmp_path) == {"80", "latest"}


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        save(tmp_path, step, keep=3)
    (tmp_path / "checkpoints" / "notes").mkdir()
    assert checkpoint.steps(tmp_path) == [9, 10, 100]
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[1] == {"step": 100}


def test_a_step_is_saved_again(tmp_path: Path) -> None:
    save(tmp_path, 4)
    path = save(tmp_path, 5, {"a": 1})
    assert save(tmp_path, 5, {"a": 2}) == path
    assert checkpoint.load(path) == {"a": 2}
    assert names(tmp_path) == {"4", "5", "latest"}


def test_saving_replaces_a_damaged_checkpoint(tmp_path: Path) -> None:
    path = save(tmp_path, 5, {"a": 1})
    (path / "state.json").write_text("")
    save(tmp_path, 5, {"a": 2})
    assert checkpoint.load(path) == {"a": 2}
    assert names(tmp_path) == {"5", "latest"}


def test_damaged_later_checkpoint_does_not_evict_complete_ones(tmp_path: Path) -> None:
    save(tmp_path, 50)
    (save(tmp_path, 100) / "state.json").write_text("")
    save(tmp_path, 60, keep=1)
    assert checkpoint.steps(tmp_path) == [60, 100]
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[1] == {"step": 60}


def test_leftovers_of_an_interrupted_save_are_removed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    litter = tmp_path / "checkpoints" / ".2.partial"
    litter.mkdir()
    (litter / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / "checkpoints" / ".latest.partial").write_text("2")
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[1] == {"step": 1}
    save(tmp_path, 2)
    assert names(tmp_path) == {"1", "2", "latest"}


@pytest.mark.parametrize("at", ["rename", "remove"])
def test_a_checkpoint_counts_until_it_is_replaced(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the new one has its name, or after: readers find one of them, and change nothing."""
    save(tmp_path, 5, {"a": 1})
    real = getattr(run_directory, at)

    def killed(root: Path, name: str, *target: str) -> None:
        if name.endswith(".5.partial" if at == "rename" else ".5.replaced"):
            raise KeyboardInterrupt
        real(root, name, *target)

    with monkeypatch.context() as patch:
        patch.setattr(run_directory, at, killed)
        with pytest.raises(KeyboardInterrupt):
            save(tmp_path, 5, {"a": 2}, keep=1)
    left, held = names(tmp_path), {"a": 1 if at == "rename" else 2}
    assert left >= {"latest", ".5.replaced"} and checkpoint.steps(tmp_path) == [5]
    found = checkpoint.newest(tmp_path)
    assert found is not None and found[1] == held and checkpoint.digest(tmp_path, 5) is not None
    assert names(tmp_path) == left
    checkpoint.segments_of(tmp_path, 5)  # a run goes on
    assert names(tmp_path) == {"5", "latest"} and checkpoint.load(tmp_path / "checkpoints" / "5") == held


# ------------------------------------------------------------------ what is not whole


def test_newest_is_none_without_checkpoints(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) is None
    (tmp_path / "checkpoints").mkdir()
    assert checkpoint.newest(tmp_path) is None


def test_damaged_newest_falls_back_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2)
    content = bytearray((path / "state.json").read_bytes())
    content[5] ^= 1
    (path / "state.json").write_bytes(content)
    with caplog.at_level(logging.WARNING, "evorl"):
        found = checkpoint.newest(tmp_path)
    assert found is not None and found[1] == {"step": 1}
    assert "checkpoint 2 is damaged" in caplog.text and "state.json: its checksum does not match" in caplog.text


def test_no_complete_checkpoint_is_an_error(tmp_path: Path) -> None:
    for step in (1, 2):
        (save(tmp_path, step) / "tensors.safetensors").unlink()
    with pytest.raises(DamagedCheckpoint, match="is complete"):
        checkpoint.newest(tmp_path)


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_the_error_names_the_file(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1, example())
    content = (path / name).read_bytes()
    cases = (content[:-1], content + b"\0", b"", content[:-1] + b"\xff", b"\xff" + content[1:], b"[]", b"{}")
    for damaged in cases:
        (path / name).write_bytes(damaged)
        with pytest.raises(DamagedCheckpoint, match=name.replace(".", r"\.")):
            checkpoint.load(path)
    (path / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=f"{name}: No such file"):
        checkpoint.load(path)


def test_files_of_another_checkpoint_are_refused(tmp_path: Path) -> None:
    one, two = save(tmp_path, 1, {"a": 1}), save(tmp_path, 2, {"a": 2})
    text = (two / "state.json").read_bytes()
    (two / "state.json").write_bytes((one / "state.json").read_bytes())
    with pytest.raises(DamagedCheckpoint, match=r"state\.json"):
        checkpoint.load(two)
    (two / "state.json").write_bytes(text)
    two.rename(two.with_name("3"))
    with pytest.raises(DamagedCheckpoint, match="belongs to step 2"):
        checkpoint.load(two.with_name("3"))


@pytest.mark.parametrize(("digits", "damaged"), [(39, False), (400, True)])
def test_an_integer_that_nothing_can_compute_with_is_damage(tmp_path: Path, digits: int, damaged: bool) -> None:
    path = save(tmp_path, 1, {"run": {"window": [1.0, 10 ** (digits - 1)]}})
    if not damaged:
        assert checkpoint.load(path)["run"]["window"][1] == 10 ** (digits - 1)
        return
    with pytest.raises(DamagedCheckpoint, match="an integer of 400 digits"):
        checkpoint.load(path)


def test_newer_format_is_refused_not_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "SCHEMA", 99)
        save(tmp_path, 2)
    with pytest.raises(BadRequest, match="in a format that this version cannot read"):
        checkpoint.newest(tmp_path)


def test_inconsistent_header_is_refused() -> None:
    from evorl.record import tensors as file

    def build(**entry: Any) -> bytearray:
        header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | entry}).encode()
        return bytearray(len(header).to_bytes(8, "little") + header + b"\0" * 8)

    assert file.decode(build())["a"].tolist() == [0, 0]
    for lie in (
        {"shape": [2**62]},
        {"shape": [3]},
        {"data_offsets": [8, 16]},
        {"data_offsets": [-8, 0]},
        {"shape": [-2]},
    ):
        with pytest.raises(ValueError, match="does not fit"):
            file.decode(build(**lie))


# ------------------------------------------------------------------ one writer


def test_one_process_at_a_time(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from evorl.record.lock import lock\nwith lock(Path(sys.argv[1])): pass"
    )

    def other() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True)

    with lock(tmp_path):
        with pytest.raises(BadRequest, match="another process is writing"), lock(tmp_path):
            pass
        assert "RunLocked: resume: another process is writing" in other().stderr
    assert other().returncode == 0


def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from evorl.record.lock import lock\n"
        "with lock(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        with pytest.raises(BadRequest), lock(tmp_path):
            pass
        child.kill()
        child.wait()
        with lock(tmp_path):
            pass
