"""FireRedASR-LLM without weights: recognition and reading of checkpoints, prompt, limits, and invalid directories."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_fireredasr import ARGUMENTS, ENCODER_ARGUMENTS, write_language, write_statistics
from tests.support.tiny_language import change_json
from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.families import FAMILIES, family_of
from workbench.families.language.directory import AUDIO, VLLM_FORMAT, VLLM_SECTION
from workbench.families.speech_llm.conformer import ConformerConfig
from workbench.families.speech_llm.fireredasr import (
    CMVN,
    ENCODER_WEIGHTS,
    FILES,
    LANGUAGE_DIRECTORY,
    WEIGHTS,
    FireRedAsrModel,
    FireRedAsrOptions,
    check_length,
    find_language_directory,
    is_fireredasr,
    prompt_ids,
    read_fireredasr,
    read_vllm_fireredasr,
    speech_tokens,
    tidy,
)


@pytest.fixture(scope="module")
def language(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_language(tmp_path_factory.mktemp("language") / "Qwen2-of-somebody")


@pytest.fixture
def directory(tmp_path: Path, language: Path) -> Path:
    """A checkpoint whose torch files are empty, as no test opens them."""
    directory = tmp_path / "FireRedASR-LLM-L"
    directory.mkdir()
    for name in FILES:
        (directory / name).touch()
    write_statistics(directory / CMVN)
    (directory / LANGUAGE_DIRECTORY).symlink_to(language, target_is_directory=True)
    return directory


def read(directory: Path, **changes: Any) -> FireRedAsrModel:
    arguments, encoder = (
        {name: changes.get(name, value) for name, value in own.items() if changes.get(name, value) is not None}
        for own in (ARGUMENTS, ENCODER_ARGUMENTS)
    )
    names = ("lora_r", "lora_alpha", "length_rule", "use_rslora")
    more = {name: value for name, value in changes.items() if name in names}
    return read_fireredasr(directory, arguments | more, encoder)


def sentence(error: pytest.ExceptionInfo[BadInput]) -> str:
    text = str(error.value)
    assert "\n" not in text and 20 < len(text) < 500
    return text


# What is read -----------------------------------------------------------------------------------------------------


def test_checkpoint_directory_is_recognised_by_its_files(directory: Path) -> None:
    assert is_fireredasr(directory) and family_of(directory) is FAMILIES["fireredasr"]
    for name in FILES:
        (directory / name).rename(directory / "away")
        assert not is_fireredasr(directory)
        (directory / "away").rename(directory / name)
    assert not is_fireredasr(directory / WEIGHTS) and not is_fireredasr(directory / "missing")


def test_checkpoint_arguments_and_defaults_are_read(directory: Path, language: Path) -> None:
    model = read(directory)
    assert model.encoder == ConformerConfig(80, 2, 2, 16, 5, 5000)
    assert (model.frontend.window, model.frontend.lfr_m, model.frontend.dither) == ("povey", 1, 0)
    assert (model.downsample_rate, model.length_rule) == (2, "release")
    assert (model.lora_alpha, model.lora_rank) == (16.0, None)
    assert model.language.directory.resolve() == language.resolve()
    assert model.longest_seconds == 200.0
    changed = read(directory, lora_r=8, lora_alpha=32, length_rule="head", pe_maxlen=500)
    assert (changed.lora_alpha, changed.lora_rank, changed.length_rule) == (32.0, 8, "head")
    assert changed.longest_seconds == 20.0
    default = read(directory, encoder_downsample_rate=None, kernel_size=None, pe_maxlen=None)
    assert (default.downsample_rate, default.encoder.kernel_size, default.encoder.pe_maxlen) == (2, 33, 5000)


def test_missing_speech_token_is_appended_to_the_tokenizer(directory: Path) -> None:
    model = read(directory)
    own = json.loads((directory / LANGUAGE_DIRECTORY / "tokenizer.json").read_text())
    tokens = len(own["model"]["vocab"]) + len(own["added_tokens"])
    assert model.speech_id == tokens == len(model.tokenizer) - 1
    assert model.tokenizer.id_of("<|im_end|>") == model.stop_id
    assert model.tokenizer.id_of("<|endoftext|>") == model.pad_id


def test_prompt_has_one_speech_placeholder(directory: Path) -> None:
    model = read(directory)
    ids = prompt_ids(model)
    assert (ids == model.speech_id).sum() == 1
    prompt = model.tokenizer.decode(ids.tolist(), special=True)
    assert prompt == "<|im_start|>user\n<speech>请转写音频为文字<|im_end|>\n<|im_start|>assistant\n"
    assert "<" not in model.tokenizer.decode(ids.tolist())


@pytest.mark.parametrize(("frames", "tokens"), [(1, 1), (4, 1), (5, 1), (9, 1), (13, 2), (98, 12), (2998, 375)])
def test_speech_token_count_is_one_per_80_milliseconds(frames: int, tokens: int) -> None:
    assert speech_tokens(frames, 2) == tokens


def test_transcript_is_lower_cased() -> None:
    assert tidy(" Hello 世界 ÄB\n") == "hello 世界 äb"


# The language model's directory -----------------------------------------------------------------------------------


def test_language_model_directory_is_found_inside_or_beside_the_checkpoint(tmp_path: Path, language: Path) -> None:
    inside = tmp_path / "a" / "checkpoint"
    inside.mkdir(parents=True)
    (inside / "notes").mkdir()
    beside = inside.parent / LANGUAGE_DIRECTORY
    beside.symlink_to(language)
    assert find_language_directory(inside) == beside
    (inside / "whatever-it-is-called").symlink_to(language)
    assert find_language_directory(inside) == inside / "whatever-it-is-called"
    (inside / LANGUAGE_DIRECTORY).symlink_to(language)
    assert find_language_directory(inside) == inside / LANGUAGE_DIRECTORY
    for path in ("/gone/whatever-it-is-called/", "C:\\models\\whatever-it-is-called"):
        assert find_language_directory(inside, path) == inside / "whatever-it-is-called"
    for path in ("", "..", "/", "/gone/other"):
        assert find_language_directory(inside, path) == inside / LANGUAGE_DIRECTORY


def test_missing_language_model_error_states_the_names_tried_and_the_link_command(directory: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).unlink()
    with pytest.raises(BadInput) as caught:
        read(directory, llm_dir="/elsewhere/Qwen2-0.5B")
    assert "no directory Qwen2-0.5B or Qwen2-7B-Instruct in it or beside it" in sentence(caught)
    assert f"ln -s /path/to/{LANGUAGE_DIRECTORY} {directory / LANGUAGE_DIRECTORY}" in sentence(caught)


def test_dangling_language_model_link_is_named_in_the_error(directory: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).unlink()
    (directory / LANGUAGE_DIRECTORY).symlink_to("/of/another/machine")
    with pytest.raises(BadInput) as caught:
        read(directory)
    assert "Qwen2-7B-Instruct is a link to /of/another/machine" in sentence(caught)


def test_several_language_models_in_a_checkpoint_are_refused(directory: Path, language: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).rename(directory / "one")
    (directory / "two").symlink_to(language)
    with pytest.raises(BadInput) as caught:
        read(directory)
    assert "several language models inside, one, two; expected one" in sentence(caught)


def test_empty_language_model_directory_is_named_in_the_error(directory: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).unlink()
    (directory / LANGUAGE_DIRECTORY).mkdir()
    with pytest.raises(BadInput) as caught:
        read(directory)
    assert "language model directory Qwen2-7B-Instruct has no config.json" in sentence(caught)


def test_embedding_table_without_room_for_the_speech_token_is_refused(directory: Path, tmp_path: Path) -> None:
    tokens = len(read(directory).tokenizer)
    (directory / LANGUAGE_DIRECTORY).unlink()
    own = write_language(directory / LANGUAGE_DIRECTORY)
    change_json(own / "config.json", vocab_size=tokens - 1)
    with pytest.raises(BadInput) as caught:
        read(directory)
    assert f"has ids up to {tokens - 1} with <speech>; its config.json has room for {tokens - 1}" in sentence(caught)
    change_json(own / "config.json", vocab_size=tokens)
    assert read(directory).speech_id == tokens - 1


def test_tokenizer_without_the_end_of_turn_token_is_refused(directory: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).unlink()
    own = write_language(directory / LANGUAGE_DIRECTORY)
    for path in own.glob("*token*.json"):
        path.write_text(path.read_text().replace("<|im_end|>", "<|other|>"))
    with pytest.raises(BadInput) as caught:
        read(directory)
    assert "has no token <|im_end|>, which ends a transcript" in sentence(caught)


# Bad arguments and directories ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_model": None}, "args.d_model in FireRedASR-LLM-L/asr_encoder.pth.tar is missing; expected a whole number"),
        ({"d_model": "16"}, "args.d_model in FireRedASR-LLM-L/asr_encoder.pth.tar is '16'"),
        ({"d_model": 10**9}, "is 1000000000; expected a whole number from 1 to 100000"),
        ({"d_model": 15, "n_head": 3}, "expected an even multiple of n_head, 3"),
        ({"n_head": 3}, "args.d_model in FireRedASR-LLM-L/asr_encoder.pth.tar is 16; expected an even multiple"),
        ({"n_layers_enc": 0}, "args.n_layers_enc in FireRedASR-LLM-L/asr_encoder.pth.tar is 0"),
        ({"n_layers_enc": 10**6}, "expected a whole number from 1 to 1000"),
        ({"kernel_size": 4}, "is 4; expected an odd number"),
        ({"kernel_size": True}, "args.kernel_size in FireRedASR-LLM-L/asr_encoder.pth.tar is True"),
        ({"pe_maxlen": -1}, "args.pe_maxlen in FireRedASR-LLM-L/asr_encoder.pth.tar is -1"),
        ({"idim": 40}, "is 40; FireRedASR's features have 80 mel bands"),
        ({"encoder_downsample_rate": 2.5}, "args.encoder_downsample_rate in FireRedASR-LLM-L/model.pth.tar is 2.5"),
        ({"lora_r": 0}, "args.lora_r in FireRedASR-LLM-L/model.pth.tar is 0"),
        ({"lora_alpha": "x"}, "args.lora_alpha in FireRedASR-LLM-L/model.pth.tar is 'x'"),
        ({"lora_alpha": float("nan")}, "args.lora_alpha in FireRedASR-LLM-L/model.pth.tar is nan"),
        (
            {"use_rslora": True},
            "args.use_rslora in FireRedASR-LLM-L/model.pth.tar is True; only changes with the scale",
        ),
        (
            {"length_rule": "odd"},
            "args.length_rule in FireRedASR-LLM-L/model.pth.tar is 'odd'; expected release or head",
        ),
        ({"length_rule": ["head"]}, "args.length_rule"),
        ({"d_model": list(range(10**4))}, "args.d_model"),
    ],
    ids=str,
)
def test_invalid_checkpoint_arguments_raise_one_line_error(
    directory: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput) as caught:
        read(directory, **changes)
    assert words in sentence(caught)


def test_llm_dir_that_is_no_path_is_ignored(directory: Path) -> None:
    assert read(directory, llm_dir=7).language.directory.name == LANGUAGE_DIRECTORY


def test_missing_checkpoint_files_are_named_in_the_error(directory: Path) -> None:
    (directory / ENCODER_WEIGHTS).unlink()
    (directory / CMVN).unlink()
    for attempt in (read, family_of):
        with pytest.raises(BadInput) as caught:
            attempt(directory)
        assert "has no asr_encoder.pth.tar and no cmvn.ark" in sentence(caught)
    (directory / "dict.txt").touch()
    with pytest.raises(BadInput) as caught:
        family_of(directory)
    assert "looks like FireRedASR-AED" in sentence(caught)
    with pytest.raises(BadInput) as caught:
        read(directory / "missing")
    assert "there is no checkpoint directory" in sentence(caught)


# Options ----------------------------------------------------------------------------------------------------------


def test_option_defaults_match_the_original_code_not_its_readme() -> None:
    options = FireRedAsrOptions()
    assert (options.beam_size, options.length_penalty, options.repetition_penalty) == (1, 0.0, 1.0)
    assert (options.max_new_tokens, options.batch_size, options.max_segment_seconds) == (0, 1, 30.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_segment_seconds": 30.5}, "max_segment_seconds of x is 30.5; expected 1 to 30"),
        ({"beam_size": 3, "temperature": 0.5}, "beam_size is 3 and temperature is 0.5"),
        ({"beam_size": 0}, "expected 1 to 64"),
        ({"max_new_tokens": -1}, "expected 0 to 1048576"),
        ({"length_rule": "other"}, "expected one of checkpoint, release, head"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        build_options(FireRedAsrOptions, options, "x")
    assert words in sentence(caught)


@pytest.mark.parametrize("options", [{"max_segment_seconds": 5.0}, {"beam_size": 3}, {"temperature": 0.5}])
def test_valid_options_are_accepted(options: dict[str, Any]) -> None:
    assert build_options(FireRedAsrOptions, options, "x")


def test_recording_longer_than_the_positional_encoding_is_refused(directory: Path) -> None:
    model = read(directory)
    check_length(200 * 16000, 20_000, model)
    with pytest.raises(BadInput) as caught:
        check_length(16000 * 200 + 640, 20_001, model)
    assert "200.0 seconds is longer than the 200 seconds that the positions of FireRedASR-LLM-L reach" in sentence(
        caught
    )


# A directory that was made for vLLM -------------------------------------------------------------------------------


def vllm_directory(language: Path, out: Path, section: Any) -> Path:
    """A directory for vLLM: the language model's files, and the speech encoder's beside them."""
    out.mkdir()
    for file in language.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    write_statistics(out / CMVN)
    change_json(out / "config.json", **{VLLM_SECTION: section})
    return out


def test_vllm_directory_is_read_as_its_own_language_model_directory(language: Path, tmp_path: Path) -> None:
    section = {"format": VLLM_FORMAT, "family": "fireredasr", "token_ids": {}}
    arguments = {"arguments": {**ARGUMENTS, "length_rule": "head"}, "encoder_arguments": ENCODER_ARGUMENTS}
    model = read_vllm_fireredasr(vllm_directory(language, tmp_path / "out", {**section, **arguments}))
    assert model.language.directory == model.directory == tmp_path / "out"
    assert (model.length_rule, model.encoder.n_layers, model.speech) == ("head", 2, AUDIO)
    assert prompt_ids(model).tolist().count(model.speech_id) == 1


@pytest.mark.parametrize(
    "section, message",
    [
        (None, "does not describe a FireRedASR-LLM"),
        ({"format": 1, "family": "funasr_nano"}, "does not describe a FireRedASR-LLM"),
        ({"format": 2, "family": "fireredasr", "arguments": {}, "encoder_arguments": {}}, "is not of format 1"),
        (
            {"format": 1, "family": "fireredasr", "arguments": {}},
            "1 with arguments and encoder_arguments",
        ),
        (
            {"format": 1, "family": "fireredasr", "arguments": {}, "encoder_arguments": {}},
            "args.idim in config.json",
        ),
    ],
)
def test_directory_without_a_valid_vllm_section_is_refused(
    section: Any, message: str, language: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadInput) as caught:
        read_vllm_fireredasr(vllm_directory(language, tmp_path / "out", section))
    assert message in sentence(caught)
