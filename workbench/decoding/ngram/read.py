"""Opens a file of an n-gram model, whatever its format, for a list of symbols."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.decoding.ngram.arpa_reading import read_arpa
from workbench.decoding.ngram.kenlm_binary import KenlmModel, is_kenlm_binary
from workbench.decoding.ngram.model import NgramModel


def read_ngram_model(path: Path, symbols: Sequence[str]) -> NgramModel | KenlmModel:
    """Returns the model in an ARPA file, plain or gzipped, or in a binary file of KenLM.

    Its `notes` are sentences for the user about special words that the file lacks.

    Args:
        symbols: the names of the caller's symbols, in the order of their indices.

    Raises `BadInput` for any other file, and `Unavailable` for a binary file if the package `kenlm` is not installed.
    """
    if is_kenlm_binary(path):
        return KenlmModel(path, symbols)
    return NgramModel(read_arpa(path), symbols)
