"""Shows the stages of decoding steps: of the passes of llama.cpp that read one generated token each.

The loop that generates text (`language`) also makes these passes. This file chooses the tokens, which follow given ids,
and records the stages of a pass. It knows no families.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from workbench.decoding.forced_beams import BeamsRecorder, ForcedBeamSearch
from workbench.formats.gguf_file import GgufFile
from workbench.runtimes.gguf.files.language_file import Dimensions, language_architecture, read_dimensions
from workbench.runtimes.gguf.llama_cpp.cache_state import read_cache_state
from workbench.runtimes.gguf.llama_cpp.context import STEPWISE, Context
from workbench.runtimes.gguf.llama_cpp.language_stages import WEIGHTS
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel
from workbench.runtimes.gguf.llama_cpp.stage_watch import StageWatch, split_pairs
from workbench.trace.recorder import Recorder
from workbench.trace.step_names import step_stage
from workbench.trace.steps import ForcedDecoding

EMBEDDED = "embd"  # llama.cpp's name of the embeddings of tokens
LOGITS = "result_output"


class ForcedTokens:
    """Chooses the next token of a forced decoding, whatever the logits are."""

    def __init__(self, forced: ForcedDecoding):
        self._forced = forced

    def __call__(self, generated: np.ndarray, logits: np.ndarray) -> np.ndarray:
        """Returns the next tokens [1]; after the last pass, any token."""
        return np.array([self._forced.next_id(generated.shape[1])])


class StepsWatch:
    """Watches the passes of a generation in one context.

    Args:
        file: of the model.
        kv_cache: the type of keys and values.
    """

    def __init__(self, forced: ForcedDecoding | ForcedBeamSearch, file: GgufFile, kv_cache: str):
        self._forced, self._file = forced, file
        self._sizes: Dimensions = read_dimensions(file)
        self._pass_watch: StageWatch | None = None
        # The hypotheses of a beam search share one cache, whose weights have a column for every position in it.
        self._weights = kv_cache in STEPWISE and isinstance(forced, ForcedDecoding)
        self.shows_weights = self._weights and self._wants_part(WEIGHTS)
        self._paired = language_architecture(file) == "llama"

    def callback(self, model: LlamaModel) -> Any:
        """Returns the callback for the context."""

        return model.functions.ggml_backend_sched_eval_callback(self.see)

    def see(self, pointer: int, ask: bool, data: Any) -> bool:
        """Implements llama.cpp's `cb_eval` for the pass that runs (see `StageWatch.see`)."""
        return self._pass_watch.see(pointer, ask, data) if self._pass_watch is not None else not ask

    @contextlib.contextmanager
    def watching_prompt(self, count: int) -> Iterator[None]:
        """Substitutes stages in the prompt's pass over `count` positions, for the block."""
        prefill = self._forced.prefill
        if prefill is not None:
            self._pass_watch = StageWatch(prefill, self._file, (count, self._sizes.hidden))
        yield
        self._pass_watch = None

    @contextlib.contextmanager
    def watching_step(
        self, step: int, context: Context, positions: int, sequences: Sequence[int] = (0,)
    ) -> Iterator[None]:
        """Records a decoding step, for the block.

        Args:
            positions: of each sequence in the cache after the step.
            sequences: those that get a token, in the order of the rows.
        """
        recorder = self._forced.recorder_of(step)
        if recorder is not None:
            outputs = {EMBEDDED: ("llm.embeddings", self._sizes.hidden), LOGITS: ("logits", self._sizes.vocabulary)}
            shape = (len(sequences), self._sizes.hidden)
            self._pass_watch = StageWatch(recorder, self._file, shape, outputs, weights=self._weights, keys=positions)
        yield
        self._pass_watch = None
        if isinstance(recorder, BeamsRecorder):
            recorder.share()
        for row, sequence in zip(() if recorder is None else recorder.rows, sequences, strict=recorder is not None):
            self._record_cache(row, context, sequence)
        self._forced.end_pass(step)

    def _record_cache(self, recorder: Recorder, context: Context, sequence: int) -> None:
        """Records the keys and values that the cache holds [positions, heads, head width]."""
        names = [f"llm.layers.{layer}.cache.{name}" for layer in range(self._sizes.layers) for name in ("key", "value")]
        if not any(map(recorder.wanted, names)):
            return
        for layer, cached in enumerate(read_cache_state(context.state(sequence), self._sizes)):
            key = split_pairs(cached.key) if self._paired else cached.key
            recorder.put(f"llm.layers.{layer}.cache.key", np.array(key))
            recorder.put(f"llm.layers.{layer}.cache.value", np.array(cached.value))

    def _wants_part(self, part: str) -> bool:
        """Returns whether a part of any layer is wanted in any step."""
        records, layers = self._forced.recorder.wanted, range(self._sizes.layers)
        return any(records(step_stage(step, f"llm.layers.{n}.{part}")) for step in self._forced.steps for n in layers)
