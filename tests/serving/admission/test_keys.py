"""The file of API keys when two programs change it at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from workbench.serving.admission.keys import Keys

WRITING_SECONDS = 0.2


def test_key_that_is_added_while_another_program_adds_one_is_kept(tmp_path: Path) -> None:
    read = threading.Event()

    class SlowKeys(Keys):
        def _write(self, entries: dict[str, dict[str, Any]]) -> None:
            read.set()
            threading.Event().wait(WRITING_SECONDS)
            super()._write(entries)

    path = tmp_path / "keys.json"
    slow = threading.Thread(target=SlowKeys(path).add, args=("slow",))
    slow.start()
    read.wait(10)
    key = Keys(path).add("quick")
    slow.join()
    assert Keys(path).name_of(key) == "quick" and list(Keys(path).entries()) == ["slow", "quick"]
