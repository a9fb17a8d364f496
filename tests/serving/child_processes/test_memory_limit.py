"""The memory limit of session processes in public mode: a call beyond it raises a one-line error, others continue."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.fake_panels import FakeRegistry
from tests.support.processes import FakeMaker, fakes
from workbench.core.errors import WorkbenchError
from workbench.serving.admission.guard import Guard
from workbench.serving.admission.limits import PUBLIC
from workbench.serving.sessions import SessionPool
from workbench.system.memory import is_lack_of_memory, resident_bytes

MEBIBYTE = 1 << 20


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMaker]:
    yield from fakes(monkeypatch)


def test_the_limit_of_a_server_reaches_its_registry() -> None:
    registry = FakeRegistry()
    with SessionPool(registry, guard=Guard("public", replace(PUBLIC, process_gb=0.25))):  # type: ignore[arg-type]
        assert registry.allowance_bytes == 256 * MEBIBYTE  # type: ignore[attr-defined]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the memory of another process")
def test_call_beyond_the_memory_limit_fails_and_the_next_call_succeeds(fake: FakeMaker) -> None:
    session = fake()
    session.allowance_bytes = 256 * MEBIBYTE
    assert session.transcribe("x").text.endswith("x")
    before = resident_bytes(os.getpid())
    for _ in range(2):
        with pytest.raises(WorkbenchError) as caught:
            session.transcribe("x", do="hog")  # 4 GB
        assert str(caught.value) == "fake on fake failed: there is not enough memory"
        assert session.transcribe("x").text.endswith("x")
    assert resident_bytes(os.getpid()) - before < 64 * MEBIBYTE


@pytest.mark.parametrize(
    "error, lacks",
    [
        (MemoryError(), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("shapes differ"), False),
    ],
)
def test_torch_out_of_memory_messages_are_recognised(error: Exception, lacks: bool) -> None:
    assert is_lack_of_memory(error) == lacks
