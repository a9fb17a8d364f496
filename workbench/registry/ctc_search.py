"""CTC beam search over the logits of any program, for Python and the shell; the registry opens its language model.

`workbench.pipelines.ctc.beam_search` makes the search; this file opens and closes the language model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.decoding.ctc_options import CtcBeamOptions
from workbench.families.vocabularies.ctc_layouts import LogitsLayout
from workbench.families.vocabularies.funasr import pieces_by_id
from workbench.pipelines.ctc.beam_search import Hypotheses, build_decoder, ngram_notes, text_hypothesis
from workbench.pipelines.ctc.logits_files import check_logits, read_logits, with_columns
from workbench.pipelines.ctc.token_files import blank_of, check_tokens, read_tokens, tokens_for
from workbench.registry.ctc_layouts import logits_layout
from workbench.registry.registry import Registry
from workbench.registry.resolve import NEURAL

SEARCH_NAME = "the CTC beam search"  # in messages


class CtcBeamSearch:
    """A CTC beam search with the user's options (see `workbench.decoding.ctc_options.CtcBeamOptions`).

    Its files are read once, and several threads may use it. With `neural_lm` it opens a session of that model; `close`,
    or `with`, ends it.

    Args:
        tokens: a text for each column of the logits, the blank included, or an object with the column of each text, as
            in `vocab.json`; or the path of a file with them, one in each line, with or without ids; or the layout of a
            model's logits, which has a blank of its own.
        blank: the index of the blank, or its name; by default found by its name (see `blank_of`).
        registry: opens the neural language model; by default a new registry.

    Raises `BadInput` for unknown options, values that they cannot have, and files that are missing or broken.
    """

    def __init__(
        self,
        tokens: str | Path | Sequence[str] | Mapping[str, int] | LogitsLayout,
        blank: int | str | None = None,
        *,
        registry: Registry | None = None,
        **options: Any,
    ):
        option_values = {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}
        self.options = build_options(CtcBeamOptions, option_values, SEARCH_NAME)
        self._layout = tokens if isinstance(tokens, LogitsLayout) else _listed(tokens, blank)
        self.tokens, self.blank = self._layout.pieces, self._layout.blank
        self._vocabulary = self._layout.vocabulary
        self._registry = registry
        with contextlib.ExitStack() as opened:
            self._opened = opened
            self._decoder = build_decoder(self.options, self.tokens, self.blank, self._open)
            self._opened = opened.pop_all()

    @classmethod
    def of_model(cls, model: str | Path, *, registry: Registry | None = None, **options: Any) -> Self:
        """Returns a search over the logits of a model's CTC head, as a trace of the model holds them.

        Tokens, blank and the tags that count as blank are those of the model, so the search finds what the model
        itself would find with these options.

        Args:
            model: a card's id, a checkpoint directory or a GGUF file.
            registry: finds the model, and opens the neural language model; by default a new registry.

        Raises `BadInput` as the constructor does, and for a model without a CTC head.
        """
        with contextlib.ExitStack() as opened:
            layout = logits_layout((registry or opened.enter_context(Registry())).card(model))
        return cls(layout, registry=registry, **options)

    def _open(self, model: str) -> Any:
        registry = self._registry or self._opened.enter_context(Registry())
        family = registry.card(model).family
        if family != NEURAL:
            raise BadInput(
                f"option neural_lm is {model!r:.80}, a model of the family {family}; expected a language model"
            )
        return self._opened.enter_context(registry.open(model, runtime=self.options.neural_runtime))

    def decode(self, logits: np.ndarray | str | Path) -> Hypotheses:
        """Returns the best hypotheses of one recording, best first; at most `nbest` of them.

        Args:
            logits: [frames, vocabulary] of floating-point numbers: logits or log-probabilities of CTC, or the path of
                a file with them (see `workbench.pipelines.ctc.logits_files.read_logits`).
        """
        [hypotheses] = self.decode_batch([logits])
        return hypotheses

    def decode_batch(self, logits: Sequence[np.ndarray | str | Path]) -> list[Hypotheses]:
        """Returns the best hypotheses of several recordings, which are decoded together; see `decode`."""
        if not isinstance(logits, Iterable) or isinstance(logits, str):
            raise BadInput(f"the logits are of type {type(logits).__name__}; expected a list, even for one recording")
        batch = [self._checked(each, number) for number, each in enumerate(logits)]
        if not batch:
            return []
        return [
            Hypotheses(text_hypothesis(each, self._vocabulary) for each in hypotheses)
            for hypotheses in self._decoder.decode(batch)
        ]

    def _checked(self, logits: np.ndarray | str | Path, number: int) -> np.ndarray:
        if isinstance(logits, (str, Path)):
            where, array = Path(logits).name, read_logits(logits, self._layout.stage)
        else:
            where, array = f"array {number}", logits
            check_logits(array, where)
        tokens_for(self.tokens, array.shape[1], where, "the list of tokens")
        array = with_columns(array, len(self.tokens))
        return self._layout.text_log_probs(array) if self._layout.special_ids else array

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences that say what the n-gram models lack, such as `<unk>`, and what is used instead."""
        return ngram_notes(self._decoder)

    def close(self) -> None:
        """Ends the session of the neural language model, if there is one. May be called again."""
        self._opened.close()

    def __enter__(self) -> CtcBeamSearch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listed(tokens: str | Path | Sequence[str] | Mapping[str, int], blank: int | str | None) -> LogitsLayout:
    if isinstance(tokens, (str, Path)):
        names = read_tokens(tokens)
    elif isinstance(tokens, Mapping):  # its own order may be another
        names = tuple(pieces_by_id(tokens, "the object of tokens"))
    elif isinstance(tokens, Iterable):
        names = tuple(tokens)
    else:
        raise BadInput(f"the list of tokens is of type {type(tokens).__name__}; expected a text for each column")
    check_tokens(names, "the list of tokens")
    return LogitsLayout(names, blank_of(blank, names))
