"""CTC beam search from Python: arrays and files, options, and the language model that it opens."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import workbench
from workbench.core.errors import BadInput
from workbench.registry import ctc_search

TOKENS = ("<blk>", "a", "b")
LOGITS = np.random.default_rng(5).normal(size=(4, 3))


def test_arrays_and_files_give_equal_hypotheses(tmp_path: Path) -> None:
    np.save(tmp_path / "it.npy", LOGITS)
    (tmp_path / "tokens.txt").write_text("\n".join(TOKENS))
    with workbench.CtcBeamSearch(tmp_path / "tokens.txt", "<blk>", nbest=4) as search:
        from_file = search.decode(tmp_path / "it.npy")
        assert search.decode_batch([LOGITS, str(tmp_path / "it.npy")]) == [from_file, from_file]
        assert search.decode_batch([]) == []
    assert len(from_file) == 4 and isinstance(from_file[0], workbench.TextHypothesis)
    assert from_file[0].to_dict().keys() == {"text", "tokens", "score", "acoustic", "lm"}


def test_helper_symbols_behind_the_columns_are_left_out() -> None:
    found = workbench.CtcBeamSearch(TOKENS, nbest=4).decode(LOGITS)
    assert workbench.CtcBeamSearch((*TOKENS, "#0", "#1"), nbest=4).decode(LOGITS) == found


def test_object_of_tokens_is_read_by_its_columns() -> None:
    """As `get_vocab` of transformers returns it, and `vocab.json` in whatever order."""
    found = workbench.CtcBeamSearch(TOKENS, nbest=4).decode(LOGITS)
    columns = {"b": 2, "<blk>": 0, "a": 1}
    assert workbench.CtcBeamSearch(columns, nbest=4).decode(LOGITS) == found
    with pytest.raises(BadInput, match="does not give each token an id from 0 to 2, each once"):
        workbench.CtcBeamSearch({**columns, "a": 3})


def test_options_accept_path_objects(tmp_path: Path) -> None:
    (tmp_path / "lexicon.txt").write_text("ab\ta b\n")
    search = workbench.CtcBeamSearch(TOKENS, lexicon=tmp_path / "lexicon.txt")
    assert set(search.decode(LOGITS)[0].words or ()) <= {"ab"}


@pytest.mark.parametrize(
    ("logits", "expected"),
    [
        (LOGITS[:, :2], "array 0 is 2 wide and the list of tokens has 3 tokens"),
        (LOGITS[0], "array 0 has the shape"),
        (LOGITS.astype(int), "array 0 holds int64"),
        ([[0.0, 1.0, 2.0]], "array 0 holds a list"),
        (np.full((1, 3), np.nan), "array 0 has nan at frame 0"),
        (np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True), "array 0 holds probabilities"),
        ((np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)).astype(np.float16), "holds probabilities"),
    ],
)
def test_invalid_logits_are_refused(logits: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        workbench.CtcBeamSearch(TOKENS).decode(logits)


def test_probabilities_in_bfloat16_are_refused(tmp_path: Path) -> None:
    probabilities = torch.tensor(np.random.default_rng(1).normal(scale=5.0, size=(200, 3))).softmax(dim=1)
    save_file({"probabilities": probabilities.bfloat16()}, tmp_path / "it.safetensors")
    with pytest.raises(BadInput, match=r"it\.safetensors holds probabilities"):
        workbench.CtcBeamSearch(TOKENS).decode(tmp_path / "it.safetensors")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"beamsize": 3}, "no option beamsize; did you mean beam_size"),
        ({"beam_size": 0}, "expected 1 to"),
        ({"tokens": ("a", "a")}, "both 'a'"),
        ({"tokens": ("a", "")}, "token 1"),
        ({"tokens": ("a",)}, "1 tokens"),
        ({"tokens": ()}, "the list of tokens is empty"),
        ({"lm": "a\0b"}, "cannot be read: embedded null byte"),
        ({"blank": "c"}, "none of the 3 tokens"),
    ],
)
def test_invalid_search_options_are_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        workbench.CtcBeamSearch(**{"tokens": TOKENS, **options})


class FakeRegistry:
    """Opens sessions that score nothing; counts what is open."""

    def __init__(self) -> None:
        self.opened: list[tuple[str, str | None]] = []
        self.open_now = 0
        self.closed = False

    def open(self, model: str, runtime: str | None = None) -> Any:
        self.opened.append((model, runtime))
        self.open_now += 1
        registry = self

        class Session:
            def score_texts(self, texts: Any, *, end: bool = True) -> Any:
                raise AssertionError("nothing is decoded here")

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                registry.open_now -= 1

        return Session()

    def __enter__(self) -> FakeRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def card(self, model: str) -> SimpleNamespace:
        return SimpleNamespace(family="sensevoice" if "sense" in model else "causal_lm")


def test_the_language_model_is_opened_once_and_closed_with_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lexicon.txt").write_text("ab\ta b\n")
    (tmp_path / "phrases.txt").write_text("ba\n")
    own_registry = FakeRegistry()
    monkeypatch.setattr(ctc_search, "Registry", lambda: own_registry)
    options: dict[str, Any] = {
        "lexicon": str(tmp_path / "lexicon.txt"),
        "neural_lm": "demo/qwen3",
        "neural_runtime": "gguf",
    }
    with workbench.CtcBeamSearch(TOKENS, **options):
        assert (own_registry.opened, own_registry.open_now) == ([("demo/qwen3", "gguf")], 1)
    assert own_registry.open_now == 0 and own_registry.closed
    shared = FakeRegistry()
    with pytest.raises(
        BadInput, match="'demo/sensevoice', a model of the family sensevoice; expected a language model"
    ):
        workbench.CtcBeamSearch(TOKENS, registry=shared, **{**options, "neural_lm": "demo/sensevoice"})
    assert not shared.opened
    with pytest.raises(BadInput, match="'ba'"):
        workbench.CtcBeamSearch(TOKENS, registry=shared, boost=str(tmp_path / "phrases.txt"), **options)
    assert shared.open_now == 0 and not shared.closed


@pytest.mark.parametrize(
    "tokens, blank",
    [
        (("<blk>", "a", "b"), 0),
        (("<unk>", "a", "<blank>"), 2),  # sherpa's lists of models from NeMo
        (("a", "b", "|", "[PAD]"), 3),  # wav2vec2
        (("<pad>", "<s>", "</s>", "<unk>", "|", "a"), 0),
        (("<s>", "</s>", "<unk>", "<pad>", "<blk>"), 4),
        (("<eps>", "a", "<blk>"), 2),
        (("_", "a", "b"), 0),
        (("-", "|", "e"), 0),
    ],
)
def test_blank_is_found_by_its_name(tokens: tuple[str, ...], blank: int) -> None:
    with workbench.CtcBeamSearch(tokens) as search:
        assert search.blank == blank


@pytest.mark.parametrize(
    "tokens, reason",
    [
        (("a", "b", "c"), "no token is called <blk> or <blank>, and the first of the 3 tokens is 'a'"),
        (("<unk>", "▁the"), "the first of the 2 tokens is '<unk>'"),
        (("<blk>", "a", "<blank>"), "may be each of the tokens '<blk>' and '<blank>'"),
        (("<s>", "<pad>", "</s>", "a"), "may be each of the tokens '<s>' and '<pad>'"),  # fairseq or transformers
    ],
)
def test_blank_that_no_name_tells_is_asked_for(tokens: tuple[str, ...], reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as caught:
        workbench.CtcBeamSearch(tokens)
    assert str(caught.value).endswith("(--blank)")
    assert workbench.CtcBeamSearch(tokens, 0).blank == 0


def test_list_without_the_blank_says_so() -> None:
    logits = np.zeros((2, 4))
    with pytest.raises(BadInput, match="if the list lacks the blank, add it at its place, which is the end for NeMo"):
        workbench.CtcBeamSearch(("a", "b", "c"), 0).decode(logits)
    for tokens in (("a", "b"), ("<blk>", "b", "c"), ("a", "b", "[PAD]")):
        with pytest.raises(BadInput, match=r"the blank included$"):
            workbench.CtcBeamSearch(tokens, 0).decode(logits)
