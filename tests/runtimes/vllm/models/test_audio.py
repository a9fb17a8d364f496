"""Audio inputs of vLLM requests: features by the workbench's front end, one placeholder per audio position."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from vllm.multimodal.inputs import MultiModalKwargsItems  # noqa: E402
from vllm.multimodal.processing.inputs import ProcessorInputs  # noqa: E402

from tests.support.tiny_checkpoints import noise  # noqa: E402
from tests.support.tiny_funasr_nano import tiny_funasr_nano  # noqa: E402
from workbench.audio.frontend import Frontend  # noqa: E402
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.families.language.directory import AUDIO  # noqa: E402
from workbench.families.speech_llm.funasr_nano import read_vllm_funasr_nano  # noqa: E402
from workbench.runtimes.vllm.models.audio import AudioDummyInputs, AudioProcessor, directory_of  # noqa: E402
from workbench.runtimes.vllm.models.errors import BadRequest  # noqa: E402
from workbench.runtimes.vllm.models.funasr_nano import NanoInfo  # noqa: E402


class Context:
    """The context that vLLM passes to a processor, without a complete model."""

    def __init__(self, directory: Path, defaults: dict[str, Any] | None = None):
        self.tokenizer: Any = read_vllm_funasr_nano(directory).tokenizer._tokenizer
        self.model_config = SimpleNamespace(
            model=str(directory), multimodal_config=None, get_multimodal_config=lambda: self.options
        )
        self.options = SimpleNamespace(
            enable_mm_embeds=False,
            mm_hasher_algorithm="blake3",
            get_limit_per_prompt=lambda _: 1,
            limit_per_prompt={},
        )
        self.defaults = defaults or {}

    def get_tokenizer(self) -> Any:
        return self.tokenizer

    def get_mm_config(self) -> Any:
        return self.options

    def get_merged_mm_kwargs(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {**self.defaults, **kwargs}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_directory(plan_of(tiny_funasr_nano(folder / "tiny"), "funasr_nano"), folder / "it")
    return folder / "it"


@pytest.fixture(scope="module")
def processor(directory: Path) -> AudioProcessor:
    info = NanoInfo(Context(directory))  # type: ignore[arg-type]
    return AudioProcessor(info, AudioDummyInputs(info))


def process(processor: AudioProcessor, audio: Any, ids: list[int], **options: Any) -> tuple[dict[str, Any], Any]:
    """Returns the fields of the recording and vLLM's complete inputs."""
    items = processor.info.parse_mm_data({"audio": audio})
    inputs: Any = processor.apply(
        ProcessorInputs(ids, items, hf_processor_mm_kwargs=options), SimpleNamespace(record=nullcontext)
    )
    kwargs: MultiModalKwargsItems = inputs["mm_kwargs"]
    return {name: element.data for name, element in kwargs["audio"][0].items()}, inputs


@settings(deadline=None, max_examples=25)
@given(samples=st.integers(200, 40_000), before_count=st.integers(0, 3), after_count=st.integers(0, 3))
def test_audio_features_and_placeholders_match_the_recording_length(
    samples: int, before_count: int, after_count: int, processor: AudioProcessor, directory: Path
) -> None:
    sound = noise(3)[0][:samples]
    placeholder = processor.info.placeholder
    fields, inputs = process(processor, sound, [7] * before_count + [placeholder] + [8] * after_count)
    model = read_vllm_funasr_nano(directory)
    expected = Frontend(model.frontend, None)(sound).features
    assert fields["features"].dtype == torch.float32 and np.array_equal(fields["features"].numpy(), expected)
    count = processor.info.front_end.count(samples)
    assert (int(fields["lengths"]), int(fields["counts"]), int(fields["capture"])) == (len(expected), count, 0)
    assert inputs["prompt_token_ids"] == [7] * before_count + [placeholder] * count + [8] * after_count
    [placeholder_range] = inputs["mm_placeholders"]["audio"]
    assert (placeholder_range.offset, placeholder_range.length) == (before_count, count)


def test_options_reach_the_front_end(processor: AudioProcessor) -> None:
    sound, ids = noise(1)[0], [processor.info.placeholder]
    plain, plain_inputs = process(processor, sound, ids)
    dithered, dithered_inputs = process(processor, sound, ids, dither=1.0, capture=5)
    assert int(dithered["capture"]) == 5
    assert not torch.equal(plain["features"], dithered["features"])
    assert torch.equal(dithered["features"], process(processor, sound, ids, dither=1.0)[0]["features"])
    assert plain_inputs["mm_hashes"] != dithered_inputs["mm_hashes"]  # vLLM's caches distinguish the two


def test_stereo_audio_of_another_rate_is_converted_to_mono_16_khz(processor: AudioProcessor) -> None:
    ids = [processor.info.placeholder]
    sound, rate = noise(1, 8000)
    fields, _ = process(processor, (np.stack([sound, sound]), rate), ids)
    assert int(fields["counts"]) == processor.info.front_end.count(16000)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"dihter": 1.0}, "it has no option dihter; did you mean dither?"),
        ({"cmvn": "maybe"}, "option cmvn of it is 'maybe'; expected one of checkpoint, off"),
        ({"capture": "x"}, "capture is 'x'; expected a whole number"),
    ],
)
def test_invalid_options_are_refused_as_value_errors(
    options: dict[str, Any], message: str, processor: AudioProcessor
) -> None:
    with pytest.raises(BadRequest) as caught:
        process(processor, noise(1)[0], [processor.info.placeholder], **options)
    assert message in str(caught.value)
    assert isinstance(caught.value, ValueError)  # vLLM's server answers it with status 400


def test_no_sound_at_all_is_refused(processor: AudioProcessor) -> None:
    with pytest.raises(BadRequest, match="0 samples are too few"):
        process(processor, np.zeros(0, dtype=np.float32), [processor.info.placeholder])


def test_profiling_audio_is_30_seconds_or_as_long_as_the_context_allows(processor: AudioProcessor) -> None:
    count = processor.info.front_end.count(30 * 16000)
    assert processor.info.get_mm_max_tokens_per_item(4096, {"audio": 1}) == {"audio": count}
    assert processor.info.get_mm_max_tokens_per_item(20, {"audio": 1}) == {"audio": 20}
    assert processor.dummy_inputs.get_dummy_text({"audio": 1}) == AUDIO
    for room, expected in ((4096, 30 * 16000), (20, None)):
        [silence] = processor.dummy_inputs.get_dummy_mm_data(room, {"audio": 1}, {})["audio"]
        assert processor.info.front_end.count(len(silence)) <= room
        assert expected is None or len(silence) == expected


def test_model_name_that_is_not_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        BadRequest, match="someone/model is not a directory; expected one from `workbench convert --for vllm`"
    ):
        directory_of(SimpleNamespace(model="someone/model"))
    assert directory_of(SimpleNamespace(model=str(tmp_path))) == tmp_path
