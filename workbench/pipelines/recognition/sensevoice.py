"""SenseVoice around its network: features and queries before it, text, tags and times after it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, runtime_checkable

import numpy as np

from workbench.audio.cmvn import Cmvn
from workbench.core.finite import check_logits
from workbench.core.resources import close
from workbench.core.softmax import softmax
from workbench.decoding.confidence import probabilities
from workbench.decoding.ctc import BestPath, CtcToken, collapse
from workbench.families.sanm.sensevoice import (
    PEAK_DELAY,
    QUERY_FRAMES,
    UNKNOWN_EMOTION,
    SenseVoiceModel,
    SenseVoiceOptions,
    is_text,
    query_ids,
    read_tags,
    timed_tokens,
)
from workbench.pipelines.ctc.head import CtcHead
from workbench.pipelines.features import Features, front_end_times
from workbench.pipelines.gradients import Choice, Differentiates, frames_of
from workbench.pipelines.recognition.batches import (
    ComputesBatches,
    RunsInParallel,
    max_batch_seconds,
    recognise_joined,
)
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.traced import traced
from workbench.session.values import Token
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.times import RowTimes
from workbench.trace.trace import StageFilter


class SenseVoiceNetwork(Protocol):
    """The network that each runtime implements: query frames, encoder, CTC head."""

    @property
    def dtype(self) -> str:
        """The name of the type that it computes in."""
        ...

    def logits(self, features: np.ndarray, queries: tuple[int, ...], recorder: Recorder | None) -> Iterator[np.ndarray]:
        """Yields blocks of CTC logits, together [len(queries) + T, V], in float32 or wider; records `encoder.*`.

        Blocks save memory: tens of thousands of values per frame of a long recording need more memory than the weights.

        Args:
            features: [T, input], after LFR and CMVN.
            queries: rows of the query embedding that are put before the features.
        """
        ...


@runtime_checkable
class LogitsInBatches(ComputesBatches, Protocol):
    """A network that computes several chunks in one pass."""

    def batch_logits(self, features: Sequence[np.ndarray], queries: tuple[int, ...]) -> list[np.ndarray]:
        """Returns the logits of each chunk's features, as `SenseVoiceNetwork.logits` gives them for one."""
        ...


@runtime_checkable
class LogitsOfJoined(RunsInParallel, Protocol):
    """A network that computes several chunks joined in one pass."""

    def joined_logits(self, features: Sequence[np.ndarray], queries: tuple[int, ...]) -> Iterator[Iterator[np.ndarray]]:
        """Yields for each chunk's features the blocks that `SenseVoiceNetwork.logits` gives for it alone."""
        ...


@runtime_checkable
class FindsBestPaths(Protocol):
    """A network that finds the best path on the device that holds the logits. Copying them from a GPU takes long."""

    def best_paths(
        self, features: Sequence[np.ndarray], queries: tuple[int, ...], blank: int, banned: int | None
    ) -> list[BestPath]:
        """Returns the best path of each chunk's features.

        Args:
            blank: the id of CTC's blank.
            banned: an id that is not to be written.
        """
        ...


class SenseVoicePipeline:
    """Recognises one chunk of speech with a loaded SenseVoice (see `Recogniser`)."""

    options_class = SenseVoiceOptions

    def __init__(self, model: SenseVoiceModel, cmvn: Cmvn | None, network: SenseVoiceNetwork):
        self.model = model
        self.network = network
        self.features = Features(model.frontend, cmvn)
        pieces = model.vocabulary.pieces
        special_ids = [number for number, piece in enumerate(pieces) if not is_text(piece)]
        self._head = CtcHead(pieces, model.blank, special_ids)
        self.unknown_emotion = model.vocabulary.ids.get(UNKNOWN_EMOTION)

    @property
    def dtype(self) -> str:
        """The name of the type that the network computes in."""
        return self.network.dtype

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`. The query frames come before the recording."""
        frame = self.model.frontend.frame_seconds
        peaks = RowTimes(-(QUERY_FRAMES + PEAK_DELAY) * frame, frame)
        return {
            **front_end_times(self.model.frontend),
            "encoder.*": RowTimes(-QUERY_FRAMES * frame, frame),
            "ctc.*": peaks,
            "logits": peaks,
        }

    def recognise(
        self, samples: np.ndarray, options: SenseVoiceOptions, recorder: Recorder | None = None
    ) -> Recognition:
        """Returns what is said in float32 samples [n] at the checkpoint's rate."""
        features = self.features(samples, options, recorder)
        if recorder is None and isinstance(self.network, FindsBestPaths) and not options.searches:
            [recognition] = self._recognise_on_device(self.network, [features], options)
            return recognition
        blocks = self.network.logits(features, query_ids(options), recorder)
        if recorder and (recorder.needs("logits") or recorder.wanted("ctc.posteriors")):
            logits = recorder.put("logits", np.concatenate([*blocks]))
            if recorder.wanted("ctc.posteriors"):
                recorder.put("ctc.posteriors", softmax(logits))
            blocks = iter([logits])
        return self._decode(blocks, len(features), options)

    @property
    def max_batch_seconds(self) -> float:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        return max_batch_seconds(self.network)

    @property
    def pads(self) -> bool:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        return not isinstance(self.network, RunsInParallel)

    def recognise_batch(self, chunks: Sequence[np.ndarray], options: SenseVoiceOptions) -> list[Recognition]:
        """See `workbench.pipelines.recognition.recogniser.PaddingRecogniser`."""
        if isinstance(self.network, RunsInParallel):
            if options.searches:  # the language model of a search is shared
                return [self.recognise(samples, options) for samples in chunks]
            recognise = partial(self._recognise_joined, options=options)
            return recognise_joined(self.network, chunks, self.model.frontend.frames, recognise)
        features = self.features.batch(chunks, options)
        if isinstance(self.network, FindsBestPaths) and not options.searches:
            return self._recognise_on_device(self.network, features, options)
        assert isinstance(self.network, LogitsInBatches)
        chunk_logits = self.network.batch_logits(features, query_ids(options))
        return [self._decode([logits], len(row), options) for logits, row in zip(chunk_logits, features, strict=True)]

    def _recognise_joined(self, chunks: Sequence[np.ndarray], options: SenseVoiceOptions) -> list[Recognition]:
        """Returns the recognitions of chunks from one pass."""
        assert isinstance(self.network, LogitsOfJoined)
        features = [self.features(samples, options) for samples in chunks]
        chunk_blocks = self.network.joined_logits(features, query_ids(options))
        return [self._decode(blocks, len(row), options) for blocks, row in zip(chunk_blocks, features, strict=True)]

    def _recognise_on_device(
        self, network: FindsBestPaths, features: Sequence[np.ndarray], options: SenseVoiceOptions
    ) -> list[Recognition]:
        """Returns the recognitions of chunks from the paths that the network finds."""
        paths = network.best_paths(features, query_ids(options), self.model.blank, self._banned_id(options))
        return [self._from_best_path(path, len(row)) for path, row in zip(paths, features, strict=True)]

    def _decode(self, blocks: Iterable[np.ndarray], frames: int, options: SenseVoiceOptions) -> Recognition:
        """Returns the recognition of one chunk of `frames` frames in blocks of logits."""
        if options.searches:
            return self._beam_search(np.concatenate([*blocks]), frames, options)
        paths = [self._best_path(block, options) for block in blocks]
        ids = np.concatenate([path.ids for path in paths])
        return self._from_best_path(BestPath(ids, np.concatenate([path.probabilities for path in paths])), frames)

    def _from_best_path(self, best: BestPath, frames: int) -> Recognition:
        """Returns the recognition of one chunk of `frames` frames along the best path."""
        path = collapse(best.ids, self.model.blank)
        return self._recognition(path, self._timed_tokens(path, frames, best.probabilities))

    def _beam_search(self, logits: np.ndarray, frames: int, options: SenseVoiceOptions) -> Recognition:
        """Returns the recognition by beam search; its tags are those of the likeliest path."""
        scores = self._head.text_log_probs(logits)
        timed_tokens = partial(self._timed_tokens, frames=frames)
        hypotheses_with_paths = self._head.spoken_hypotheses(scores, options.beam, timed_tokens, self.text_of)
        likeliest = collapse(self._best_ids(logits, options), self.model.blank)
        pieces = self.model.vocabulary.pieces
        tags = [token for token in likeliest if not is_text(pieces[token.id])]
        if not hypotheses_with_paths:  # no word of the lexicon is possible
            return replace(self._recognition(tags, ()), notes=self._head.notes)
        path, best = hypotheses_with_paths[0]
        displayed_tokens = (
            best.tokens if best.words is None else tuple(replace(each, text=f" {each.text}") for each in best.words)
        )
        recognition = self._recognition(sorted([*tags, *path], key=lambda token: token.first), displayed_tokens)
        hypotheses = tuple(hypothesis for _, hypothesis in hypotheses_with_paths)
        worded, notes = best.words is not None, self._head.notes
        return replace(recognition, text=best.text, hypotheses=hypotheses, worded=worded, notes=notes)

    def _timed_tokens(
        self, path: Sequence[CtcToken], frames: int, confidences: np.ndarray | None = None
    ) -> tuple[Token, ...]:
        return timed_tokens(path, self.model.vocabulary, frames, self.model.frontend.frame_seconds, confidences)

    def _recognition(self, path: Sequence[CtcToken], tokens: tuple[Token, ...]) -> Recognition:
        language, tags = read_tags([self.model.vocabulary.pieces[token.id] for token in path])
        return Recognition(
            text=self.text_of([token.id for token in tokens]),
            language=language,
            tags=tags,
            tokens=tokens,
            ids=tuple(token.id for token in path),
        )

    def _best_path(self, logits: np.ndarray, options: SenseVoiceOptions) -> BestPath:
        """Returns the best path of logits [T, V]."""
        ids = self._best_ids(logits, options)
        frame_probabilities = np.ones(len(ids))
        token_frames = np.flatnonzero(ids != self.model.blank)
        frame_probabilities[token_frames] = probabilities(logits[token_frames], ids[token_frames])
        return BestPath(ids, frame_probabilities)

    def _banned_id(self, options: SenseVoiceOptions) -> int | None:
        """Returns the id that is not to be written, if the options name one that the model has."""
        return self.unknown_emotion if options.ban_emo_unk else None

    def _best_ids(self, logits: np.ndarray, options: SenseVoiceOptions) -> np.ndarray:
        """Returns the likeliest id of each frame [T] from logits [T, V]; raises `NotFinite` for NaN among them."""
        best: np.ndarray = logits.argmax(axis=1)
        check_logits(logits[np.arange(len(best)), best])
        banned = self._banned_id(options)
        if banned is not None:
            rows = np.flatnonzero(best == banned)
            allowed_logits = logits[rows]
            allowed_logits[:, banned] = -np.inf
            best[rows] = allowed_logits.argmax(axis=1)
        return best

    def text_of(self, ids: Sequence[int]) -> str:
        """Returns the text of some of the visible tokens."""
        return self.model.vocabulary.decode(ids).strip()

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `workbench.pipelines.recognition.recogniser.NamesPieces`."""
        return self.model.vocabulary.pieces_of(ids)

    def trace(
        self,
        samples: np.ndarray,
        options: SenseVoiceOptions,
        requested_stages: StageFilter,
        given: Stages | None = None,
    ) -> dict[str, np.ndarray]:
        """See `workbench.pipelines.recognition.recogniser.Recogniser.trace`."""
        gradients_of = partial(self._gradients, samples, options) if isinstance(self.network, Differentiates) else None
        return traced(self.recognise, samples, options, requested_stages, given, gradients_of)

    def _gradients(
        self, samples: np.ndarray, options: SenseVoiceOptions, ids: Sequence[int], places: Sequence[int]
    ) -> Iterator[np.ndarray]:
        """Yields the gradients of some tokens, each in the frame where it is likeliest (see `GradientsOf`)."""

        def choose(logits: np.ndarray) -> list[Choice]:
            frames = frames_of(logits, ids, self.model.blank)
            return [(frames[place], ids[place]) for place in places]

        assert isinstance(self.network, Differentiates)
        features = self.features(samples, options)
        for gradient in self.network.gradients(features, choose, queries=query_ids(options)):
            yield self.features.gradient(gradient, len(samples), options)

    def close(self) -> None:
        """Frees the network, and the language model of the last beam search."""
        close(self.network, self._head)
