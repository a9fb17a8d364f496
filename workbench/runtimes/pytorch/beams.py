"""Beam search by transformers, read token by token and stopped after any of them.

`generate` runs in a thread. After every token, the thread hands over the best hypothesis and waits until the reader
asks for the next one. This file knows no family.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
)

from workbench.decoding.generation import ENDED, Decoding
from workbench.embeddings.merge import Merged
from workbench.runtimes.pytorch.arithmetic import throughout


def beam_search(network: Any, prompt: Merged[Tensor], decoding: Decoding) -> Generator[np.ndarray, None, None]:
    """Yields all tokens of every row's likeliest hypothesis after each step [batch, tokens]; the last step is final.

    Rows are padded with `ENDED` after their stop id. While the search runs, the yielded hypothesis is the likeliest
    before any length penalty. Rows with different limits are searched one after another; rows that have not begun
    contain only `ENDED`. Closing the iterator stops the search within one token.

    Args:
        prompt: padded on the left.
    """
    batch = len(prompt.attention_mask)
    limits = np.broadcast_to(decoding.max_new_tokens, batch)
    if (limits == limits[0]).all():
        with contextlib.closing(_search(network, prompt, decoding, int(limits[0]))) as steps:
            yield from steps
        return
    done = [np.empty(0, np.int64)] * batch
    for row in range(batch):
        with contextlib.closing(_search(network, _row(prompt, row), decoding, int(limits[row]))) as steps:
            for found in steps:
                done[row] = found[0]
                yield _table(done)


def _row(prompt: Merged[Tensor], row: int) -> Merged[Tensor]:
    """Returns one prompt of a batch without its padding."""
    first = prompt.attention_mask.shape[1] - int(prompt.lengths[row])
    one = slice(row, row + 1)
    return Merged(prompt.embeddings[one, first:], prompt.attention_mask[one, first:], prompt.positions[one, first:])


def _search(network: Any, prompt: Merged[Tensor], decoding: Decoding, limit: int) -> Generator[np.ndarray, None, None]:
    """Yields the same as `beam_search`, for rows with the same limit."""
    desk = _Desk()
    thread = threading.Thread(target=_run, args=(network, prompt, decoding, limit, desk), daemon=True, name="beams")
    thread.start()
    try:
        while True:
            found = desk.handed.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                return
            yield _table([_until_stop(row, decoding.stop_ids) for row in found])
            desk.wanted.release()
    finally:
        desk.left = True
        desk.wanted.release()
        thread.join()


class _Desk(StoppingCriteria):
    """The exchange between threads: the search puts its tokens here and asks whether to continue."""

    def __init__(self) -> None:
        self.handed: queue.SimpleQueue[np.ndarray | Exception | None] = queue.SimpleQueue()
        self.wanted = threading.Semaphore(0)
        self.left = False
        self.rows = 1

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Takes all candidates [batch * candidates, tokens] after every token, the likeliest of a row first."""
        best = input_ids[:: len(input_ids) // self.rows]
        self.handed.put(best.cpu().numpy())
        self.wanted.acquire()
        return torch.full((len(input_ids),), self.left, device=input_ids.device)


@torch.inference_mode()
def _run(network: Any, prompt: Merged[Tensor], decoding: Decoding, limit: int, desk: _Desk) -> None:
    """Runs the search; puts its result and None on the desk at the end, or the error that ended it."""
    desk.rows = len(prompt.attention_mask)
    network.generation_config = GenerationConfig()  # the model's own would fill in settings that are not set below
    settings = GenerationConfig(
        max_new_tokens=limit,
        min_new_tokens=decoding.min_new_tokens or None,
        num_beams=decoding.beam_size,
        num_return_sequences=1,
        length_penalty=decoding.length_penalty,
        early_stopping=False,
        do_sample=False,
        use_cache=True,
        eos_token_id=list(decoding.stop_ids),
        pad_token_id=decoding.pad_id,
    )
    # Passed as a processor: as a setting, transformers would warn that the penalty does not see the prompt, which is
    # intended.
    penalty = [RepetitionPenaltyLogitsProcessor(decoding.repetition_penalty)] * (decoding.repetition_penalty != 1.0)
    try:
        with throughout(network.dtype):
            result = network.generate(
                inputs_embeds=prompt.embeddings,
                attention_mask=torch.from_numpy(prompt.attention_mask.astype(np.int64)).to(prompt.embeddings.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList(penalty),
                stopping_criteria=StoppingCriteriaList([desk]),
            )
        desk.handed.put(result.cpu().numpy())
        desk.handed.put(None)
    except Exception as error:  # raised again where the tokens are read
        desk.handed.put(error)


def _until_stop(row: np.ndarray, stop_ids: tuple[int, ...]) -> np.ndarray:
    """Returns a hypothesis up to its stop id, without the padding after it."""
    ends = np.flatnonzero(np.isin(row, stop_ids))
    return row[: ends[0] + 1] if len(ends) else row


def _table(rows: list[np.ndarray]) -> np.ndarray:
    table = np.full((len(rows), max(map(len, rows))), ENDED, dtype=np.int64)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    return table
