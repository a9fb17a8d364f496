"""KenLM's binary files through the package `kenlm`, or a stand-in for it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests.decoding.ngram.test_train import text_of_words
from tests.support import fake_kenlm
from tests.support.slow_ngram import ln_parts, log10_of
from workbench.core.errors import BadInput, Unavailable
from workbench.decoding.ngram.arpa_writing import write_arpa
from workbench.decoding.ngram.kenlm_binary import MAGIC, KenlmModel
from workbench.decoding.ngram.read import read_ngram_model
from workbench.decoding.ngram.train import train

ENTRIES = {
    ("a",): (-0.5, -0.25),
    ("b",): (-0.75, -0.125),
    ("<s>",): (-99.0, -0.5),
    ("</s>",): (-1.0, 0.0),
    ("<unk>",): (-2.0, -0.375),
    ("<s>", "a"): (-0.25, 0.0),
    ("a", "b"): (-0.125, 0.0),
    ("<unk>", "a"): (-0.0625, 0.0),
}


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "lm.binary"
    path.write_bytes(MAGIC + b" format version 5\n\0" + bytes(100))
    return path


def test_kenlm_probabilities_equal_those_of_the_package_and_are_cached(
    binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", fake_kenlm)
    monkeypatch.setattr(fake_kenlm.Model, "entries", ENTRIES)
    monkeypatch.setattr(fake_kenlm.Model, "asked", 0)
    symbols = ["b", "a", "other"]
    model = read_ngram_model(binary, symbols)
    assert isinstance(model, KenlmModel) and model.order == 2 and model.notes == ()
    for _ in range(2):
        state, parts = np.array([model.start]), []
        for symbol in (1, 0, 2, 1):
            ln, state = model.advance(state, np.array([symbol]))
            parts.append(float(ln[0]))
        parts.append(float(model.final(state)[0]))
        assert parts == pytest.approx(ln_parts(ENTRIES, ["a", "b", "other", "a"]))
    assert fake_kenlm.Model.asked == 5
    states, symbols_of = np.array([model.start, model.start, int(state[0])]), np.array([1, 0, 0])
    ln, after = model.advance(states, symbols_of)
    assert ln.dtype == np.float64 and after.dtype == np.int64 and after[1] == after[2]  # both histories end with b
    alone = [log10_of(ENTRIES, word, ()) * np.log(10) for word in ("b", "a", "<unk>")]
    assert model.unigrams == pytest.approx(alone)  # so the search looks ahead as with an ARPA file


def test_missing_kenlm_package_raises_an_error_with_the_install_command(
    binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(Unavailable, match="pip install kenlm"):
        read_ngram_model(binary, ["a"])


def test_truncated_kenlm_binary_raises_an_error(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kenlm", fake_kenlm)
    binary.write_bytes(MAGIC)
    with pytest.raises(BadInput) as caught:
        read_ngram_model(binary, ["a"])
    assert str(caught.value).startswith("lm.binary begins as a binary model of KenLM and cannot be read on; it is cut")


@pytest.mark.reference
def test_trained_model_has_the_same_probabilities_in_kenlm(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("kenlm")
    path = tmp_path / "lm.arpa"
    trained = train(text_of_words(300), 4)
    write_arpa(trained.tables, path)
    symbols = [*(word for word in trained.tables.words if word not in ("<s>", "</s>")), "other"]
    model, kenlm = read_ngram_model(path, symbols), KenlmModel(path, symbols)
    for sentence in text_of_words(50, seed=9):
        state, kenlm_state = np.array([model.start]), np.array([kenlm.start])
        for word in sentence:
            symbol = np.array([symbols.index(word) if word in symbols else len(symbols) - 1])
            ln, state = model.advance(state, symbol)
            expected, kenlm_state = kenlm.advance(kenlm_state, symbol)
            assert ln[0] == pytest.approx(expected[0], abs=1e-5)  # KenLM keeps float32
        assert model.final(state)[0] == pytest.approx(kenlm.final(kenlm_state)[0], abs=1e-5)
    np.testing.assert_allclose(model.unigrams, kenlm.unigrams, atol=1e-5)
    assert capfd.readouterr().err == ""
