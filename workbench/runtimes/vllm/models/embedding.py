"""Embeddings in a request, as vLLM's front end takes them: rows of the model's width, each a position of the prompt.

An item is a float array [tokens, hidden]. The prompt holds one placeholder token for each, which becomes as many as the
item has rows. All that could end the engine is refused here, in the server's own process.
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
from workbench.families.language import SERVED_SECTION, placeholder_in
from workbench.runtimes.vllm.models.refused import Refused

MODALITY = "embedding"
FIELD = "rows"  # of an item, as it travels to the worker


def placeholder_of(config: Any) -> str:
    """The token that stands in a text where an embedding goes, as the configuration of a model that vLLM loads says."""
    return placeholder_in(getattr(config, SERVED_SECTION, None), "the model's config.json")


def called(number: int, count: int) -> str:
    """The name in messages of one of so many embeddings, counted from 1."""
    return f"embedding {number} of {count}" if count > 1 else "the embedding"


def checked_rows(item: Any, width: int, most: int, dtype: torch.dtype, name: str) -> Tensor:
    """An item as [tokens, width] in the model's dtype.

    Args:
        item: an `Embedding`, or an array or tensor of any floating point, which may have a leading dimension of 1.
        width: the model's hidden size.
        most: tokens that it may have.
        name: of the item, in messages.

    Raises `Refused` for an item that the model cannot take.
    """
    values = _values(item, name)
    if values.shape[1] != width:
        raise Refused(f"{name} has the shape {values.shape}; the model expects vectors of {width}")
    if len(values) > most:
        raise Refused(f"{name} is {len(values)} tokens long; the server takes {most} positions in a prompt at most")
    rows = torch.from_numpy(values).to(dtype)
    finite = rows.isfinite().all(dim=1)
    if not finite.all():
        raise Refused(
            f"row {int(finite.int().argmin())} of {name}, counted from 0, is beyond the range of the model's "
            f"{str(dtype).removeprefix('torch.')}; expected smaller numbers, or a server started with --dtype float32"
        )
    return rows


def _values(item: Any, name: str) -> np.ndarray:
    """An item in float32 [tokens, hidden], finite."""
    if isinstance(item, Embedding):
        return item.values
    if isinstance(item, Tensor):
        item = item.detach().cpu()
        item = item.float().numpy() if item.dtype == torch.bfloat16 else item.numpy()
    if not isinstance(item, np.ndarray):
        raise Refused(f"{name} is of type {type(item).__name__}; expected an array of floating-point numbers")
    try:
        return embedding_of(item, name).values
    except BadInput as error:
        raise Refused(str(error)) from error


class EmbeddingItems(ProcessorBatchItems[Tensor]):
    """The embeddings of one prompt, in order."""

    def __init__(self, data: Sequence[Tensor]):
        super().__init__(data, MODALITY)


class EmbeddingParser(MultiModalDataParser):
    """Checks the embeddings of a request."""

    def __init__(self, width: int, most: int, dtype: torch.dtype):
        super().__init__()
        self.width, self.most, self.dtype = width, most, dtype

    def _get_subparsers(self) -> Mapping[str, Any]:
        return {MODALITY: self._parsed}

    def _parsed(self, data: Any) -> ModalityDataItems[Any, Any] | None:
        """One item, or a list of them."""
        if data is None:
            return None
        given = data if isinstance(data, list | tuple) else [data]
        checked = [
            checked_rows(item, self.width, self.most, self.dtype, called(number, len(given)))
            for number, item in enumerate(given, 1)
        ]
        return EmbeddingItems(checked)


class EmbeddingInfo(BaseProcessingInfo):
    """What vLLM asks about embeddings before there are any."""

    @property
    def width(self) -> int:
        """The model's hidden size."""
        return int(self.ctx.model_config.get_inputs_embeds_size())

    @property
    def most(self) -> int:
        """Positions that a prompt may have, with room for one token after it."""
        return int(self.ctx.model_config.max_model_len) - 1

    @cached_property
    def placeholder(self) -> int:
        """The id of the token that stands where an embedding goes; raises `Refused` where there is no such token."""
        name = placeholder_of(self.ctx.model_config.hf_config)
        ids = self.get_tokenizer().encode(name, add_special_tokens=False)
        if len(ids) != 1:
            raise Refused(
                f"the placeholder {name!r:.80} is no token of the model's tokenizer; name one that is, in config.json "
                f'or with --hf-overrides, as "{SERVED_SECTION}": {{"placeholder": "..."}}'
            )
        return int(ids[0])

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Any number of embeddings in a prompt."""
        return {MODALITY: None}

    def get_supported_mm_processor_kwargs(self) -> dict[str, set[str]]:
        """There are no options."""
        return {}

    def get_data_parser(self) -> MultiModalDataParser:
        """One that refuses what the model cannot take."""
        dtype = self.ctx.model_config.dtype
        assert isinstance(dtype, torch.dtype)  # a name only until vLLM has read the model's configuration
        return EmbeddingParser(self.width, self.most, dtype)

    def get_mm_max_tokens_per_item(self, seq_len: int, mm_counts: Mapping[str, int]) -> Mapping[str, int]:
        """An embedding may fill the whole prompt."""
        return {MODALITY: min(self.most, seq_len)}


class EmbeddingDummyInputs(BaseDummyInputsBuilder[EmbeddingInfo]):
    """The longest embedding, with which vLLM measures memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """The placeholders alone."""
        return placeholder_of(self.info.ctx.model_config.hf_config) * mm_counts.get(MODALITY, 0)

    def get_dummy_mm_data(self, seq_len: int, mm_counts: Mapping[str, int], mm_options: Any) -> dict[str, Any]:
        """Zeros, sharing a prompt among them."""
        count = mm_counts.get(MODALITY, 0)
        rows = max(min(seq_len, self.info.most) // max(count, 1), 1)
        return {MODALITY: [np.zeros((rows, self.info.width), dtype=np.float32)] * count}


class EmbeddingProcessor(BaseMultiModalProcessor[EmbeddingInfo]):
    """Embeddings to a request's fields: `rows` [tokens, hidden] in the model's dtype."""

    def __init__(self, info: EmbeddingInfo, dummy_inputs: BaseDummyInputsBuilder[EmbeddingInfo]):
        super().__init__(info, dummy_inputs)
        _ = info.placeholder  # a server whose model has no such token does not start

    def _call_hf_processor(self, hf_data: Mapping[str, Any], hf_kwargs: Mapping[str, object]) -> BatchFeature:
        if hf_kwargs:
            raise Refused(f"mm_processor_kwargs has {', '.join(map(str, hf_kwargs))!r:.80}; embeddings have no options")
        return BatchFeature({FIELD: list(hf_data[f"{MODALITY}s"])})

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        return {FIELD: MultiModalFieldConfig.batched(MODALITY)}

    def _get_prompt_updates(
        self, mm_items: Any, hf_processor_mm_kwargs: Mapping[str, object], out_mm_kwargs: Any
    ) -> Sequence[PromptReplacement]:
        placeholder = self.info.placeholder
        items = out_mm_kwargs.get(MODALITY, [])  # what vLLM has in its cache is not among them

        def replacement(number: int) -> list[int]:
            return [placeholder] * len(items[number][FIELD].data)

        return [PromptReplacement(modality=MODALITY, target=[placeholder], replacement=replacement)]

    def apply(self, inputs: ProcessorInputs, timing_ctx: Any) -> Any:
        """The prompt with each placeholder repeated; raises `Refused` where it has not one for each embedding."""
        name = placeholder_of(self.info.ctx.model_config.hf_config)
        standing = inputs.prompt.count(self.info.placeholder)
        items = inputs.mm_data_items.get(MODALITY, ())
        if standing != len(items):
            raise Refused(mismatch("the prompt", name, standing, len(items)))
        length = len(inputs.prompt) - standing + sum(map(len, items))
        if length > self.info.most:
            raise Refused(
                f"the prompt has {length} positions with its embeddings, and the server takes {self.info.most} at most"
            )
        # vLLM's cache of what has been sent saves little here, and goes wrong where a request is refused after this.
        inputs.cache = None
        return super().apply(inputs, timing_ctx)
