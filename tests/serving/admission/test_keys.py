"""The file of API keys: when two programs change it at once, and when it is damaged."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from workbench.core.errors import BadInput
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


@pytest.mark.parametrize("content", ["{", "[]", '{"a": 5}', "[" * 100_000])
def test_damaged_file_of_keys_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(content)
    with pytest.raises(BadInput, match=r"the keys in .*keys\.json cannot be read"):
        Keys(tmp_path / "keys.json").name_of("x")
