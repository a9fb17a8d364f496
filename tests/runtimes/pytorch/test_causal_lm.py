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
from workbench.pipelines.text_session import TextSession
from workbench.registry.registry import Registry
from workbench.session.conversation import Answer
from workbench.session.values import Generation, Piece


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("language") / "it", seed=3, max_position_embeddings=32768)


def opened(directory: Path, dtype: str = "float32") -> TextSession:
    session = open_here(SessionSpec("it", "causal_lm", "pytorch", directory, Settings(dtype=dtype)))
    assert isinstance(session, TextSession)
    return session


@pytest.fixture(scope="module")
def session(directory: Path) -> TextSession:
    return opened(directory)


def written(session: Any, **options: Any) -> tuple[int, ...]:
    tokens: tuple[int, ...] = session.generate("Count from one to three.", **options).tokens
    return tokens


def test_generated_tokens_and_text_equal_transformers(directory: Path, session: TextSession) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory)
    network = AutoModelForCausalLM.from_pretrained(directory)
    messages = [{"role": "user", "content": "Count from one to three."}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    found = network.generate(**prompt, max_new_tokens=24, do_sample=False, eos_token_id=[456, 458], pad_token_id=456)
    expected = found[0, prompt["input_ids"].shape[1] :].tolist()
    generation = session.generate(messages, max_new_tokens=24)
    assert list(generation.tokens) == expected and len(expected) > 3
    assert generation.prompt_tokens == prompt["input_ids"].shape[1]
    ids = [number for number in expected if number not in (456, 458)]
    assert generation.text == tokenizer.decode(ids, skip_special_tokens=True)
    assert written(session, max_new_tokens=24) == generation.tokens


def test_generation_ends_at_a_stop_token_and_respects_min_new_tokens(tmp_path: Path) -> None:
    session = opened(tiny_language(tmp_path / "it", eos_token_id=list(range(0, 456, 4))))
    generation = session.generate("seven", max_new_tokens=200)
    assert generation.finish == "stop" and generation.tokens[-1] % 4 == 0 and len(generation.tokens) < 100
    longer = session.generate("seven", max_new_tokens=200, min_new_tokens=len(generation.tokens) + 3)
    assert len(longer.tokens) >= len(generation.tokens) + 3


def test_draws_are_repeatable_and_differ_by_seed(session: TextSession) -> None:
    draws = [written(session, temperature=1.5, seed=seed, max_new_tokens=12) for seed in (1, 2, 1)]
    assert draws[0] == draws[2] != draws[1]


def test_a_trace_is_a_plain_forward_over_the_prompt(session: TextSession) -> None:
    trace = session.trace("seven", max_new_tokens=4)
    layers = [f"llm.layers.{number}" for number in range(3)]
    written = ["tokens", "tokens.alternatives", "tokens.logprobs", "text"]
    assert list(trace) == ["prompt.tokens", "llm.embeddings", *layers, "llm.norm", "logits", *written]
    network = session.writer.language.network  # type: ignore[attr-defined]
    with torch.inference_mode():
        plain = network(torch.from_numpy(trace["prompt.tokens"])[None])
    np.testing.assert_array_equal(trace["logits"], plain.logits[0].numpy())
    assert trace["logits"][-1].argmax() == trace["tokens"][0]
    assert tuple(trace["tokens"]) == session.generate("seven", max_new_tokens=4).tokens
    assert trace.meta["dtype"] == "float32" and "transformers" in trace.meta["versions"]


def nearly_tied(directory: Path, size: float) -> TextSession:
    """The model of a directory with a second token for one that it writes, by so much more likely or less."""
    session = opened(directory)
    written = session.generate("seven", max_new_tokens=24).tokens
    late = next(token for place, token in enumerate(written) if place >= 3 and token not in written[:place])
    network = session.writer.language.network  # type: ignore[attr-defined]
    with torch.no_grad():
        rows = network.lm_head.weight
        rows[(late + 1) % len(rows)] = rows[late] * (1 + size)
    return session


@pytest.mark.parametrize(("size", "near", "said"), [(1e-6, True, "a near tie"), (0.02, False, "not a near tie")])
def test_compare_reports_margins_and_near_tie_at_the_first_different_token(
    directory: Path, size: float, near: bool, said: str
) -> None:
    """Two models of which one writes another token late: by a hair, and clearly."""
    ours, theirs = (nearly_tied(directory, sign * size).trace("seven", max_new_tokens=24) for sign in (-1, 1))
    found = compare(ours, theirs)
    first = found.first_token
    assert first is not None and first.place >= 3 and first.choice is not None
    assert first.near_tie is near and found.passes(found["tokens"]) is near
    assert first.choice.reference_margin > 0 and first.choice.candidate_margin > 0
    step = ours["tokens.logprobs"][first.place]
    assert first.choice.reference_margin == pytest.approx(float(step[0]) - float(step[1]))
    assert f"This choice is {said} (margins {first.choice.reference_margin:.2g} and " in judge(found).sentence
    told = found["tokens.logprobs"].logprobs
    assert told is not None and told.steps == first.place + 1 and found["tokens.logprobs"].passes is near


def test_language_model_inside_a_speech_model_equals_a_plain_directory(tmp_path: Path) -> None:
    """It is the same as a directory with the same weights by themselves."""
    nano = tiny_funasr_nano(tmp_path / "nano")
    alone = shutil.copytree(nano / "Qwen3-tiny", tmp_path / "alone")
    from safetensors.torch import save_file

    tensors = torch.load(nano / "model.pt", weights_only=True)
    half = {name.removeprefix("llm."): value for name, value in tensors.items() if name.startswith("llm.")}
    save_file({name: value.contiguous() for name, value in half.items()}, alone / "model.safetensors")
    found, expected = (opened(each).trace("seven", max_new_tokens=6) for each in (nano, alone))
    assert list(found) == list(expected)
    for stage in found:
        if stage == "tokens.logprobs":  # of steps whose matrix products depend on where weights lie in memory
            np.testing.assert_allclose(found[stage], expected[stage], rtol=1e-5)
        else:
            np.testing.assert_array_equal(found[stage], expected[stage])


def test_speech_model_without_language_weights_raises_one_line_error(tmp_path: Path) -> None:
    nano = tiny_funasr_nano(tmp_path / "nano")
    tensors = torch.load(nano / "model.pt", weights_only=True)
    torch.save({name: value for name, value in tensors.items() if not name.startswith("llm.")}, nano / "model.pt")
    with pytest.raises(BadInput, match=r"^nano/model\.pt lacks language tensor "):
        opened(nano)


@pytest.mark.parametrize("dtype", ["bfloat16", "auto"])
def test_dtype_setting_is_used_and_stored_in_the_trace(directory: Path, tmp_path: Path, dtype: str) -> None:
    assert opened(directory, dtype).trace("seven", "logits").meta["dtype"] == {"auto": "float32"}.get(dtype, dtype)


# In a process of its own.


@pytest.fixture(scope="module")
def apart(directory: Path) -> Iterator[ProcessSession]:
    with ProcessSession(SessionSpec("it", "causal_lm", "pytorch", directory)) as session:
        yield session


def test_session_in_a_child_process_gives_the_same_text_and_trace(
    apart: ProcessSession, session: TextSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = list(apart.generate_stream("seven", max_new_tokens=6))
    assert [type(piece) for piece in pieces] == [Piece] * (len(pieces) - 1) + [Generation]
    assert pieces[-1].tokens == session.generate("seven", max_new_tokens=6).tokens  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    there, here = (each.trace("seven", "prompt.tokens,logits") for each in (apart, session))
    for stage in here:  # a prompt is no path, and not made one on its way
        np.testing.assert_array_equal(there[stage], here[stage])
    with pytest.raises(BadInput, match="it writes text; to transcribe, open a speech model"):
        apart.transcribe("seven.wav")


LONG = {"max_new_tokens": 30_000, "min_new_tokens": 30_000, "chat": False}
"""Many minutes of work for the tiny model."""


def test_closing_a_stream_of_text_stops_the_work(apart: ProcessSession) -> None:
    with closing(apart.generate_stream("seven", **LONG)) as pieces:
        next(pieces)
        pid = apart.pid
    assert apart.generate("seven", max_new_tokens=2).tokens and apart.pid == pid, "the process had to be ended"


def test_cancelling_from_another_thread_stops_a_text(apart: ProcessSession) -> None:
    apart.start()
    pid = apart.pid
    call = Background(lambda: apart.generate("seven", **LONG))
    eventually(lambda: apart.busy)
    apart.cancel()
    assert isinstance(call.ended().error, Cancelled)
    assert apart.generate("seven", max_new_tokens=2).tokens and apart.pid == pid


def test_conversation_answer_equals_generation_with_the_chat_template(session: TextSession) -> None:
    parts = [{"type": "text", "text": "Count from one"}, {"type": "text", "text": "to three."}]
    talk: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    *pieces, answer = session.converse_stream(talk, max_new_tokens=9, temperature=0.5, seed=2)
    plain = [talk[0], {"role": "user", "content": "Count from one\nto three."}]
    generation = session.generate(plain, max_new_tokens=9, temperature=0.5, seed=2)
    assert isinstance(answer, Answer) and answer.token_ids == generation.tokens and answer.text == generation.text
    assert "".join(piece.text for piece in pieces if isinstance(piece, Piece)) == answer.text
    assert (answer.finish, answer.prompt_rows) == (generation.finish, generation.prompt_tokens)
    again = session.converse([*talk, answer.message(), {"role": "user", "content": "Go on."}], max_new_tokens=2)
    assert again.prompt_rows > answer.prompt_rows + len(answer.token_ids)
    with pytest.raises(BadInput, match="option modalities is audio, and it answers in text"):
        session.converse(talk, modalities="audio")


# Through the registry.


def test_a_directory_is_opened_by_its_path(directory: Path, session: TextSession) -> None:
    with Registry(isolate=False) as registry:
        card = registry.card(directory)
        assert (card.family, card.tasks) == ("causal_lm", ("generate", "converse"))
        with registry.open(directory, dtype="bfloat16") as opened:
            assert opened.reads_text
            generation = opened.generate("seven", max_new_tokens=3)
            assert generation.load_seconds == opened.load_seconds > 0
            assert opened.trace("seven", "logits").meta["dtype"] == "bfloat16"
        with pytest.raises(BadInput, match="dtype is 'int8'; expected one of auto, float32, bfloat16, float16"):
            registry.open(directory, dtype="int8")
