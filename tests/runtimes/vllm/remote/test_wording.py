"""The prompts and request fields that each model family sends to a server."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.audio.fbank import FbankOptions, fbank
from workbench.core.errors import BadInput
from workbench.families import FAMILIES, load
from workbench.families.speech_llm.conformer import encoder_frames
from workbench.families.speech_llm.fireredasr import FireRedAsrOptions
from workbench.families.speech_llm.funasr_nano import LANGUAGES, FunasrNanoOptions, instruction

WORDINGS = {name: load(each.vllm.wording)() for name, each in FAMILIES.items() if each.vllm.wording}
NANO, FIRE = WORDINGS["funasr_nano"], WORDINGS["fireredasr"]
SPEECH = {"type": "input_audio"}


@given(st.sampled_from(["auto", *LANGUAGES]), st.booleans(), st.lists(st.text(max_size=5), max_size=3))
def test_funasr_nano_sends_its_instruction_before_the_audio(language: str, itn: bool, hotwords: list[str]) -> None:
    options = FunasrNanoOptions(language=language, itn=itn, hotwords=tuple(hotwords))
    assert NANO.content(SPEECH, options) == [{"type": "text", "text": instruction(options)}, SPEECH]


def test_fireredasr_sends_its_task_after_the_audio() -> None:
    content = FIRE.content(SPEECH, FireRedAsrOptions())
    assert content == [SPEECH, {"type": "text", "text": "请转写音频为文字"}]


def test_transcription_fields_contain_language_and_hotwords_and_refuse_itn() -> None:
    assert NANO.fields(FunasrNanoOptions()) == {}
    options = FunasrNanoOptions(language="ja", hotwords=("a", "b"))
    assert NANO.fields(options) == {"language": "ja", "hotwords": "a, b"}
    with pytest.raises(BadInput, match="option itn is off, and the server's transcriptions have no such field"):
        NANO.fields(FunasrNanoOptions(itn=False))


@pytest.mark.parametrize("family", WORDINGS)
def test_feature_options_are_refused(family: str) -> None:
    wording = WORDINGS[family]
    wording.check(wording.options_class())
    with pytest.raises(BadInput, match="option dither is 1, and a server computes the features itself; leave it out"):
        wording.check(wording.options_class(dither=1.0))
    with pytest.raises(BadInput, match="option cmvn is off, and a server computes the features itself"):
        wording.check(wording.options_class(cmvn="off"))


def test_beam_size_and_length_rule_are_refused() -> None:
    with pytest.raises(BadInput, match="option beam_size is 3, and vLLM's servers follow one hypothesis"):
        FIRE.check(FireRedAsrOptions(beam_size=3))
    with pytest.raises(BadInput, match="option length_rule is head, and a server takes its own"):
        FIRE.check(FireRedAsrOptions(length_rule="head"))


@pytest.mark.parametrize("seconds", [0.05, 1.0, 7.31])
def test_fireredasr_token_limit_equals_the_number_of_audio_embeddings(seconds: float) -> None:
    samples = np.zeros(round(16000 * seconds), dtype=np.float32)
    embeddings = max(encoder_frames(len(fbank(samples, FbankOptions(window="povey")))) // 2, 1)
    assert FIRE.max_tokens(len(samples), FireRedAsrOptions()) == embeddings
    assert FIRE.max_tokens(len(samples), FireRedAsrOptions(max_new_tokens=7)) == 7
    assert NANO.max_tokens(len(samples), FunasrNanoOptions()) == 512
