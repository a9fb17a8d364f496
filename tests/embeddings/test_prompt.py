"""Embeddings in prompts: accepted input forms, placeholders in texts and conversations, and all mismatches."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_language import CONTEXT, change_json, tiny_language
from workbench.core.errors import BadInput
from workbench.core.settings import SessionSpec, Settings
from workbench.embeddings import Embedding, embedding_of, write_embedding
from workbench.embeddings.prompt import TokenPrompt, check_placeholders, injected, read_embeddings
from workbench.families.language.causal_lm import CausalLmModel, CausalLmOptions, read_causal_lm, token_prompt
from workbench.families.language.directory import PLACEHOLDER
from workbench.isolation.loader import open_here
from workbench.registry.registry import Registry
from workbench.session.protocols import Session

HIDDEN = 32
P = PLACEHOLDER
PLAIN = CausalLmOptions(chat=False, max_new_tokens=8)
SAMPLE = Path(__file__).parents[2] / "assets" / "samples" / "six_five_one_three.wav"


def rows(tokens: int, seed: int = 0, hidden: int = HIDDEN) -> Embedding:
    return embedding_of(np.random.default_rng(seed).normal(size=(tokens, hidden)).astype(np.float32), f"e{tokens}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_language(tmp_path_factory.mktemp("injected") / "it", seed=3)


@pytest.fixture(scope="module")
def model(directory: Path) -> CausalLmModel:
    return read_causal_lm(directory)


@pytest.fixture(scope="module")
def session(directory: Path) -> Session:
    return open_here(SessionSpec("it", "causal_lm", "pytorch", directory, Settings()))


# Input forms.


def test_every_input_form_becomes_the_same_embedding(tmp_path: Path) -> None:
    embedding = rows(3)
    path = tmp_path / "e.npy"
    write_embedding(embedding.values, path)
    content = path.read_bytes()
    for source in (
        embedding,
        embedding.values,
        embedding.values[None],
        path,
        content,
        base64.b64encode(content).decode(),
    ):
        [read] = read_embeddings([source])
        assert read.digest == embedding.digest
    assert read_embeddings(()) == ()


@pytest.mark.parametrize("invalid", [np.ones((2, 3)), Path("e.npy"), "e.npy", {"a": 1}, 5, None])
def test_one_embedding_without_a_list_is_refused(invalid: Any) -> None:
    with pytest.raises(
        BadInput, match=r"^embeddings is of type .*; expected a list of them, one for each placeholder$"
    ):
        read_embeddings(invalid)


def test_torch_tensor_gives_the_embedding_of_its_array() -> None:
    import torch

    values = torch.randn(4, 6)
    for tensor in (
        values,
        values[None],
        values.clone().requires_grad_(),
        torch.nn.Parameter(values.t()),
        values[:, ::2],
    ):
        [embedding] = read_embeddings([tensor])  # type: ignore[list-item]
        np.testing.assert_array_equal(embedding.values, tensor.detach().numpy().reshape(tensor.shape[-2:]))
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float64):
        [embedding] = read_embeddings([values.to(dtype)])  # type: ignore[list-item]
        np.testing.assert_array_equal(embedding.values, values.to(dtype).float().numpy())
    for invalid, reason in (
        (values.to_sparse(), "embedding 1 is a tensor that is not an array: .*; expected a dense one"),
        (values.to("meta"), "embedding 1 is a tensor that is not an array: "),
        (values.int(), "embedding 1 holds int32; expected floating-point numbers"),
        (values[0], r"embedding 1 has the shape \(6,\); expected"),
    ):
        with pytest.raises(BadInput, match=f"^{reason}") as raised:
            read_embeddings([invalid])  # type: ignore[list-item]
        assert "\n" not in str(raised.value)


def test_invalid_embedding_inputs_are_refused() -> None:
    with pytest.raises(BadInput, match=r"^embedding 2 is of type list; expected an array"):
        read_embeddings([np.ones((2, 3)), [[1.0]]])  # type: ignore[list-item]
    with pytest.raises(BadInput, match=r"^embedding 1 has the shape \(3,\)"):
        read_embeddings([np.ones(3)])


# Placeholders.


@given(st.lists(st.integers(0, 5), max_size=8), st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_placeholder_is_repeated_for_every_token_of_its_embedding(ids: list[int], lengths: list[int]) -> None:
    count = ids.count(0)
    embeddings = [rows(length, number, 2) for number, length in enumerate(lengths[:count])]
    prompt = injected(ids, 0, embeddings)
    expected, remaining = [], iter(lengths)
    for number in ids:
        expected += [number] * (next(remaining) if number == 0 else 1)
    assert prompt.ids == expected and prompt.is_embedding.tolist() == [bool(count) and n == 0 for n in expected]
    if count:
        np.testing.assert_array_equal(prompt.rows, np.concatenate([embedding.values for embedding in embeddings]))
        with pytest.raises(BadInput, match="expected a trace of the same prompt"):
            prompt.with_ids([*expected, 0])
    assert prompt.with_ids(expected).ids == expected


def test_prompt_digest_includes_the_embeddings() -> None:
    prompts = [TokenPrompt([1, 0]), injected([1, 0], 0, [rows(1)]), injected([1, 0], 0, [rows(1, seed=5)])]
    assert len({prompt.digest for prompt in prompts}) == 3
    assert prompts[1].digest == injected([1, 0], 0, [rows(1)]).digest


@pytest.mark.parametrize(
    ("texts", "count", "message"),
    [
        (
            ["a"],
            1,
            f"the prompt holds the placeholder {P} nowhere and comes with 1 embedding; expected one for each, as",
        ),
        (
            [f"a{P}"],
            0,
            f"the prompt holds the placeholder {P} once and comes with no embeddings; expected one for each",
        ),
        ([f"{P}{P}"], 3, f"the prompt holds the placeholder {P} 2 times and comes with 3 embeddings; expected"),
        ([P, "a", P + P], 2, f"the prompt (1 in message 1, 2 in message 3) holds the placeholder {P} 3 times and"),
    ],
)
def test_placeholder_count_different_from_embedding_count_is_refused(
    texts: list[str], count: int, message: str
) -> None:
    with pytest.raises(BadInput) as raised:
        check_placeholders(texts, P, count)
    assert str(raised.value).startswith(message)


def test_placeholders_in_a_text_and_in_several_messages_are_replaced(model: CausalLmModel) -> None:
    placeholder = model.tokenizer.id_of(P)
    text = token_prompt(model, f"one {P} two {P}{P}", PLAIN, [rows(2), rows(1), rows(3)])
    assert text.ids.count(placeholder) == 6 and text.placeholder == placeholder  # type: ignore[arg-type]
    prefix = model.tokenizer.encode("one ")
    assert text.ids[: len(prefix) + 3] == [*prefix, placeholder, placeholder, model.tokenizer.encode(" two ")[0]]
    messages = [
        {"role": "system", "content": f"Hear {P}."},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": f"{P} and {P}"},
    ]
    embeddings = [rows(2, 1), rows(4, 2), rows(1, 3)]
    prompt = token_prompt(model, messages, CausalLmOptions(max_new_tokens=8), embeddings)
    np.testing.assert_array_equal(prompt.rows, np.concatenate([embedding.values for embedding in embeddings]))
    assert int(prompt.is_embedding.sum()) == 7
    assert model.tokenizer.decode(prompt.ids, special=True).count(P) == 7


def test_prompt_with_wrong_count_width_or_length_of_embeddings_is_refused(model: CausalLmModel) -> None:
    with pytest.raises(BadInput, match=r"^the prompt holds the placeholder .* once and comes with no embeddings"):
        token_prompt(model, f"a {P}", PLAIN)
    with pytest.raises(BadInput, match=r"e2 is 31 wide, its shape is .*; it expects vectors of 32"):
        token_prompt(model, f"a {P}", PLAIN, [rows(2, hidden=31)])
    longest = CONTEXT - PLAIN.max_new_tokens - len(model.tokenizer.encode("a "))
    assert len(token_prompt(model, f"a {P}", PLAIN, [rows(longest)]).ids) == CONTEXT - PLAIN.max_new_tokens
    with pytest.raises(
        BadInput, match=rf"{longest + 1} tokens long; the context of it has room for {longest} beside the text"
    ):
        token_prompt(model, f"a {P}", PLAIN, [rows(longest + 1)])


def test_placeholder_is_read_from_the_model_configuration(directory: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(directory, tmp_path / "other")
    change_json(copy / "config.json", speech_workbench={"placeholder": "<|vision_pad|>"})
    configured = read_causal_lm(copy)
    assert token_prompt(configured, "a <|vision_pad|>", PLAIN, [rows(2)]).ids[-1] == configured.tokenizer.id_of(
        "<|vision_pad|>"
    )
    usual, own = (token_prompt(configured, f"a {each} b", PLAIN, [rows(2)]) for each in (P, "<|vision_pad|>"))
    assert usual.ids == own.ids, "the usual placeholder stands for the model's own"
    with pytest.raises(BadInput, match=r"holds the placeholder <\|vision_pad\|> once and comes with 2 embeddings"):
        token_prompt(configured, f"{P} <|vision_pad|>", PLAIN, [rows(1), rows(1)])
    assert token_prompt(configured, f"a {P}", PLAIN).embeddings == (), (
        "the default placeholder is an ordinary token here"
    )
    change_json(copy / "config.json", speech_workbench={"placeholder": "<|nothing|>"})
    with pytest.raises(BadInput, match=r"^the tokenizer of other has no token <\|nothing\|>, which stands for an emb"):
        token_prompt(read_causal_lm(copy), "a <|nothing|>", PLAIN, [rows(2)])
    assert token_prompt(read_causal_lm(copy), "a <|nothing|>", PLAIN).ids
    change_json(copy / "config.json", speech_workbench={"placeholder": 7})
    with pytest.raises(BadInput, match=r"^placeholder of speech_workbench in other/config.json is 7; expected"):
        read_causal_lm(copy)


def test_placeholder_dropped_by_the_chat_template_is_refused(directory: Path, tmp_path: Path) -> None:
    import shutil

    copy = shutil.copytree(directory, tmp_path / "other")
    (copy / "chat_template.jinja").write_text("{{ messages[-1]['content'] }}")
    messages = [{"role": "system", "content": P}, {"role": "user", "content": P}]
    with pytest.raises(BadInput, match=r"^of 2 placeholders .* in the prompt, 1 are tokens of what other reads"):
        token_prompt(read_causal_lm(copy), messages, CausalLmOptions(max_new_tokens=8), [rows(1), rows(1)])


# Generated text.


def test_text_embeddings_of_the_model_give_the_same_output_as_the_text(session: Session) -> None:
    language = session.writer.language  # type: ignore[attr-defined]
    ids = session.writer.model.tokenizer.encode("three four")  # type: ignore[attr-defined]
    embeddings = language.embed(np.array([ids]))[0].numpy()
    plain = session.trace("say three four now", chat=False, max_new_tokens=6)
    substituted = session.trace(f"say {P} now", chat=False, max_new_tokens=6, embeddings=[embeddings])
    if len(plain["logits"]) == len(substituted["logits"]):  # the tokenizer may join a space to a word
        np.testing.assert_allclose(substituted["logits"][-1], plain["logits"][-1], atol=1e-4)
    assert (substituted["prompt.tokens"] == session.writer.model.tokenizer.id_of(P)).sum() == len(ids)  # type: ignore[attr-defined]
    assert substituted.meta["embeddings"] == [
        {"name": "embedding 1", "shape": list(embeddings.shape), "digest": embedding_of(embeddings).digest}
    ]
    assert substituted.meta["input_digest"] != plain.meta["input_digest"]
    generation = session.generate(f"say {P} now", chat=False, max_new_tokens=6, embeddings=[embeddings])
    assert generation.tokens == tuple(substituted["tokens"]) and generation.prompt_tokens == len(substituted["logits"])


def test_trace_with_substituted_stages_requires_the_same_embeddings(session: Session) -> None:
    options: dict[str, Any] = {"chat": False, "embeddings": [rows(3)], "max_new_tokens": 2}
    full_trace = session.trace(f"a {P}", **options)
    isolated = session.trace(f"a {P}", given=full_trace, **options)
    np.testing.assert_array_equal(isolated["logits"], full_trace["logits"])
    with pytest.raises(BadInput):
        session.trace(f"a {P}", given=full_trace, chat=False, embeddings=[rows(3, seed=4)], max_new_tokens=2)


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize(("runtime", "settings"), [("pytorch", {}), ("gguf", {"quantization": "f32"})])
def test_embeddings_of_speech_give_its_transcript(runtime: str, settings: dict[str, Any]) -> None:
    """As one embedding and as two adjacent ones, in the speech model's own prompt, with isolated sessions."""
    with Registry() as registry:
        with registry.open("demo/funasr-nano", runtime, threads=1, **settings) as nano:
            speech_trace = nano.trace(SAMPLE, "prompt.text,adaptor.output,tokens,text")
        with registry.open("demo/qwen3", runtime, threads=1, **settings) as language:
            prompt, values = str(speech_trace["prompt.text"]), speech_trace["adaptor.output"]
            one_embedding = language.generate(prompt, embeddings=[values], chat=False, alternatives=10)
            two_embeddings = language.generate(
                prompt.replace(P, P * 2), embeddings=[values[:2], embedding_of(values[2:])], chat=False
            )
            assert one_embedding.tokens == two_embeddings.tokens == tuple(
                speech_trace["tokens"].tolist()
            ) and one_embedding.text == str(speech_trace["text"])
            assert [len(step) for step in one_embedding.alternatives] == [10] * len(one_embedding.tokens)
            trace = language.trace(prompt, "tokens,llm.embeddings", embeddings=[values], chat=False)
            assert trace["tokens"].tolist() == list(one_embedding.tokens)
            with pytest.raises(BadInput, match="once and comes with 2 embeddings"):
                language.generate(prompt, embeddings=[values, values], chat=False)


def test_speech_model_refuses_embeddings() -> None:
    with (
        Registry(isolate=False) as registry,
        registry.open("demo/funasr-nano", "pytorch", threads=1) as nano,
        pytest.raises(BadInput, match="transcribes speech; to generate from text, open a language model"),
    ):
        nano.generate(f"a {P}", embeddings=[rows(1)])
