"""SpeechLM checkpoints (Hugging Face directory and ESPnet release) are read, with their options."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_language import change_json
from tests.support.tiny_speechlm import TinySpeechLm
from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.families.speechlm.model import SpeechLmModel, SpeechLmOptions, answer_plan, is_speechlm, read_speechlm


def check_model(model: SpeechLmModel, checkpoint: TinySpeechLm) -> None:
    """Asserts that the model equals the written checkpoint."""
    assert model.layout == checkpoint.layout
    assert model.settings["vocab_size"] == checkpoint.layout.vocabulary == len(checkpoint.tensors["lm_head.weight"])
    assert (model.hidden_size, model.context) == (32, 600)
    assert model.tower is not None and model.codec is not None
    assert (model.tower.width, model.tower.mel.bins, model.tower.mel.normalise) == (20, 32, True)
    assert (model.codec.hop, model.codec.codes, model.codec.codebooks) == (320, 16, checkpoint.layout.streams)
    assert model.audio_notes == (), "a checkpoint with windows of its own was trained with them"


def test_hugging_face_directory_is_read(checkpoint: TinySpeechLm) -> None:
    assert is_speechlm(checkpoint.directory)
    model = read_speechlm(checkpoint.directory)
    check_model(model, checkpoint)
    defaults = model.defaults
    assert (defaults.text_temperature, defaults.text_top_k) == (0.5, 9)
    assert (defaults.audio_temperature, defaults.audio_top_k, defaults.cfg) == (0.7, 6, 1.0)
    assert [path.name for path in model.weights] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]


@pytest.mark.parametrize(("windows", "notes"), [((50, 800), 0), ((100, 400), 1), ((100, 800), 0)])
def test_windows_with_which_the_published_weights_were_not_trained_have_a_note(
    directory: Path, windows: tuple[int, int], notes: int
) -> None:
    config = json.loads((directory / "config.json").read_text())
    audio_config = {**config["audio_config"], "n_window": windows[0], "n_window_infer": windows[1]}
    change_json(directory / "config.json", audio_config=audio_config)
    found = read_speechlm(directory).audio_notes
    assert len(found) == notes
    for note in found:
        assert note == (
            "the audio tower runs in windows of 100 and 400 frames, as config.json says; ESPnet trained the published "
            "weights with 50 and 800"
        )


def test_old_model_type_name_is_accepted(directory: Path) -> None:
    change_json(directory / "config.json", model_type="speechlm")
    assert is_speechlm(directory)
    read_speechlm(directory)


def test_espnet_release_is_read(released: TinySpeechLm) -> None:
    assert is_speechlm(released.directory)
    model = read_speechlm(released.directory)
    check_model(model, released)
    defaults = model.defaults
    assert (defaults.modalities, defaults.cfg) == ("text_audio", 3.0)
    assert (defaults.max_text_tokens, defaults.min_text_tokens) == (200, 1)
    assert (defaults.max_audio_rows, defaults.min_audio_rows) == (300, 4)


def test_deepspeed_weights_file_name_is_found(release: Path) -> None:
    (release / "model.pt").rename(release / "mp_rank_00_model_states.pt")
    assert read_speechlm(release).weights[0].name == "mp_rank_00_model_states.pt"


def test_inference_yaml_overrides_the_default_options(directory: Path) -> None:
    (directory / "inference.yaml").write_text("enforce_modality: [audio]\naudio: {cfg: 2, min_step: 7}\n")
    defaults = read_speechlm(directory).defaults
    assert (defaults.modalities, defaults.cfg, defaults.min_audio_rows, defaults.audio_top_k) == ("audio", 2.0, 7, 6)


@pytest.mark.parametrize(
    "text", ["say three seven one", "", "!", "<|eos|><|audio|>", "<codec_layer0_code5>", "¿qué? 你好\n"]
)
def test_text_never_becomes_special_tokens(checkpoint: TinySpeechLm, released: TinySpeechLm, text: str) -> None:
    for each in (checkpoint, released):
        model = read_speechlm(each.directory)
        ids = model.tokenizer.encode(text)
        assert all(each.layout.text_first <= number < each.layout.text_end for number in ids)
        assert model.tokenizer.decode(ids) == text


def test_token_names_are_shown_for_special_and_codec_ids(checkpoint: TinySpeechLm) -> None:
    tokenizer, layout = read_speechlm(checkpoint.directory).tokenizer, checkpoint.layout
    ids = [layout.eot, layout.audio, *tokenizer.encode("a"), layout.codec_first, layout.codec_end - 1]
    assert [tokenizer.piece(number) for number in ids] == ["<|eot|>", "<|audio|>", "a", "0:pad", "4:15"]


@pytest.mark.parametrize("samples", [0, 159, 160, 4000, 16000, 16160, 64000, 480000])
def test_audio_tower_row_count_matches_transformers(samples: int) -> None:
    from workbench.families.speechlm.parts import read_tower

    settings = {"num_mel_bins": 128, "output_dim": 2048, "n_window": 50, "n_window_infer": 800}
    tower = read_tower(settings, {}, "a test")
    frames = samples // 160
    rest = frames % 100  # as in Qwen3-Omni, whose formula is for its own windows
    for _ in range(3):
        rest = (rest - 1) // 2 + 1
    assert tower.rows(samples) == rest + frames // 100 * 13


def test_audio_tower_row_count_follows_the_window_sizes_of_the_fork() -> None:
    from workbench.families.speechlm.parts import read_tower

    settings = {"num_mel_bins": 128, "output_dim": 2048, "n_window": 100, "n_window_infer": 400}
    tower = read_tower(settings, {}, "a test")
    assert [tower.rows(160 * frames) for frames in (50, 100, 101, 200, 400, 1000, 3000)] == [
        7,
        13,
        13,
        25,
        50,
        125,
        375,
    ]


def test_null_stands_for_as_many_key_heads_as_heads(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    config["text_config"]["num_key_value_heads"] = None
    (directory / "config.json").write_text(json.dumps(config))
    settings = read_speechlm(directory).settings
    assert settings["num_key_value_heads"] == settings["num_attention_heads"] == 4


def test_other_directories_are_not_recognised_as_speechlm(tmp_path: Path) -> None:
    assert not is_speechlm(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "train.yaml").write_text("job_type: something\n: [")
    assert not is_speechlm(tmp_path)


def test_unset_options_use_the_checkpoint_defaults(released: TinySpeechLm) -> None:
    plan = answer_plan(read_speechlm(released.directory), SpeechLmOptions())
    assert (plan.modalities, plan.cfg, plan.seed) == ("auto", 3.0, 0)
    assert (plan.text_temperature, plan.text_top_k, plan.audio_temperature, plan.audio_top_k) == (0.5, 9, 0.7, 6)
    assert (plan.max_text_tokens, plan.min_audio_rows, plan.max_audio_rows) == (200, 4, 300)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ({"temperature": 0.0}, {"text_temperature": 0.0, "audio_temperature": 0.0}),
        ({"temperature": 0.9, "text_temperature": 0.0}, {"text_temperature": 0.0, "audio_temperature": 0.9}),
        ({"max_audio_rows": 2}, {"min_audio_rows": 2, "max_audio_rows": 2}),
        ({"min_audio_rows": 999}, {"min_audio_rows": 999, "max_audio_rows": 999}),
        ({"max_text_tokens": 7, "cfg": 1.0, "seed": 5}, {"max_text_tokens": 7, "cfg": 1.0, "seed": 5}),
        ({"text_top_k": 0, "audio_top_k": 3}, {"text_top_k": 0, "audio_top_k": 3}),
    ],
)
def test_user_options_override_the_checkpoint_defaults(
    released: TinySpeechLm, choices: dict[str, Any], expected: dict[str, Any]
) -> None:
    options = build_options(SpeechLmOptions, choices, "it")
    plan = answer_plan(read_speechlm(released.directory), options)
    assert {name: getattr(plan, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"cfg": 0.5}, "option cfg of it is 0.5; expected 1 to 20"),
        ({"modalities": "speech"}, "expected one of auto, text, audio, text_audio"),
        ({"min_audio_rows": 9, "max_audio_rows": 8}, "min_audio_rows is 9 and max_audio_rows 8"),
    ],
)
def test_invalid_options_are_refused(released: TinySpeechLm, choices: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        answer_plan(read_speechlm(released.directory), build_options(SpeechLmOptions, choices, "it"))
    assert message in str(caught.value)


def test_checkpoint_without_a_codec_answers_in_text_only(checkpoint: TinySpeechLm) -> None:
    model = replace(read_speechlm(checkpoint.directory), codec=None)
    assert answer_plan(model, SpeechLmOptions()).modalities == "text"
    with pytest.raises(BadInput, match="modalities is audio, and it names no codec, so it does not speak"):
        answer_plan(model, SpeechLmOptions(modalities="audio"))
