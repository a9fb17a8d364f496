"""FireRedASR-LLM inside vLLM: the front end, and tokens and stages of the demo compared with the PyTorch runtime."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.support.in_process_vllm import audio_prompt, in_process_engine, model_in, written  # noqa: E402
from tests.support.tiny_checkpoints import noise  # noqa: E402
from workbench.audio.read import read  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.errors import BadInput  # noqa: E402
from workbench.core.settings import SessionSpec  # noqa: E402
from workbench.families.language.directory import AUDIO  # noqa: E402
from workbench.families.speech_llm.fireredasr import FireRedAsrOptions, prompt_ids, read_vllm_fireredasr  # noqa: E402
from workbench.isolation.loader import open_here  # noqa: E402
from workbench.pipelines.recognition.speech_language import SpeechLanguagePipeline  # noqa: E402
from workbench.registry.sources import assets  # noqa: E402
from workbench.runtimes.vllm.models.errors import BadRequest  # noqa: E402
from workbench.runtimes.vllm.models.fireredasr import (  # noqa: E402
    FireRedFrontEnd,
    FireRedInfo,
    SpeechWorkbenchFireRedASR,
)
from workbench.trace.recorder import Recorder  # noqa: E402
from workbench.trace.trace import StageFilter  # noqa: E402

DEMO = assets() / "demo-fireredasr"
SAMPLE_RATE = 16000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "demo"
    write_directory(plan_of(DEMO, "fireredasr"), out)
    return out


@pytest.fixture(scope="module")
def reference() -> SpeechLanguagePipeline:
    """The demo on PyTorch, float32."""
    session: Any = open_here(SessionSpec("demo", "fireredasr", "pytorch", DEMO))
    pipeline: SpeechLanguagePipeline = session.recogniser
    return pipeline


@pytest.fixture(scope="module")
def front_end(directory: Path) -> FireRedFrontEnd:
    opened = FireRedInfo.open(directory)
    assert isinstance(opened, FireRedFrontEnd)
    return opened


@pytest.fixture(scope="module")
def recordings() -> list[np.ndarray]:
    """All samples, the long one cut to 28 s, and a very short recording."""
    samples_of_files = [read(path).samples for path in sorted((assets() / "samples").glob("*.wav"))]
    return [*(samples[: 28 * SAMPLE_RATE] for samples in samples_of_files), samples_of_files[0][:900]]


# The front end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("samples", [1, 399, 400, 401, 1679, 1680, 16000, 41230])
@pytest.mark.parametrize("rule", ["checkpoint", "release", "head"])
def test_front_end_features_and_lengths_equal_the_pytorch_runtime(
    samples: int, rule: str, front_end: FireRedFrontEnd, reference: SpeechLanguagePipeline, monkeypatch: Any
) -> None:
    sound = noise(3)[0][:samples]
    options = FireRedAsrOptions(length_rule=rule, cmvn="off" if samples == 16000 else "on")
    calls: list[Any] = []
    encoder: Any = reference.encoder
    monkeypatch.setattr(encoder, "network", SimpleNamespace(embed_audio=lambda *arguments: calls.append(arguments)))
    _, counts = encoder.embeddings([sound], options)
    sound_input = front_end.sound(sound, options)
    [(features,), (valid,), _] = calls[0]
    np.testing.assert_array_equal(sound_input.features, features[: len(sound_input.features)])
    assert not features[len(sound_input.features) :].any() and len(features) == max(len(sound_input.features), 8)
    assert (sound_input.length, sound_input.embeddings) == (
        valid,
        counts[0],
    ) and sound_input.embeddings == front_end.count(samples)


def test_audio_longer_than_the_positional_encoding_is_refused(front_end: FireRedFrontEnd) -> None:
    with pytest.raises(BadInput, match="longer than the 200 seconds"):
        front_end.count(201 * SAMPLE_RATE)
    with pytest.raises(BadInput, match="longer than the 200 seconds"):
        front_end.sound(np.zeros(201 * SAMPLE_RATE, dtype=np.float32), FireRedAsrOptions())


def test_transcription_prompt_is_fixed_and_refuses_hotwords_and_prompts(
    front_end: FireRedFrontEnd, reference: SpeechLanguagePipeline
) -> None:
    encoder: Any = reference.encoder
    expected = prompt_ids(encoder.model)
    assert front_end.request_ids(5, "en", None, "") == np.where(expected == encoder.placeholder, 5, expected).tolist()
    for hotwords, prompt in (("Anna", ""), (None, "a talk about bees"), (None, '{"cmvn": "off"}')):
        with pytest.raises(BadInput, match=r"prompt is always the same; expected neither"):
            front_end.request_ids(5, None, hotwords, prompt)


def parameters(directory: Path, **changes: Any) -> Any:
    config = SimpleNamespace(speech_workbench={"token_ids": {AUDIO: 459}})
    model_config = SimpleNamespace(model=str(directory), hf_config=config)
    return SimpleNamespace(
        **{"language": None, "hotwords": None, "request_prompt": "", "audio": noise(1)[0], **changes},
        model_config=model_config,
    )


def test_transcription_api_of_the_model_class(directory: Path, front_end: FireRedFrontEnd) -> None:
    model = SpeechWorkbenchFireRedASR
    prompt = model.get_generation_prompt(parameters(directory))
    assert prompt["prompt_token_ids"] == front_end.request_ids(459, None, None, "")
    assert prompt["prompt_token_ids"].count(459) == 1
    with pytest.raises(BadRequest, match="expected neither"):
        model.get_generation_prompt(parameters(directory, hotwords="Anna"))
    config: Any = SimpleNamespace(model=str(directory))
    clip = model.get_speech_to_text_config(config, "transcribe")
    assert (clip.sample_rate, clip.max_audio_clip_s) == (SAMPLE_RATE, 30)
    assert model.get_num_audio_tokens(2.0, clip, config) == front_end.count(2 * SAMPLE_RATE)
    assert [model.validate_language(code) for code in ("zh", "en", None)] == ["zh", "en", None]
    with pytest.raises(BadRequest, match="expected one of zh, en"):
        model.validate_language("de")
    assert not model.supports_transcription_only
    assert model.post_process_output(" One Two ") == "one two"


# In the engine ----------------------------------------------------------------------------------------------------


class Captures:
    """Stands in for the captures that the worker's extension sets on the model."""

    def __init__(self, *numbers: int):
        self.recorders = {number: Recorder(StageFilter()) for number in numbers}

    def recorder(self, number: int) -> Recorder | None:
        return self.recorders.get(number)


@pytest.fixture(scope="module")
def llm(directory: Path) -> Iterator[Any]:
    with in_process_engine(directory, max_model_len=512, max_num_batched_tokens=256) as llm:
        yield llm


@pytest.fixture(scope="module")
def ids(directory: Path) -> list[int]:
    prompt: list[int] = prompt_ids(read_vllm_fireredasr(directory)).tolist()
    return prompt


@pytest.fixture(scope="module")
def stop(directory: Path) -> list[int]:
    return [read_vllm_fireredasr(directory).stop_id]


@pytest.mark.slow
@pytest.mark.parametrize("batched", [True, False])
def test_greedy_token_ids_equal_pytorch(
    batched: bool, llm: Any, ids: list[int], stop: list[int], recordings: Any, reference: Any
) -> None:
    options = FireRedAsrOptions(max_new_tokens=64)
    expected = [list(reference.recognise(samples, options).ids) for samples in recordings]
    assert len(recordings) > 8 and len({tuple(output) for output in expected}) > 7
    prompts = [audio_prompt(ids, samples, f"{batched} {n}") for n, samples in enumerate(recordings)]
    groups = [prompts] if batched else [[prompt] for prompt in prompts]
    outputs = [output for group in groups for output in written(llm, group, stop)]
    assert outputs == expected


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"length_rule": "head"}, {"cmvn": "off"}])
def test_options_reach_the_front_end(
    options: dict[str, Any], llm: Any, ids: list[int], stop: list[int], recordings: Any, reference: Any
) -> None:
    reference_options = FireRedAsrOptions(max_new_tokens=64, **options)
    expected = [list(reference.recognise(samples, reference_options).ids) for samples in recordings]
    prompts = [audio_prompt(ids, samples, f"{options} {n}", **options) for n, samples in enumerate(recordings)]
    assert written(llm, prompts, stop) == expected


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["release", "head"])
def test_captured_stages_in_a_batch_equal_pytorch(
    rule: str, llm: Any, ids: list[int], stop: list[int], recordings: Any, reference: Any
) -> None:
    captures = Captures(7, 8)
    prompts = [
        audio_prompt(ids, recordings[0], f"{rule} others", length_rule=rule),
        audio_prompt(ids, recordings[3], f"{rule} seven", length_rule=rule, capture=7),
        audio_prompt(ids, recordings[-1], f"{rule} eight", length_rule=rule, capture=8),
        audio_prompt(ids, recordings[2], f"{rule} unknown", length_rule=rule, capture=9),
    ]
    model = model_in(llm)
    model.captures = captures
    try:
        written(llm, prompts, stop)
    finally:
        model.captures = None
    for number, samples in ((7, recordings[3]), (8, recordings[-1])):
        expected = reference.trace(samples, FireRedAsrOptions(length_rule=rule), StageFilter("encoder.*,adaptor.*"))
        actual = captures.recorders[number].stages
        assert list(actual) == list(expected) and len(expected) == 15
        for stage, value in expected.items():
            assert actual[stage].shape == value.shape, stage
            np.testing.assert_allclose(actual[stage], value, rtol=0, atol=1e-4, err_msg=stage)


@pytest.mark.slow
def test_speech_embeddings_in_the_prompt_give_the_same_tokens_as_audio(
    llm: Any, ids: list[int], stop: list[int], recordings: Any, reference: Any
) -> None:
    """The speech embeddings of the PyTorch runtime are placed among the ids of the prompt."""
    samples = recordings[3]
    trace = reference.trace(samples, FireRedAsrOptions(), StageFilter("adaptor.output"))
    speech = trace["adaptor.output"]
    position = ids.index(reference.encoder.placeholder)
    tokens = [*ids[:position], *[0] * len(speech), *ids[position + 1 :]]
    rows = np.zeros((len(tokens), speech.shape[1]), dtype=np.float32)
    rows[position : position + len(speech)] = speech
    is_id = [not position <= n < position + len(speech) for n in range(len(tokens))]
    mixed = {
        "prompt_token_ids": tokens,
        "prompt_embeds": torch.from_numpy(rows),
        "prompt_is_token_ids": is_id,
    }
    by_sound = audio_prompt(ids, samples, "beside embeddings")
    first, second = written(llm, [mixed, by_sound], stop)
    assert first == second == list(reference.recognise(samples, FireRedAsrOptions()).ids)


@pytest.mark.slow
def test_chat_message_with_audio_gives_the_same_tokens_as_a_prompt(
    llm: Any, ids: list[int], stop: list[int], recordings: Any
) -> None:
    from vllm import SamplingParams

    samples = recordings[3]
    file = io.BytesIO()
    soundfile.write(file, samples, SAMPLE_RATE, format="WAV", subtype="FLOAT")
    sound = {"data": base64.b64encode(file.getvalue()).decode(), "format": "wav"}
    message = {"role": "user", "content": [{"type": "input_audio", "input_audio": sound}]}
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, stop_token_ids=stop)
    [answer] = llm.chat([message], params, use_tqdm=False)
    [expected] = written(llm, [audio_prompt(ids, samples, "beside a message")], stop)
    assert list(answer.outputs[0].token_ids) == expected
    assert list(answer.prompt_token_ids[:2]) == ids[:2]


@pytest.mark.slow
def test_text_only_prompt_gives_the_tokens_of_the_language_model(llm: Any, stop: list[int], reference: Any) -> None:
    from workbench.decoding.generation import ENDED, GenerationOptions, decoding_of

    tokens = reference.encoder.tokenizer.encode("<|im_start|>user\none two three<|im_end|>\n<|im_start|>assistant\n")
    decoding = decoding_of(GenerationOptions(max_new_tokens=20), tuple(stop))
    steps = np.stack(list(reference.language.generate(reference.language.prompt([tokens]), decoding)))
    [output] = written(llm, [{"prompt_token_ids": tokens}], stop, max_tokens=20)
    assert output == steps[steps != ENDED].tolist()


@pytest.mark.slow
def test_invalid_request_raises_an_error_and_the_engine_stays_usable(
    llm: Any, ids: list[int], stop: list[int], recordings: Any
) -> None:
    for options, samples, message in (
        ({"length_rule": "other"}, recordings[0], "length_rule"),
        ({"hotwords": ["a"]}, recordings[0], "hotwords"),
        ({}, np.zeros(201 * SAMPLE_RATE, dtype=np.float32), "longer than the 200 seconds"),
    ):
        with pytest.raises(ValueError, match=message):
            written(llm, [audio_prompt(ids, samples, message, **options)], stop)
    assert written(llm, [audio_prompt(ids, recordings[0], "afterwards")], stop)[0][-1] == stop[0]
