"""A model family of another package in a real browser: the Models, Transcribe and Parity tabs over one page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from panels.running.sessions import SessionPool
from tests.panels.conftest import Served, serve
from tests.panels.test_parity_page import compare
from tests.panels.test_transcribe_page import LONG, expect, open_page
from tests.support.browser import unfold
from tests.support.outside_family import checkpoint, on_the_path, tiny_ctc
from workbench.registry.cards import Card
from workbench.registry.registry import Registry


class OneModel(Registry):
    """A registry that lists no model but the user's."""

    def cards(self) -> list[Card]:
        return [self.card("mine")]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The page over a model of the family in docs/families.md, which is in the user's list."""
    pytest.importorskip("torch")
    site = tmp_path / "site"
    tiny_ctc(site)
    source = f"source = {{ directory = {json.dumps(str(checkpoint(site, tmp_path)))} }}"
    model_list = tmp_path / "models.toml"
    model_list.write_text(f'[[model]]\nid = "mine"\nname = "Mine"\nfamily = "tiny_ctc"\n{source}\n')
    monkeypatch.setenv("WORKBENCH_MODELS", str(model_list))
    with on_the_path(site):
        yield from serve(SessionPool(OneModel()), "transcribe,parity,models")


@pytest.mark.browser
@pytest.mark.slow
def test_external_family_is_listed_transcribes_and_is_compared(outside: Served, page: Any) -> None:
    open_page(page, outside)
    expect(page.locator("#models input:checked")).to_have_count(1)
    page.locator("button.sample").first.click()
    expect(page.locator("#recordings")).to_contain_text("three_seven_one")
    page.locator("#run").click()
    expect(page.locator(".result.done")).to_have_count(1, timeout=LONG)
    assert re.match("[a-h]+\\b", page.locator(".result.done .heard").inner_text().strip())

    unfold(page, "Options of the models")
    expect(page.locator("#option-blank_penalty")).to_be_visible()

    page.get_by_role("tab", name="Models").click()
    expect(page.locator("#cards")).to_contain_text("Tiny CTC has no gguf network; use pytorch")

    page.get_by_role("tab", name="Parity").click()
    expect(page.locator("#parity-reference input")).to_have_value(re.compile("PyTorch"))
    compare(page, "pytorch:f64")
