"""The language model of a SpeechLM on llama.cpp: rows of ids in, logits of all streams out.

llama.cpp takes the embedding of each row and gives the state after the final norm; it sees neither the embedding table
nor the heads. The null branch of guidance is a second sequence of the same context, and both are computed in one pass.
This file knows no phases, no masks and no sampling.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from workbench.core.resources import close
from workbench.families.language.directory import LanguageConfig
from workbench.formats.gguf_file import GgufFile
from workbench.formats.gguf_types import import_definition
from workbench.pipelines.conversation.speechlm_frontend import required
from workbench.runtimes.gguf.files.language_file import EMBEDDINGS, check_dimensions
from workbench.runtimes.gguf.llama_cpp.context import PASS, STEPWISE, Context
from workbench.runtimes.gguf.llama_cpp.language_half import open_half
from workbench.runtimes.gguf.llama_cpp.llama import LlamaModel
from workbench.runtimes.gguf.llama_cpp.stage_watch import POOLED, StageWatch
from workbench.runtimes.gguf.networks.speechlm_heads import Heads
from workbench.runtimes.gguf.networks.speechlm_tower import SpeechLmTower
from workbench.speech.layout import SpeechLayout
from workbench.speech.network import NeededLogits, Scores
from workbench.speech.prompt import embedded
from workbench.trace.recorder import Recorder

RESERVED_POSITIONS = 512  # that a context has beyond its prompt at first; it grows for more
BRANCHES = 2  # sequences: the model's own, then the null branch


class SpeechLmNetwork:
    """A loaded language model over text and codec streams; implements `workbench.speech.network.SpeechNetwork`.

    Args:
        audio_encoder: None if the file has no audio encoder.

    Raises `BadInput` if the file's tensors contradict its keys or the configuration.
    """

    def __init__(
        self,
        file: GgufFile,
        config: LanguageConfig,
        layout: SpeechLayout,
        audio_encoder: SpeechLmTower | None,
        threads: int | None = None,
        kv_cache: str = "f32",
    ):
        check_dimensions(file, config)
        import_definition(file.tensors[EMBEDDINGS].type)
        self.file, self.config, self.layout = file, config, layout
        self.audio_encoder = audio_encoder
        self._settings: dict[str, Any] = {"threads": threads, "kv_cache": kv_cache}
        self.heads = Heads(file, layout, config.hidden_size, threads)
        try:
            self.model: LlamaModel = open_half(file, tables=False)
        except BaseException:
            self.heads.close()
            raise
        self._idle: Context | None = None

    @property
    def dtype(self) -> str:
        """The type that the weights are stored in."""
        return self.file.quantization

    @property
    def context(self) -> int:
        """The most positions of a sequence."""
        return self.config.context

    def embed_audio(self, samples: np.ndarray, recorder: Recorder | None = None) -> np.ndarray:
        """Returns the embeddings [n, hidden] of a recording, 16 kHz float32. See `SpeechNetwork.embed_audio`.

        Raises `BadInput` if the file has no audio encoder, for a recording that is silent, too short or broken, or for
        one that fills the context.
        """
        encoder = required(self.audio_encoder)
        encoder.frontend.check_room(samples, self.context)
        return encoder.embed_audio(samples, recorder)

    def embed(self, rows: np.ndarray) -> np.ndarray:
        """Returns embeddings float32 [n, hidden] of rows of ids [n, streams]; see `SpeechLayout.counted`."""
        counts = self.layout.counted(rows)
        sizes = counts.sum(axis=1)
        embeddings = self.file.rows(EMBEDDINGS, rows[counts])
        if len(embeddings) == len(rows):
            return embeddings
        summed: np.ndarray = np.add.reduceat(embeddings, sizes.cumsum() - sizes, axis=0)
        return summed

    def merged(self, prompt: Sequence[Any]) -> np.ndarray:
        """Returns the embeddings [positions, hidden] of a prompt's parts: arrays of ids, or float32 embeddings.

        Raises `BadInput` for an empty prompt, one that fills the context, or unknown ids.
        """
        return np.concatenate(embedded(prompt, self.layout, self.context, self.embed))

    def open(self, prompt: Sequence[Any]) -> SpeechLmState:
        """Returns a new sequence; see `SpeechNetwork.open`. Raises `BadInput` as `merged` does."""
        return SpeechLmState(self, self.merged(prompt))

    def take_context(self, positions: int) -> Context:
        """Returns an empty context with room for that many positions: the previous one if it fits."""
        context, self._idle = self._idle, None
        if context is not None and context.fits(positions, BRANCHES, PASS):
            context.clear()  # so equal calls compute equal numbers, whatever came before
            return context
        if context is not None:
            context.close()
        return self._new_context(positions)

    def give_back(self, context: Context) -> None:
        """Stores the context for the next sequence, unless the model is closed or another context is stored."""
        if self._idle is None and not self.model.is_closed:
            self._idle = context
        else:
            context.close()

    def _new_context(self, positions: int, watch: Any = None, weights: bool = False) -> Context:
        return Context(
            self.model,
            positions,
            BRANCHES,
            longest=PASS,
            outputs=PASS,
            watch=watch,
            hidden=True,
            weights=weights,
            **self._settings,
        )

    def trace(self, prompt: Sequence[Any], recorder: Recorder) -> None:
        """Records the stages `llm.*`, `logits` and `codec.logits` of one pass over a prompt; see
        `SpeechNetwork.trace`.
        """
        embeddings = recorder.put("llm.embeddings", self.merged(prompt))
        stepwise = self._settings["kv_cache"] in STEPWISE
        watch = StageWatch(recorder, self.file, embeddings.shape, norm=POOLED, weights=stepwise)
        layout, count = self.layout, len(embeddings)
        shapes = {
            "logits": (count, layout.vocabulary),
            "codec.logits": (count, layout.streams - 1, layout.layer_size),
        }
        recorded_stages = [stage for stage in shapes if recorder.wanted(stage)]
        if not recorded_stages and not watch.is_recording:
            return
        context = self._new_context(count, watch.callback(self.model), watch.shows_weights)
        try:
            hidden = _extend(context, np.asarray(embeddings, dtype=np.float32)[None], 0, count)
        finally:
            context.close()
        heads = {"logits": self.heads.main, "codec.logits": self.heads.codec}
        for stage in recorded_stages:
            array, first = recorder.allocate(stage, shapes[stage]), 0
            for block in heads[stage](hidden[0]):
                array[first : first + len(block)] = block
                first += len(block)

    def close(self) -> None:
        """Frees everything."""
        if self._idle is not None:
            self._idle.close()
        self._idle = None
        self.model.close()
        self.heads.close()
        close(self.audio_encoder)


class SpeechLmState:
    """One sequence in progress; implements `workbench.speech.network.SpeechState`."""

    def __init__(self, network: SpeechLmNetwork, prompt: np.ndarray):
        self._network = network
        self._waiting: np.ndarray | None = prompt  # computed together with the first rows
        self._context = network.take_context(len(prompt) + RESERVED_POSITIONS)
        self._branches = 1
        self._length, self._computed = len(prompt), 0
        weakref.finalize(self, network.give_back, self._context)

    @property
    def length(self) -> int:
        """The number of positions fed, prompt included."""
        return self._length

    def feed(self, rows: np.ndarray, needed_logits: NeededLogits) -> Scores:
        """Appends rows of ids [n, streams] and returns the logits after the last one; see `SpeechState.feed`."""
        embeddings = self._network.embed(rows)
        self._length += len(rows)
        return self._network.heads.scores(self._compute(embeddings), needed_logits)

    def _compute(self, embeddings: np.ndarray) -> np.ndarray:
        """Appends embeddings [n, hidden] to all branches; returns their last states [branches, hidden]."""
        if self._waiting is not None:
            embeddings, self._waiting = np.concatenate([self._waiting, embeddings]), None
        first, self._computed = self._computed, self._computed + len(embeddings)
        self._context.grow(self._branches * self._computed)
        batch = np.broadcast_to(embeddings, (self._branches, *embeddings.shape))
        return _extend(self._context, batch, first)[:, 0]

    def split(self) -> None:
        """Adds the null branch; see `SpeechState.split`."""
        if self._waiting is not None:
            self._compute(np.empty((0, self._waiting.shape[1]), dtype=np.float32))
        network = self._network
        row = network.embed(np.full((1, network.layout.streams), network.layout.pad))
        self._context.grow(BRANCHES * self._length)
        _extend(self._context, np.broadcast_to(row, (1, self._length, row.shape[1])), 0, branch=1)
        self._branches = BRANCHES

    def join(self) -> None:
        """Drops the null branch; see `SpeechState.join`."""
        if self._branches > 1:
            self._context.drop(1)
        self._branches = 1


def _extend(context: Context, embeddings: np.ndarray, first: int, states: int = 1, branch: int = 0) -> np.ndarray:
    """Appends embeddings [branches, n, hidden] to as many sequences, from position `first` on.

    A long prompt takes several passes. The branches of a position are computed side by side.

    Args:
        states: 1 for the last position's, n for those of all positions.
        branch: the first of the sequences.

    Returns states after the final norm [branches, states, hidden].
    """
    branches, count, width = embeddings.shape
    step, state_parts = PASS // branches, []
    for begin in range(0, count, step):
        part = embeddings[:, begin : begin + step]
        size = part.shape[1]
        positions = np.arange(first + begin, first + begin + size)
        context.extend(
            part.swapaxes(0, 1).reshape(-1, width),
            np.repeat(positions, branches),
            np.tile(np.arange(branch, branch + branches), size),
        )
        if states > 1:
            state_parts.append(context.states(branches * size).reshape(size, branches, width))
    if states == 1:
        state_parts = [context.states(branches)[None]]
    return np.concatenate(state_parts).swapaxes(0, 1)
