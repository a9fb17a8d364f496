"""What capturing changes in a vLLM session of its own process: nothing of what is heard, alone or beside others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.trace.trace import Trace

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STRETCH_BYTES = 30 * 16000 * 2  # a longer recording is transcribed in parts and traced in one
SAMPLES = [path for path in sorted((assets() / "samples").glob("*.wav")) if path.stat().st_size < STRETCH_BYTES]
ROUNDS = 3


@pytest.fixture(scope="module")
def session() -> Iterator[OpenSession]:
    with (
        Registry() as registry,
        registry.open("demo/funasr-nano", "vllm", threads=1, kv_gigabytes=0.1) as opened,
    ):
        yield opened


def heard(session: OpenSession, sample: Path) -> tuple[tuple[int, ...], str]:
    transcript = session.transcribe(sample, vad="none")
    return transcript.tokens, transcript.text


def ends(trace: Trace) -> tuple[tuple[int, ...], str]:
    return tuple(trace["tokens"].tolist()), str(trace["text"])


def test_tokens_are_those_without_capture_also_of_requests_beside_it(session: OpenSession, tmp_path: Path) -> None:
    alone = {sample: heard(session, sample) for sample in SAMPLES}
    traces = {sample: session.trace(sample) for sample in SAMPLES[:2]}
    assert all(ends(trace) == alone[sample] for sample, trace in traces.items())
    with ThreadPoolExecutor(max_workers=4 * len(SAMPLES)) as pool:
        beside = [(sample, pool.submit(heard, session, sample)) for _ in range(ROUNDS) for sample in SAMPLES]
        traced = [
            (sample, pool.submit(session.trace, sample, out=tmp_path / f"{number}.safetensors"))
            for number, sample in enumerate(SAMPLES)
        ]
        assert all(call.result() == alone[sample] for sample, call in beside)
        found = [(sample, call.result()) for sample, call in traced]
    assert all(ends(trace) == alone[sample] for sample, trace in found)
    for sample, trace in found:
        for stage in traces.get(sample, ()):
            if trace[stage].dtype.kind == "f":
                # Rows of a batch are summed in another order than those of one request.
                np.testing.assert_allclose(trace[stage], traces[sample][stage], rtol=0, atol=1e-4, err_msg=stage)
    assert len(list(tmp_path.iterdir())) == len(SAMPLES)


def test_only_the_stages_asked_for_come_and_a_trace_that_fails_leaves_no_file(
    session: OpenSession, tmp_path: Path
) -> None:
    place = tmp_path / "t.safetensors"
    assert list(session.trace(SAMPLES[0], "encoder.output,llm.norm", out=place)) == ["encoder.output", "llm.norm"]
    place.unlink()
    with pytest.raises(BadInput, match="matches 'decoder"):
        session.trace(SAMPLES[0], "decoder.*", out=place)
    assert not list(tmp_path.iterdir())
