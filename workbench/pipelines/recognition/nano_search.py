"""Fun-ASR-Nano's CTC branch: a beam search over it, in place of the language model.

The branch reads the encoder's output. Its tokens are runs of bytes, so a character may take several of them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.resources import close
from workbench.decoding.ctc import CtcToken
from workbench.decoding.ctc_options import CtcHeadOptions
from workbench.decoding.forced_beams import ForcedBeamSearch
from workbench.families.speech_llm.funasr_nano import CtcBranch, FunasrNanoOptions
from workbench.pipelines.ctc.head import CtcHead
from workbench.pipelines.recognition.funasr_nano import NanoAudioEncoder
from workbench.pipelines.recognition.recogniser import Recognition
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline
from workbench.pipelines.recognition.traced import traced
from workbench.pipelines.text.language import Language
from workbench.session.values import Token
from workbench.trace.recorder import Recorder, Stages
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter

LOGITS = "ctc.logits"  # a stage of the trace of a beam search


class CtcNetwork(Protocol):
    """The encoder with the CTC branch, on a runtime that computes it."""

    def ctc_logits(self, features: np.ndarray, recorder: Recorder | None) -> np.ndarray:
        """Returns logits [frames, tokens] in float32 or wider; records `encoder.*`.

        Args:
            features: [T, input], after LFR and CMVN.
            recorder: of the stages, or None.
        """
        ...


class NanoPipeline(SpeechLanguagePipeline):
    """Fun-ASR-Nano, which searches its CTC branch if options of a beam search are set.

    Args:
        encoder: the audio encoder.
        language: the language model.
        branch: the CTC branch, or why the checkpoint has none that can be used.
        network: computes the branch, if there is one.
    """

    def __init__(self, encoder: NanoAudioEncoder, language: Language, branch: CtcBranch | str, network: CtcNetwork):
        super().__init__(encoder, language)
        self._features = encoder.features
        self._step = encoder.model.frontend.frame_seconds
        self._branch = branch
        self._network = network
        self._head: CtcHead | None = None

    def recognise_stream(
        self, chunks: Sequence[np.ndarray], options: Any
    ) -> Generator[list[str], None, list[Recognition]]:
        """See `StreamingRecogniser.recognise_stream`."""
        if not searches(options):
            return (yield from super().recognise_stream(chunks, options))
        recognitions: list[Recognition] = []
        for chunk in chunks:
            recognitions.append(self.recognise(chunk, options))
            yield [each.text for each in recognitions] + [""] * (len(chunks) - len(recognitions))
        return recognitions

    def recognise(self, samples: np.ndarray, options: Any, recorder: Recorder | None = None) -> Recognition:
        """Returns what is said in float32 samples [n] at 16 kHz."""
        if not searches(options):
            return super().recognise(samples, options)
        return self._beam_search(samples, options, recorder)

    def trace(
        self, samples: np.ndarray, options: Any, requested_stages: StageFilter, given: Stages | None = None
    ) -> dict[str, np.ndarray]:
        """Returns the stages of one pass: of a beam search, those of the encoder, `ctc.logits`, tokens and text."""
        if not searches(options):
            return super().trace(samples, options, requested_stages, given)
        return traced(self.recognise, samples, options, requested_stages, given)

    def follow(self, samples: np.ndarray, options: Any, forced: ForcedDecoding | ForcedBeamSearch) -> None:
        """See `StepwiseRecogniser.follow`; raises `BadInput` for a beam search over the CTC branch."""
        if searches(options):
            raise BadInput(
                "decoding steps are requested with options of a CTC beam search, which takes no steps of the language "
                "model; leave out one of the two"
            )
        super().follow(samples, options, forced)

    def close(self) -> None:
        """Frees the networks, and the language model of the last beam search."""
        head, self._head = self._head, None
        close(head)
        super().close()

    def _beam_search(self, samples: np.ndarray, options: FunasrNanoOptions, recorder: Recorder | None) -> Recognition:
        branch = self._branch
        if isinstance(branch, str):
            raise BadInput(f"options of a CTC beam search are set, but there is no CTC branch to search: {branch}")
        vocabulary = branch.vocabulary
        if self._head is None:
            self._head = CtcHead(vocabulary.pieces, branch.blank, vocabulary.special_ids)
        features = self._features(samples, options, recorder)
        logits = self._network.ctc_logits(features, recorder)
        scores = self._head.text_log_probs(recorder.put(LOGITS, logits) if recorder else logits)
        hypotheses_with_paths = self._head.spoken_hypotheses(
            scores, options.beam, self._timed_tokens, lambda ids: vocabulary.decode(ids).strip()
        )
        notes = self._head.notes
        if not hypotheses_with_paths:  # no word of the lexicon is possible
            return Recognition("", None, {}, (), (), notes)
        _, best = hypotheses_with_paths[0]
        if best.words is not None:
            shown_tokens = tuple(replace(each, text=f" {each.text}") for each in best.words)
        else:
            shown_tokens = self._characters(best.tokens)
        ids = tuple(token.id for token in best.tokens)
        hypotheses = tuple(each for _, each in hypotheses_with_paths)
        # The ids are not tokens of the language model, so that texts are joined from those of the tokens.
        return Recognition(best.text, None, {}, shown_tokens, ids, notes, hypotheses=hypotheses, worded=True)

    def _timed_tokens(self, path: Sequence[CtcToken]) -> tuple[Token, ...]:
        """Returns the tokens of an alignment with their times."""
        branch = self._branch
        assert isinstance(branch, CtcBranch)
        step = self._step * branch.decoder.downsample_rate
        return tuple(
            Token(token.id, branch.vocabulary.decode([token.id]), token.first * step, token.end * step)
            for token in path
        )

    def _characters(self, tokens: Sequence[Token]) -> tuple[Token, ...]:
        """Returns the tokens with those joined that only together are whole characters."""
        assert isinstance(self._branch, CtcBranch)
        text_of = self._branch.vocabulary.decode
        characters: list[Token] = []
        incomplete: list[Token] = []
        for token in tokens:
            incomplete.append(token)
            text = text_of([each.id for each in incomplete])
            if "\ufffd" not in text or "\ufffd" not in text_of([token.id]):
                characters.append(Token(incomplete[0].id, text, incomplete[0].start, token.end))
                incomplete = []
        if incomplete:
            text = text_of([each.id for each in incomplete])
            characters.append(Token(incomplete[0].id, text, incomplete[0].start, incomplete[-1].end))
        return tuple(characters)


def searches(options: Any) -> bool:
    """Returns whether options ask for a beam search over the CTC branch."""
    return isinstance(options, CtcHeadOptions) and options.searches
