"""One vLLM engine: tokens equal to PyTorch's, parallel and aborted requests, refusals, and restart after a crash."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from safetensors.torch import save_file

from tests.support.in_process_vllm import forking_engines
from tests.support.tiny_language import VOCABULARY, put_tokenizer, random_network
from workbench.core.errors import BadInput, NotFinite, SessionDied, Unavailable
from workbench.core.progress import listening
from workbench.decoding.alternatives import AlternativesRecorder, likeliest
from workbench.decoding.generation import Decoding
from workbench.embeddings.merge import Merged
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import LanguageModel, open_language
from workbench.runtimes.vllm.capture.tracing import prompt_stages
from workbench.runtimes.vllm.engine.engine import Engine, EngineOptions
from workbench.runtimes.vllm.engine.running_requests import ABORT_SECONDS, Finished
from workbench.runtimes.vllm.requests.request import Request
from workbench.trace.trace import StageFilter

pytest.importorskip("vllm")
pytestmark = pytest.mark.slow

HEADS = {"head_dim": 32}  # the least that vLLM's attention has on a CPU
CONTEXT = 256
SPACE = 0.05  # GiB


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    random_network("qwen3", **HEADS).save_pretrained(path, max_shard_size="20KB")
    put_tokenizer(path)
    # Mistral's own form of a model, as its repositories have it too; vLLM would prefer this form.
    save_file({"tok_embeddings.weight": torch.zeros(1)}, path / "consolidated.safetensors")
    (path / "params.json").write_text("{}")
    return path


@pytest.fixture(scope="module")
def engine(directory: Path) -> Iterator[Engine]:
    with closing(Engine(EngineOptions(directory, "tiny", kv_gigabytes=SPACE, threads=1))) as tiny_engine:
        with forking_engines():
            tiny_engine.start()
        yield tiny_engine


@pytest.fixture(scope="module")
def reference(directory: Path) -> LanguageModel:
    return open_language(read_language_config(directory), torch.device("cpu"), "float32")


def prompts(count: int, seed: int = 0) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.integers(0, VOCABULARY, draw.integers(1, 40)).tolist() for _ in range(count)]


def drain(stream: Generator[tuple[int, list[int]], None, list[Finished]], count: int) -> tuple[Any, list[Finished]]:
    ids: list[list[int]] = [[] for _ in range(count)]
    while True:
        try:
            number, tokens = next(stream)
        except StopIteration as end:
            return ids, end.value
        ids[number] += tokens


def generate(engine: Engine, requests: Sequence[Request], decoding: Decoding) -> list[list[int]]:
    ids: list[list[int]] = drain(engine.stream(requests, [decoding] * len(requests)), len(requests))[0]
    return ids


def reference_tokens(reference: LanguageModel, ids: Sequence[int], decoding: Decoding) -> list[int]:
    return [int(step[0]) for step in reference.generate(reference.prompt([ids]), decoding)]


def test_tokens_equal_pytorch_alone_and_in_parallel(engine: Engine, reference: LanguageModel) -> None:
    token_lists = prompts(24)
    decoding = Decoding((3, 4, 5), max_new_tokens=20)
    expected = [reference_tokens(reference, ids, decoding) for ids in token_lists]
    assert generate(engine, [Request(ids) for ids in token_lists], decoding) == expected
    assert [generate(engine, [Request(ids)], decoding)[0] for ids in token_lists[:4]] == expected[:4]
    assert len({tuple(ids) for ids in expected}) > 12, "different prompts give different outputs"


def test_requests_end_by_stop_token_or_length_limit(engine: Engine, reference: LanguageModel) -> None:
    ids = prompts(1)[0]
    unlimited = reference_tokens(reference, ids, Decoding((), max_new_tokens=6))
    stopping = Decoding((unlimited[2],), max_new_tokens=6)
    [[tokens], [end]] = drain(engine.stream([Request(ids)], [stopping]), 1)
    assert tokens == reference_tokens(reference, ids, stopping) and tokens[-1] == unlimited[2], (
        "the stop token is among the ids"
    )
    assert end == Finished("stop", len(ids))
    [[_], [end]] = drain(engine.stream([Request(ids)], [Decoding((), max_new_tokens=2)]), 1)
    assert end.reason == "length"
    late_stop = Decoding((unlimited[0],), max_new_tokens=6, min_new_tokens=3)
    assert generate(engine, [Request(ids)], late_stop)[0] == reference_tokens(reference, ids, late_stop)


def record_all(recorders: Sequence[AlternativesRecorder], *step: Any) -> None:
    for recorder in recorders:
        recorder(*step)


def test_alternatives_equal_the_top_logprobs_of_pytorch(engine: Engine, reference: LanguageModel) -> None:
    """For several requests at a time, greedy and sampled; the log-probabilities are of the unprocessed logits."""
    token_lists = prompts(3, seed=5)
    greedy = Decoding((), max_new_tokens=6, alternatives=10)
    sampled = replace(greedy, temperature=1.5, top_k=3, repetition_penalty=1.5, alternatives=4)
    for decoding, count in ((greedy, 10), (sampled, 4)):
        recorders = [AlternativesRecorder(row) for row in range(len(token_lists))]
        ids: list[list[int]] = [[] for _ in token_lists]
        stream = engine.stream(
            [Request(prompt) for prompt in token_lists], [decoding] * 3, partial(record_all, recorders)
        )
        for row, tokens in stream:
            ids[row] += tokens
            assert len(recorders[row].steps) == len(ids[row]), "alternatives are recorded before the token is yielded"
        for prompt, output_ids, recorder in zip(token_lists, ids, recorders, strict=True):
            sequence = torch.tensor([[*prompt, *output_ids]])
            with torch.inference_mode():
                logits = reference.network(sequence).logits[0, len(prompt) - 1 : -1]
            expected = likeliest(logits.numpy(), count)
            stages = recorder.stages()
            np.testing.assert_allclose(stages["tokens.logprobs"], expected[1], atol=1e-4)
            assert (stages["tokens.alternatives"] == expected[0]).mean() > 0.95, "only ids within 1e-4 may swap places"
            margins, expected_margins = (values - values[:, :1] for values in (stages["tokens.logprobs"], expected[1]))
            np.testing.assert_allclose(margins, expected_margins, atol=1e-4)


def test_embeddings_alone_or_mixed_with_token_ids_give_the_tokens_of_pytorch(
    engine: Engine, reference: LanguageModel
) -> None:
    decoding = Decoding((), max_new_tokens=12)
    ids = prompts(1, seed=3)[0]
    rows = reference.embed(np.array([ids]))[0].numpy()
    expected = reference_tokens(reference, ids, decoding)
    assert generate(engine, [Request([0] * len(ids), embeddings=rows)], decoding) == [expected]
    is_embedding = np.arange(len(ids)) % 2 == 0
    mixed = Request(
        [0 if row else number for row, number in zip(is_embedding, ids)], embeddings=rows, is_embedding=is_embedding
    )
    assert generate(engine, [mixed, Request(ids)], decoding) == [expected, expected]
    # Rows that are not the embedding of any token.
    foreign = np.random.default_rng(5).normal(size=(7, rows.shape[1])).astype(np.float32)
    merged = Merged(torch.from_numpy(foreign)[None], np.ones((1, 7), bool), np.arange(7)[None])
    output = generate(engine, [Request([0] * 7, embeddings=foreign)], decoding)
    assert output == [[int(step[0]) for step in reference.generate(merged, decoding)]]


def test_draws_are_repeatable_by_their_seed(engine: Engine) -> None:
    request = Request(prompts(1)[0])

    def draw(seed: int) -> list[int]:
        return generate(engine, [request], Decoding((), max_new_tokens=16, temperature=1.0, seed=seed))[0]

    assert draw(1) == draw(1) != draw(2)


def test_invalid_requests_are_refused_and_the_engine_stays_ready(engine: Engine) -> None:
    invalid = Request([1, 2], embeddings=np.ones((2, 31), np.float32))
    with pytest.raises(BadInput, match=r"shape \(2, 31\); expected \(2, 32\)"):
        generate(engine, [Request([1]), invalid], Decoding((), max_new_tokens=2))
    with pytest.raises(BadInput, match="the prompt has 256 positions"):
        generate(engine, [Request([1] * 256)], Decoding((), max_new_tokens=1))
    with pytest.raises(BadInput, match="sound"):
        generate(engine, [Request([1], np.zeros(16000, np.float32), 3)], Decoding((), max_new_tokens=2))
    assert len(generate(engine, [Request([1] * 250)], Decoding((), max_new_tokens=512))[0]) == 6, "as many as fit"
    assert engine.health().state == "ready"


def test_a_closed_stream_is_aborted_in_the_engine(engine: Engine) -> None:
    stream = engine.stream([Request([number]) for number in range(8)], [Decoding((), max_new_tokens=200)] * 8)
    next(stream)
    assert engine.unfinished == 8
    stream.close()
    assert engine.unfinished == 0


def test_next_request_does_not_wait_for_the_cleanup_of_the_previous_one(engine: Engine) -> None:
    """A hundred requests in turn would show a stream that waits for its own cleanup before it ends.

    With such a fault every tenth request waits for `ABORT_SECONDS`. Half of that is far more than a busy machine needs.
    """
    start = time.perf_counter()
    for number in range(100):
        generate(engine, [Request([number])], Decoding((), max_new_tokens=1))
    assert time.perf_counter() - start < 5 * ABORT_SECONDS


def test_threads_share_the_engine(engine: Engine, reference: LanguageModel) -> None:
    token_lists, decoding = prompts(12, seed=9), Decoding((), max_new_tokens=30)
    barrier = threading.Barrier(len(token_lists))

    def ask(ids: list[int]) -> list[int]:
        barrier.wait()
        return generate(engine, [Request(ids)], decoding)[0]

    with ThreadPoolExecutor(len(token_lists)) as pool:
        outputs = list(pool.map(ask, token_lists))
    assert outputs == [reference_tokens(reference, ids, decoding) for ids in token_lists]


def test_killed_engine_fails_every_stream_and_restarts_with_the_next_call(
    engine: Engine, reference: LanguageModel
) -> None:
    """This test is the last of this engine's tests, as it kills the engine."""
    decoding = Decoding((), max_new_tokens=200)
    streams = [engine.stream([Request([number])], [decoding]) for number in range(8)]
    for stream in streams:
        next(stream)
    pids = engine.health().pids
    os.kill(pids[0], signal.SIGKILL)
    for stream in streams:
        with pytest.raises(SessionDied, match=r"the engine of tiny was ended by SIGKILL .*next call starts a new one"):
            drain(stream, 1)
    assert engine.health().state == "dead"
    ids = prompts(1)[0]
    decoding_after = Decoding((), max_new_tokens=8)
    progress: list[tuple[float, str]] = []
    with forking_engines(), listening(lambda fraction, activity: progress.append((fraction, activity))):
        assert generate(engine, [Request(ids)], decoding_after) == [reference_tokens(reference, ids, decoding_after)]
    health = engine.health()
    assert health.state == "ready" and health.log and health.log.is_file()
    assert not set(health.pids) & set(pids)
    assert (
        progress
        and all(0 <= fraction < 1 for fraction, _ in progress)
        and progress == sorted(progress, key=lambda step: step[0])
    )
    engine.stop()
    assert not [pid for pid in (*pids, *health.pids) if psutil.pid_exists(pid)]
    assert engine.health().state == "stopped"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"max_length": 10**6}, r"max_length is 1000000; expected at most 256, the positions that the model takes"),
        ({"tensor_parallel": 3}, "must be divisible by tensor parallel size"),
    ],
)
def test_failed_engine_start_raises_one_line_error_with_reason_and_log_path(
    directory: Path, changes: dict[str, Any], reason: str
) -> None:
    options = EngineOptions(directory, "tiny", **{"kv_gigabytes": SPACE, "threads": 1, **changes})
    with closing(Engine(options)) as engine:
        with pytest.raises(Unavailable, match=f"vLLM cannot start tiny: .*{reason}") as raised:
            engine.start()
        assert engine.log is not None and engine.log.is_file() and str(engine.log) in str(raised.value)
        assert "\n" not in str(raised.value)
        health = engine.health()
        assert health.state == "stopped" and health.reason and health.pids == ()


def test_unsupported_attention_head_size_is_refused_at_start(tmp_path: Path) -> None:
    random_network("qwen3", head_dim=16).save_pretrained(tmp_path / "narrow")
    put_tokenizer(tmp_path / "narrow")
    with closing(Engine(EngineOptions(tmp_path / "narrow", "narrow", kv_gigabytes=SPACE))) as engine:
        with pytest.raises(Unavailable, match=r"heads are 16 wide, and vLLM's attention on a processor knows 32, 64"):
            engine.start()
        assert engine.health().pids == ()


def test_nan_logits_raise_not_finite_and_the_prompt_can_be_traced(tmp_path: Path) -> None:
    network = random_network("qwen3", **HEADS)
    torch.nn.init.constant_(network.model.layers[0].mlp.down_proj.weight, 3e38)
    network.save_pretrained(tmp_path / "huge")
    put_tokenizer(tmp_path / "huge")
    with closing(Engine(EngineOptions(tmp_path / "huge", "huge", kv_gigabytes=SPACE, threads=1))) as engine:
        with forking_engines():
            engine.start()
        for _ in range(2):
            with pytest.raises(NotFinite, match="logits are NaN"):
                generate(engine, [Request(ids) for ids in prompts(3)], Decoding((), max_new_tokens=50))
        stages = prompt_stages(engine, Request(prompts(1)[0]), StageFilter("llm.layers.*"))
    assert not np.isfinite(stages["llm.layers.0"]).all()
