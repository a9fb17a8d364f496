"""The benchmark that opens a large lexicon, on a small one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.lexicon_opening import ROOT, TOKENS, command_seconds, part_seconds, write_files
from workbench.decoding.ctc_beam import read_lexicon


def test_files_of_the_benchmark_are_those_of_a_search(tmp_path: Path) -> None:
    write_files(tmp_path, 300)
    lexicon = read_lexicon(tmp_path / "lexicon.txt", TOKENS)
    assert len(lexicon.words) == 300 and all(len(spellings) == 1 for spellings in lexicon.pronunciations)
    for word, [spelling] in zip(lexicon.words, lexicon.pronunciations):
        assert "".join(TOKENS[token] for token in spelling) == f"{word}|"
    assert np.load(tmp_path / "logits.npy").shape[1] == len(TOKENS)
    assert command_seconds(tmp_path, ROOT, with_lexicon=True) > 0 and min(part_seconds(tmp_path)) > 0
