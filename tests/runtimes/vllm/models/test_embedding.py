"""Embedding inputs of vLLM requests: one placeholder token per row, and refusal of unsuitable embeddings."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from vllm.multimodal.processing.inputs import ProcessorInputs  # noqa: E402

from tests.support.tiny_language import CONTEXT, put_tokenizer  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.embeddings import read_embedding, write_embedding  # noqa: E402
from workbench.families.language.directory import PLACEHOLDER, LanguageTokenizer  # noqa: E402
from workbench.runtimes.vllm.models.embedding import (  # noqa: E402
    EmbeddingDummyInputs,
    EmbeddingInfo,
    EmbeddingProcessor,
    placeholder_of,
)
from workbench.runtimes.vllm.models.errors import BadRequest  # noqa: E402

WIDTH = 8


def context(tokenizer: Any, dtype: torch.dtype = torch.float32, **config: Any) -> Any:
    """The context that vLLM passes to a processor, without a model."""
    options = SimpleNamespace(
        enable_mm_embeds=False, mm_hasher_algorithm="blake3", get_limit_per_prompt=lambda _: 999, limit_per_prompt={}
    )
    model_config = SimpleNamespace(
        model="it",
        hf_config=SimpleNamespace(**config),
        dtype=dtype,
        max_model_len=CONTEXT,
        multimodal_config=options,
        get_multimodal_config=lambda: options,
        get_inputs_embeds_size=lambda: WIDTH,
    )
    return SimpleNamespace(
        model_config=model_config, tokenizer=tokenizer, get_tokenizer=lambda: tokenizer, get_mm_config=lambda: options
    )


def processor_of(context: Any) -> EmbeddingProcessor:
    info = EmbeddingInfo(context)
    return EmbeddingProcessor(info, EmbeddingDummyInputs(info))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    put_tokenizer(folder)
    Path(folder / "config.json").write_text('{"model_type": "qwen3"}')
    return LanguageTokenizer.read(folder)._tokenizer


@pytest.fixture(scope="module")
def processor(tokenizer: Any) -> EmbeddingProcessor:
    return processor_of(context(tokenizer))


def process(processor: EmbeddingProcessor, items: Any, ids: list[int], **options: Any) -> Any:
    parsed = processor.info.parse_mm_data({"embedding": items})
    inputs = ProcessorInputs(ids, parsed, hf_processor_mm_kwargs=options, cache=object())  # type: ignore[arg-type]
    return processor.apply(inputs, SimpleNamespace(record=lambda _: nullcontext()))


def random_rows(tokens: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, WIDTH)).astype(dtype)


def rows(inputs: Any) -> list[Any]:
    """The rows of each embedding of a request, as vLLM's inputs contain them."""
    return [item["rows"].data for item in inputs["mm_kwargs"]["embedding"]]


@settings(deadline=None, max_examples=30)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=4), gaps=st.lists(st.integers(0, 2), min_size=5))
def test_each_placeholder_is_expanded_to_the_rows_of_its_embedding(
    lengths: list[int], gaps: list[int], processor: EmbeddingProcessor
) -> None:
    """Placeholders may be adjacent."""
    token = processor.info.placeholder
    embeddings = [random_rows(length, seed) for seed, length in enumerate(lengths)]
    ids, expected, ranges = [7] * gaps[0], [7] * gaps[0], []
    for length, gap in zip(lengths, gaps[1:], strict=False):
        ranges.append((len(expected), length))
        ids += [token] + [7] * gap
        expected += [token] * length + [7] * gap
    inputs = process(processor, embeddings, ids)
    assert inputs["prompt_token_ids"] == expected
    assert [
        (placeholder_range.offset, placeholder_range.length)
        for placeholder_range in inputs["mm_placeholders"]["embedding"]
    ] == ranges
    for row, embedding in zip(rows(inputs), embeddings, strict=True):
        assert row.dtype == torch.float32 and np.array_equal(row.numpy(), embedding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_embeddings_of_any_float_type_are_converted_to_the_dtype_of_the_model(
    dtype: torch.dtype, tokenizer: Any
) -> None:
    processor = processor_of(context(tokenizer, dtype))
    token = [processor.info.placeholder]
    values = random_rows(3)
    expected = torch.from_numpy(values).to(dtype)
    kinds = (values, values[None], values.astype(np.float64), torch.from_numpy(values), torch.from_numpy(values)[None])
    for item in (*kinds, read_embedding(write_embedding(values, None, "npy"))):
        assert torch.equal(rows(process(processor, item, token))[0], expected)
    for narrow in (torch.bfloat16, torch.float16):
        small = torch.from_numpy(values).to(narrow)
        assert torch.equal(rows(process(processor, [small], token))[0], small.to(dtype))


def test_equal_embeddings_have_equal_names_in_vllms_caches(processor: EmbeddingProcessor) -> None:
    token = [processor.info.placeholder]
    first, equal, different = (
        process(processor, [item], token)["mm_hashes"] for item in (random_rows(2), random_rows(2), random_rows(2, 1))
    )
    assert first == equal != different


@pytest.mark.parametrize(
    "item, message",
    [
        (np.zeros((3, WIDTH + 1), np.float32), r"the embedding has the shape (3, 9); the model expects vectors of 8"),
        (np.zeros((CONTEXT, WIDTH), np.float32), "is 256 tokens long; the server takes 255 positions in a prompt"),
        (np.zeros((0, WIDTH), np.float32), "the embedding has the shape (0, 8), which is empty"),
        (np.zeros((2, 3, WIDTH), np.float32), "a batch of 2; expected (tokens, hidden) or (1, tokens, hidden)"),
        (np.zeros((3, WIDTH), np.int8), "the embedding holds int8; expected floating-point numbers"),
        (torch.zeros((3, WIDTH), dtype=torch.int64), "the embedding holds int64"),
        (np.full((3, WIDTH), np.nan, np.float32), "NaN or infinite"),
        (np.full((3, WIDTH), np.inf, np.float32), "NaN or infinite"),
        (np.full((3, WIDTH), 1e200), "beyond the range of float32"),
        (np.array([[{}] * WIDTH]), "the embedding holds object"),
        ("words", "the embedding is of type str; expected an array of floating-point numbers"),
        ([random_rows(1), np.zeros((1, 3), np.float32)], "embedding 2 of 2 has the shape (1, 3)"),
    ],
)
def test_invalid_embeddings_raise_one_line_error(item: Any, message: str, processor: EmbeddingProcessor) -> None:
    with pytest.raises(BadRequest) as caught:
        processor.info.parse_mm_data({"embedding": item})
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value, ValueError)  # vLLM's server answers it with status 400


def test_embedding_beyond_the_float16_range_is_refused_by_a_float16_model(tokenizer: Any) -> None:
    values = random_rows(3)
    values[1, 2] = 1e6
    processor = processor_of(context(tokenizer, torch.float16))
    with pytest.raises(BadRequest, match=r"row 1 of the embedding, counted from 0, is beyond the range of .* float16"):
        processor.info.parse_mm_data({"embedding": values})


@pytest.mark.parametrize(
    "placeholders, lengths, message",
    [
        (
            1,
            [1, 1],
            "the prompt holds the placeholder <|fim_pad|> once and comes with 2 embeddings; expected one for each",
        ),
        (2, [1], "the prompt holds the placeholder <|fim_pad|> 2 times and comes with 1 embedding;"),
        (0, [1], "the prompt holds the placeholder <|fim_pad|> nowhere and comes with 1 embedding;"),
        (1, [], "the prompt holds the placeholder <|fim_pad|> once and comes with no embeddings;"),
        (2, [200, 200], "the prompt has 401 positions with its embeddings, and the server takes 255 at most"),
    ],
)
def test_prompt_with_another_number_of_placeholders_is_refused(
    placeholders: int, lengths: list[int], message: str, processor: EmbeddingProcessor
) -> None:
    with pytest.raises(BadRequest) as caught:
        process(
            processor, [random_rows(length) for length in lengths], [7, *[processor.info.placeholder] * placeholders]
        )
    assert message in str(caught.value)


def test_prompt_one_token_shorter_than_the_context_is_accepted(processor: EmbeddingProcessor) -> None:
    inputs = process(processor, [random_rows(CONTEXT - 2)], [7, processor.info.placeholder])
    assert len(inputs["prompt_token_ids"]) == CONTEXT - 1


def test_processor_options_for_embeddings_are_refused(processor: EmbeddingProcessor) -> None:
    with pytest.raises(BadRequest, match="mm_processor_kwargs has 'scale'; embeddings have no options"):
        process(processor, [random_rows(1)], [processor.info.placeholder], scale=2)


def test_the_configuration_names_the_placeholder(tokenizer: Any) -> None:
    assert placeholder_of(SimpleNamespace()) == PLACEHOLDER
    configured = processor_of(context(tokenizer, speech_workbench={"placeholder": "<|image_pad|>"}))
    assert configured.info.placeholder == tokenizer.get_vocab()["<|image_pad|>"]
    assert configured.dummy_inputs.get_dummy_text({"embedding": 2}) == "<|image_pad|><|image_pad|>"
    for name, message in (
        ("<|nobody|>", "the placeholder '<|nobody|>' is not a token"),
        ("", "expected a token's text"),
    ):
        with pytest.raises(BadInput) as caught:
            processor_of(context(tokenizer, speech_workbench={"placeholder": name}))
        assert message in str(caught.value)


@pytest.mark.parametrize("room", [CONTEXT, 20])
def test_profiling_embeddings_fill_the_context(room: int, processor: EmbeddingProcessor) -> None:
    maximum = min(room, CONTEXT - 1)
    assert processor.info.get_mm_max_tokens_per_item(room, {"embedding": 1}) == {"embedding": maximum}
    for count in (1, 3):
        dummies = processor.dummy_inputs.get_dummy_mm_data(room, {"embedding": count}, {})["embedding"]
        assert [dummy.shape for dummy in dummies] == [(maximum // count, WIDTH)] * count
