"""The sweep over the weights of language models, without a browser."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from panels.decode.run import GUIDED
from panels.decode.sweep import SWEPT, NBestLists, check_swept, read_grid, run_sweep, same_lists
from panels.decode.view import sweep_html
from panels.running.sessions import SessionPool
from tests.support.decode_jobs import job, options, ran
from tests.support.decoding_files import sounds_like, write_files
from workbench.core.errors import BadInput
from workbench.pipelines.ctc.beam_search import build_decoder


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return write_files(tmp_path)


def sweep(pool: SessionPool, files: dict[str, Path], lists: NBestLists, *grid: tuple[float, ...]) -> Any:
    return list(run_sweep(pool, lists, None, *grid, threading.Event()))[-1].result


def test_sweep_error_counts_equal_those_of_searches_with_the_same_weights(
    pool: SessionPool, files: dict[str, Path], tmp_path: Path
) -> None:
    takes = {f"take{number}": sounds_like(seed=number) for number in range(6)}
    paths = write_files(tmp_path, **takes)
    sources = [paths[name] for name in takes]
    base_settings = options(paths, "lexicon", "word_lm", gamma=1.0)
    decode_job = job(pool, paths, base_settings, "\n".join(["too late"] * 6), logits=sources)
    pair = SWEPT["words"]
    check_swept(decode_job, pair)
    lists = NBestLists(decode_job, pair)
    grid = ((-0.5, 1.0), (-1.0, 0.0, 1.0))
    result = sweep(pool, paths, lists, *grid)
    assert result.recordings == 6 and result.units == 12
    for row, gamma in enumerate(grid[0]):
        for column, bonus in enumerate(grid[1]):
            settings = options(paths, "lexicon", "word_lm", gamma=gamma, word_bonus=bonus)
            decodings = ran(
                pool, job(pool, paths, settings, "\n".join(["too late"] * 6), logits=sources, decoders=[GUIDED])
            )
            errors = sum(each.score.counts.errors for each in decodings.state.rows if each.score)
            assert result.errors[row, column] == errors, (gamma, bonus)
    assert result.rates[1].max() == 0 and result.errors[0].min() > 0
    html = sweep_html(result, ("gamma", "word bonus"), (1.0, 0.0))
    assert 'class="best' in html and "0.0 %" in html
    # Another grid needs no search, so the files may be deleted.
    for path in sources:
        path.unlink()
    assert sweep(pool, paths, lists, (0.5, 1.0), (0.0,)).errors.shape == (2, 1)
    other_job = job(
        pool, paths, options(paths, "lexicon", "word_lm", gamma=2.0), "\n".join(["too late"] * 6), logits=sources
    )
    assert same_lists(decode_job, other_job, pair) and not same_lists(decode_job, other_job, SWEPT["tokens"])


def test_sweep_reads_the_files_of_its_searches_once(
    pool: SessionPool, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its five searches share the models, so that a neural one scores no text twice."""
    built = Mock(wraps=build_decoder)
    monkeypatch.setattr("panels.decode.run.build_decoder", built)
    decode_job = job(pool, files, options(files, "lexicon", "word_lm"), "too late")
    assert sweep(pool, files, NBestLists(decode_job, SWEPT["words"]), (0.0, 0.5, 1.0), (-1.0, 0.0, 1.0)) is not None
    built.assert_called_once()


def test_sweep_without_references_or_language_model_is_refused(pool: SessionPool, files: dict[str, Path]) -> None:
    for names, reference, pair, sentence in (
        (("lm",), "", "tokens", "1 of 1 recordings have no reference text"),
        ((), "too late", "tokens", "there is no language model of tokens to weigh; add one, or click an example"),
        (("lexicon", "word_lm"), "too late", "tokens", "or sweep gamma and word bonus"),
        (("lm",), "too late", "words", "there is no language model of words to weigh"),
    ):
        with pytest.raises(BadInput, match=re.escape(sentence)):
            check_swept(job(pool, files, options(files, *names, beta=1.0), reference), SWEPT[pair])
    assert read_grid("0 to 1, 3", "alpha") == (0.0, 0.5, 1.0) and read_grid("-1,1,2", "alpha") == (-1.0, 1.0)
    for text in ("", "0 to 1", "0 to 1, 99", "a to b, 3", "1.1.1 to 2, 3"):
        with pytest.raises(BadInput, match="the values of alpha are"):
            read_grid(text, "alpha")
