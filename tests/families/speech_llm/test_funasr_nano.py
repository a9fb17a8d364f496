"""Fun-ASR-Nano's prompts and audio token counts, and errors for invalid checkpoints."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_checkpoints import change_config
from tests.support.tiny_funasr_nano import LANGUAGE_DIRECTORY, STOPS, add_ctc_branch, tiny_funasr_nano
from tests.support.tiny_language import change_json
from workbench.core.errors import BadInput
from workbench.core.options import build_options
from workbench.families import family_of
from workbench.families.speech_llm.funasr_nano import (
    LANGUAGES,
    SPEECH,
    AdaptorConfig,
    CtcBranch,
    FunasrNanoModel,
    FunasrNanoOptions,
    audio_tokens,
    instruction,
    is_funasr_nano,
    prompt_ids,
    read_funasr_nano,
    tidy,
)

ADAPTOR = AdaptorConfig(1, True, 16, 32, 32, 2, 8)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_funasr_nano(tmp_path_factory.mktemp("nano") / "nano")


@pytest.fixture(scope="module")
def model(directory: Path) -> FunasrNanoModel:
    return read_funasr_nano(directory)


# The number of embeddings in the prompt.


@pytest.mark.parametrize(("frames", "tokens"), [(1, 1), (8, 1), (9, 2), (17, 3), (53, 7), (500, 63)])
def test_audio_token_counts_match_the_published_values(frames: int, tokens: int) -> None:
    assert audio_tokens(frames, ADAPTOR) == tokens


@given(st.integers(1, 100_000))
def test_audio_token_count_is_frames_divided_by_eight_rounded_up(frames: int) -> None:
    assert audio_tokens(frames, ADAPTOR) == -(-frames // 8)


@given(st.integers(1, 10_000))
def test_audio_token_count_equals_adaptor_rows_without_low_frame_rate(frames: int) -> None:
    assert audio_tokens(frames, AdaptorConfig(1, False, 16, 32, 32, 2, 8)) == frames


# Prompts.

INSTRUCTION = "请结合上下文信息，更加准确地完成语音转写任务。如果没有相关信息，我们会留空。\n\n\n**上下文信息：**\n\n\n"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "语音转写："),
        ({"language": "en"}, "语音转写成英文："),
        ({"language": "zh", "itn": False}, "语音转写成中文，不进行文本规整："),
        ({"itn": False}, "语音转写，不进行文本规整："),
        ({"hotwords": ("Qwen",)}, f"{INSTRUCTION}热词列表：[Qwen]\n语音转写："),
        ({"hotwords": ("开放", "时间"), "language": "ja"}, f"{INSTRUCTION}热词列表：[开放, 时间]\n语音转写成日文："),
    ],
)
def test_instruction_text_follows_language_itn_and_hotwords(options: dict[str, Any], text: str) -> None:
    assert instruction(FunasrNanoOptions(**options)) == text


def test_every_language_is_an_accepted_option_value() -> None:
    assert len(LANGUAGES) == 31 and len(set(LANGUAGES.values())) == 31
    for language in ("auto", *LANGUAGES):
        build_options(FunasrNanoOptions, {"language": language}, "m")
    with pytest.raises(BadInput, match="option language of m is 'xx'; expected one of auto, zh, en"):
        build_options(FunasrNanoOptions, {"language": "xx"}, "m")


def prompt(model: FunasrNanoModel, **options: Any) -> tuple[str, str]:
    """Returns the prompt's text before and after the speech."""
    ids = prompt_ids(model, FunasrNanoOptions(**options)).tolist()
    place = ids.index(SPEECH)
    assert ids.count(SPEECH) == 1
    return model.tokenizer.decode(ids[:place], special=True), model.tokenizer.decode(ids[place + 1 :], special=True)


def test_prompt_is_a_conversation_with_a_speech_placeholder(model: FunasrNanoModel) -> None:
    before, after = prompt(model, language="en", hotwords=("seven",))
    assert before == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n{INSTRUCTION}热词列表：[seven]\n语音转写成英文："
    )
    assert after == "<|im_end|>\n<|im_start|>assistant\n"


def test_prompt_text_before_and_after_speech_is_tokenised_separately(model: FunasrNanoModel) -> None:
    ids = prompt_ids(model, FunasrNanoOptions()).tolist()
    place = ids.index(SPEECH)
    assert ids[:place] == model.tokenizer.encode(prompt(model)[0])
    assert ids[place + 1 :] == model.tokenizer.encode(prompt(model)[1])


def test_checkpoint_settings_control_thinking_and_the_system_turn(tmp_path: Path) -> None:
    tiny_funasr_nano(tmp_path / "m", dataset_conf={"do_think": False, "sys_prompt": False})
    before, after = prompt(read_funasr_nano(tmp_path / "m"))
    assert before == "<|im_start|>user\n语音转写："
    assert after == "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def test_transcript_cleanup_matches_the_original() -> None:
    assert tidy(" one/siltwo \n three  ") == "one two three"
    assert tidy("你好/sil世界") == "你好 世界"


# Checkpoints.


def test_a_checkpoint_is_recognised_and_read(directory: Path, model: FunasrNanoModel) -> None:
    assert is_funasr_nano(directory) and family_of(directory).name == "funasr_nano"
    assert not is_funasr_nano(directory / LANGUAGE_DIRECTORY)
    assert model.adaptor == AdaptorConfig(1, True, 16, 48, 32, 2, 8)
    assert model.language.hidden_size == 32 and model.do_think and model.sys_prompt and model.cmvn_file is None
    end = model.tokenizer.id_of("<|im_end|>")
    assert end is not None and model.stop_ids == (*STOPS, end)


def test_language_model_path_of_another_machine_is_resolved_in_the_checkpoint(tmp_path: Path) -> None:
    tiny_funasr_nano(tmp_path / "m")
    edit_section(tmp_path / "m", "llm_conf", init_param_path=f"/home/somebody/models/{LANGUAGE_DIRECTORY}")
    assert read_funasr_nano(tmp_path / "m").language.directory == tmp_path / "m" / LANGUAGE_DIRECTORY


def edit_section(directory: Path, section: str, **changes: Any) -> None:
    """Changes a section of `config.yaml`; None removes an entry."""

    def change(config: dict[str, Any]) -> None:
        config[section] = {key: value for key, value in {**config[section], **changes}.items() if value is not None}

    change_config(directory, change)


def without_language(directory: Path) -> None:
    (directory / LANGUAGE_DIRECTORY).rename(directory / "elsewhere")


def without_end(directory: Path) -> None:
    """Renames the token that ends a turn everywhere in the tokenizer's files."""
    for path in (directory / LANGUAGE_DIRECTORY).glob("tokenizer*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace("<|im_end|>", "<|finish|>"), encoding="utf-8")


def model_name(directory: Path) -> None:
    path = directory / "config.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("FunASRNano", "FunASRMicro"), encoding="utf-8")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (
            without_language,
            r"m/config\.yaml names the language model Qwen3-tiny, and there is no such directory in m; it holds the "
            r"configuration and the tokenizer",
        ),
        (
            lambda path: edit_section(path, "llm_conf", init_param_path=None),
            r"llm_conf\.init_param_path in m/config\.yaml names no language model directory",
        ),
        (
            lambda path: edit_section(path, "audio_adaptor_conf", encoder_dim=512),
            r"audio_adaptor_conf\.encoder_dim is 512 and the encoder is 16 wide; expected the same",
        ),
        (
            lambda path: edit_section(path, "audio_adaptor_conf", llm_dim=1024),
            r"audio_adaptor_conf\.llm_dim is 1024 and the language model in Qwen3-tiny is 32 wide; expected the same",
        ),
        (
            lambda path: edit_section(path, "audio_adaptor_conf", attention_heads=5),
            r"audio_adaptor_conf\.llm_dim 32 is not a multiple of 5 attention heads",
        ),
        (
            lambda path: edit_section(path, "audio_adaptor_conf", downsample_rate=2, use_low_frame_rate=False),
            r"audio_adaptor_conf\.downsample_rate in m/config\.yaml is 2 without use_low_frame_rate; expected 1, as "
            r"FunASR's prompt has more positions for speech than this adaptor has rows",
        ),
        (
            lambda path: edit_section(path, "audio_adaptor_conf", downsample_rate=9),
            r"audio_adaptor_conf\.downsample_rate in m/config\.yaml is 9 with use_low_frame_rate; expected at most 8, ",
        ),
        (without_end, r"the tokenizer in Qwen3-tiny has no token <\|im_end\|>, which ends a transcript"),
        (
            lambda path: change_json(path / LANGUAGE_DIRECTORY / "config.json", vocab_size=400),
            r"the tokenizer in Qwen3-tiny has ids up to 481; its config\.json has room for 400",
        ),
        (
            lambda path: change_json(path / LANGUAGE_DIRECTORY / "config.json", model_type="bert"),
            r"Qwen3-tiny/config\.json is of model type 'bert'; expected qwen2, qwen3",
        ),
        (
            lambda path: (path / LANGUAGE_DIRECTORY / "config.json").write_text("{"),
            r"Qwen3-tiny/config\.json cannot be read as JSON",
        ),
        (model_name, r"m/config\.yaml is for model 'FunASRMicro'; expected FunASRNano"),
    ],
)
def test_inconsistent_checkpoint_is_refused(tmp_path: Path, damage: Callable[[Path], object], sentence: str) -> None:
    tiny_funasr_nano(tmp_path / "m")
    damage(tmp_path / "m")
    with pytest.raises(BadInput, match=f"^{sentence}"):
        read_funasr_nano(tmp_path / "m")


def test_invalid_ctc_vocab_size_is_reported(tmp_path: Path) -> None:
    add_ctc_branch(tiny_funasr_nano(tmp_path / "m"))
    path = tmp_path / "m" / "config.yaml"
    path.write_text(re.sub(r"ctc_vocab_size: \d+", "ctc_vocab_size: many", path.read_text()))
    error = read_funasr_nano(tmp_path / "m").ctc
    assert error == "ctc_vocab_size in config.yaml is 'many'; expected a whole number from 2 to 100000"


def test_ctc_tokens_are_read_from_the_configured_file(tmp_path: Path) -> None:
    directory = tiny_funasr_nano(tmp_path / "m")
    add_ctc_branch(directory)
    for name in ("inner", "outer"):
        shutil.copy(directory / "multilingual.tiktoken", directory / f"{name}.tiktoken")
    content = yaml.safe_load((directory / "config.yaml").read_text())
    content["dataset_conf"] = {"ctc_tokenizer_conf": {"vocab_path": "/elsewhere/inner.tiktoken"}}
    for name in ("inner", "outer"):
        (directory / "config.yaml").write_text(yaml.safe_dump(content))
        branch = read_funasr_nano(directory).ctc
        assert isinstance(branch, CtcBranch) and branch.tokens.name == f"{name}.tiktoken"
        content["ctc_tokenizer_conf"] = {"vocab_path": "outer.tiktoken"}


def test_language_model_directory_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    tiny_funasr_nano(tmp_path / "m")
    for path in (tmp_path / "m" / LANGUAGE_DIRECTORY).iterdir():
        if path.name != "config.json":
            path.unlink()
    with pytest.raises(BadInput, match="language model directory Qwen3-tiny has no tokenizer; expected "):
        read_funasr_nano(tmp_path / "m")


def test_stop_tokens_are_read_from_the_language_model_configuration(tmp_path: Path) -> None:
    tiny_funasr_nano(tmp_path / "m")
    change_json(tmp_path / "m" / LANGUAGE_DIRECTORY / "config.json", eos_token_id=7)
    generation = {"eos_token_id": [8, 7]}
    (tmp_path / "m" / LANGUAGE_DIRECTORY / "generation_config.json").write_text(json.dumps(generation))
    model = read_funasr_nano(tmp_path / "m")
    assert model.stop_ids[:2] == (7, 8) and len(model.stop_ids) == 3
