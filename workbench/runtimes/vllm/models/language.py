"""Common code of this project's classes inside vLLM: one of vLLM's language models that takes external embeddings.

A subclass knows what the embeddings are, audio or anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.model_executor.models.interfaces import SupportsMultiModal, SupportsPP
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    WeightsMapper,
    init_vllm_registered_model,
    maybe_prefix,
)

ARCHITECTURES = {  # vLLM's classes of the language models in `workbench.families.language.directory`
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
}


class AroundLanguageModel(nn.Module, SupportsMultiModal, SupportsPP):
    """A language model as the part `language_model` of a larger model."""

    hf_to_vllm_mapper: ClassVar[WeightsMapper]  # from a directory's tensor names to those of the parts here
    # Methods of `SupportsMultiModal`, which the type checker does not read.
    _mark_language_model: Any
    _mark_tower_model: Any
    configure_mm_token_handling: Any

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = ""):
        super().__init__()
        config: Any = vllm_config.model_config.hf_config
        self.config = config
        with self._mark_language_model(vllm_config):
            language: Any = init_vllm_registered_model(
                vllm_config,
                prefix=maybe_prefix(prefix, "language_model"),
                architectures=[ARCHITECTURES[config.model_type]],
            )
            self.language_model = language
        self.make_empty_intermediate_tensors = language.make_empty_intermediate_tensors

    def embed_input_ids(
        self, input_ids: Tensor, multimodal_embeddings: Any = None, *, is_multimodal: Tensor | None = None
    ) -> Tensor:
        """Returns embeddings of tokens, with a modality's items at their positions.

        The placeholder id may be outside the table, so ids beyond the table are not looked up.
        """
        valid_ids = input_ids.masked_fill(input_ids >= self.config.vocab_size, 0)
        embedded: Tensor = super().embed_input_ids(valid_ids, multimodal_embeddings, is_multimodal=is_multimodal)
        return embedded

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the language model."""
        return self.language_model(input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """Returns the language model's logits."""
        logits: Tensor | None = self.language_model.compute_logits(hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Loads the tensors of a directory; returns the names of those that were loaded."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)
        return loaded
