"""Video files (MP4 or GIF) from sequences of frames."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evorl.util.text import printable

Frame = NDArray[np.uint8]

CAPTION_HEIGHT = 24
CAPTION_COLOURS = ((20, 23, 26), (230, 232, 234))
"""Of the strip below a film, and of its text."""
MIN_SIDE = 480
"""Least pixels of the longer side of a frame; smaller frames are enlarged by a whole factor."""


def write_video(path: Path, frames: Iterable[Frame], fps: float, caption: str = "") -> Path:
    """Write frames (uint8 `[H, W, 3]`, all of one size) at ``fps`` frames per second; return the path of the file.

    ``caption``: a line of text below every frame.
    The file is an MP4 if imageio-ffmpeg is installed (extra ``video``), else a GIF; its suffix is added to ``path``.
    The file is renamed into place once it is complete. Raises `ValueError` without frames, for a frame of another
    shape or type and for an invalid ``fps``, and `OSError` if the file cannot be written.
    """
    if not 0 < fps <= 1000:
        raise ValueError(f"fps must be above 0 and at most 1000, got {fps}")
    mp4 = importlib.util.find_spec("imageio_ffmpeg") is not None
    target = path.with_name(f"{path.name}{'.mp4' if mp4 else '.gif'}")
    temporary = target.with_name(f".{target.stem}.partial{target.suffix}")
    temporary.unlink(missing_ok=True)  # of a process that was killed; a link there would be followed
    try:
        (_write_mp4 if mp4 else _write_gif)(temporary, _prepare(frames, caption), fps)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def _prepare(frames: Iterable[Frame], caption: str) -> Iterator[Frame]:
    """Check frames, enlarge small ones, add the caption and pad to the even sides that video codecs require."""
    shape: tuple[int, ...] | None = None
    strip: Frame | None = None
    for frame in frames:
        shape = shape or frame.shape
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != shape:
            raise ValueError(f"a frame must be uint8 {[*shape[:2], 3]}, got {frame.dtype} {[*frame.shape]}")
        factor = -(-MIN_SIDE // max(frame.shape[:2]))
        large = frame.repeat(factor, axis=0).repeat(factor, axis=1)
        if caption:
            strip = _strip(caption, large.shape[1]) if strip is None else strip
            large = np.concatenate([large, strip])
        height, width = large.shape[:2]
        yield np.pad(large, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    if shape is None:
        raise ValueError("a video needs at least one frame")


def _strip(caption: str, width: int) -> Frame:
    """Draw a line of text, uint8 [H, width, 3], cut off where it is too long."""
    from PIL import Image, ImageDraw, ImageFont

    strip = Image.new("RGB", (width, CAPTION_HEIGHT), CAPTION_COLOURS[0])
    font = ImageFont.load_default(14)
    ImageDraw.Draw(strip).text((8, CAPTION_HEIGHT // 2), printable(caption), CAPTION_COLOURS[1], font, "lm")
    return np.array(strip)


def _write_mp4(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Encode H.264 through ffmpeg's standard input, one frame in memory at a time."""
    first = next(frames)
    with subprocess.Popen(
        _ffmpeg(path, first, fps), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C does not end it, which may have to finish a film
    ) as ffmpeg:  # fmt: skip
        assert ffmpeg.stdin is not None
        try:
            with suppress(BrokenPipeError):  # ffmpeg has exited: its stderr is read below
                for frame in itertools.chain([first], frames):
                    ffmpeg.stdin.write(frame.tobytes())
        except BaseException:
            ffmpeg.kill()
            raise
        _, errors = ffmpeg.communicate()
    if ffmpeg.returncode:
        raise OSError(f"ffmpeg could not write {path}: {errors.decode(errors='replace').strip()}")


def _ffmpeg(path: Path, frame: Frame, fps: float) -> list[str]:
    import imageio_ffmpeg

    height, width = frame.shape[:2]
    source = f"-f rawvideo -pix_fmt rgb24 -video_size {width}x{height} -framerate {fps} -i -"
    target = "-an -c:v libx264 -crf 18 -pix_fmt yuv420p -movflags +faststart"
    return [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *source.split(), *target.split(), str(path)]


def _write_gif(path: Path, frames: Iterator[Frame], fps: float) -> None:
    """Write a GIF with one frame in memory at a time; Pillow's ``save_all`` keeps all of them.

    GIF delays are in hundredths of a second. Viewers slow down delays below two hundredths, so that is the least.
    """
    from PIL import Image
    from PIL.GifImagePlugin import getdata, getheader

    duration = max(20, 10 * round(100 / fps))
    with path.open("xb") as file:
        for number, frame in enumerate(frames):
            image = Image.fromarray(frame).convert("P", palette=Image.Palette.ADAPTIVE)
            if number == 0:
                file.writelines(getheader(image, info={"loop": 0})[0])
            file.writelines(getdata(image, duration=duration, include_color_table=True))
        file.write(b";")
