"""What our classes inside vLLM share: a language model of vLLM's own, which goes on from embeddings of another origin.

What those are of, sound or anything else, a subclass knows.
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

ARCHITECTURES = {  # vLLM's classes of the language models that `workbench.families.language` knows
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
}


class AroundLanguageModel(nn.Module, SupportsMultiModal, SupportsPP):
    """A language model, as the part `language_model` of something larger."""

    hf_to_vllm_mapper: ClassVar[WeightsMapper]  # from a directory's names of tensors to those of the parts here

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
        """Embeddings of tokens, those of a modality's items in their places.

        The placeholder may be no row of the table: nothing beyond it is looked up, wherever it stands.
        """
        known = input_ids.masked_fill(input_ids >= self.config.vocab_size, 0)
        embedded: Tensor = super().embed_input_ids(known, multimodal_embeddings, is_multimodal=is_multimodal)
        return embedded

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """The language model's pass."""
        return self.language_model(input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds)

    def compute_logits(self, hidden_states: Tensor) -> Tensor | None:
        """The language model's scores of all tokens."""
        logits: Tensor | None = self.language_model.compute_logits(hidden_states)
        return logits

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """Takes the tensors of a directory; returns the names of those that were."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=self.hf_to_vllm_mapper)
        return loaded
