"""Several audio chunks in parallel on ggml give the numbers of sequential runs, for SenseVoice and Paraformer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
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
from workbench.runtimes.gguf.graphs.graph_runner import GraphRunner
from workbench.session.values import Transcript

SAMPLES = [read(path) for path in sorted((assets() / "samples").glob("*.wav")) if path.stem != "long_digits"]
FAMILIES = {"sensevoice": (sensevoice, sensevoice_here), "paraformer": (paraformer, paraformer_here)}


@pytest.fixture(scope="module", params=FAMILIES)
def sessions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Two sessions of one file: with two parallel lanes, and with one chunk at a time."""
    conversion, runtime = FAMILIES[request.param]
    plans = conversion.plans(assets() / f"demo-{request.param}", "workbench")
    [path] = writer.write(plans, "q8_0", tmp_path_factory.mktemp("lanes") / "it.gguf")
    contexts = (closing(runtime.open_session(path, "it", Settings(threads=threads))) for threads in (2, 1))
    with next(contexts) as parallel, next(contexts) as sequential:
        yield parallel, sequential


def plain(transcript: Transcript) -> Any:
    return transcript.text, transcript.tokens, [(each.start, each.end, each.tokens) for each in transcript.segments]


def test_parallel_transcripts_equal_sequential_ones(sessions: tuple[Any, Any]) -> None:
    parallel, sequential = sessions
    assert parallel.recogniser.max_batch_seconds > 0 == sequential.recogniser.max_batch_seconds, (
        "one thread has no lanes"
    )
    recordings = [(each.samples, each.sample_rate) for each in SAMPLES]
    expected = [sequential.transcribe(each) for each in recordings]
    assert [*map(plain, parallel.transcribe_batch(recordings))] == [*map(plain, expected)]
    long = (np.concatenate([each.samples for each in SAMPLES]), SAMPLES[0].sample_rate)
    options = {"vad": "none", "max_segment_seconds": 3.0}
    assert plain(parallel.transcribe(long, **options)) == plain(sequential.transcribe(long, **options))


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
