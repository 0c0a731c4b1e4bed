"""The real browser of the tests, which Debian's package chromium brings (``make faults`` installs it as root)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
PATIENCE_MS = 120_000
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium, which `make faults` installs as root")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE_MS)
        yield started
        started.close()
