"""The user's options of a CTC beam search, declared once for the shell, Python, the page and models with a CTC head.

This file reads none of the files that the options name; `workbench.pipelines.ctc.beam_search` does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from workbench.core.errors import BadInput
from workbench.core.options import option
from workbench.decoding.ctc_beam.options import MAX_BEAM_SIZE, SearchOptions

BEAM_SIZE = SearchOptions.beam_size
NEURAL_RUNTIMES = ("pytorch", "gguf", "vllm")


@dataclass(frozen=True)
class CtcBeamOptions(SearchOptions):
    """The options of a CTC beam search, with its language models, lexicon and phrases."""

    lm: str | None = option(None, "n-gram model of tokens: an ARPA file (may be gzipped) or a KenLM binary", file=True)
    lexicon: str | None = option(None, "lexicon: a word, a tab and its tokens on each line", file=True)
    word_lm: str | None = option(None, "n-gram model of the lexicon's words: an ARPA file or a KenLM binary", file=True)
    neural_lm: str | None = option(
        None, "language model that scores the text of the lexicon's words: a model's id, directory or GGUF file"
    )
    neural_runtime: str | None = option(
        None, "runtime of the neural language model (default: gguf for a GGUF file, otherwise pytorch)", NEURAL_RUNTIMES
    )
    boost: str | None = option(
        None, "phrases to boost, one per line: words if there is a lexicon, otherwise tokens", file=True
    )

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raises `BadInput` for a language model of words without a lexicon."""
        for name in ("word_lm", "neural_lm"):
            if getattr(self, name) is not None and self.lexicon is None:
                raise BadInput(f"{name} scores words and needs a lexicon; expected lexicon too, or lm for tokens")

    @property
    def search(self) -> SearchOptions:
        """The options of the search alone, without files."""
        chosen = {each.name: getattr(self, each.name) for each in fields(SearchOptions)}
        return SearchOptions(**{**chosen, "beam_size": self.beam_size or BEAM_SIZE})


@dataclass(frozen=True)
class CtcHeadOptions(CtcBeamOptions):
    """The options of a beam search for models with a CTC head. With all defaults, there is no beam search."""

    beam_size: int = option(
        0,
        f"hypotheses that the CTC beam search follows (0: no search; {BEAM_SIZE} if other options of the beam "
        "search are set)",
        smallest=1,
        maximum=MAX_BEAM_SIZE,
    )

    @property
    def searches(self) -> bool:
        """Whether any option asks for a beam search."""
        return any(getattr(self, each.name) != each.default for each in fields(CtcHeadOptions))

    @property
    def beam(self) -> CtcBeamOptions:
        """The options of the beam search alone, without those of the model."""
        return CtcBeamOptions(**{each.name: getattr(self, each.name) for each in fields(CtcBeamOptions)})
