"""The page as a Hugging Face Space starts it: the variables of a Space, `python app.py`, no package `spaces`.

The environment also names proxies that do not answer; the page must not ask them for its own address.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.support.processes import ROOT
from workbench.prepared.pool import SWITCH


def test_space_page_starts_without_traceback_and_leaves_no_temporary_files(tmp_path: Path) -> None:
    dropped = ("GRADIO_TEMP_DIR", "NO_PROXY", "no_proxy")
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"http_proxy": "http://127.0.0.1:9", "all_proxy": "socks5://127.0.0.1:9", "GRADIO_SHARE": "True"}
    space = {"SYSTEM": "spaces", "SPACE_ID": "owner/name", "GRADIO_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"}
    page = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**environment, **space, "TMPDIR": str(tmp_path), SWITCH: "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert page.stdout is not None
        lines: list[str] = []
        for line in page.stdout:
            lines.append(line)
            if found := re.search(r"http://\S+", line):
                break
        else:
            raise AssertionError("".join(lines))
        assert httpx.get(found[0], timeout=60).is_success
        page.send_signal(signal.SIGTERM)
        lines.append(page.stdout.read())
        assert page.wait(60) == 143 and "Traceback" not in "".join(lines) and "RELOAD" not in "".join(lines), lines
        assert list(tmp_path.iterdir()) == []
    finally:
        page.kill()
        page.wait()
