"""SenseVoice's query embeddings, tags and timestamps, and errors for invalid checkpoints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.checkpoints import am_mvn
from tests.reference.vocabularies import trained_pieces
from tests.support.tiny_checkpoints import change_config, noise, tiny_sensevoice
from workbench.core.errors import BadInput
from workbench.decoding.ctc import CtcToken, collapse
from workbench.families.sanm.sensevoice import (
    LANGUAGE_QUERIES,
    QUERIES,
    QUERY_FRAMES,
    SenseVoiceOptions,
    is_tag,
    query_ids,
    read_sensevoice,
    read_tags,
    timed_tokens,
)
from workbench.families.vocabularies.funasr import Vocabulary
from workbench.pipelines.recognition.sensevoice import SenseVoicePipeline
from workbench.runtimes.pytorch.sensevoice import open_sensevoice
from workbench.trace.trace import StageFilter

CPU = torch.device("cpu")
PIECES = Vocabulary(["<unk>", "<s>", "</s>", "▁one", "▁t", "wo", "中", "<|en|>", "<|HAPPY|>"], "it")


@pytest.mark.parametrize(
    ("options", "ids"),
    [
        ({}, (0, 1, 2, 15)),
        ({"itn": True}, (0, 1, 2, 14)),
        ({"language": "zh"}, (3, 1, 2, 15)),
        ({"language": "en", "itn": True}, (4, 1, 2, 14)),
        ({"language": "yue"}, (7, 1, 2, 15)),
        ({"language": "ja"}, (11, 1, 2, 15)),
        ({"language": "ko"}, (12, 1, 2, 15)),
        ({"language": "nospeech"}, (13, 1, 2, 15)),
    ],
)
def test_query_ids_match_the_published_embedding_rows(options: dict[str, object], ids: tuple[int, ...]) -> None:
    assert query_ids(SenseVoiceOptions(**options)) == ids  # type: ignore[arg-type]
    assert max(LANGUAGE_QUERIES.values()) < QUERIES and len(ids) == QUERY_FRAMES


@pytest.mark.parametrize(
    ("pieces", "language", "tags"),
    [
        (
            ["<|zh|>", "<|NEUTRAL|>", "<|Speech|>", "<|woitn|>", "中"],
            "zh",
            {"emotion": "NEUTRAL", "event": "Speech", "itn": "woitn"},
        ),
        (["<|nospeech|>", "<|EMO_UNKNOWN|>", "<|BGM|>"], "nospeech", {"emotion": "EMO_UNKNOWN", "event": "BGM"}),
        (["中", "<|en|>", "<|yue|>", "<|SAD|>", "<|ANGRY|>"], "en", {"emotion": "SAD"}),  # of a kind the first
        (["<|Event_UNK|>"], None, {"event": "Event_UNK"}),
        (["no", "<tag", "|>", "<||>"], None, {}),
        ([], None, {}),
    ],
)
def test_tags_are_read_by_kind(pieces: list[str], language: str | None, tags: dict[str, str]) -> None:
    assert read_tags(pieces) == (language, tags)


@pytest.mark.parametrize(
    ("piece", "tag"), [("<|en|>", True), ("<|", False), ("|>", False), ("<|>", False), ("a", False)]
)
def test_tag_syntax_is_recognised(piece: str, tag: bool) -> None:
    assert is_tag(piece) is tag


def test_token_times_are_shifted_by_query_frames_and_half_a_frame() -> None:
    path = [CtcToken(7, 0, 1), CtcToken(3, 4, 6), CtcToken(4, 9, 10), CtcToken(5, 10, 14), CtcToken(2, 13, 14)]
    tokens = timed_tokens(path, PIECES, 10, 0.06)
    assert [token.text for token in tokens] == [" one", " t", "wo"]  # no tag, no control piece
    assert [(token.start, token.end) for token in tokens] == [
        (0.0, pytest.approx(0.09)),
        (pytest.approx(0.27), pytest.approx(0.33)),
        (pytest.approx(0.33), pytest.approx(0.57)),  # the last frame ends half a frame early
    ]


@given(st.lists(st.integers(0, 6), min_size=5, max_size=60))
def test_token_times_are_ordered_and_inside_the_recording(path: list[int]) -> None:
    frames = len(path) - QUERY_FRAMES
    tokens = timed_tokens(collapse(np.array(path)), PIECES, frames, 0.06)
    edges = [edge for token in tokens for edge in (token.start, token.end)]
    assert edges == sorted(edges)
    assert all(edge is not None and 0 <= edge <= 0.06 * frames for edge in edges)


# Checkpoints ---------------------------------------------------------------------------------------------------------


def open_pipeline(directory: Path) -> SenseVoicePipeline:
    return open_sensevoice(read_sensevoice(directory), CPU)


def test_sentencepiece_model_is_preferred_as_vocabulary(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    (directory / "some.bpe.model").write_bytes(trained_pieces(420))
    assert len(read_sensevoice(directory).vocabulary) == 420
    with pytest.raises(
        BadInput, match=r"tensor ctc\.ctc_lo\.weight has shape .*; its config.yaml and vocabulary call for \(420"
    ):
        open_pipeline(directory)


def test_two_sentencepiece_models_need_a_configuration_that_names_one(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    for number, name in enumerate(("one.bpe.model", "two.bpe.model")):
        (directory / name).write_bytes(trained_pieces(420 + number))
    with pytest.raises(
        BadInput, match=r"it has several SentencePiece models, one\.bpe\.model and two\.bpe\.model; exp"
    ):
        read_sensevoice(directory)
    change_config(directory, lambda config: config.update(tokenizer_conf={"bpemodel": "two.bpe.model"}))
    assert len(read_sensevoice(directory).vocabulary) == 421


def test_missing_vocabulary_is_refused(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    (directory / "tokens.json").unlink()
    with pytest.raises(BadInput, match="checkpoint directory it has no vocabulary; expected"):
        read_sensevoice(directory)


def test_vocabulary_of_wrong_size_is_refused(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    pieces = json.loads((directory / "tokens.json").read_text())
    (directory / "tokens.json").write_text(json.dumps([*pieces, "more"]))
    with pytest.raises(BadInput, match=rf"shape \({len(pieces)}, 16\).*vocabulary call for \({len(pieces) + 1}, 16\)"):
        open_pipeline(directory)


@pytest.mark.parametrize("blank", [-1, 10**6, "0", 0.5])
def test_blank_id_outside_the_vocabulary_is_refused(blank: object, tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    change_config(directory, lambda config: config.update(model_conf={"blank_id": blank}))
    with pytest.raises(BadInput, match=r"model_conf\.blank_id in config\.yaml is"):
        read_sensevoice(directory)


def test_cmvn_of_wrong_width_is_refused(tmp_path: Path) -> None:
    directory = tiny_sensevoice(tmp_path / "it")
    (directory / "am.mvn").write_text(am_mvn(np.zeros(400), np.ones(400)))
    with pytest.raises(BadInput, match=r"400 values.*560"):
        open_pipeline(directory)


def test_cmvn_is_applied_and_option_cmvn_off_skips_it(tmp_path: Path) -> None:
    plain = tiny_sensevoice(tmp_path / "plain")
    normalised = shutil.copytree(plain, tmp_path / "normalised")
    (normalised / "am.mvn").write_text(am_mvn(np.full(560, -10.0), np.full(560, 0.25)))
    samples, _ = noise(1.0)
    features = StageFilter("frontend.features")
    without = open_pipeline(plain).trace(samples, SenseVoiceOptions(), features)["frontend.features"]
    model = open_pipeline(normalised)
    applied = model.trace(samples, SenseVoiceOptions(), features)["frontend.features"]
    skipped = model.trace(samples, SenseVoiceOptions(cmvn="off"), features)["frontend.features"]
    np.testing.assert_allclose(applied, (without - 10) / 4, atol=1e-6)
    np.testing.assert_array_equal(skipped, without)


def test_trace_has_the_expected_stages_and_shapes(tmp_path: Path) -> None:
    samples, _ = noise(1.0)
    model = open_pipeline(tiny_sensevoice(tmp_path / "it"))
    trace = model.trace(samples, SenseVoiceOptions(), StageFilter("*"))
    frames = len(trace["frontend.features"])
    assert trace["frontend.fbank"].shape == (98, 80) and trace["frontend.lfr"].shape == (frames, 560)
    assert trace["encoder.input"].shape == (QUERY_FRAMES + frames, 560)
    for stage in ("encoder.layers.0", "encoder.layers.2", "encoder.output"):
        assert trace[stage].shape == (QUERY_FRAMES + frames, 16)
    assert (
        trace["logits"].shape == trace["ctc.posteriors"].shape == (QUERY_FRAMES + frames, len(model.model.vocabulary))
    )
    np.testing.assert_allclose(trace["ctc.posteriors"].sum(axis=1), 1, atol=1e-5)
    recognition = model.recognise(samples, SenseVoiceOptions())
    assert tuple(trace["tokens"].tolist()) == recognition.ids and str(trace["text"]) == recognition.text
    assert set(model.trace(samples, SenseVoiceOptions(), StageFilter("encoder.layers.1"))) == {"encoder.layers.1"}


def test_shortest_recordings_are_transcribed(tmp_path: Path) -> None:
    model = open_pipeline(tiny_sensevoice(tmp_path / "it"))
    for length in (1, 2, 399, 400, 401, 560):
        model.recognise(noise(1.0)[0][:length], SenseVoiceOptions())
