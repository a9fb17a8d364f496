"""The face of the CTC beam search: a decoder with its vocabulary, its options and its sources of knowledge.

It knows arrays, not models: logits of any runtime or file. Graves and Jaitly, "Towards End-to-End Speech Recognition
with Recurrent Neural Networks", ICML 2014, and Hannun et al., arXiv 1408.2873, describe prefix beam search.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.options import check_value, option_specs
from workbench.core.phrases import counted
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.knowledge import Knowledge
from workbench.decoding.ctc_beam.lexicon import Lexicon
from workbench.decoding.ctc_beam.logits import Frames, log_probabilities
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.phrases import Phrases
from workbench.decoding.ctc_beam.record import MAX_FRAMES, SearchRecord
from workbench.decoding.ctc_beam.recording import Recorder
from workbench.decoding.ctc_beam.results import hypotheses, score_ends
from workbench.decoding.ctc_beam.rows import Rows
from workbench.decoding.ctc_beam.search import Search
from workbench.decoding.language_model import LanguageModel

MAX_WIDER = 3  # retries with a beam four times as wide, if there are fewer hypotheses than requested


class SearchState:
    """A search for one recording that waits for more frames. `CtcDecoder` makes and uses it."""

    def __init__(self, rows: Rows):
        self.rows = rows


class CtcDecoder:
    """Finds the best token sequences for the outputs of a CTC head.

    Args:
        vocabulary: number of tokens, with the blank.
        blank: its id.
        options: the width of the search and the weights.
        token_lm: a language model whose symbols are the token ids.
        lexicon: words and their spellings; a hypothesis is then a pair of tokens and words.
        word_lm: an n-gram model whose symbols are the indices of the lexicon's words.
        neural_lm: a neural model whose symbols are the indices of the lexicon's words.
        phrases: sequences of token ids, or of indices of the lexicon's words, that earn `options.boost_score`.

    Raises `BadInput` for options or parts that do not fit.
    """

    def __init__(
        self,
        vocabulary: int,
        blank: int,
        options: SearchOptions | None = None,
        *,
        token_lm: LanguageModel | None = None,
        lexicon: Lexicon | None = None,
        word_lm: LanguageModel | None = None,
        neural_lm: LanguageModel | None = None,
        phrases: Phrases | None = None,
    ):
        self.vocabulary, self.blank, self.options = vocabulary, blank, options or SearchOptions()
        self.token_lm, self.lexicon, self.word_lm, self.neural_lm = token_lm, lexicon, word_lm, neural_lm
        self.phrases = phrases
        _check(self)
        self._knowledge = Knowledge(vocabulary, self.options, token_lm, lexicon, word_lm, neural_lm, phrases)
        self._search = self._new_search(max(self.options.beam_size, self.options.nbest))

    def with_options(self, options: SearchOptions) -> CtcDecoder:
        """Returns a search with other options and the same parts; a neural model keeps the scores that it has.

        Raises `BadInput` for options that do not fit.
        """
        return CtcDecoder(
            self.vocabulary,
            self.blank,
            options,
            token_lm=self.token_lm,
            lexicon=self.lexicon,
            word_lm=self.word_lm,
            neural_lm=self.neural_lm,
            phrases=self.phrases,
        )

    def _new_search(self, size: int) -> Search:
        return Search(self.vocabulary, self.blank, self.options, self._knowledge, size)

    def decode(self, batch: Sequence[np.ndarray]) -> list[list[Hypothesis]]:
        """Returns the n-best hypotheses of each recording, best first.

        The result of a recording does not depend on the others.

        Args:
            batch: logits or log-probabilities [frames, vocabulary] of each recording.

        Raises `BadInput` for logits that cannot be used.
        """
        recordings = []
        for number, logits in enumerate(batch):
            name = f"the logits of recording {number + 1}" if len(batch) > 1 else "the logits"
            recordings.append(Frames(logits, self.vocabulary, what=name))
            if not len(recordings[-1]):
                raise BadInput(f"{name} have no frames; expected at least one")
        order = sorted(range(len(recordings)), key=lambda number: -len(recordings[number]))
        rows = self._search.begin(len(order))
        self._search.run(rows, [recordings[number] for number in order])
        score_ends(rows, self._knowledge)
        results: list[list[Hypothesis]] = [[] for _ in order]
        for utterance, number in enumerate(order):
            results[number] = self._n_best(rows, utterance, recordings[number], self.options.nbest)
        return results

    def _n_best(self, rows: Rows, utterance: int, recording: Frames, limit: int) -> list[Hypothesis]:
        """Returns the best hypotheses of an utterance whose frames have all been read, best first, at most `limit`.

        If the beam ended with fewer whole ones than `nbest`, they are those of a search with a wider beam.
        """
        n_best = hypotheses(rows, utterance, self._knowledge, limit)
        if len(n_best) >= self.options.nbest or not rows.pruned[utterance]:
            return n_best
        size = max(self.options.beam_size, self.options.nbest)
        for _ in range(MAX_WIDER):
            size *= 4
            search = self._new_search(size)
            rows = search.begin(1)
            search.run(rows, [recording])
            n_best = hypotheses(rows, 0, self._knowledge, limit)
            if len(n_best) >= self.options.nbest or not rows.pruned[0]:
                break
        return n_best

    def begin(self) -> SearchState:
        """Returns a search for one recording that comes in chunks."""
        return SearchState(self._search.begin(1))

    def advance(self, state: SearchState, logits: np.ndarray) -> None:
        """Continues with the next frames of the recording, [frames, vocabulary]."""
        self._search.run(state.rows, [Frames(logits, self.vocabulary)])

    def finish(self, state: SearchState) -> list[Hypothesis]:
        """Returns the n-best hypotheses if the recording ends here, best first. The search can go on afterwards.

        They are those of `decode`, unless the beam holds fewer whole hypotheses than `nbest`: `decode` searches again
        with a wider beam then.
        """
        return hypotheses(state.rows, 0, self._knowledge, self.options.nbest)

    def finish_whole(self, state: SearchState, logits: np.ndarray, listed: int) -> list[Hypothesis]:
        """Returns the hypotheses of `decode` for a recording that came in chunks, and others of the same beam after
        them.

        Args:
            state: the search, after all frames.
            logits: [frames, vocabulary] of the whole recording.
            listed: the most hypotheses to return, if that is more than `nbest`.
        """
        return self._n_best(state.rows, 0, Frames(logits, self.vocabulary), max(listed, self.options.nbest))

    def explain(self, logits: np.ndarray) -> SearchRecord:
        """Returns a record of the search for one recording, [frames, vocabulary], frame by frame.

        The search takes the same decisions as `decode`, but is slower, because it scores every candidate.

        Raises `BadInput` for logits that cannot be used, or more than MAX_FRAMES frames.
        """
        if len(np.asarray(logits)) > MAX_FRAMES:
            raise BadInput(f"the logits have {len(logits)} frames; a recorded search takes at most {MAX_FRAMES}")
        rows = self._search.begin(1)
        recorder = Recorder(self._knowledge, rows)
        self._search.run(rows, [Frames(logits, self.vocabulary)], recorder)
        log_probs = log_probabilities(logits, self.vocabulary)
        return recorder.record(log_probs, hypotheses(rows, 0, self._knowledge, self.options.nbest))


def _check(decoder: CtcDecoder) -> None:
    """Raises `BadInput` for options or parts that do not fit each other."""
    vocabulary, blank = decoder.vocabulary, decoder.blank
    for spec in option_specs(SearchOptions):
        value = getattr(decoder.options, spec.name)
        check_value(spec, value, f"option {spec.name} of the beam search is {value!r:.80}")
    if vocabulary < 2:
        raise BadInput(f"the vocabulary has {counted(vocabulary, 'token')}; expected the blank and at least one other")
    if not 0 <= blank < vocabulary:
        raise BadInput(f"the blank is {blank}; expected a token id from 0 to {vocabulary - 1}")
    if decoder.lexicon is None and (decoder.word_lm is not None or decoder.neural_lm is not None):
        raise BadInput("a language model of words needs a lexicon, which spells the words in tokens")
    if decoder.lexicon is not None:
        decoder.lexicon.check(vocabulary, blank)
    if decoder.phrases is not None and decoder.lexicon is None:
        decoder.phrases.check(vocabulary, "token ids", blank)
    elif decoder.phrases is not None and decoder.lexicon is not None:
        decoder.phrases.check(len(decoder.lexicon.words), "indices of the lexicon's words")
