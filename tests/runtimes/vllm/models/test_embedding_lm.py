"""The vLLM class for embedding prompts around a Llama with untied output weights, against transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.support.in_process_vllm import in_process_engine, written  # noqa: E402
from tests.support.tiny_language import CONTEXT, tiny_language  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.runtimes.vllm.embedding_parts.chat import ARCHITECTURE  # noqa: E402
from workbench.runtimes.vllm.models.embedding_lm import SpeechWorkbenchEmbeddingLM  # noqa: E402
from workbench.runtimes.vllm.models.errors import BadRequest  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WIDTH, PLACEHOLDER, MAX_TOKENS = 64, "<|im_start|>", 12
ENGINE = {
    "hf_overrides": {"architectures": [ARCHITECTURE], "speech_workbench": {"placeholder": PLACEHOLDER}},
    "limit_mm_per_prompt": {"embedding": 3},
    "kv_cache_memory_bytes": 32 << 20,
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = {"hidden_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    return tiny_language(tmp_path_factory.mktemp("llama") / "it", "llama", tie_word_embeddings=False, **shape)


@pytest.fixture(scope="module")
def llm(directory: Path) -> Iterator[Any]:
    with in_process_engine(directory, **ENGINE) as llm:
        yield llm


@pytest.fixture(scope="module")
def network(directory: Path) -> Any:
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)


def random_rows(tokens: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, WIDTH)).astype(np.float32)


def prompt(llm: Any, parts: list[Any]) -> dict[str, Any]:
    [number] = llm.get_tokenizer().encode(PLACEHOLDER, add_special_tokens=False)
    ids = [token for part in parts for token in ([number] if isinstance(part, np.ndarray) else part)]
    embeddings = [part for part in parts if isinstance(part, np.ndarray)]
    return {"prompt_token_ids": ids, **({"multi_modal_data": {"embedding": embeddings}} if embeddings else {})}


def reference_tokens(network: Any, parts: list[Any]) -> list[int]:
    table = network.get_input_embeddings()
    rows = [torch.from_numpy(part) if isinstance(part, np.ndarray) else table(torch.tensor(part)) for part in parts]
    with torch.no_grad():
        mask = torch.ones(1, sum(map(len, rows)), dtype=torch.long)
        output = network.generate(
            inputs_embeds=torch.cat(rows)[None],
            attention_mask=mask,
            do_sample=False,
            min_new_tokens=MAX_TOKENS,
            max_new_tokens=MAX_TOKENS,
            eos_token_id=-1,
            pad_token_id=0,
        )
    return [int(number) for number in output[0]]


def test_prompts_of_ids_and_embeddings_give_the_same_tokens_as_transformers(llm: Any, network: Any) -> None:
    """All prompts run at once, of several lengths; two differ in one value, and one has ids only."""
    similar = random_rows(5, 1)
    similar[2, 3] += 2
    prompts = [
        [[5, 6, 7], random_rows(5, 1), [8, 9]],
        [[5, 6, 7], similar, [8, 9]],
        [random_rows(1, 2), random_rows(60, 3), [8]],
        [[5], random_rows(3, 4), [6], random_rows(2, 5), random_rows(4, 6), [7]],
        [random_rows(CONTEXT - MAX_TOKENS - 1, 7)],
        [[5, 6, 7]],
    ]
    output = written(llm, [prompt(llm, parts) for parts in prompts], [], MAX_TOKENS)
    assert output == [reference_tokens(network, parts) for parts in prompts]
    assert output[0] != output[1]


@pytest.mark.parametrize(
    "parts, message",
    [
        ([np.zeros((2, 3), np.float32)], r"the embedding has the shape \(2, 3\); the model expects vectors of 64"),
        ([random_rows(CONTEXT, 0)], "is 256 tokens long; the server takes 255 positions"),
        ([random_rows(1, seed) for seed in range(4)], "At most 3 embedding"),
    ],
)
def test_refused_embedding_leaves_the_engine_usable(parts: list[Any], message: str, llm: Any) -> None:
    with pytest.raises(Exception, match=message):
        written(llm, [prompt(llm, parts)], [], 4)
    assert len(written(llm, [prompt(llm, [random_rows(2, 0)])], [], 4)[0]) == 4


def test_another_modality_is_refused() -> None:
    assert SpeechWorkbenchEmbeddingLM.get_placeholder_str("embedding", 1) == "<|fim_pad|>"
    with pytest.raises(BadRequest, match="this model takes embeddings, and was given image"):
        SpeechWorkbenchEmbeddingLM.get_placeholder_str("image", 1)


def test_a_model_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    config = SimpleNamespace(model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="mamba")))
    with pytest.raises(BadInput, match="the model is of type 'mamba'; expected one of qwen2, qwen3, llama, mistral"):
        SpeechWorkbenchEmbeddingLM(vllm_config=config)  # type: ignore[arg-type]
