"""One step of an engine, as both model runners see it: which requests, which positions; rows in, chosen positions out.

This file knows no vLLM but the form of its sampler's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.runtimes.vllm.streams.asked import columns
from workbench.speech.choosing import Step
from workbench.speech.layout import SpeechLayout


@dataclass(frozen=True)
class Batch:
    """The requests of a step in the order of its rows."""

    names: Sequence[str]
    starts: Sequence[int]  # the first position of each that is computed
    stops: Sequence[int]  # and the one after the last


@torch.inference_mode()
def put_rows(model: Any, embeddings: Tensor | None, places: Sequence[int], rows: Sequence[np.ndarray]) -> None:
    """Overwrites embeddings [tokens, H] with those of rows of several streams.

    A row's embedding is the sum of those of the ids that count (`SpeechLayout.counted`).

    Args:
        model: has `layout` and the embeddings' `table`.
        places: where the rows stand among the tokens.
    """
    if not places or embeddings is None:
        return
    stacked = np.stack(rows).astype(np.int64)
    ids = torch.from_numpy(stacked).to(embeddings.device)
    counts = torch.from_numpy(model.layout.counted(stacked)).to(embeddings)
    embeddings[list(places)] = F.embedding_bag(ids, model.table, mode="sum", per_sample_weights=counts)


def written(sampled: Any, chosen: Mapping[int, Step | None], layout: SpeechLayout) -> list[int]:
    """Writes positions, by row, into a sampler's output: ids of stream 0 as its tokens, the others as alternatives.

    Returns the rows that have none, as they wait for another request.
    """
    told = sampled.logprobs_tensors
    waiting = []
    for row, step in chosen.items():
        if step is None:
            waiting.append(row)
            continue
        sampled.sampled_token_ids[row, 0] = step.id
        if told is None:
            continue
        ids, numbers = columns(step, layout)
        if (count := len(ids)) > told.logprob_token_ids.shape[1]:
            continue  # the request did not ask for the streams
        told.logprob_token_ids[row, :count] = torch.from_numpy(ids).to(told.logprob_token_ids)
        told.logprobs[row, :count] = torch.from_numpy(numbers).to(told.logprobs)
        told.selected_token_ranks[row] = 0
    return waiting
