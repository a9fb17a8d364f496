"""SpeechLM checkpoints (Hugging Face directory and ESPnet release): reading, options, and one-line errors."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tiny_language import change_json
from tests.support.tiny_speechlm import TinySpeechLm, tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import build_options
from workbench.families.speechlm.model import SpeechLmModel, SpeechLmOptions, answer_plan, is_speechlm, read_speechlm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> TinySpeechLm:
    return tiny_speechlm(tmp_path_factory.mktemp("speechlm") / "it")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> TinySpeechLm:
    return tiny_espnet_release(tmp_path_factory.mktemp("release") / "it")


@pytest.fixture
def directory(checkpoint: TinySpeechLm, tmp_path: Path) -> Path:
    """One to be broken."""
    return shutil.copytree(checkpoint.directory, tmp_path / "it")


@pytest.fixture
def release(released: TinySpeechLm, tmp_path: Path) -> Path:
    """One to be broken."""
    return shutil.copytree(released.directory, tmp_path / "it")


def check_model(model: SpeechLmModel, checkpoint: TinySpeechLm) -> None:
    """Asserts that the model equals the written checkpoint."""
    assert model.layout == checkpoint.layout
    assert model.settings["vocab_size"] == checkpoint.layout.vocabulary == len(checkpoint.tensors["lm_head.weight"])
    assert (model.hidden_size, model.context) == (32, 600)
    assert model.tower is not None and model.codec is not None
    assert (model.tower.width, model.tower.mel.bins, model.tower.mel.normalise) == (20, 32, True)
    assert (model.codec.hop, model.codec.codes, model.codec.codebooks) == (320, 16, checkpoint.layout.streams)
    assert model.audio_notes == (
        "the audio tower runs in windows of 20 and 80 frames as the checkpoint says; Qwen3-Omni's are 50 and 800",
    )


def test_hugging_face_directory_is_read(checkpoint: TinySpeechLm) -> None:
    assert is_speechlm(checkpoint.directory)
    model = read_speechlm(checkpoint.directory)
    check_model(model, checkpoint)
    defaults = model.defaults
    assert (defaults.text_temperature, defaults.text_top_k) == (0.5, 9)
    assert (defaults.audio_temperature, defaults.audio_top_k, defaults.cfg) == (0.7, 6, 1.0)
    assert [path.name for path in model.weights] == [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]


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
        ids = model.tokenizer.ids(text)
        assert all(each.layout.text_first <= number < each.layout.text_end for number in ids)
        assert model.tokenizer.text(ids) == text


def test_token_names_are_shown_for_special_and_codec_ids(checkpoint: TinySpeechLm) -> None:
    tokenizer, layout = read_speechlm(checkpoint.directory).tokenizer, checkpoint.layout
    ids = [layout.eot, layout.audio, *tokenizer.ids("a"), layout.codec_first, layout.codec_end - 1]
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


@pytest.mark.parametrize(
    ("settings", "mel", "message"),
    [
        ({"n_window": None}, {}, "it lacks n_window or n_window_infer, the windows of the audio tower; expected both"),
        ({"n_window_infer": None}, {}, "it lacks n_window or n_window_infer"),
        ({"n_window_infer": 750}, {}, "n_window_infer in it is 750; expected a multiple of 2 * n_window = 100"),
        ({}, {"feature_size": 80}, "has 80 mel bins at 16000 Hz; the audio tower of it takes 128 at 16000 Hz"),
        ({}, {"sampling_rate": 8000}, "has 128 mel bins at 8000 Hz; the audio tower of it takes 128 at 16000 Hz"),
    ],
)
def test_audio_tower_of_another_size_is_refused(settings: dict[str, Any], mel: dict[str, Any], message: str) -> None:
    from workbench.families.speechlm.parts import read_tower

    config = {"num_mel_bins": 128, "output_dim": 2048, "n_window": 50, "n_window_infer": 800, **settings}
    with pytest.raises(BadInput) as caught:
        read_tower({name: value for name, value in config.items() if value is not None}, mel, "it")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_stream": 4}, "the number of streams differs"),
        ({"num_stream": None}, "num_stream in it/config.json is missing"),
        ({"codec_layer_size": 33}, "the number of streams differs"),
        ({"text_token_end": 10}, "expected the text first, then the codec"),
        ({"eos_token_id": 4}, "expected different ones below 20"),
        ({"audio_token_id": 30}, "expected different ones below 20"),
        ({"eos_token_id": 12}, "<|eos|> is id 7 in the tokenizer of it and id 12 in its config.json"),
        ({"adaptor_input_dim": 64}, "adaptor_input_dim in it/config.json is 64"),
        ({"hidden_size": 64}, "hidden_size in it/config.json is 64"),
        ({"text_config": None}, "has no text_config"),
        ({"audio_config": 3}, "audio_config in it/config.json is int"),
    ],
)
def test_inconsistent_configuration_raises_one_line_error(
    directory: Path, changes: dict[str, Any], message: str
) -> None:
    change_json(directory / "config.json", **changes)
    with pytest.raises(BadInput) as caught:
        read_speechlm(directory)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("use_sliding_window", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("partial_rotary_factor", 0.5),
        ("final_logit_softcapping", 30.0),
    ],
)
def test_unsupported_language_model_settings_are_refused(directory: Path, key: str, value: Any) -> None:
    config = json.loads((directory / "config.json").read_text())
    change_json(directory / "config.json", text_config={**config["text_config"], key: value})
    with pytest.raises(BadInput) as caught:
        read_speechlm(directory)
    assert str(caught.value).startswith(f"{key} in text_config of it/config.json ")
    assert f" is {value!r}" in str(caught.value) or "sliding_attention without a window" in str(caught.value)


def test_null_stands_for_as_many_key_heads_as_heads(directory: Path) -> None:
    config = json.loads((directory / "config.json").read_text())
    config["text_config"]["num_key_value_heads"] = None
    (directory / "config.json").write_text(json.dumps(config))
    settings = read_speechlm(directory).settings
    assert settings["num_key_value_heads"] == settings["num_attention_heads"] == 4


def test_codec_with_different_codebooks_is_refused(directory: Path) -> None:
    change_json(directory / "xcodec" / "config.json", target_bandwidths=[0.2, 0.4])
    with pytest.raises(BadInput, match=r"5 streams and the codec xcodec 2 codebooks; .* number of streams differs"):
        read_speechlm(directory)
    change_json(directory / "xcodec" / "config.json", target_bandwidths=[2.0], codebook_size=32)
    with pytest.raises(BadInput, match="16 codes in a stream and the codec xcodec 32; expected the same"):
        read_speechlm(directory)


def test_missing_codec_weights_raise_unavailable(directory: Path) -> None:
    codec = read_speechlm(directory).codec
    assert codec is not None and codec.with_weights(inside=False) == directory / "xcodec"
    (directory / "xcodec" / "model.safetensors").unlink()
    assert codec.with_weights(inside=True) is None
    with pytest.raises(Unavailable) as caught:
        codec.with_weights(inside=False)
    assert str(caught.value) == (
        "the codec is missing: it/config.json names xcodec, whose weights are neither in the checkpoint nor in a "
        "folder beside it nor in the Hugging Face cache; put the folder xcodec there"
    )


def test_missing_weight_shard_is_refused(directory: Path) -> None:
    (directory / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(BadInput, match=r"names the file model-00002-of-00002.safetensors, which is not in it"):
        read_speechlm(directory)


def test_release_with_alphabetical_modality_order_is_refused(tmp_path: Path) -> None:
    tiny_espnet_release(tmp_path / "it", order=("continuous_audio", "discrete_audio", "text"))
    with pytest.raises(BadInput, match=r"lists discrete_audio before text, .* the ids of this vocabulary are in doubt"):
        read_speechlm(tmp_path / "it")


@pytest.mark.parametrize(
    ("folder", "message"),
    [("Qwen3-tiny-Base", "language model"), ("Qwen3-Omni-tiny", "audio tower")],
)
def test_missing_release_part_raises_unavailable_with_the_download_command(
    release: Path, folder: str, message: str
) -> None:
    shutil.rmtree(release / folder)
    with pytest.raises(Unavailable) as caught:
        read_speechlm(release)
    assert str(caught.value) == (
        f"it/train_stage3_tiny.yaml names the {message} tiny/{folder}, which is neither a folder beside it nor in the "
        f"Hugging Face cache; put it there as {folder}, or run: hf download tiny/{folder}"
    )


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("model", "model_choice", "delay"),
        ("preprocessor", "audio_input", "discrete_audio"),
        ("preprocessor", "audio_output", "continuous_audio"),
    ],
)
def test_unsupported_release_settings_are_refused(release: Path, section: str, key: str, value: str) -> None:
    path = release / "train_stage3_tiny.yaml"
    content = yaml.safe_load(path.read_text())
    content[section][key] = value
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(BadInput, match=rf"^{key} in it/train_stage3_tiny\.yaml is '{value}'; only '\w+' is supported"):
        read_speechlm(release)


def test_features_with_noise_are_refused(directory: Path) -> None:
    change_json(directory / "preprocessor_config.json", dither=0.5)
    with pytest.raises(BadInput, match=r"^dither in preprocessor_config\.json is 0\.5; only features without noise"):
        read_speechlm(directory)


def test_release_with_two_training_yamls_is_refused(release: Path) -> None:
    shutil.copy(release / "train_stage3_tiny.yaml", release / "other.yaml")
    with pytest.raises(BadInput, match=r"it has several training yamls, other\.yaml and train_stage3_tiny\.yaml, with"):
        read_speechlm(release)


def test_wrong_number_of_stream_weights_is_refused(release: Path) -> None:
    path = release / "train_stage3_tiny.yaml"
    content = yaml.safe_load(path.read_text())
    content["multimodal_io"]["discrete_audio"]["stream_weights"] = [0.25] * 4
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(BadInput, match="4 stream_weights and the codec tiny/xcodec-tiny has 5 streams"):
        read_speechlm(release)


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


ODD = [None, -1, 0, 1.5, True, "", "warm", [], ["x"], [[]], [0.5], {}, {"x": 1}, 1 << 70]


def check_refused_plainly(directory: Path) -> None:
    """Reads a damaged checkpoint; asserts that it works or raises a one-line error."""
    message = ""
    try:
        answer_plan(read_speechlm(directory), SpeechLmOptions())
    except (BadInput, Unavailable) as error:
        message = str(error)
    assert "\n" not in message and len(message) < 500


def entries(content: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Returns the paths of all values in nested mappings."""
    own = [path] if path else []
    inner = content.items() if isinstance(content, dict) else ()
    return [*own, *(entry for name, value in inner for entry in entries(value, (*path, name)))]


def with_odd_values(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the mapping with one value replaced, for every path and some of the odd values."""
    draw = random.Random(1)
    for place in entries(content):
        for odd in draw.sample(ODD, 4):
            changed = json.loads(json.dumps(content))
            inner = changed
            for name in place[:-1]:
                inner = inner[name]
            inner[place[-1]] = odd
            yield changed


@pytest.mark.parametrize("name", ["config.json", "preprocessor_config.json", "xcodec/config.json"])
def test_invalid_json_values_in_a_directory_raise_one_line_error(
    directory: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = read_speechlm(directory).tokenizer
    monkeypatch.setattr(
        "workbench.families.speechlm.model.read_global_tokenizer", lambda *_: tokenizer
    )  # slow, and the same
    content = json.loads((directory / name).read_text())
    for changed in with_odd_values(content):
        (directory / name).write_text(json.dumps(changed))
        if is_speechlm(directory):
            check_refused_plainly(directory)


@pytest.mark.parametrize(
    "name",
    ["train_stage3_tiny.yaml", "inference_audio.yaml", "Qwen3-tiny-Base/config.json", "Qwen3-Omni-tiny/config.json"],
)
def test_invalid_yaml_values_in_a_release_raise_one_line_error(
    release: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = read_speechlm(release).tokenizer
    monkeypatch.setattr("workbench.families.speechlm.model.read_text_tokenizer", lambda *_: tokenizer)
    content = yaml.safe_load((release / name).read_text())
    for changed in with_odd_values(content):
        (release / name).write_text(json.dumps(changed))  # JSON is YAML, too
        if is_speechlm(release):
            check_refused_plainly(release)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"codec_choice": "ESPnet"}, "has codec 'ESPnet'"),
        ({"ssl_choice": "ESPnet"}, "expected an Xcodec alone"),
        ({"delay_interleave": False}, "delay_interleave in it/train_stage3_tiny.yaml is off"),
    ],
)
def test_release_with_unsupported_audio_settings_is_refused(
    release: Path, changes: dict[str, Any], message: str
) -> None:
    path = release / "train_stage3_tiny.yaml"
    content = yaml.safe_load(path.read_text())
    content["multimodal_io"]["discrete_audio"] |= changes
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(BadInput) as caught:
        read_speechlm(release)
    assert message in str(caught.value)


def test_ambiguous_or_missing_release_weights_are_refused(release: Path) -> None:
    (release / "model.pt").rename(release / "step_9.pt")
    assert read_speechlm(release).weights[0].name == "step_9.pt"
    (release / "step_8.pt").touch()
    with pytest.raises(BadInput, match=r"it has 2 \.pt files; expected model\.pt or"):
        read_speechlm(release)
    (release / "step_8.pt").unlink()
    (release / "step_9.pt").unlink()
    with pytest.raises(BadInput, match="it has no weights"):
        read_speechlm(release)
