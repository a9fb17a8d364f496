"""Each test of vLLM leaves the environment unchanged, although vLLM changes it when it configures an engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.in_process_vllm import environment_kept


@pytest.fixture(autouse=True)
def unchanged_environment() -> Iterator[None]:
    with environment_kept():
        yield
