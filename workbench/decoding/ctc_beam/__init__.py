"""CTC prefix beam search with language models, a lexicon and boosted phrases."""

from workbench.decoding.ctc_beam.decoder import CtcDecoder, SearchState
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.lexicon import Lexicon, read_lexicon
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_beam.phrases import Phrases, read_phrases
from workbench.decoding.ctc_beam.record import FrameRecord, Scores, SearchRecord

__all__ = [
    "CtcDecoder",
    "FrameRecord",
    "Hypothesis",
    "Lexicon",
    "Phrases",
    "Scores",
    "SearchOptions",
    "SearchRecord",
    "SearchState",
    "read_lexicon",
    "read_phrases",
]
