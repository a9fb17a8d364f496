"""Captures through a vLLM worker: a small fake worker, and a real engine compared with the PyTorch runtime."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from tests.runtimes.vllm.small_runner import WORDS, Runner, config
from tests.support.in_process_vllm import forking_engines
from tests.support.tiny_language import VOCABULARY, put_tokenizer, random_network
from workbench.core.errors import Unavailable
from workbench.decoding.generation import Decoding
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import LanguageModel, open_language
from workbench.runtimes.vllm.capture.extension import Extension
from workbench.runtimes.vllm.capture.rows import begin_capture, capturing, drop_capture, read_capture
from workbench.runtimes.vllm.engine.engine import Engine, EngineOptions
from workbench.runtimes.vllm.requests.request import Request
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

# A small worker.

PROMPT = [1, 2, 3]


class Worker(Extension):
    """Worker `rank` of `ranks`, with the method `call` in place of vLLM's."""

    def __init__(self, rank: int = 0, ranks: int = 1, **changes: Any):
        self.model_runner = Runner()
        self.vllm_config = config(tensor_parallel_size=ranks, **changes)
        self.rank = rank

    def call(self, method: str, *arguments: Any) -> Any:
        return getattr(self, method)(*arguments)


def test_capture_collects_requested_stages_and_removes_its_hooks() -> None:
    worker = Worker()
    runner = worker.model_runner
    runner.add("a", PROMPT, capture=4)
    with capturing(worker.call, 4, ["llm.layers.1", "logits", "encoder.*"]):
        recorder = runner.model.captures.recorder(4)
        recorder.put("encoder.output", np.arange(6.0).reshape(2, 3).T)  # in another order in memory
        runner.step(("a", 0, 3))
        stages = read_capture(worker.call, 4)
    assert {name: array.shape for name, array in stages.items()} == {
        "encoder.output": (3, 2),
        "llm.layers.1": (3, 4),
        "logits": (3, WORDS),
    }
    np.testing.assert_array_equal(stages["encoder.output"], np.arange(6.0).reshape(2, 3).T)
    assert runner.model.captures is None
    assert worker._workbench_hooks is None


def test_hooks_stay_until_the_last_capture_ends() -> None:
    worker = Worker()
    begin_capture(worker.call, 1, ["*"])
    hooks = worker._workbench_hooks
    begin_capture(worker.call, 2, ["*"])
    with pytest.raises(Unavailable, match="number 2 is on already"):
        begin_capture(worker.call, 2, ["*"])
    drop_capture(worker.call, 1)
    drop_capture(worker.call, 1)
    drop_capture(worker.call, 7)
    assert worker._workbench_hooks is hooks
    drop_capture(worker.call, 2)
    assert worker._workbench_hooks is None
    drop_capture(worker.call, 2)


def test_unknown_or_unused_capture_raises_unavailable() -> None:
    worker = Worker()
    with pytest.raises(Unavailable, match="there is no capture of the number 3"):
        read_capture(worker.call, 3)
    assert worker.workbench_take_piece(3, "llm.norm", 0, 10) == b""
    begin_capture(worker.call, 3, ["*"])
    assert worker.workbench_take_piece(3, "llm.norm", 0, 10) == b""
    with pytest.raises(Unavailable, match="no request has carried the number"):
        read_capture(worker.call, 3)


def test_refused_capture_raises_unavailable_and_leaves_no_hooks() -> None:
    worker = Worker(enforce_eager=False)
    with pytest.raises(Unavailable, match="open the model with eager execution"):
        begin_capture(worker.call, 1, ["*"])
    assert "expected a glob" in worker.workbench_begin_capture(1, [])
    assert worker._workbench_hooks is None


def test_with_split_tensors_the_first_worker_keeps_the_arrays() -> None:
    workers = [Worker(rank, 2) for rank in (4, 5)]
    for worker in workers:
        begin_capture(worker.call, 1, ["*"])
        worker.model_runner.add("a", PROMPT, capture=1)
        worker.model_runner.step(("a", 0, 3))
    first, second = (read_capture(worker.call, 1) for worker in workers)
    assert len(first) == 6
    assert second == {}
    assert workers[1].model_runner.model.pieces == [3]


# A real engine.

LENGTHS = (100, 33, 64, 7, 90, 120, 31)
GREEDY = Decoding((), max_new_tokens=60)


@dataclass(frozen=True)
class EngineAndReference:
    """An engine and the same model on the PyTorch runtime."""

    engine: Engine
    reference: LanguageModel

    def expected(self, ids: list[int], stages: str = "*") -> dict[str, np.ndarray]:
        recorder = Recorder(StageFilter(stages))
        self.reference.trace(self.reference.prompt([ids]), recorder)
        return recorder.stages

    def generate(self, ids: list[int], capture: int = 0) -> list[int]:
        stream = self.engine.stream([Request(ids, capture=capture)], [GREEDY])
        return [token for _, tokens in stream for token in tokens]


@pytest.fixture(scope="module", params=["qwen3", "qwen2"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineAndReference]:
    """An engine that splits prompts after 32 positions, and whose small cache preempts some of seven requests."""
    pytest.importorskip("vllm", reason="needs vLLM")
    directory = tmp_path_factory.mktemp(request.param)
    changes = {"qwen3": {"head_dim": 32}, "qwen2": {"hidden_size": 128}}[request.param]
    network = random_network(request.param, **changes)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter *= 0.5  # values stay below about ten, where 1e-4 is far above the float32 resolution
    network.save_pretrained(directory)
    put_tokenizer(directory, request.param)
    space = 14 * 32 * 3 * 2 * 2 * 32 * 4  # blocks, positions of each, layers, keys and values, heads, width, bytes
    options = EngineOptions(
        model=directory,
        name=f"tiny-{request.param}",
        arguments={
            "max_num_batched_tokens": 32,
            "max_num_seqs": 8,
            "block_size": 32,
            "kv_cache_memory_bytes": space,
        },
    )
    with forking_engines(), contextlib.closing(Engine(options)) as engine:
        yield EngineAndReference(engine, open_language(read_language_config(directory), torch.device("cpu")))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, VOCABULARY - 60, length).tolist() for length in LENGTHS]


def assert_close(actual: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, array in actual.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_every_stage_equals_pytorch(pair: EngineAndReference, prompts: list[list[int]]) -> None:
    for number, ids in enumerate(prompts, 1):
        with capturing(pair.engine.call, number, ["*"]):
            pair.generate(ids, number)
            actual = read_capture(pair.engine.call, number)
        expected = pair.expected(ids)
        assert list(actual) == list(expected)
        assert_close(actual, expected)


@pytest.mark.slow
def test_every_stage_inside_layers_equals_pytorch_except_attention_weights(
    pair: EngineAndReference, prompts: list[list[int]]
) -> None:
    """vLLM's kernels do not store attention weights."""
    with capturing(pair.engine.call, 50, ["llm.layers.*.*"]):
        pair.generate(prompts[0], 50)
        actual = read_capture(pair.engine.call, 50)
    expected = pair.expected(prompts[0], "llm.layers.*.*")
    missing = {stage for stage in expected if stage.endswith(".attention.weights")}
    assert missing and set(actual) == set(expected) - missing
    assert_close(actual, expected)


@pytest.mark.slow
def test_parallel_captures_change_no_token_and_do_not_mix_requests(
    pair: EngineAndReference, prompts: list[list[int]]
) -> None:
    call = pair.engine.call
    single = [pair.generate(ids) for ids in prompts]
    patterns = {0: "*", 4: "llm.layers.*", 6: "llm.norm,logits"}  # captures of three of the seven requests
    with ThreadPoolExecutor(len(prompts)) as pool, contextlib.ExitStack() as captures:
        for n, pattern in patterns.items():
            captures.enter_context(capturing(call, n + 1, [pattern]))
        running: dict[int, Future[list[int]]] = {
            n: pool.submit(pair.generate, prompts[n], n + 1 if n in patterns else 0) for n in (5, 4, 3, 2, 1, 6, 0)
        }
        parallel = [running[n].result() for n in range(len(prompts))]
        for n, pattern in patterns.items():
            actual, expected = read_capture(call, n + 1), pair.expected(prompts[n])
            assert list(actual) == [name for name in expected if StageFilter(pattern)(name)]
            assert_close(actual, expected)
    assert parallel == single


@pytest.mark.slow
def test_captured_embeddings_equal_the_given_embeddings(pair: EngineAndReference, prompts: list[list[int]]) -> None:
    ids, rows = prompts[1], np.zeros(len(prompts[1]), dtype=bool)
    rows[5:25] = True
    width = pair.reference.config.hidden_size
    embeddings = np.random.default_rng(1).normal(0, 0.1, (len(ids), width)).astype(np.float32)
    with capturing(pair.engine.call, 1, ["llm.embeddings"]):
        request = Request(ids, embeddings=embeddings, is_embedding=rows, capture=1)
        list(pair.engine.stream([request], [Decoding((), max_new_tokens=1)]))
        [actual] = read_capture(pair.engine.call, 1).values()
    np.testing.assert_array_equal(actual[rows], embeddings[rows])
    np.testing.assert_array_equal(actual[~rows], pair.expected(ids)["llm.embeddings"][~rows])


@pytest.mark.slow
def test_abandoned_request_leaves_no_capture_and_no_effect(pair: EngineAndReference, prompts: list[list[int]]) -> None:
    engine = pair.engine
    tokens = pair.generate(prompts[0])
    with (
        capturing(engine.call, 1, ["*"]),
        contextlib.closing(engine.stream([Request(prompts[0], capture=1)], [GREEDY])) as stream,
    ):
        next(stream)
    assert engine.call("workbench_take_capture", 1)["problem"] == "there is no capture of the number 1"
    assert pair.generate(prompts[0]) == tokens


@pytest.mark.slow
def test_large_arrays_come_through(
    pair: EngineAndReference, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size of the pieces does not change the array."""
    with capturing(pair.engine.call, 1, ["logits"]):
        pair.generate(prompts[5], 1)
        [large_pieces] = read_capture(pair.engine.call, 1).values()
        monkeypatch.setattr("workbench.runtimes.vllm.capture.rows.PIECE_BYTES", 1001)
        [small_pieces] = read_capture(pair.engine.call, 1).values()
    assert large_pieces.shape == (LENGTHS[5], VOCABULARY)
    np.testing.assert_array_equal(large_pieces, small_pieces)
