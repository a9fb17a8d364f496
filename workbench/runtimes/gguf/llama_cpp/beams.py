"""The passes of a beam search in a context of llama.cpp. The hypotheses are sequences that share their beginnings.

This file chooses nothing and knows no families.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np

from workbench.decoding.beams import BeamSearch, Continuation
from workbench.decoding.generation import Decoding
from workbench.runtimes.gguf.llama_cpp.context import Context
from workbench.runtimes.gguf.llama_cpp.decoding_steps import StepsWatch
from workbench.trace.ancestry import Ancestry

Choose = Callable[[np.ndarray], Continuation | None]
"""Returns the next hypotheses for the logits [beams, vocabulary] of the ones before; None at the end."""


def search_passes(
    context: Context, prompt: np.ndarray, beams: int, choose: Choose, steps_watch: StepsWatch | None = None
) -> Iterator[None]:
    """Makes the passes of one search in an empty context with room for 2 * beams sequences; yields after each choice.

    Args:
        prompt: embeddings [positions, hidden].
        steps_watch: watches the passes.
    """
    length = len(prompt)
    with contextlib.nullcontext() if steps_watch is None else steps_watch.watching_prompt(length):
        context.prefill(prompt, 0)
    logits = np.repeat(context.logits()[None], beams, axis=0)
    # Ids of llama.cpp's sequences.
    before, after = np.zeros(beams, dtype=np.int64), np.arange(beams, 2 * beams)
    step = 0
    while True:
        continuation = choose(logits)
        yield
        if continuation is None:
            return
        step += 1
        for parent, child in zip(before[continuation.parents], after, strict=True):
            context.copy(int(parent), int(child))
        for sequence in set(before.tolist()):
            context.drop(sequence)
        context.grow(length + beams * step)
        with (
            contextlib.nullcontext()
            if steps_watch is None
            else steps_watch.watching_step(step, context, length + step, after.tolist())
        ):
            context.step(continuation.tokens, np.full(beams, length + step - 1), after)
        logits = context.all_logits(beams)
        before, after = after, np.arange(beams) if after[0] else np.arange(beams, 2 * beams)


def ancestry_of(context: Context, prompt: np.ndarray, decoding: Decoding, limit: int) -> Ancestry:
    """Returns the hypotheses of every pass of a search; the other arguments are those of `search_passes`."""
    search, continuations = BeamSearch(decoding, limit), list[Continuation]()

    def choose(logits: np.ndarray) -> Continuation | None:
        continuation = search.advance(logits)
        continuations.extend([] if continuation is None else [continuation])
        return continuation

    for _ in search_passes(context, prompt, decoding.beam_size, choose):
        pass
    return Ancestry(
        *(tuple(tuple(getattr(each, field).tolist()) for each in continuations) for field in ("parents", "tokens"))
    )
