"""SpeechLM checkpoints that cannot be read are refused in one line."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.tiny_language import change_json
from tests.support.tiny_speechlm import tiny_espnet_release
from workbench.core.errors import BadInput, Unavailable
from workbench.families.speechlm.model import SpeechLmOptions, answer_plan, is_speechlm, read_speechlm


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


def test_codec_with_different_codebooks_is_refused(directory: Path) -> None:
    change_json(directory / "xcodec" / "config.json", target_bandwidths=[0.2, 0.4])
    with pytest.raises(BadInput, match=r"5 streams and the codec xcodec 2 codebooks; .* number of streams differs"):
        read_speechlm(directory)
    change_json(directory / "xcodec" / "config.json", target_bandwidths=[2.0], codebook_size=32)
    with pytest.raises(BadInput, match="16 codes in a stream and the codec xcodec 32; expected the same"):
        read_speechlm(directory)
    (directory / "xcodec" / "config.json").unlink()
    with pytest.raises(BadInput, match=r"expected the same; its folder is missing, .*: put the folder xcodec there"):
        read_speechlm(directory)


@pytest.mark.parametrize(("key", "value"), [("audio_temperature", -1), ("text_topk", "9")])
def test_bad_default_is_refused_by_its_key(directory: Path, key: str, value: object) -> None:
    change_json(directory / "config.json", **{key: value})
    with pytest.raises(BadInput, match=f"^{key} in it/config.json is {value!r}; expected "):
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


def test_directory_whose_configuration_is_broken_or_of_another_model_is_refused_by_its_name(directory: Path) -> None:
    change_json(directory / "config.json", model_type="llama")
    with pytest.raises(
        BadInput, match=r"has neither a config\.json with model_type bagpiper or speechlm nor a training"
    ):
        read_speechlm(directory)
    (directory / "config.json").write_text("{,")
    with pytest.raises(BadInput, match=r"config\.json cannot be read as JSON"):
        read_speechlm(directory)


def test_wrong_number_of_stream_weights_is_refused(release: Path) -> None:
    path = release / "train_stage3_tiny.yaml"
    content = yaml.safe_load(path.read_text())
    content["multimodal_io"]["discrete_audio"]["stream_weights"] = [0.25] * 4
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(BadInput, match="4 stream_weights and the codec tiny/xcodec-tiny has 5 streams"):
        read_speechlm(release)


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
