"""The command `workbench train-lm`: an n-gram model of words or of a model's tokens, from a text."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

from workbench.cli.transcribe import ProgressLine
from workbench.core.errors import BadInput
from workbench.core.phrases import counted
from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.sentences import STANDARD_INPUT, read_sentences
from workbench.decoding.ngram.train import train
from workbench.families import FAMILIES
from workbench.families.family import load
from workbench.families.vocabularies.spelling import Speller
from workbench.pipelines.ctc.token_files import read_tokens
from workbench.registry.registry import Registry
from workbench.registry.sources import fetch
from workbench.system.atomic_files import check_not_read, check_place, replacing

Say = Callable[[str], None]
"""A function that prints a sentence on stderr."""


def train_language_model(parsed: argparse.Namespace, say: Say) -> Iterator[str]:
    """Writes the n-gram model of the texts; yields the file with its size, and the number of n-grams of each order."""
    check_place(parsed.out)
    check_not_read("--out", parsed.out, parsed.text)
    if parsed.model and parsed.vocabulary:
        raise BadInput("--model and --vocabulary both say which tokens there are; expected one of them")
    sentences: Iterator[Sequence[str]] = read_sentences(parsed.text)
    vocabulary: Sequence[str] | None = None
    if parsed.vocabulary:
        # A single space may be a token of a CTC network, but no word of an ARPA file.
        vocabulary = [token for token in read_tokens(parsed.vocabulary) if token != " "]
    if parsed.model:
        speller = _speller(parsed.model)
        vocabulary, spell = speller.tokens, speller.spell
        sentences = (spell(" ".join(words)) for words in sentences)
    source = parsed.text[0] if len(parsed.text) == 1 else "the texts"
    if source == STANDARD_INPUT:
        source = "standard input"
    trained = train(sentences, parsed.order, vocabulary, source)
    with replacing(parsed.out) as file:
        write_arpa(trained.tables, file, zipped=parsed.out.name.endswith(".gz"))
    say(f"{source}: {counted(trained.sentences, 'sentence')}, {counted(trained.tokens, 'token')}")
    if trained.unknown:
        count = "1 token is" if trained.unknown == 1 else f"{trained.unknown} tokens are"
        say(f"{source}: {count} not in the vocabulary, counted as <unk>")
    for note in trained.notes:
        say(note)
    yield f"{parsed.out}\t{parsed.out.stat().st_size}"
    for order, ngrams in enumerate(trained.tables.orders, 1):
        yield f"{order}-grams\t{len(ngrams)}"


def _speller(model: str) -> Speller:
    """Returns what spells texts in a model's tokens. Raises `BadInput` for a model without a CTC network."""
    with Registry() as registry:
        card = registry.card(model)
        registry.options_class(model)  # raises for an unknown family
    part = FAMILIES[card.family].speller
    if part is None or card.kind == "gguf":
        able = [name for name, family in FAMILIES.items() if family.speller]
        raise BadInput(
            f"{model} cannot spell a text in tokens for a beam search; expected a model's id or a checkpoint directory "
            f"of the family {' or '.join(able)}"
        )
    progress = ProgressLine()
    try:
        directory = fetch(card, progress.fetching)
    finally:
        progress.clear()
    speller: Speller = load(part)(directory)
    return speller
