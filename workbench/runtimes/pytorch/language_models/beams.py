"""Beam search by transformers, read token by token and stopped after any of them; and its steps, for traces.

`generate` runs in a thread. After every token, the thread hands over the best hypothesis and waits until the reader
asks for the next one. A traced search is seen twice: transformers' own search says which hypotheses its passes read,
and a loop of this project then makes the same passes and shows their stages. This file knows no family.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Generator
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
)

from workbench.core.finite import check_logits
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.decoding.generation import Decoding, padded_ids
from workbench.embeddings.merge import Merged
from workbench.runtimes.pytorch.language_models.decoding_steps import looking_at_pass
from workbench.runtimes.pytorch.numerics.arithmetic import keeping_float64
from workbench.trace.ancestry import Ancestry


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
    hypotheses = [np.empty(0, np.int64)] * batch
    for row in range(batch):
        with contextlib.closing(_search(network, _row(prompt, row), decoding, int(limits[row]))) as steps:
            for tokens in steps:
                hypotheses[row] = tokens[0]
                yield padded_ids(hypotheses)


def _row(prompt: Merged[Tensor], row: int) -> Merged[Tensor]:
    """Returns one prompt of a batch without its padding."""
    first = prompt.attention_mask.shape[1] - int(prompt.lengths[row])
    selection = slice(row, row + 1)
    return Merged(
        prompt.embeddings[selection, first:],
        prompt.attention_mask[selection, first:],
        prompt.positions[selection, first:],
    )


def ancestry_of(network: Any, prompt: Merged[Tensor], decoding: Decoding) -> Ancestry:
    """Returns the hypotheses of every pass of transformers' search over a prompt of one row."""
    watch = _Watch()
    [limit] = np.broadcast_to(decoding.max_new_tokens, 1).tolist()
    with contextlib.closing(_search(network, prompt, decoding, limit, watch)) as steps:
        for _ in steps:
            pass
    return watch.ancestry


def follow_beams(network: Any, prompt: Merged[Tensor], forced: ForcedBeamSearch) -> None:
    """Reads a prompt of one row and the hypotheses of a forced decoding after it, all hypotheses of a step in one pass.

    As in transformers' search, the caches of the hypotheses are reordered before each pass.
    """
    cache = DynamicCache(config=network.config)

    def compute_logits(step: int, inputs: dict[str, Tensor]) -> np.ndarray:
        with looking_at_pass(network, forced, step, cache), keeping_float64(network.dtype):
            output = network(**inputs, past_key_values=cache, use_cache=True, logits_to_keep=1)
        logits: Tensor = output.logits[:, -1]
        logits_array: np.ndarray = logits.to(torch.promote_types(logits.dtype, torch.float32)).cpu().numpy()
        return logits_array

    logits = compute_logits(0, {"inputs_embeds": prompt.embeddings})
    cache.batch_repeat_interleave(forced.beams)
    logits = np.repeat(logits, forced.beams, axis=0)
    step = 0
    while (continuation := forced.choose(logits)) is not None:
        step += 1
        parents, tokens = (
            torch.from_numpy(each).to(network.device) for each in (continuation.parents, continuation.tokens)
        )
        cache.reorder_cache(cast("torch.LongTensor", parents))
        logits = compute_logits(step, {"input_ids": tokens[:, None]})


def _search(
    network: Any, prompt: Merged[Tensor], decoding: Decoding, limit: int, watch: _Watch | None = None
) -> Generator[np.ndarray, None, None]:
    """Yields the same as `beam_search`, for rows with the same limit."""
    exchange = _TokenExchange()
    arguments = (network, prompt, decoding, limit, exchange, watch)
    thread = threading.Thread(target=_run, args=arguments, daemon=True, name="beams")
    thread.start()
    try:
        while True:
            tokens = exchange.results.get()
            if isinstance(tokens, Exception):
                raise tokens
            if tokens is None:
                return
            yield padded_ids([_until_stop(row, decoding.stop_ids) for row in tokens])
            exchange.demand.release()
    finally:
        exchange.abandoned = True
        exchange.demand.release()
        thread.join()


class _TokenExchange(StoppingCriteria):
    """The exchange between threads: the search puts its tokens here and asks whether to continue."""

    def __init__(self) -> None:
        self.results: queue.SimpleQueue[np.ndarray | Exception | None] = queue.SimpleQueue()
        self.demand = threading.Semaphore(0)
        self.abandoned = False
        self.rows = 1

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        """Takes all candidates [batch * candidates, tokens] after every token, the likeliest of a row first."""
        likeliest = input_ids[:: len(input_ids) // self.rows]
        self.results.put(likeliest.cpu().numpy())
        self.demand.acquire()
        return torch.full((len(input_ids),), self.abandoned, device=input_ids.device)


class _NanCheck(LogitsProcessor):
    """Raises `NotFinite` for scores that are NaN; other scores stay unchanged."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Takes the scores [beams, vocabulary] of the pass that has just run."""
        check_logits(scores.amax(dim=-1).float().cpu().numpy())
        return scores


class _Watch(LogitsProcessor):
    """Records the hypotheses of one row before each choice; the scores stay unchanged."""

    def __init__(self) -> None:
        self._passes: list[list[tuple[int, ...]]] = []  # the tokens of every hypothesis, by pass

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Takes the tokens [beams, tokens so far] of the pass that has just run."""
        self._passes.append([tuple(row) for row in input_ids.tolist()])
        return scores

    @property
    def ancestry(self) -> Ancestry:
        """The hypotheses after the prompt's pass. The hypotheses of one pass differ from each other."""
        parents = (tuple(old.index(row[:-1]) for row in new) for old, new in pairwise(self._passes))
        return Ancestry(tuple(parents), tuple(tuple(row[-1] for row in each) for each in self._passes[1:]))


@torch.inference_mode()
def _run(
    network: Any, prompt: Merged[Tensor], decoding: Decoding, limit: int, exchange: _TokenExchange, watch: _Watch | None
) -> None:
    """Runs the search; puts its result and None into the exchange at the end, or the error that ended it."""
    exchange.rows = len(prompt.attention_mask)
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
        with keeping_float64(network.dtype):
            result = network.generate(
                inputs_embeds=prompt.embeddings,
                attention_mask=torch.from_numpy(prompt.attention_mask.astype(np.int64)).to(prompt.embeddings.device),
                generation_config=settings,
                logits_processor=LogitsProcessorList([_NanCheck(), *penalty, *([watch] if watch else [])]),
                stopping_criteria=StoppingCriteriaList([exchange]),
            )
        exchange.results.put(result.cpu().numpy())
        exchange.results.put(None)
    except Exception as error:  # raised again where the tokens are read
        exchange.results.put(error)


def _until_stop(row: np.ndarray, stop_ids: tuple[int, ...]) -> np.ndarray:
    """Returns a hypothesis up to its stop id, without the padding after it."""
    ends = np.flatnonzero(np.isin(row, stop_ids))
    return row[: ends[0] + 1] if len(ends) else row
