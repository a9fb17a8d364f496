"""Several audio chunks in parallel on ggml, and joined in a pass, give the numbers of sequential runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtimes.gguf.graphs.test_weights import random_array, write_matrix
from workbench.audio.read import read
from workbench.conversion import paraformer, sensevoice, writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.registry.sources import assets
from workbench.runtimes.gguf import paraformer as paraformer_here
from workbench.runtimes.gguf import sensevoice as sensevoice_here
from workbench.runtimes.gguf.graphs import matrix_products
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.runtimes.gguf.networks import sanm
from workbench.session.values import Transcript

SAMPLES = [read(path) for path in sorted((assets() / "samples").glob("*.wav")) if path.stem != "long_digits"]
FAMILIES = {"sensevoice": (sensevoice, sensevoice_here), "paraformer": (paraformer, paraformer_here)}


CASES = [(family, kind, maker) for family in FAMILIES for kind, maker in (
    ("f32", "AuthenticAMD"), ("f16", "GenuineIntel"), ("q8_0", "AuthenticAMD"), ("q8_0", "GenuineIntel"))]  # fmt: skip


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def sessions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Two sessions of one file: with two parallel lanes, and with one chunk at a time. How many frames numpy takes
    depends on the maker of the processor.
    """
    family, kind, maker = request.param
    conversion, runtime = FAMILIES[family]
    plans = conversion.plans(assets() / f"demo-{family}", "workbench")
    [path] = writer.write(plans, kind, tmp_path_factory.mktemp("lanes") / "it.gguf")
    contexts = (closing(runtime.open_session(path, "it", Settings(threads=threads))) for threads in (2, 1))
    with pytest.MonkeyPatch.context() as patch, next(contexts) as parallel, next(contexts) as sequential:
        patch.setattr(matrix_products, "vendor", lambda: maker)
        patch.setattr(matrix_products, "flags", lambda: frozenset(["avx512f"]))
        matrix_products._min_frames.cache_clear()
        yield parallel, sequential
    matrix_products._min_frames.cache_clear()


def assert_tokens_equal(actual: Any, expected: Any) -> None:
    """Compares tokens: words and times are equal. Confidences may differ by rounding, as some processors multiply a
    single frame by itself in another order than beside others.
    """
    assert [(each.id, each.text, each.start, each.end) for each in actual] == [
        (each.id, each.text, each.start, each.end) for each in expected
    ]
    confidences = [[each.confidence for each in tokens] for tokens in (actual, expected)]
    np.testing.assert_allclose(*confidences, atol=1e-4)


def assert_transcripts_equal(actual: Transcript, expected: Transcript) -> None:
    assert (actual.text, actual.tokens) == (expected.text, expected.tokens)
    for one, other in zip(actual.segments, expected.segments, strict=True):
        assert (one.start, one.end, one.text) == (other.start, other.end, other.text)
        assert_tokens_equal(one.tokens, other.tokens)


def test_parallel_transcripts_equal_sequential_ones(sessions: tuple[Any, Any]) -> None:
    parallel, sequential = sessions
    assert parallel.recogniser.max_batch_seconds > 0 == sequential.recogniser.max_batch_seconds, (
        "one thread has no lanes"
    )
    recordings = [(each.samples, each.sample_rate) for each in SAMPLES]
    expected = [sequential.transcribe(each) for each in recordings]
    for actual, alone in zip(parallel.transcribe_batch(recordings), expected, strict=True):
        assert_transcripts_equal(actual, alone)
    long = (np.concatenate([each.samples for each in SAMPLES]), SAMPLES[0].sample_rate)
    options = {"vad": "none", "max_segment_seconds": 3.0}
    assert_transcripts_equal(parallel.transcribe(long, **options), sequential.transcribe(long, **options))


def test_joined_chunks_are_recognised_as_alone(sessions: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    parallel, sequential = sessions
    pieces = [each.samples[: length * 1600] for each in SAMPLES for length in (1, 2, 7, 23, 31, 40)]
    options, joined = parallel.recogniser.options_class(), list[int]()
    plain_encode = sanm.encode_joined

    def encode_joined(engine: GraphRunner, inputs: Any, config: Any) -> Any:
        joined.append(len(inputs))
        return plain_encode(engine, inputs, config)

    monkeypatch.setattr(sys.modules[type(parallel.recogniser.network).__module__], "encode_joined", encode_joined)
    expected = [sequential.recogniser.recognise(piece, options) for piece in pieces]
    for actual, alone in zip(parallel.recogniser.recognise_batch(pieces, options), expected, strict=True):
        assert replace(actual, tokens=()) == replace(alone, tokens=())
        assert_tokens_equal(actual.tokens, alone.tokens)
    assert sum(joined) == len(pieces) and max(joined) > 3


def test_parallel_lanes_keep_result_order_and_raise_errors(tmp_path: Path) -> None:
    engine = GraphRunner(write_matrix(tmp_path, "F32", random_array(48, 64)), threads=3)
    inputs = [random_array(rows, 64, seed=rows) for rows in range(1, 12)]

    def product(x: np.ndarray) -> np.ndarray:
        return engine.run(lambda g: {"it": g.linear(g.input(x), g.scope / "m", 48, bias=False)})["it"]

    def raise_error() -> np.ndarray:
        raise BadInput("no such thing")

    outputs = engine.run_parallel([lambda x=x: product(x) for x in inputs])  # type: ignore[misc]
    assert all(np.array_equal(each, product(x)) for each, x in zip(outputs, inputs, strict=True))
    with pytest.raises(BadInput, match="no such thing"):
        engine.run_parallel([lambda: product(inputs[0]), raise_error, lambda: product(inputs[1])])
    assert np.array_equal(engine.run_parallel([lambda: product(inputs[0])])[0], product(inputs[0]))
    engine.close()
    with pytest.raises(BadInput, match="is closed"):
        engine.run_parallel([lambda: product(inputs[0])] * 2)
