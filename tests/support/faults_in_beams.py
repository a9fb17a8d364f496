"""Faults of beam searches, planted into the caches of both runtimes and into the search."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from workbench.decoding.beams import BeamSearch
from workbench.runtimes.gguf.llama_cpp.context import Context


@contextlib.contextmanager
def _patched(owner: Any, name: str, new: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, new)
        yield


def _reordered(change: Callable[[int, list[int]], list[int]]) -> Callable[[str], Any]:
    """Plants other parents into the caches: `change` gets the number of beams and the right parents."""

    def planted(runtime: str) -> Any:
        if runtime == "pytorch":
            import torch
            from transformers import DynamicCache

            right = DynamicCache.reorder_cache

            def reorder_cache(self: Any, beam_idx: Any) -> None:
                right(self, torch.tensor(change(len(beam_idx), beam_idx.tolist())))

            return _patched(DynamicCache, "reorder_cache", reorder_cache)
        copy, waiting = Context.copy, list[tuple[int, int]]()

        def copied(self: Context, source: int, target: int, count: int = -1) -> None:
            waiting.append((source, target))
            beams = self.sequences // 2
            if len(waiting) < beams:
                return
            first = min(source for source, _ in waiting) // beams * beams
            parents = [source - first for source, _ in waiting]
            prompt = self.step_count == 0  # type: ignore[attr-defined]
            for (_, each), parent in zip(waiting, parents if prompt else change(beams, parents), strict=True):
                copy(self, first + parent, each, count)
            waiting.clear()

        return _counting_steps(copied)

    return planted


@contextlib.contextmanager
def _counting_steps(copied: Any) -> Iterator[None]:
    step = Context.step

    def stepped(self: Context, *args: Any) -> None:
        step(self, *args)
        self.step_count += 1  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "step_count", 0, raising=False)
        patch.setattr(Context, "step", stepped)
        patch.setattr(Context, "copy", copied)
        yield


cache_not_reordered = _reordered(lambda beams, _: list(range(beams)))
wrong_parents = _reordered(lambda _, parents: parents[::-1])


def no_length_penalty(_: str) -> Any:
    """A finished hypothesis has the sum of its log-probabilities as its score."""
    end = BeamSearch._add_finished

    def ended(self: BeamSearch, score: float, sequence: list[int]) -> None:
        end(self, score * len(sequence) ** self.decoding.length_penalty, sequence)

    return _patched(BeamSearch, "_add_finished", ended)


@contextlib.contextmanager
def coarse_scores() -> Iterator[None]:
    """Scores are whole numbers, so that there are ties."""
    scores = BeamSearch._next_scores
    with _patched(BeamSearch, "_next_scores", lambda self, logits: np.round(scores(self, logits))):
        yield


def other_ties(_: str) -> Any:
    """Of equal scores, the higher parent and token come first."""
    take = BeamSearch.advance

    def taken(self: BeamSearch, logits: np.ndarray) -> Any:
        with _patched(np, "flatnonzero", lambda found, right=np.flatnonzero: right(found)[::-1]):
            return take(self, logits)

    return _patched(BeamSearch, "advance", taken)
