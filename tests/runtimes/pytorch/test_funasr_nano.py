"""Fun-ASR-Nano sessions on PyTorch: batches, streaming, traces, dtypes, and checkpoints with wrong tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.tiny_checkpoints import noise
from tests.support.tiny_funasr_nano import HIDDEN, LANGUAGE_DIRECTORY, STOPS, add_lora, tiny_funasr_nano
from tests.support.tiny_language import change_json
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speech_llm.funasr_nano import audio_tokens, read_funasr_nano
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.runtimes.pytorch.funasr_nano import open_session, read_parts
from workbench.session.values import Partial, Transcript

SECONDS = (1.0, 7.3, 2.2, 20.0, 1.1, 12.5, 3.9, 5.0)
BRIEF = {"max_new_tokens": 40}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_funasr_nano(tmp_path_factory.mktemp("nano") / "nano")


@pytest.fixture(scope="module")
def session(directory: Path) -> Iterator[SpeechSession]:
    session = open_session(directory, "nano", Settings())
    yield session
    session.close()


def recordings() -> list[tuple[np.ndarray, int]]:
    return [noise(seconds, seed=number) for number, seconds in enumerate(SECONDS)]


@pytest.fixture(scope="module")
def single_transcripts(session: SpeechSession) -> list[Transcript]:
    return [session.transcribe(audio, **BRIEF) for audio in recordings()]


@pytest.mark.parametrize("size", [3, 8])
def test_batched_transcripts_equal_single_transcripts_token_by_token(
    session: SpeechSession, single_transcripts: list[Transcript], size: int
) -> None:
    assert len({transcript.tokens for transcript in single_transcripts}) > 5, "each recording gives other tokens"
    assert len({len(transcript.tokens) for transcript in single_transcripts}) > 3, "texts end at different steps"
    events = session.stream_batch(recordings(), batch_size=size, **BRIEF)
    batched = {number: event for number, event in events if isinstance(event, Transcript)}
    assert [batched[number].tokens for number in range(len(SECONDS))] == [
        single.tokens for single in single_transcripts
    ]
    assert [batched[number].text for number in range(len(SECONDS))] == [single.text for single in single_transcripts]


def test_each_segment_of_long_audio_is_transcribed_with_a_fresh_kv_cache(session: SpeechSession) -> None:
    """The transcript of a segment does not depend on previous segments."""
    samples, rate = noise(9.0)
    full = session.transcribe((samples, rate), vad="none", max_segment_seconds=3.0, **BRIEF)
    assert len(full.segments) > 2
    parts = [
        session.transcribe((samples[round(s.start * rate) : round(s.end * rate)], rate), **BRIEF) for s in full.segments
    ]
    assert full.tokens == tuple(number for part in parts for number in part.tokens)


def test_the_text_is_streamed_token_by_token(session: SpeechSession) -> None:
    events = list(session.stream(noise(2.0), **BRIEF))
    [transcript] = [event for event in events if isinstance(event, Transcript)]
    partial = [event.text for event in events if isinstance(event, Partial)]
    assert len(partial) == len(transcript.tokens)
    assert partial[-1] in (transcript.text, transcript.text.rstrip("\ufffd"))


def test_options_reach_the_prompt(session: SpeechSession) -> None:
    def prompt(**options: Any) -> list[int]:
        prompt_ids: list[int] = session.trace(noise(1.0), "prompt.tokens", **options)["prompt.tokens"].tolist()
        return prompt_ids

    different = [prompt(), prompt(language="en"), prompt(itn=False), prompt(hotwords=["seven"])]
    assert len({tuple(ids) for ids in different}) == 4


def test_trace_contains_the_prompt_embeddings_with_the_adaptor_output(session: SpeechSession) -> None:
    trace = session.trace(noise(3.0), max_new_tokens=5)
    frames = len(trace["frontend.features"])
    count = audio_tokens(frames, session.recogniser.encoder.model.adaptor)  # type: ignore[attr-defined]
    assert trace["adaptor.output"].shape == (count, HIDDEN)
    prompt = trace["prompt.tokens"].tolist()
    position = prompt.index(-1)
    np.testing.assert_array_equal(trace["llm.embeddings"][position : position + count], trace["adaptor.output"])
    assert len(trace["llm.embeddings"]) == len(prompt) - 1 + count == len(trace["logits"])
    # The first generated token is the most likely one after the prompt.
    assert trace["tokens"][0] == trace["logits"][-1].argmax()


def test_encoder_and_language_model_compute_in_bfloat16(directory: Path, session: SpeechSession) -> None:
    half = open_session(directory, "nano", Settings(dtype="bfloat16"))
    assert half.recogniser.dtype == "bfloat16"
    stages = "encoder.output,adaptor.output,llm.norm"
    exact, rounded = session.trace(noise(2.0), stages), half.trace(noise(2.0), stages)
    for stage in ("encoder.output", "adaptor.output"):
        assert not np.array_equal(rounded[stage], exact[stage])
        np.testing.assert_allclose(rounded[stage], exact[stage], atol=0.02 * np.abs(exact[stage]).max())
    assert not np.array_equal(rounded["llm.norm"], exact["llm.norm"])
    np.testing.assert_allclose(rounded["llm.norm"], exact["llm.norm"], atol=0.3)
    assert half.transcribe(noise(2.0), **BRIEF).tokens
    half.close()


def test_adaptor_values_beyond_the_float16_range_stay_finite(tmp_path: Path) -> None:
    """Published adaptors give values in the thousands, with sums beyond float16's 65504."""
    tiny_funasr_nano(tmp_path / "m")
    change_tensors(tmp_path / "m", lambda tensors: tensors["audio_adaptor.linear1.weight"].mul_(1e6))
    session = open_session(tmp_path / "m", "m", Settings(dtype="bfloat16"))
    trace = session.trace(noise(1.0), "adaptor.output,logits")
    assert np.abs(trace["adaptor.output"]).max() > 65504 and np.isfinite(trace["logits"]).all()


def test_bfloat16_checkpoint_is_computed_in_the_requested_dtype(tmp_path: Path) -> None:
    tiny_funasr_nano(tmp_path / "m", dtype=torch.bfloat16)
    for dtype, expected in (("float32", "float32"), ("auto", "float32"), ("bfloat16", "bfloat16")):
        session = open_session(tmp_path / "m", "m", Settings(dtype=dtype))
        assert session.recogniser.dtype == expected
    change_json(tmp_path / "m" / LANGUAGE_DIRECTORY / "config.json", dtype="bfloat16")
    assert open_session(tmp_path / "m", "m", Settings(dtype="auto")).recogniser.dtype == "bfloat16"


# Weights.


def change_tensors(directory: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    tensors = torch.load(directory / "model.pt", weights_only=True)
    change(tensors)
    torch.save(tensors, directory / "model.pt")


def test_ctc_decoder_tensors_in_the_checkpoint_are_ignored(tmp_path: Path, session: SpeechSession) -> None:
    tiny_funasr_nano(tmp_path / "m")
    change_tensors(
        tmp_path / "m",
        lambda tensors: tensors.update({"ctc_decoder.linear1.weight": torch.ones(2), "ctc.ctc_lo.bias": torch.ones(3)}),
    )
    with_ctc_tensors = open_session(tmp_path / "m", "m", Settings())
    assert with_ctc_tensors.transcribe(noise(1.0), **BRIEF).tokens == session.transcribe(noise(1.0), **BRIEF).tokens


def rename(old: str, new: str) -> Callable[[dict[str, torch.Tensor]], object]:
    return lambda tensors: tensors.update({new: tensors.pop(old)})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda tensors: tensors.pop("audio_adaptor.linear1.bias"),
            r"m/model\.pt lacks tensor audio_adaptor\.linear1\.bias, which its config\.yaml calls for",
        ),
        (
            lambda tensors: tensors.update({"audio_adaptor.linear2.weight": torch.ones(HIDDEN, 7)}),
            r"m/model\.pt: tensor audio_adaptor\.linear2\.weight has shape \(32, 7\); "
            r"its config\.yaml and vocabulary call for \(32, 48\)",
        ),
        (
            lambda tensors: tensors.update({"audio_adaptor.blocks.2.norm1.bias": torch.ones(HIDDEN)}),
            r"m/model\.pt has tensor audio_adaptor\.blocks\.2\.norm1\.bias, which the network",
        ),
        (
            lambda tensors: tensors.pop("llm.model.norm.weight"),
            r"m/model\.pt lacks language tensor model\.norm\.weight, which its config\.json calls for",
        ),
        (
            lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("llm.")],
            r"m/model\.pt lacks language tensor .* \(and \d+ more\), which its config\.json calls for",
        ),
        (
            lambda tensors: tensors.update({"llm.model.norm.weight": torch.ones(HIDDEN + 1)}),
            r"m/model\.pt: tensor model\.norm\.weight has shape \(33,\); Qwen3-tiny/config\.json calls for \(32,\)",
        ),
        (
            rename("llm.model.norm.weight", "llm.model.norme.weight"),
            r"m/model\.pt lacks language tensor model\.norm\.weight",
        ),
        (
            lambda tensors: tensors.update({"llm.model.layers.7.mlp.up_proj.weight": torch.ones(1)}),
            r"m/model\.pt has language tensor model\.layers\.7\.mlp\.up_proj\.weight",
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, torch.Tensor]], object], sentence: str
) -> None:
    tiny_funasr_nano(tmp_path / "m")
    change_tensors(tmp_path / "m", change)
    with pytest.raises(BadInput, match=sentence):
        open_session(tmp_path / "m", "m", Settings())


def test_an_unknown_type_of_arithmetic_is_refused(directory: Path) -> None:
    with pytest.raises(BadInput, match="dtype is 'int8'; expected one of float32, bfloat16, float16"):
        open_session(directory, "m", Settings(dtype="int8"))


def test_texts_end_with_a_stop_token_or_a_note(single_transcripts: list[Transcript]) -> None:
    for transcript in single_transcripts:
        assert (transcript.tokens[-1] in STOPS) == (not transcript.notes)


def test_lora_of_funasr_is_added_to_the_language_model(tmp_path: Path) -> None:
    plain = tiny_funasr_nano(tmp_path / "plain")
    before = read_parts(read_funasr_nano(plain))[1]
    changed = add_lora(tiny_funasr_nano(tmp_path / "lora"))
    pairs = torch.load(changed / "model.pt", weights_only=True)
    _, after = read_parts(read_funasr_nano(changed))
    assert before.keys() == after.keys()
    for name, value in before.items():
        module = f"llm.{name.removesuffix('.weight')}"
        if f"{module}.lora_A" in pairs:
            value = value + 7 / 3 * pairs[f"{module}.lora_B"] @ pairs[f"{module}.lora_A"]
        torch.testing.assert_close(after[name], value, msg=name)
    session = open_session(changed, "changed", Settings())
    assert session.transcribe(noise(1.0)).tokens
    session.close()


@pytest.mark.parametrize(
    ("outputs", "conf", "problem"),
    [
        (32, {"r": 4}, r"model.pt has LoRA weights .* calls for \(4, 32\)"),
        (31, {}, r"model.pt has LoRA weights .* calls for \(32, 3\)"),
        (32, {"lora_alpha": "x"}, "llm_conf.lora_conf.lora_alpha in config.yaml is 'x'"),
        (32, {"r": 0}, "llm_conf.lora_conf.r in config.yaml is 0"),
    ],
)
def test_lora_that_does_not_fit_is_refused(outputs: int, conf: dict[str, Any], problem: str, tmp_path: Path) -> None:
    directory = add_lora(tiny_funasr_nano(tmp_path / "it"), outputs, **conf)
    with pytest.raises(BadInput, match=problem):
        read_parts(read_funasr_nano(directory))
