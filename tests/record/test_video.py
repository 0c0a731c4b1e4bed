"""Videos read back frame by frame."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from PIL.GifImagePlugin import GifImageFile

from evorl.record.video import write_video


def frames(n: int, height: int, width: int) -> list[np.ndarray]:
    """A grey that rises with time, so that no two frames are alike."""
    return [np.full((height, width, 3), (20 + 10 * k) % 256, np.uint8) for k in range(n)]


def read_mp4(path: Path, height: int, width: int) -> tuple[str, np.ndarray]:
    """What ffmpeg says of the file, and its frames [T, H, W, 3] (in its own size: another one does not divide)."""
    import imageio_ffmpeg

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return done.stderr.decode(), np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


@pytest.fixture
def without_ffmpeg(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "imageio_ffmpeg" else find(name))


@pytest.mark.slow_cases("size2-written2", "size1-written1")
@pytest.mark.parametrize(
    ("size", "written"),
    [((210, 160), (630, 480)), ((401, 601), (402, 602)), ((84, 84), (504, 504)), ((7, 5), (484, 346))],
)
def test_mp4(tmp_path: Path, size: tuple[int, int], written: tuple[int, int]) -> None:
    pytest.importorskip("imageio_ffmpeg")
    path = write_video(tmp_path / "game", frames(12, *size), fps=30)
    assert path == tmp_path / "game.mp4" and list(tmp_path.iterdir()) == [path]
    about, read = read_mp4(path, *written)
    assert f"{written[1]}x{written[0]}" in about and "30 fps" in about and "h264" in about
    np.testing.assert_allclose(read.mean((1, 2, 3)), [20 + 10 * k for k in range(12)], atol=4)


def test_unwritable_path_raises(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    with pytest.raises(OSError, match="No such file or directory"):
        write_video(tmp_path / "nowhere" / "game", frames(300, 480, 480), fps=30)


def test_gif(tmp_path: Path, without_ffmpeg: None) -> None:
    path = write_video(tmp_path / "game_v1.2", frames(7, 210, 160), fps=25)
    assert path == tmp_path / "game_v1.2.gif" and list(tmp_path.iterdir()) == [path]
    with Image.open(path) as video:
        assert isinstance(video, GifImageFile)
        assert (video.n_frames, video.size, video.info["duration"]) == (7, (480, 630), 40)
        assert video.info["loop"] == 0  # for ever
        for k in range(7):
            video.seek(k)
            assert abs(np.asarray(video.convert("RGB")).mean() - (20 + 10 * k)) < 4


def test_small_pictures_keep_their_pixels(tmp_path: Path, without_ffmpeg: None) -> None:
    checks = np.indices((8, 8)).sum(0) % 2 * 255
    path = write_video(tmp_path / "game", [checks[..., None].repeat(3, 2).astype(np.uint8)], fps=10)
    with Image.open(path) as video:
        large = np.asarray(video.convert("L"))
    np.testing.assert_array_equal(large, checks.repeat(60, 0).repeat(60, 1))


@pytest.mark.parametrize("gif", [False, True])
def test_frames_are_taken_one_at_a_time(tmp_path: Path, gif: bool, request: pytest.FixtureRequest) -> None:
    if gif:
        request.getfixturevalue("without_ffmpeg")
    else:
        pytest.importorskip("imageio_ffmpeg")
    alive = [0]

    class Counted(np.ndarray):
        def __del__(self) -> None:
            alive[0] -= 1

    def stream() -> Iterator[np.ndarray]:
        for _ in range(30):
            alive[0] += 1
            frame = np.ndarray.__new__(Counted, (480, 480, 3), np.uint8)
            frame[...] = 0
            assert alive[0] <= 4
            yield frame

    write_video(tmp_path / "game", stream(), fps=30)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([], "at least one frame"),
        ([np.zeros((4, 4, 3))], "must be uint8"),
        ([np.zeros((4, 4), np.uint8)], "must be uint8"),
        ([*frames(3, 4, 4), *frames(1, 6, 4)], r"must be uint8 \[4, 4, 3\], got uint8 \[6, 4, 3\]"),
    ],
)
@pytest.mark.parametrize("gif", [False, True])
def test_a_bad_frame_leaves_an_older_video_as_it_was(
    tmp_path: Path, bad: list[np.ndarray], message: str, gif: bool, request: pytest.FixtureRequest
) -> None:
    if gif:
        request.getfixturevalue("without_ffmpeg")
    path = write_video(tmp_path / "game", frames(2, 4, 4), fps=10)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / "game", bad, fps=10)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("fps", [0, -1, float("nan"), 1e9])
def test_an_impossible_rate_is_refused(tmp_path: Path, fps: float) -> None:
    with pytest.raises(ValueError, match="fps"):
        write_video(tmp_path / "game", frames(2, 4, 4), fps=fps)
