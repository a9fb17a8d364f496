"""Conversion of a server's transcription request into the options of a model family."""

from __future__ import annotations

import pytest

pytest.importorskip("vllm", reason="needs vLLM")

from workbench.core.errors import BadInput
from workbench.families.speech_llm.funasr_nano import LANGUAGES, FunasrNanoOptions
from workbench.runtimes.vllm.models.errors import BadRequest
from workbench.runtimes.vllm.models.funasr_nano import PROMPTED
from workbench.runtimes.vllm.models.speech import SpeechModel, known_to_vllm, request_options


def options_of_request(prompt: str = "", **fields: object) -> tuple[FunasrNanoOptions, str]:
    return request_options(FunasrNanoOptions, fields, prompt, "it", PROMPTED)


def test_request_fields_and_prompt_are_converted_to_options() -> None:
    assert options_of_request() == (FunasrNanoOptions(), "")
    assert options_of_request(language=None, hotwords=()) == (FunasrNanoOptions(), "")
    assert options_of_request(" Kim, Jong ", language="ko") == (FunasrNanoOptions(language="ko"), "Kim, Jong")
    expected = FunasrNanoOptions(language="en", itn=False, hotwords=("one",))
    assert options_of_request('{"itn": false, "language": "en"}', language="ko", hotwords=("one",)) == (expected, "")


@pytest.mark.parametrize(
    "prompt, message",
    [
        ("{itn: false}", "prompt begins with a brace and is not JSON"),
        ('{"int": false}', "prompt names the option 'int'; expected some of language, itn, hotwords"),
        ('{"dither": 1.0}', "prompt names the option 'dither'; expected some of language, itn, hotwords"),
        ('{"itn": 3}', "option itn of it is 3; expected true or false"),
    ],
)
def test_invalid_json_prompts_are_refused(prompt: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        options_of_request(prompt)
    assert message in str(caught.value)


def test_only_language_codes_known_to_vllm_are_listed_and_images_are_refused() -> None:
    known = known_to_vllm(LANGUAGES)
    assert "ga" not in known and "yue" in known and known.items() <= LANGUAGES.items()
    with pytest.raises(BadRequest, match="this model takes audio, and was given image"):
        SpeechModel.get_placeholder_str("image", 1)
