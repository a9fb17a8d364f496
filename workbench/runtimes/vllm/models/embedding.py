"""Embeddings in a request for vLLM's front end: rows of the model's width, each of them a position of the prompt.

An item is a float array [tokens, hidden]. The prompt has one placeholder token for each item, which is repeated for
each of the item's rows. Everything that could end the engine is refused here, in the server's own process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BatchFeature
from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.parse import ModalityDataItems, MultiModalDataParser, ProcessorBatchItems
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
)
from vllm.multimodal.processing.inputs import ProcessorInputs

from workbench.core.errors import BadInput
from workbench.embeddings import Embedding, embedding_of
from workbench.embeddings.prompt import mismatch
from workbench.families.language.directory import VLLM_SECTION, placeholder_in
from workbench.runtimes.vllm.models.errors import BadRequest

MODALITY = "embedding"
FIELD = "rows"  # the item's field in the request to the worker


def placeholder_of(config: Any) -> str:
    """Returns the token that marks an embedding's position in a text, from the model's configuration."""
    return placeholder_in(getattr(config, VLLM_SECTION, None), "the model's config.json")


def embedding_label(number: int, count: int) -> str:
    """Returns the name of an embedding in messages; `number` counts from 1, `count` is the number of all embeddings."""
    return f"embedding {number} of {count}" if count > 1 else "the embedding"


def checked_rows(item: Any, width: int, max_tokens: int, dtype: torch.dtype, name: str) -> Tensor:
    """Returns an item as [tokens, width] in the model's dtype.

    Args:
        item: an `Embedding`, or an array or tensor of any floating-point type, which may have a leading dimension of 1.
        width: the model's hidden size.
        max_tokens: the largest number of tokens.
        name: the item's name in messages.

    Raises `BadRequest` for an item that the model cannot take.
    """
    values = _values(item, name)
    if values.shape[1] != width:
        raise BadRequest(f"{name} has the shape {values.shape}; the model expects vectors of {width}")
    if len(values) > max_tokens:
        raise BadRequest(
            f"{name} is {len(values)} tokens long; the server takes {max_tokens} positions in a prompt at most"
        )
    rows = torch.from_numpy(values).to(dtype)
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        raise BadRequest(
            f"row {int(finite.int().argmin())} of {name}, counted from 0, is beyond the range of the model's "
            f"{str(dtype).removeprefix('torch.')}; expected smaller numbers, or a server started with --dtype float32"
        )
    return rows


def _values(item: Any, name: str) -> np.ndarray:
    """Returns an item as finite float32 [tokens, hidden]."""
    if isinstance(item, Embedding):
        return item.values
    if isinstance(item, Tensor):
        item = item.detach().cpu()
        item = item.float().numpy() if item.dtype == torch.bfloat16 else item.numpy()
    if not isinstance(item, np.ndarray):
        raise BadRequest(f"{name} is of type {type(item).__name__}; expected an array of floating-point numbers")
    try:
        return embedding_of(item, name).values
    except BadInput as error:
        raise BadRequest(str(error)) from error


class EmbeddingItems(ProcessorBatchItems[Tensor]):
    """The embeddings of one prompt, in order."""

    def __init__(self, data: Sequence[Tensor]):
        super().__init__(data, MODALITY)


class EmbeddingParser(MultiModalDataParser):
    """Checks the embeddings of a request."""

    def __init__(self, width: int, max_tokens: int, dtype: torch.dtype):
        super().__init__()
        self.width, self.max_tokens, self.dtype = width, max_tokens, dtype

    def _get_subparsers(self) -> Mapping[str, Any]:
        return {MODALITY: self._parsed}

    def _parsed(self, data: Any) -> ModalityDataItems[Any, Any] | None:
        """Returns one item, or a list of items."""
        if data is None:
            return None
        items = data if isinstance(data, list | tuple) else [data]
        checked = [
            checked_rows(item, self.width, self.max_tokens, self.dtype, embedding_label(number, len(items)))
            for number, item in enumerate(items, 1)
        ]
        return EmbeddingItems(checked)


class EmbeddingInfo(BaseProcessingInfo):
    """Answers vLLM's questions about embeddings before there are any."""

    @property
    def width(self) -> int:
        """The model's hidden size."""
        return int(self.ctx.model_config.get_inputs_embeds_size())

    @property
    def max_tokens(self) -> int:
        """The most positions of a prompt, with room for one token after it."""
        return int(self.ctx.model_config.max_model_len) - 1

    @cached_property
    def placeholder(self) -> int:
        """The id of the token that marks an embedding's position; raises `BadRequest` if there is no such token."""
        name = placeholder_of(self.ctx.model_config.hf_config)
        ids = self.get_tokenizer().encode(name, add_special_tokens=False)
        if len(ids) != 1:
            raise BadRequest(
                f"the placeholder {name!r:.80} is not a token of the model's tokenizer; name one that is, in "
                f'config.json or with --hf-overrides, as "{VLLM_SECTION}": {{"placeholder": "..."}}'
            )
        return int(ids[0])

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Returns no limit for the number of embeddings in a prompt."""
        return {MODALITY: None}

    def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
        """Returns no options."""
        return {}

    def get_data_parser(self) -> MultiModalDataParser:
        """Returns a parser that refuses items that the model cannot take."""
        dtype = self.ctx.model_config.dtype
        assert isinstance(dtype, torch.dtype)  # it is a name only until vLLM has read the model's configuration
        return EmbeddingParser(self.width, self.max_tokens, dtype)

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """Returns the length of the whole prompt, which one embedding may fill."""
        return {MODALITY: min(self.max_tokens, seq_len)}


class EmbeddingDummyInputs(BaseDummyInputsBuilder[EmbeddingInfo]):
    """Creates the longest embedding, with which vLLM measures memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Returns a text of placeholders alone."""
        return placeholder_of(self.info.ctx.model_config.hf_config) * mm_counts.get(MODALITY, 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Returns zeros that together fill a prompt."""
        count = mm_counts.get(MODALITY, 0)
        rows = max(min(seq_len, self.info.max_tokens) // max(count, 1), 1)
        return {MODALITY: [np.zeros((rows, self.info.width), dtype=np.float32)] * count}


class EmbeddingProcessor(BaseMultiModalProcessor[EmbeddingInfo]):
    """Turns embeddings into a request's fields: `rows` [tokens, hidden] in the model's dtype."""

    def __init__(self, info: EmbeddingInfo, dummy_inputs: BaseDummyInputsBuilder[EmbeddingInfo]):
        super().__init__(info, dummy_inputs)
        _ = info.placeholder  # raises now, so that a server does not start if its model has no such token

    def _call_hf_processor(self, hf_data: Mapping[str, Any], hf_kwargs: Mapping[str, object]) -> BatchFeature:
        if hf_kwargs:
            raise BadRequest(
                f"mm_processor_kwargs has {', '.join(map(str, hf_kwargs))!r:.80}; embeddings have no options"
            )
        return BatchFeature({FIELD: list(hf_data[f"{MODALITY}s"])})

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {FIELD: MultiModalFieldConfig.batched(MODALITY)}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> Sequence[PromptReplacement]:
        placeholder = self.info.placeholder
        items = out_mm_kwargs.get(MODALITY, [])  # items in vLLM's cache are not among them

        def replacement(number: int) -> list[int]:
            return [placeholder] * len(items[number][FIELD].data)

        return [PromptReplacement(modality=MODALITY, target=[placeholder], replacement=replacement)]

    def apply(self, inputs: ProcessorInputs, timing_ctx: Any) -> Any:
        """Returns the prompt with each placeholder repeated; raises `BadRequest` if their number differs from the
        embeddings'.
        """
        name = placeholder_of(self.info.ctx.model_config.hf_config)
        placeholders = inputs.prompt.count(self.info.placeholder)
        items = inputs.mm_data_items.get(MODALITY, ())
        if placeholders != len(items):
            raise BadRequest(mismatch("the prompt", name, placeholders, len(items)))
        length = len(inputs.prompt) - placeholders + sum(map(len, items))
        if length > self.info.max_tokens:
            raise BadRequest(
                f"the prompt has {length} positions with its embeddings, and the server takes "
                f"{self.info.max_tokens} at most"
            )
        # vLLM's cache of sent items saves little here, and breaks if a request is refused after this.
        inputs.cache = None
        return super().apply(inputs, timing_ctx)
