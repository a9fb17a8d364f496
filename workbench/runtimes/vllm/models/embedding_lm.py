"""The class with which vLLM loads a language model whose prompts may contain embeddings from elsewhere.

The directory is that of a plain language model, served under this class's name:
`vllm serve DIRECTORY --hf-overrides '{"architectures": ["SpeechWorkbenchEmbeddingLM"]}'`.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from vllm.config import VllmConfig
from vllm.model_executor.models.utils import WeightsMapper
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.multimodal.processing import BaseDummyInputsBuilder

from workbench.core.errors import BadInput
from workbench.families.language.directory import PLACEHOLDER
from workbench.runtimes.vllm.embedding_parts.chat import teach_embeddings
from workbench.runtimes.vllm.models.embedding import (
    FIELD,
    MODALITY,
    EmbeddingDummyInputs,
    EmbeddingInfo,
    EmbeddingProcessor,
)
from workbench.runtimes.vllm.models.errors import BadRequest
from workbench.runtimes.vllm.models.language import ARCHITECTURES, AroundLanguageModel


def processor(info: EmbeddingInfo, dummy_inputs: BaseDummyInputsBuilder[EmbeddingInfo]) -> EmbeddingProcessor:
    """Returns the processor of a process that takes requests, and makes the process's chats accept embeddings."""
    teach_embeddings()
    return EmbeddingProcessor(info, dummy_inputs)


@MULTIMODAL_REGISTRY.register_processor(processor, info=EmbeddingInfo, dummy_inputs=EmbeddingDummyInputs)
class SpeechWorkbenchEmbeddingLM(AroundLanguageModel):
    """Qwen2, Qwen3, Llama or Mistral with one modality, whose items are input embeddings of the model."""

    hf_to_vllm_mapper = WeightsMapper(
        orig_to_new_prefix={"model.": "language_model.model.", "lm_head.": "language_model.lm_head."}
    )

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = ""):
        kind = vllm_config.model_config.hf_config.model_type
        if kind not in ARCHITECTURES:
            raise BadInput(f"the model is of type {kind!r}; expected one of {', '.join(ARCHITECTURES)}")
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.dtype = vllm_config.model_config.dtype

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Returns the default placeholder of an embedding in a text; the model's configuration may name another
        token.
        """
        if modality == MODALITY:
            return PLACEHOLDER
        raise BadRequest(f"this model takes embeddings, and was given {modality}")

    def embed_multimodal(self, **kwargs: Any) -> list[Tensor]:
        """Returns the rows [tokens, H] of the items of a batch, unchanged."""
        return [rows.to(self.dtype) for rows in kwargs[FIELD]]
