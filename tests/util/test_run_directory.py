import os
from collections.abc import Callable
from pathlib import Path

import pytest

from evorl.util import run_directory, yaml_text
from evorl.util.run_directory import Unsafe

SECRET = "outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "file").write_text(SECRET)
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def outside(root: Path) -> Path:
    return root.parent / "home" / "file"


OPERATIONS: dict[str, Callable[[Path, str], object]] = {
    "read": lambda root, name: run_directory.read(root, name, 100),
    "lines": lambda root, name: [*run_directory.lines(root, name)],
    "write": lambda root, name: run_directory.write(root, name, [b"new"]),
    "append": lambda root, name: os.close(run_directory.descriptor(root, name, os.O_RDWR | os.O_CREAT | os.O_APPEND)),
    "link": lambda root, name: run_directory.link(root, name, "second"),
    "folder": run_directory.make_folder,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_operation_follows_a_link_as_the_last_part(root: Path, name: str) -> None:
    for target in (outside(root), outside(root).parent, root / "nothing"):
        (root / "x").unlink(missing_ok=True)
        (root / "x").symlink_to(target)
        with pytest.raises(OSError, match=r"x") as caught:
            OPERATIONS[name](root, "x")
        assert isinstance(caught.value, Unsafe | FileExistsError)
        assert outside(root).read_text() == SECRET and (root / "x").is_symlink()


@pytest.mark.parametrize("name", [*OPERATIONS, "replace", "remove", "entries", "rename"])
def test_no_operation_follows_a_link_on_the_way(root: Path, name: str) -> None:
    (root / "x").symlink_to(outside(root).parent)
    more: dict[str, Callable[[Path, str], object]] = {
        "replace": lambda root, name: run_directory.replace(root, name, b"new"),
        "remove": lambda root, name: run_directory.unlink(root, name),
        "entries": lambda root, name: run_directory.entries(root, "x"),
        "rename": lambda root, name: run_directory.rename(root, name, "y"),
    }
    with pytest.raises(Unsafe, match="it is a link, and none in a run directory is followed"):
        {**OPERATIONS, **more}[name](root, "x/file")
    assert outside(root).read_text() == SECRET
    assert not run_directory.exists(root, "x/file")


def test_a_replaced_file_takes_the_place_of_links(root: Path) -> None:
    """Also of one under the name of the file that it is first written to."""
    for name in ("result.json", ".result.json.partial"):
        (root / name).symlink_to(outside(root))
    run_directory.replace(root, "result.json", b"{}")
    assert (root / "result.json").read_bytes() == b"{}" and not (root / "result.json").is_symlink()
    assert outside(root).read_text() == SECRET and [one.name for one in root.iterdir()] == ["result.json"]


def test_a_folder_under_the_name_of_a_file_is_kept(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (root / "result.json" / "inside").mkdir(parents=True)
    (root / ".result.json.partial").mkdir()
    run_directory.replace(root, "result.json", b"{}")
    assert (root / "result.json").read_bytes() == b"{}" and (root / "result.1.json" / "inside").is_dir()
    assert {entry.name for entry in root.iterdir()} == {"result.json", "result.1.json"}
    assert "result.json was a folder, which is kept as result.1.json" in caplog.text


def test_removing_takes_what_is_within_and_no_more(root: Path) -> None:
    (root / "link").symlink_to(outside(root).parent)
    (root / "folder").mkdir()
    (root / "folder" / "link").symlink_to(outside(root))
    (root / "folder" / "file").write_text("")
    (root / "folder" / "deeper" / "still").mkdir(parents=True)
    (root / "folder" / "deeper" / "link").symlink_to(outside(root).parent)
    for name in ("link", "folder", "nothing"):
        run_directory.remove(root, name)
    assert [*root.iterdir()] == [] and outside(root).read_text() == SECRET


@pytest.mark.parametrize("name", ["", ".", "..", "../home/file", "a/../../home/file", "/etc/passwd", "a/", "a\0"])
def test_what_is_no_name_is_refused(root: Path, name: str) -> None:
    (root / "a").mkdir()
    for work in OPERATIONS.values():
        with pytest.raises(Unsafe):
            work(root, name)
    assert outside(root).read_text() == SECRET and [one.name for one in root.iterdir()] == ["a"]


def test_what_is_no_regular_file_is_refused_at_once(root: Path) -> None:
    os.mkfifo(root / "fifo")
    (root / "folder").mkdir()
    for name in ("fifo", "folder"):
        for work in ("read", "lines", "append"):
            with pytest.raises(Unsafe, match="it is no regular file"):
                OPERATIONS[work](root, name)


def test_a_file_is_as_large_as_may_be_read(root: Path) -> None:
    (root / "file").write_bytes(b"12345")
    assert run_directory.read(root, "file", 5) == b"12345"
    with pytest.raises(Unsafe, match="it has 5 bytes, and at most 4 are read"):
        run_directory.read(root, "file", 4)
    os.truncate(root / "file", 1 << 40)
    for work in (run_directory.read_json, run_directory.read_yaml, lambda *of: [*run_directory.lines(*of)]):
        with pytest.raises(Unsafe, match=r"1,099,511,627,776 bytes"):
            work(root, "file")


def test_a_file_with_a_name_elsewhere_is_not_written(root: Path) -> None:
    os.link(outside(root), root / "x")
    with pytest.raises(Unsafe, match="hard link"):
        OPERATIONS["append"](root, "x")
    assert run_directory.read(root, "x", 100) == SECRET.encode()


def test_the_directory_itself_may_be_a_link(root: Path) -> None:
    (root / "file").write_text("a\nb\nhalf")
    (root.parent / "link").symlink_to(root)
    assert [*run_directory.lines(root.parent / "link", "file")] == [b"a", b"b"]


def test_lines_of_any_size(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the blocks that they are read in; one that is too long is empty."""
    monkeypatch.setattr(run_directory, "LINE", 8)
    text = b"1\n\n1234567\n12345678\n" + b"x" * 50 + b"\nlast\nrest"
    (root / "file").write_bytes(text)
    for block in range(1, len(text) + 2):
        monkeypatch.setattr(run_directory, "_BLOCK", block)
        assert [*run_directory.lines(root, "file")] == [b"1", b"", b"1234567", b"", b"", b"last"]
        with run_directory.opened(root, "file") as file:
            ends = [end for _, end in run_directory.follow_lines(file, 2)]
        assert ends == [place + 1 for place, byte in enumerate(text) if byte == 10 and place >= 2]


@pytest.mark.parametrize("text", ["[" * 99 + "]" * 99, '{"a": [NaN, -Infinity, 1e308]}', '"\u00e9"'])
def test_json_that_is_read(text: str) -> None:
    run_directory.parse_json(text.encode())


@pytest.mark.parametrize(
    "text", ["[" * 101 + "]" * 101, "[" * 100_000, '{"a":' * 100_000, '[NaN, "\\ud800"]', "", "\xff"]
)
def test_json_that_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        run_directory.parse_json(text.encode("latin-1"))


BOMB = "a0: &a0 {x: 1, y: 2}\n" + "".join(f"a{k}: &a{k} {{x: *a{k - 1}, y: *a{k - 1}}}\n" for k in range(1, 60))
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{k}: &a{k} {{<<: [*a{k - 1}, *a{k - 1}]}}\n" for k in range(1, 60))


@pytest.mark.parametrize(
    "text",
    [
        BOMB, MERGED, "&a [*a]", "[" * 200 + "]" * 200, "[" * 100_000, "- x\n" * 100_001, "a: b: c", "\0", "{[1]: 2}",
        "!!python/object/apply:os.system [ls]", "- 1\n---\n- 2", "1" * 5000, "2020-13-45",
    ],
    ids=range(13),
)  # fmt: skip
def test_yaml_that_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        yaml_text.parse(text.encode())


def test_yaml_that_is_read() -> None:
    assert yaml_text.parse(b"a: {b: [1, 2.5, null, true, x]}\nc: '1'\n") == {
        "a": {"b": [1, 2.5, None, True, "x"]},
        "c": "1",
    }
