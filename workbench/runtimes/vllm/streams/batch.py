"""The parts of an engine's step that both model runners share: rows become embeddings, and choices become its output.

Of vLLM this file knows only the form of the sampler's output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from workbench.runtimes.vllm.streams.stream_request import columns
from workbench.speech.choosing import Step
from workbench.speech.layout import SpeechLayout


@dataclass(frozen=True)
class Batch:
    """The requests of a step in the order of its rows."""

    names: Sequence[str]
    starts: Sequence[int]  # the first position of each request that the step computes
    stops: Sequence[int]  # the position after the last one


@torch.inference_mode()
def put_rows(model: Any, embeddings: Tensor | None, places: Sequence[int], rows: Sequence[np.ndarray]) -> None:
    """Writes the embeddings of rows with several streams into the embeddings [tokens, H] of a step.

    The embedding of a row is the sum of the embeddings of those of its ids that count (`SpeechLayout.counted`).

    Args:
        model: has `layout`, and the table of embeddings as `table`.
        places: the places of the rows among the tokens.
    """
    if not places or embeddings is None:
        return
    stacked = np.stack(rows).astype(np.int64)
    ids = torch.from_numpy(stacked).to(embeddings.device)
    counts = torch.from_numpy(model.layout.counted(stacked)).to(embeddings)
    embeddings[list(places)] = F.embedding_bag(ids, model.table, mode="sum", per_sample_weights=counts)


def write_choices(sampled: Any, chosen: Mapping[int, Step | None], layout: SpeechLayout) -> list[int]:
    """Writes chosen positions into a sampler's output: stream 0 as the tokens, all streams as their alternatives.

    Args:
        chosen: by row of the batch; None for a row that waits for another request.

    Returns the rows that wait.
    """
    logprobs = sampled.logprobs_tensors
    waiting = []
    for row, step in chosen.items():
        if step is None:
            waiting.append(row)
            continue
        sampled.sampled_token_ids[row, 0] = step.id
        if logprobs is None:
            continue
        ids, numbers = columns(step, layout)
        if (count := len(ids)) > logprobs.logprob_token_ids.shape[1]:
            continue  # the request did not ask for the streams
        logprobs.logprob_token_ids[row, :count] = torch.from_numpy(ids).to(logprobs.logprob_token_ids)
        logprobs.logprobs[row, :count] = torch.from_numpy(numbers).to(logprobs.logprobs)
        logprobs.selected_token_ranks[row] = 0
    return waiting
