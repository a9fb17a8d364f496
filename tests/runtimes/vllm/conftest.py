"""Each test of vLLM leaves the environment as it was: vLLM changes it where an engine is configured."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.in_process_vllm import environment_kept


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    with environment_kept():
        yield
