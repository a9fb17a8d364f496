"""Paraformer's text and timestamps, and errors for invalid checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.reference.checkpoints import ODD_PARAFORMER, write_paraformer
from tests.support.tiny_checkpoints import change_config, noise, tiny_paraformer
from workbench.core.errors import BadInput
from workbench.families.sanm.paraformer import (
    MAX_TOKEN_FRAMES,
    ParaformerOptions,
    join_pieces,
    peak_times,
    read_paraformer,
    timed_tokens,
)
from workbench.families.vocabularies.funasr import Vocabulary
from workbench.pipelines.recognition.paraformer import ParaformerPipeline
from workbench.runtimes.pytorch.paraformer import open_paraformer
from workbench.trace.trace import StageFilter

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ("我 想 问", "我想问"),
        ("hello world", "hello world"),
        ("he@@ llo wor@@ ld", "hello world"),
        ("a@@ b@@ c@@ d", "abcd"),
        ("我 在 he@@ llo 新 区", "我在hello新区"),
        ("打 开 w i f i 吧", "打开WIFI吧"),
        ("the u s a won", "the USA won"),
        ("a cat", "a cat"),
        ("plan b", "plan b"),
        ("it's o k", "it's OK"),
        ("第 2 0 2 6 年", "第2026年"),
        ("x 光 y 光", "x光y光"),
        ("he@@ 中 llo 国", "中hello国"),  # a word goes on after a Chinese character, which comes first
        ("中 国 he@@", "中国he"),  # an unfinished last word stays
        ("one tw@@", "one tw"),
        ("<s> 你 <unk> 好 </s> <blank>", "你好"),
        ("a <unk> b", "AB"),
        ("", ""),
    ],
)
def test_pieces_are_joined_to_text(pieces: str, text: str) -> None:
    assert join_pieces(pieces.split()) == text


FRAME = 0.06


def edges(*frames: int, length: int = 40) -> list[float]:
    """Returns the integrator's values if it fires at these frames."""
    return [1.0 if number in frames else 0.5 for number in range(length)]


def test_token_times_are_computed_from_start_peaks() -> None:
    """Starts move back by 1.5 frames; a token lasts to the next start, the last one to half of the rest."""
    times = peak_times(edges(3, 8, 11), 2, FRAME, fires_at_start=True)
    assert times == [
        (pytest.approx(1.5 * FRAME), pytest.approx(6.5 * FRAME)),
        (pytest.approx(6.5 * FRAME), pytest.approx((40 + 9.5) / 2 * FRAME)),
    ]
    near = peak_times(edges(3, 8, 38), 2, FRAME, fires_at_start=True)
    assert near is not None and near[1] == (pytest.approx(6.5 * FRAME), pytest.approx(18.5 * FRAME))  # cut at 12


def test_last_token_extends_to_a_near_recording_end() -> None:
    times = peak_times(edges(3, 12, length=15), 1, FRAME, fires_at_start=True)
    assert times == [(pytest.approx(1.5 * FRAME), pytest.approx(15 * FRAME))]


def test_token_times_are_computed_from_end_peaks() -> None:
    times = peak_times(edges(3, 8, 30, 35), 3, FRAME, fires_at_start=False)
    assert times == [
        (0.0, pytest.approx(1.5 * FRAME)),
        (pytest.approx(1.5 * FRAME), pytest.approx(6.5 * FRAME)),
        (pytest.approx((28.5 - MAX_TOKEN_FRAMES) * FRAME), pytest.approx(28.5 * FRAME)),
    ]


@pytest.mark.parametrize("tokens", [0, 1, 3])
@pytest.mark.parametrize("at_start", [True, False])
def test_peak_count_that_does_not_match_the_tokens_gives_no_times(tokens: int, at_start: bool) -> None:
    assert peak_times(edges(3, 8, 20), tokens, FRAME, at_start) is None
    assert peak_times([], tokens, FRAME, at_start) is None


def test_negative_token_times_are_clipped_to_zero() -> None:
    times = peak_times(edges(0, 1, 5), 2, FRAME, fires_at_start=True)
    assert times is not None and times[0] == (0.0, 0.0)


def test_unknown_pieces_use_a_time_slot_and_are_not_written() -> None:
    vocabulary = Vocabulary(["<blank>", "一", "二", "<unk>"], "it")
    tokens = timed_tokens([1, 3, 2], vocabulary, [(0.0, 0.1), (0.1, 0.2), (0.2, 0.4)])
    assert [(token.text, token.start, token.end) for token in tokens] == [("一", 0.0, 0.1), ("二", 0.2, 0.4)]
    assert [token.start for token in timed_tokens([1, 3, 2], vocabulary, None)] == [None, None]


# Checkpoints ---------------------------------------------------------------------------------------------------------


def open_pipeline(directory: Path) -> ParaformerPipeline:
    return open_paraformer(read_paraformer(directory), CPU)


@pytest.mark.parametrize(
    ("section", "key", "value", "message"),
    [
        (None, "encoder", "ConformerEncoder", "it.encoder in config.yaml is 'ConformerEncoder'"),
        (None, "decoder", "TransformerDecoder", "only 'ParaformerSANMDecoder' is supported"),
        (None, "predictor", "CifPredictor", "predictor in config.yaml is 'CifPredictor'; supported are CifPredictorV2"),
        (None, "predictor", None, "predictor in config.yaml is None"),
        ("predictor_conf", "idim", 512, "predictor_conf.idim in config.yaml is 512; only 16 is supported"),
        ("predictor_conf", "threshold", 0.5, "predictor_conf.threshold in config.yaml is 0.5"),
        ("predictor_conf", "l_order", -1, "predictor_conf.l_order in config.yaml is -1"),
        ("predictor_conf", "tail_threshold", "0.45", "tail_threshold in config.yaml is '0.45'; expected"),
        (
            "predictor_conf",
            "tail_threshold",
            float("nan"),
            "tail_threshold in config.yaml is nan; expected a number from 0.001",
        ),
        ("predictor_conf", "tail_threshold", 0.0, "tail_threshold in config.yaml is 0.0; expected a number from 0.001"),
        (
            "predictor_conf",
            "smooth_factor",
            1e9,
            "smooth_factor in config.yaml is 1000000000.0; expected a number from 0",
        ),
        ("decoder_conf", "attention_heads", 3, "attention_heads 3 does not divide the encoder's width 16"),
        ("decoder_conf", "sanm_shfit", 9, "decoder_conf.sanm_shfit in config.yaml is 9"),
        ("decoder_conf", "sanm_shfit", "x", "decoder_conf.sanm_shfit in config.yaml is 'x'"),
        ("decoder_conf", "num_blocks", 10**9, "decoder_conf.num_blocks in config.yaml is 1000000000"),
        ("decoder_conf", "normalize_before", False, "decoder_conf.normalize_before in config.yaml is False"),
        ("decoder_conf", "concat_after", True, "decoder_conf.concat_after in config.yaml is True; only False"),
        ("decoder_conf", "lora_list", ["q"], "decoder_conf.lora_list in config.yaml is ['q']; only None is supported"),
        ("decoder_conf", "use_output_layer", False, "decoder_conf.use_output_layer in config.yaml is False"),
        ("encoder_conf", "concat_after", True, "encoder_conf.concat_after in config.yaml is True; only False"),
        ("encoder_conf", "lora_list", ["q"], "encoder_conf.lora_list in config.yaml is ['q']; only None is supported"),
        ("encoder_conf", "positionwise_layer_type", "conv1d", "is 'conv1d'; only 'linear' is supported"),
        ("frontend_conf", "fs", 8000, "frontend_conf.fs is 8000 Hz"),
    ],
)
def test_invalid_configuration_values_are_refused(
    section: str | None, key: str, value: Any, message: str, tmp_path: Path
) -> None:
    directory = tiny_paraformer(tmp_path / "it")
    change_config(directory, lambda config: (config[section] if section else config).update({key: value}))
    with pytest.raises(BadInput) as error:
        read_paraformer(directory)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model_conf", "written"),
    [
        ({}, ["three", "four", "five", "<sos/eos>"]),
        ({"blank_id": 0, "sos": 7, "eos": 7}, ["<sos>", "<eos>", "three", "four", "five"]),
        ({"sos": None, "eos": None}, ["<sos>", "<eos>", "three", "four", "five"]),
    ],
)
def test_markers_are_known_by_their_ids(model_conf: dict[str, Any], written: list[str], tmp_path: Path) -> None:
    directory = tiny_paraformer(tmp_path / "it")
    names = ["<blk>", "<sos>", "<eos>", "three", "four", "five", "<unk>", "<sos/eos>"]
    (directory / "tokens.json").write_text(json.dumps(names))
    change_config(directory, lambda config: config.update({"model_conf": model_conf}))
    vocabulary = read_paraformer(directory).vocabulary
    assert [token.text for token in timed_tokens(range(len(names)), vocabulary, None)] == written


def test_missing_input_layer_means_convolutions_and_is_refused(tmp_path: Path) -> None:
    directory = tiny_paraformer(tmp_path / "it")
    change_config(directory, lambda config: config["encoder_conf"].pop("input_layer"))
    with pytest.raises(BadInput, match=r"encoder_conf.input_layer in config.yaml is missing.*only 'pe' is supported"):
        read_paraformer(directory)


@pytest.mark.parametrize("change", [{"upsample_type": "cnn_attn"}, {"upsample_times": 0}, {"smooth_factor2": None}])
def test_invalid_cif_v3_timestamp_head_values_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    directory = write_paraformer(tmp_path / "it", ODD_PARAFORMER, predictor="CifPredictorV3")
    change_config(directory, lambda config: config["predictor_conf"].update(change))
    with pytest.raises(BadInput, match=rf"predictor_conf\.{next(iter(change))} in config\.yaml is"):
        read_paraformer(directory)


def test_missing_or_wrong_size_vocabulary_is_refused(tmp_path: Path) -> None:
    directory = tiny_paraformer(tmp_path / "it")
    (directory / "tokens.json").write_text('["<blank>", "<s>", "</s>"]')
    with pytest.raises(BadInput, match=r"decoder\.output_layer\.weight has shape .* vocabulary call for \(3, 16\)"):
        open_pipeline(directory)
    (directory / "tokens.json").unlink()
    with pytest.raises(BadInput, match=r"checkpoint directory it has no vocabulary; expected tokens\.json"):
        read_paraformer(directory)


def test_training_tensors_are_ignored_and_hotword_tensors_only_for_seaco(tmp_path: Path) -> None:
    directory = tiny_paraformer(tmp_path / "it")
    state = torch.load(directory / "model.pt", weights_only=True)
    state["decoder.embed.0.weight"] = torch.zeros(8, 16)
    torch.save(state, directory / "model.pt")
    open_pipeline(directory)
    state["bias_encoder.weight_ih_l0"] = torch.zeros(4)
    torch.save(state, directory / "model.pt")
    with pytest.raises(BadInput, match=r"has tensor bias_encoder\.weight_ih_l0"):
        open_pipeline(directory)
    change_config(directory, lambda config: config.update(model="SeacoParaformer"))
    open_pipeline(directory)


@pytest.mark.parametrize("predictor", ["CifPredictorV2", "CifPredictorV3"])
def test_trace_has_the_expected_stages_and_shapes(predictor: str, tmp_path: Path) -> None:
    model = open_pipeline(write_paraformer(tmp_path / "it", ODD_PARAFORMER, predictor=predictor))
    samples, _ = noise(2.0)
    trace = model.trace(samples, ParaformerOptions(), StageFilter("*"))
    frames, tokens = len(trace["frontend.features"]), len(trace["tokens"])
    assert tokens > 0 and trace["encoder.output"].shape == (frames, 48)
    assert trace["predictor.alphas"].shape == (frames + 1,)
    assert trace["predictor.embeddings"].shape == trace["decoder.output"].shape == (tokens, 48)
    assert [stage for stage in trace if stage.startswith("decoder.layers")] == [f"decoder.layers.{n}" for n in range(5)]
    assert trace["logits"].shape == (tokens, 200)
    np.testing.assert_array_equal(trace["logits"].argmax(axis=1), trace["tokens"])
    recognition = model.recognise(samples, ParaformerOptions())
    assert all(token.start is not None and token.end is not None for token in recognition.tokens)
    untimed = model.recognise(samples, ParaformerOptions(timestamps=False))
    assert untimed.ids == recognition.ids and all(token.start is None for token in untimed.tokens)


def test_shortest_recordings_are_transcribed(tmp_path: Path) -> None:
    """Some recordings are so short that the model counts no token."""
    model = open_pipeline(write_paraformer(tmp_path / "it", ODD_PARAFORMER))
    recognitions = [
        model.recognise(noise(1.0)[0][:length], ParaformerOptions()) for length in (1, 2, 399, 400, 401, 560, 8000)
    ]
    assert recognitions[0].ids == () and recognitions[0].text == ""
    assert len(recognitions[-1].ids) > 0
