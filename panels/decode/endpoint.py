"""The endpoint `/decode` for `gradio_client` and notebooks: CTC beam search over recordings or files of logits.

It computes the same as the Decode tab and `workbench decode`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from panels.decode.heads import headed_offers
from panels.decode.hypotheses import text_of
from panels.decode.knowledge import FILES, check_size
from panels.decode.run import BEAM, GREEDY, GUIDED, Decodings, Row, guides, prepare, run
from panels.running.choices import ModelOnRuntime
from panels.running.parameters import FILE, OBJECT, OBJECTS_SCHEMA, TEXT, UPLOAD, Parameter, endpoint
from panels.running.parameters import FILES as SEVERAL_FILES
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import sample, score_dict
from workbench.core.errors import BadInput
from workbench.core.options import build_options, option_specs
from workbench.core.runtimes import RUNTIMES
from workbench.core.visitors import current_stop
from workbench.decoding.ctc_beam.hypothesis import Hypothesis
from workbench.decoding.ctc_beam.options import SearchOptions
from workbench.decoding.ctc_options import CtcBeamOptions

WEIGHTS = tuple(spec.name for spec in option_specs(SearchOptions))
OPTIONS = (*WEIGHTS, "neural_lm")

DECODE = {
    "audio": Parameter("recordings", f"One recording or a list of them, as files: {UPLOAD}.", SEVERAL_FILES),
    "model": Parameter(
        "model",
        "The id of a model with a CTC head; it may name its runtime and a quantisation too, as in "
        "demo/sensevoice|gguf|q8_0. Not used for files of logits.",
        TEXT,
        "",
    ),
    "runtime": Parameter(
        "runtime", f"The runtime of the model if it names none: {', '.join(RUNTIMES)}.", TEXT, "pytorch"
    ),
    "options": Parameter(
        "options",
        f'Options of the search, an object such as {{"beam_size": 32, "nbest": 5}}, or JSON text of one: '
        f"{', '.join(OPTIONS)}; without any option or file, the beam search uses the acoustic scores alone.",
        OBJECT,
        {},
    ),
    "lm": Parameter("token LM", "An n-gram model of the tokens, an ARPA file or a KenLM binary.", FILE),
    "lexicon": Parameter("lexicon", "Words with their tokens: a word, a tab and its tokens in each line.", FILE),
    "word_lm": Parameter("word LM", "An n-gram model of the lexicon's words: an ARPA file or a KenLM binary.", FILE),
    "boost": Parameter("phrases", "Phrases to boost, one in each line: tokens, or words with a lexicon.", FILE),
    "logits": Parameter("logits", f"One or several files of logits in place of recordings: {UPLOAD}.", SEVERAL_FILES),
    "tokens": Parameter("tokens", "The list of the tokens of the logits, one per line.", FILE),
    "blank": Parameter(
        "blank",
        "The index of the blank among these tokens, counted from 0, or its name. If empty, the tokens' names decide.",
        TEXT,
        "",
    ),
    "reference": Parameter(
        "reference text",
        "The reference text, one line for each recording; with it, the result has error rates.",
        TEXT,
        "",
    ),
}


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def decode(
        audio: list[str] | None = None,
        model: str = "",
        runtime: str = "pytorch",
        options: dict[str, Any] | None = None,
        lm: str | None = None,
        lexicon: str | None = None,
        word_lm: str | None = None,
        boost: str | None = None,
        logits: list[str] | None = None,
        tokens: str | None = None,
        blank: str = "",
        reference: str = "",
    ) -> list[dict[str, Any]]:
        files = {"lm": lm, "lexicon": lexicon, "word_lm": word_lm, "boost": boost}
        return decoded(pool, audio or [], model, runtime, options or {}, files, logits or [], tokens, blank, reference)

    with gr.Column(visible=False):
        endpoint(
            page,
            decode,
            DECODE,
            "hypotheses",
            OBJECTS_SCHEMA,
            "decode",
            "Decodes recordings or files of logits greedily and by CTC beam search; gives one object for each.",
            {
                "audio": sample(),
                "model": next((each.card.id for each in headed_offers(pool.registry)), ""),
                "options": {"beam_size": 16, "nbest": 3},
            },
            **COMPUTING,
        )


def decoded(
    pool: SessionPool,
    recordings: Sequence[str],
    model: str,
    runtime: str = "pytorch",
    options: Mapping[str, Any] | None = None,
    files: Mapping[str, str | None] | None = None,
    logits: Sequence[str] = (),
    tokens: str | None = None,
    blank: str = "",
    reference: str = "",
) -> list[dict[str, Any]]:
    """Decodes recordings or files of logits; returns a JSON object for each, in their order.

    Each has `file`, `greedy` (the text of the best path) and `hypotheses`, best first: `text`, `tokens`, with a lexicon
    `words`, `score`, and its parts `acoustic`, `lm`, `token_lm`, `word_lm`, `neural_lm`, `bonus` and `boost`, which are
    natural logarithms with their weights. `notes` says what the n-gram models lack, such as `<unk>`. With a reference,
    `score_of_greedy` and `score_of_best` are error rates. One that failed has `file` and `error` instead. Raises
    `BadInput` for errors in the request as a whole.
    """
    pool.guard.check_options(options or {})
    pool.guard.check_arrays(logits)
    for name in options or {}:
        if name not in OPTIONS:
            raise BadInput(f"the beam search has no option {name!r:.40} here; it has {', '.join(OPTIONS)}")
    paths = {name: (files or {}).get(name) for name in FILES}
    for path in filter(None, paths.values()):
        check_size(path)
    chosen = build_options(CtcBeamOptions, {**(options or {}), **paths}, "the beam search")
    cell = model if "|" in model or not model else ModelOnRuntime(model, runtime).value
    best = GUIDED if guides(chosen) else BEAM
    job = prepare(pool.registry, recordings, cell, logits, tokens, blank, reference, chosen, (GREEDY, best))
    decodings = Decodings(job)
    for _ in run(pool, decodings, current_stop()):
        pass
    pieces = decodings.layout.pieces if decodings.layout else ()
    rows = {row.key: row for row in decodings.state.rows}
    return [
        _object(rows[f"{place}:{GREEDY}"], rows[f"{place}:{best}"], pieces, chosen.nbest)
        for place in range(len(job.sources))
    ]


def _object(greedy: Row, best: Row, pieces: Sequence[str], count: int) -> dict[str, Any]:
    error = best.error or greedy.error
    if error:
        return {"file": best.recording, "error": error}
    values: dict[str, Any] = {
        "file": best.recording,
        "greedy": text_of(greedy.hypotheses[0], pieces),
        "hypotheses": [_hypothesis(each, pieces) for each in best.hypotheses[:count]],
        "notes": list(best.notes),
    }
    if greedy.score and best.score:
        values |= {"score_of_greedy": score_dict(greedy.score), "score_of_best": score_dict(best.score)}
    return values


def _hypothesis(hypothesis: Hypothesis, pieces: Sequence[str]) -> dict[str, Any]:
    words = {} if hypothesis.words is None else {"words": list(hypothesis.words)}
    parts = ("score", "acoustic", "lm", "token_lm", "word_lm", "neural_lm", "bonus", "boost")
    tokens = [pieces[token] for token in hypothesis.tokens]
    return {
        "text": text_of(hypothesis, pieces),
        "tokens": tokens,
        **words,
        **{name: getattr(hypothesis, name) for name in parts},
    }
