"""Shows the stages of decoding steps: of the passes that read one generated token each, with the cache of all before.

The loop that generates text (`language`) also makes these passes; here are its choice of tokens, which follows given
ids, and what is recorded of a pass. This file knows transformers' networks and caches, and no families.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.runtimes.pytorch.inner_stages.inside import looking_inside_stack
from workbench.runtimes.pytorch.inner_stages.layer_maps import LANGUAGE
from workbench.runtimes.pytorch.tap import tap_into, tap_output
from workbench.trace.recorder import Recorder
from workbench.trace.steps import ForcedDecoding

KEYS = "attention.key_rope"


class ForcedTokens:
    """Chooses the next token of a forced decoding, whatever the logits are."""

    def __init__(self, forced: ForcedDecoding, device: torch.device):
        self._forced, self._device = forced, device

    def __call__(self, generated: Tensor, logits: Tensor) -> Tensor:
        """Returns the next tokens [1]; after the last pass, any token."""
        return torch.tensor([self._forced.next_id(generated.shape[1])], dtype=torch.long, device=self._device)


@contextlib.contextmanager
def looking_at_pass(
    network: Any, forced: ForcedDecoding | ForcedBeamSearch | None, step: int, cache: Any
) -> Iterator[None]:
    """Records the wanted stages of one pass of a generation, for the block.

    Args:
        forced: None for a generation that is not traced.
        step: 0 for the prompt's pass.
        cache: transformers' cache, which the pass adds to.
    """
    if forced is None:
        yield
        return
    recorder = forced.recorder_of(step) or (forced.prefill if step == 0 else None)
    if recorder is not None:
        with contextlib.ExitStack() as hooks:
            _hook_stages(network, recorder, hooks, logits=step > 0)
            hooks.enter_context(_showing_keys(cache, recorder))
            yield
        _record_cache(recorder, cache)
    else:
        yield
    forced.end_pass(step)


def _hook_stages(network: Any, recorder: Recorder, hooks: contextlib.ExitStack, logits: bool) -> None:
    body, tap = network.model, tap_into(recorder)
    places = [(body.embed_tokens, "llm.embeddings")]
    places += [(layer, f"llm.layers.{number}") for number, layer in enumerate(body.layers)]
    places += [(body.norm, "llm.norm"), *([(network.lm_head, "logits")] if logits else [])]
    for module, stage in places:
        hooks.callback(tap_output(module, stage, tap).remove)
    hooks.enter_context(looking_inside_stack("llm.layers", body.layers, LANGUAGE, _RecorderWithoutKeys(recorder)))


@contextlib.contextmanager
def _showing_keys(cache: Any, recorder: Recorder) -> Iterator[None]:
    """Shows the rotated keys of new tokens where they enter the cache, before it can change them."""
    tap = tap_into(recorder)

    def update(keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any) -> Any:
        new_keys = keys.transpose(1, 2)
        keys = tap(f"llm.layers.{layer_idx}.{KEYS}", new_keys).transpose(1, 2)
        return type(cache).update(cache, keys, values, layer_idx, *args, **kwargs)

    cache.update = update
    try:
        yield
    finally:
        del cache.update


class _RecorderWithoutKeys(Recorder):
    """A recorder for the inside of layers in a pass with a cache, where attention gets its keys from the cache."""

    def __init__(self, recorder: Recorder):
        self._recorder, self.isolated = recorder, recorder.isolated
        self.put, self.allocate, self.given = recorder.put, recorder.allocate, recorder.given  # type: ignore[method-assign]

    @property
    def rows(self) -> tuple[Recorder, ...]:
        """See `Recorder.rows`."""
        return self._recorder.rows

    def wanted(self, stage: str) -> bool:
        """See `Recorder`."""
        return not stage.endswith(KEYS) and self._recorder.wanted(stage)

    def needs(self, stage: str) -> bool:
        """See `Recorder.needs`."""
        return not stage.endswith(KEYS) and self._recorder.needs(stage)


def _record_cache(recorder: Recorder, cache: Any) -> None:
    """Records keys and values of all positions so far, as the cache holds them [positions, heads, head width].

    A layer with a sliding window, which has dropped positions, has no such stage.
    """
    tap = tap_into(recorder)
    for number, layer in enumerate(cache.layers):
        for name, cached in (("key", layer.keys), ("value", layer.values)):
            stage = f"llm.layers.{number}.cache.{name}"
            if recorder.wanted(stage) and cached.shape[2] == cache.get_seq_length(number):
                tap(stage, cached.transpose(1, 2))
