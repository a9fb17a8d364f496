"""A causal language model on PyTorch, from its own directory or from a speech model: text, traces and errors."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.processes import Background, eventually
from tests.support.tiny_funasr_nano import tiny_funasr_nano
from tests.support.tiny_language import tiny_language
from workbench.compare.compare import compare
from workbench.compare.verdict import judge
from workbench.core.errors import BadInput, Cancelled
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.isolation.serial import ProcessSession
from workbench.pipelines.text.text_session import TextSession
from workbench.registry.registry import Registry
from workbench.session.conversation import Answer
from workbench.session.values import Generation, Piece


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("language") / "it", seed=3, max_position_embeddings=32768)


def open_text_session(directory: Path, dtype: str = "float32") -> TextSession:
    session = open_here(SessionSpec("it", "causal_lm", "pytorch", directory, Settings(dtype=dtype)))
    assert isinstance(session, TextSession)
    return session


@pytest.fixture(scope="module")
def session(directory: Path) -> TextSession:
    return open_text_session(directory)


def generate(session: Any, **options: Any) -> tuple[int, ...]:
    tokens: tuple[int, ...] = session.generate("Count from one to three.", **options).tokens
    return tokens


def test_generated_tokens_and_text_equal_transformers(directory: Path, session: TextSession) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    network = AutoModelForCausalLM.from_pretrained(directory)
    messages = [{"role": "user", "content": "Count from one to three."}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = network.generate(**prompt, max_new_tokens=24, do_sample=False, eos_token_id=[456, 458], pad_token_id=456)
    expected = output[0, prompt["input_ids"].shape[1] :].tolist()
    generation = session.generate(messages, max_new_tokens=24)
    assert list(generation.tokens) == expected and len(expected) > 3
    assert generation.prompt_tokens == prompt["input_ids"].shape[1]
    ids = [number for number in expected if number not in (456, 458)]
    assert generation.text == tokenizer.decode(ids, skip_special_tokens=True)
    assert generate(session, max_new_tokens=24) == generation.tokens


def test_generation_ends_at_a_stop_token_and_respects_min_new_tokens(tmp_path: Path) -> None:
    session = open_text_session(tiny_language(tmp_path / "it", eos_token_id=list(range(0, 456, 4))))
    generation = session.generate("seven", max_new_tokens=200)
    assert generation.finish == "stop" and generation.tokens[-1] % 4 == 0 and len(generation.tokens) < 100
    longer = session.generate("seven", max_new_tokens=200, min_new_tokens=len(generation.tokens) + 3)
    assert len(longer.tokens) >= len(generation.tokens) + 3


def test_draws_are_repeatable_and_differ_by_seed(session: TextSession) -> None:
    draws = [generate(session, temperature=1.5, seed=seed, max_new_tokens=12) for seed in (1, 2, 1)]
    assert draws[0] == draws[2] != draws[1]


def test_a_trace_is_a_plain_forward_over_the_prompt(session: TextSession) -> None:
    trace = session.trace("seven", max_new_tokens=4)
    layers = [f"llm.layers.{number}" for number in range(3)]
    generated_stages = ["tokens", "tokens.alternatives", "tokens.logprobs", "text"]
    assert list(trace) == ["prompt.tokens", "llm.embeddings", *layers, "llm.norm", "logits", *generated_stages]
    network = session.writer.language.network  # type: ignore[attr-defined]
    with torch.inference_mode():
        plain = network(torch.from_numpy(trace["prompt.tokens"])[None])
    np.testing.assert_array_equal(trace["logits"], plain.logits[0].numpy())
    assert trace["logits"][-1].argmax() == trace["tokens"][0]
    assert tuple(trace["tokens"]) == session.generate("seven", max_new_tokens=4).tokens
    assert trace.meta["dtype"] == "float32" and "transformers" in trace.meta["versions"]


def near_tie_session(directory: Path, size: float) -> TextSession:
    """The model of a directory with a second token almost as likely as a generated one; `size` sets the margin."""
    session = open_text_session(directory)
    tokens = session.generate("seven", max_new_tokens=24).tokens
    late_token = next(token for index, token in enumerate(tokens) if index >= 3 and token not in tokens[:index])
    network = session.writer.language.network  # type: ignore[attr-defined]
    with torch.no_grad():
        rows = network.lm_head.weight
        rows[(late_token + 1) % len(rows)] = rows[late_token] * (1 + size)
    return session


@pytest.mark.parametrize(
    ("size", "is_near_tie", "sentence"), [(1e-6, True, "a near tie"), (0.02, False, "not a near tie")]
)
def test_compare_reports_margins_and_near_tie_at_the_first_different_token(
    directory: Path, size: float, is_near_tie: bool, sentence: str
) -> None:
    """Two models generate different tokens after some steps, with a small or a large margin."""
    reference, candidate = (
        near_tie_session(directory, sign * size).trace("seven", max_new_tokens=24) for sign in (-1, 1)
    )
    comparison = compare(reference, candidate)
    first = comparison.first_token
    assert first is not None and first.place >= 3 and first.choice is not None
    assert first.near_tie is is_near_tie and comparison.passes(comparison["tokens"]) is is_near_tie
    assert first.choice.reference_margin > 0 and first.choice.candidate_margin > 0
    step = reference["tokens.logprobs"][first.place]
    assert first.choice.reference_margin == pytest.approx(float(step[0]) - float(step[1]))
    assert f"This choice is {sentence} (margins {first.choice.reference_margin:.2g} and " in judge(comparison).sentence
    logprobs = comparison["tokens.logprobs"].logprobs
    assert (
        logprobs is not None
        and logprobs.steps == first.place + 1
        and comparison["tokens.logprobs"].passes is is_near_tie
    )


def test_language_model_inside_a_speech_model_equals_a_plain_directory(tmp_path: Path) -> None:
    """The reference is a directory with the language model's weights alone."""
    nano = tiny_funasr_nano(tmp_path / "nano")
    plain = shutil.copytree(nano / "Qwen3-tiny", tmp_path / "alone")
    from safetensors.torch import save_file

    tensors = torch.load(nano / "model.pt", weights_only=True)
    half = {name.removeprefix("llm."): value for name, value in tensors.items() if name.startswith("llm.")}
    save_file({name: value.contiguous() for name, value in half.items()}, plain / "model.safetensors")
    actual, expected = (open_text_session(path).trace("seven", max_new_tokens=6) for path in (nano, plain))
    assert list(actual) == list(expected)
    for stage in actual:
        if stage == "tokens.logprobs":  # its matrix products depend on the memory alignment of the weights
            np.testing.assert_allclose(actual[stage], expected[stage], rtol=1e-5)
        else:
            np.testing.assert_array_equal(actual[stage], expected[stage])


def test_speech_model_without_language_weights_raises_one_line_error(tmp_path: Path) -> None:
    nano = tiny_funasr_nano(tmp_path / "nano")
    tensors = torch.load(nano / "model.pt", weights_only=True)
    torch.save({name: value for name, value in tensors.items() if not name.startswith("llm.")}, nano / "model.pt")
    with pytest.raises(BadInput, match=r"^nano/model\.pt lacks language tensor "):
        open_text_session(nano)


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_dtype_setting_is_used_and_stored_in_the_trace(directory: Path, tmp_path: Path, dtype: str) -> None:
    assert open_text_session(directory, dtype).trace("seven", "logits").meta["dtype"] == {"auto": "float32"}.get(
        dtype, dtype
    )


# In a child process.


@pytest.fixture(scope="module")
def process_session(directory: Path) -> Iterator[ProcessSession]:
    with ProcessSession(SessionSpec("it", "causal_lm", "pytorch", directory)) as session:
        yield session


def test_session_in_a_child_process_gives_the_same_text_and_trace(
    process_session: ProcessSession, session: TextSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = list(process_session.generate_stream("seven", max_new_tokens=6))
    assert [type(piece) for piece in pieces] == [Piece] * (len(pieces) - 1) + [Generation]
    assert pieces[-1].tokens == session.generate("seven", max_new_tokens=6).tokens  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    actual, expected = (model.trace("seven", "prompt.tokens,logits") for model in (process_session, session))
    for stage in expected:  # a prompt that is the name of a file stays a prompt
        np.testing.assert_array_equal(actual[stage], expected[stage])
    with pytest.raises(BadInput, match="it writes text; to transcribe, open a speech model"):
        process_session.transcribe("seven.wav")


LONG_OPTIONS = {"max_new_tokens": 30_000, "min_new_tokens": 30_000, "chat": False}
"""Many minutes of work for the tiny model."""


def test_closing_a_stream_of_text_stops_the_work(process_session: ProcessSession) -> None:
    with closing(process_session.generate_stream("seven", **LONG_OPTIONS)) as pieces:
        next(pieces)
        pid = process_session.pid
    assert process_session.generate("seven", max_new_tokens=2).tokens and process_session.pid == pid, (
        "the process must stay the same"
    )


def test_cancelling_from_another_thread_stops_a_text(process_session: ProcessSession) -> None:
    process_session.start()
    pid = process_session.pid
    call = Background(lambda: process_session.generate("seven", **LONG_OPTIONS))
    eventually(lambda: process_session.busy)
    process_session.cancel()
    assert isinstance(call.ended().error, Cancelled)
    assert process_session.generate("seven", max_new_tokens=2).tokens and process_session.pid == pid


def test_conversation_answer_equals_generation_with_the_chat_template(session: TextSession) -> None:
    parts = [{"type": "text", "text": "Count from one"}, {"type": "text", "text": "to three."}]
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    *pieces, answer = session.converse_stream(talk, max_new_tokens=9, temperature=0.5, seed=2)
    plain = [talk[0], {"role": "user", "content": "Count from one\nto three."}]
    generation = session.generate(plain, max_new_tokens=9, temperature=0.5, seed=2)
    assert isinstance(answer, Answer) and answer.token_ids == generation.tokens and answer.text == generation.text
    assert "".join(piece.text for piece in pieces if isinstance(piece, Piece)) == answer.text
    assert (answer.finish, answer.prompt_rows) == (generation.finish, generation.prompt_tokens)
    next_answer = session.converse([*talk, answer.message(), {"role": "user", "content": "Go on."}], max_new_tokens=2)
    assert next_answer.prompt_rows > answer.prompt_rows + len(answer.token_ids)
    with pytest.raises(BadInput, match="option modalities is audio, and it answers in text"):
        session.converse(talk, modalities="audio")


# Through the registry.


def test_a_directory_is_opened_by_its_path(directory: Path, session: TextSession) -> None:
    with Registry(isolate=False) as registry:
        card = registry.card(directory)
        assert (card.family, card.tasks) == ("causal_lm", ("generate", "converse"))
        with registry.open(directory, dtype="bfloat16") as handle:
            assert handle.reads_text
            generation = handle.generate("seven", max_new_tokens=3)
            assert generation.load_seconds == handle.load_seconds > 0
            assert handle.trace("seven", "logits").meta["dtype"] == "bfloat16"
        with pytest.raises(BadInput, match="dtype is 'int8'; expected one of auto, float32, bfloat16, float16"):
            registry.open(directory, dtype="int8")
