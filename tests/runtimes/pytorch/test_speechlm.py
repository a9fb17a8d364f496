"""SpeechLM on PyTorch against a reference implementation, token by token, for both checkpoint formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.speechlm_reference import Reference, Wish, uniform_numbers
from tests.support.tiny_speechlm import LANGUAGE, TOWER, TinySpeechLm, tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput, Unavailable
from workbench.core.settings import Settings
from workbench.families.speechlm.model import SpeechLmModel
from workbench.runtimes.pytorch.checkpoints.memory_mapping import mapped_regions
from workbench.runtimes.pytorch.language_models.speechlm_network import SpeechLmNetwork
from workbench.runtimes.pytorch.networks.xcodec import Xcodec
from workbench.runtimes.pytorch.speechlm import open_speechlm
from workbench.speech.dialogue import Recording, Turn, prompt_parts
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.network import NeededLogits
from workbench.speech.sampling import uniforms
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

WIDER = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3}


@dataclass
class OpenCheckpoint:
    """A checkpoint, its parts as opened by the library, and the reference implementation."""

    tiny: TinySpeechLm
    language: Mapping[str, Any]
    model: SpeechLmModel
    network: SpeechLmNetwork
    codec: Xcodec

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.tiny.tensors, self.language, TOWER, self.tiny.layout)


def open_checkpoint(tiny: TinySpeechLm, language: Mapping[str, Any] = {}, **settings: Any) -> OpenCheckpoint:
    model, network, codec = open_speechlm(tiny.directory, Settings(**settings))
    assert codec is not None
    return OpenCheckpoint(tiny, {**LANGUAGE, **language}, model, network, codec)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OpenCheckpoint]:
    root = tmp_path_factory.mktemp("speechlm")
    return {
        "directory": open_checkpoint(tiny_speechlm(root / "directory")),
        "release": open_checkpoint(tiny_espnet_release(root / "release", seed=2)),
        "other": open_checkpoint(tiny_speechlm(root / "other", 3, streams=3, codec_inside=True, language=WIDER), WIDER),
    }


FORMS = ("directory", "release", "other")


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, round(16000 * seconds)).astype(np.float32)


TURNS = {
    "text": [Turn("system", text="Be short."), Turn("user", text="say three seven one")],
    "speech": [Turn("user", samples=sound(1.3)), Turn("user", text="Repeat it.")],
    "dialogue": [
        Turn("user", text="one"),
        Turn("assistant", text="One."),
        Turn("assistant", samples=sound(0.25, 1)),
        Turn("user", samples=sound(0.4, 2)),
    ],
}


def prompt_of(checkpoint: OpenCheckpoint, turns: Sequence[Turn]) -> list[Any]:
    model, network = checkpoint.model, checkpoint.network
    assert model.tower is not None
    parts = prompt_parts(
        turns, model.layout, model.tokenizer.encode, model.context, model.tower.rows, checkpoint.codec.encode
    )
    return [network.embed_audio(part.samples) if isinstance(part, Recording) else part for part in parts]


def plain_prompt(checkpoint: OpenCheckpoint, turns: Sequence[Turn]) -> list[Any]:
    reference, parts = checkpoint.reference, []
    for turn in turns:
        if turn.text is not None:
            ids = checkpoint.model.tokenizer.encode(turn.text)
            parts.append((turn.role, "text", [reference.row(number) for number in ids]))
        elif turn.role == "assistant":
            assert turn.samples is not None
            parts.append((turn.role, "audio", reference.delayed(checkpoint.codec.encode(turn.samples))))
        else:
            assert turn.samples is not None
            parts.append((turn.role, "audio", reference.embed_audio(turn.samples)))
    return reference.prompt(parts)


def answer(checkpoint: OpenCheckpoint, prompt: list[Any], wish: Wish) -> tuple[list[list[int]], str]:
    plan = AnswerPlan(
        modalities=wish.modalities,
        max_text_tokens=wish.most_text,
        min_text_tokens=wish.least_text,
        max_audio_rows=wish.most_audio,
        min_audio_rows=wish.least_audio,
        text_temperature=wish.text_temperature,
        audio_temperature=wish.audio_temperature,
        text_top_k=wish.text_top_k,
        audio_top_k=wish.audio_top_k,
        cfg=wish.cfg,
        seed=wish.seed,
    )
    rows, steps = [], answer_steps(checkpoint.network, prompt, plan)
    while True:
        try:
            rows.append(next(steps).ids.tolist())
        except StopIteration as stop:
            return rows, stop.value


WISHES = {
    "text": Wish("text", least_text=4),
    "audio": Wish("audio", least_audio=6),
    "both": Wish("text_audio", most_text=6, most_audio=12, least_audio=8),
    "auto": Wish("auto", most_text=8, most_audio=12),
    "auto again": Wish("auto", most_text=8, most_audio=12, least_text=0, least_audio=0, text_temperature=2.0, seed=3),
    "guided": Wish("audio", cfg=3.0, least_audio=14, most_audio=14),
    "guided both": Wish("text_audio", most_text=5, most_audio=10, cfg=2.5, audio_temperature=0.8, audio_top_k=7),
    "drawn": Wish(
        "text_audio", 8, 3, 12, 6, text_temperature=0.9, audio_temperature=1.1, text_top_k=20, audio_top_k=5, seed=11
    ),
    "drawn from all": Wish("audio", least_audio=10, audio_temperature=1.5, seed=(1 << 53) + 12345),
}


@pytest.mark.parametrize("wish", WISHES.values(), ids=list(WISHES))
@pytest.mark.parametrize("form", FORMS)
def test_answers_equal_the_reference(checkpoints: dict[str, OpenCheckpoint], form: str, wish: Wish) -> None:
    checkpoint = checkpoints[form]
    expected, finish = checkpoint.reference.answer(plain_prompt(checkpoint, TURNS["text"]), wish)
    assert answer(checkpoint, prompt_of(checkpoint, TURNS["text"]), wish) == (expected, finish)
    assert len(expected) > 4


@pytest.mark.parametrize("turns", ["speech", "dialogue"])
@pytest.mark.parametrize("form", FORMS)
def test_dialogues_equal_the_reference(checkpoints: dict[str, OpenCheckpoint], form: str, turns: str) -> None:
    checkpoint = checkpoints[form]
    wish = Wish("text_audio", 5, 2, 9, 5, text_temperature=0.8, audio_temperature=0.8, cfg=3.0, seed=5)
    expected, finish = checkpoint.reference.answer(plain_prompt(checkpoint, TURNS[turns]), wish)
    assert answer(checkpoint, prompt_of(checkpoint, TURNS[turns]), wish) == (expected, finish)


def test_answers_differ_between_requests_and_prompts(checkpoints: dict[str, OpenCheckpoint]) -> None:
    """The comparisons above would prove nothing if a random model always gave the same answer."""
    checkpoint = checkpoints["directory"]
    prompt = prompt_of(checkpoint, TURNS["text"])
    by_wish = {str(answer(checkpoint, prompt, wish)) for wish in WISHES.values()}
    by_prompt = {str(answer(checkpoint, prompt_of(checkpoint, turns), WISHES["audio"])) for turns in TURNS.values()}
    assert (len(by_wish), len(by_prompt)) == (len(WISHES), len(TURNS))


def test_random_numbers_of_the_reference_equal_the_documented_generator() -> None:
    for seed, step, count in ((0, 0, 8), (7, 3, 5), ((1 << 62) + 5, 4000, 9)):
        assert uniform_numbers(seed, step, count) == uniforms(seed, step, count).tolist()


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
@pytest.mark.parametrize("write", [tiny_speechlm, tiny_espnet_release])
def test_bfloat16_checkpoint_is_computed_in_bfloat16_and_repeatable(write: Any, dtype: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(write(tmp_path / "it", dtype=torch.bfloat16), dtype=dtype)
    assert checkpoint.network.dtype == "bfloat16"
    rows, _ = answer(checkpoint, prompt_of(checkpoint, TURNS["dialogue"]), WISHES["guided both"])
    assert rows == answer(checkpoint, prompt_of(checkpoint, TURNS["dialogue"]), WISHES["guided both"])[0]
    assert len(rows) > 4


@pytest.mark.parametrize("write", [tiny_speechlm, tiny_espnet_release])
def test_weights_of_the_stored_type_stay_mapped(write: Any, tmp_path: Path) -> None:
    """The published language model has 17 GB; a second copy would need too much memory."""
    checkpoint = open_checkpoint(write(tmp_path / "it", dtype=torch.bfloat16), dtype="auto")
    regions = mapped_regions(*checkpoint.model.weights)
    addresses = [value.data_ptr() for value in checkpoint.network.language.network.parameters()]
    assert addresses and all(any(first <= address < end for first, end in regions) for address in addresses)


# The network alone ---------------------------------------------------------------------------------------------------


def test_a_row_at_a_time_gives_the_logits_of_all_at_once(checkpoints: dict[str, OpenCheckpoint]) -> None:
    checkpoint = checkpoints["release"]
    network, layout = checkpoint.network, checkpoint.model.layout
    prompt, needed = prompt_of(checkpoint, TURNS["speech"]), all_logits(layout)
    rows = layout.pads + np.random.default_rng(0).integers(0, layout.layer_size, (9, layout.streams))
    at_once = network.open(prompt).feed(rows, needed)
    state = network.open(prompt)
    for row in rows:
        single = state.feed(row[None], needed)
    assert single.codec is not None and at_once.codec is not None
    np.testing.assert_allclose(single.main, at_once.main, atol=1e-4)
    np.testing.assert_allclose(single.codec, at_once.codec, atol=1e-4)
    assert state.length == sum(map(len, prompt)) + len(rows)


def all_logits(layout: Any) -> NeededLogits:
    return NeededLogits(((0, layout.vocabulary),), codec=True)


def test_only_requested_logits_are_computed(checkpoints: dict[str, OpenCheckpoint]) -> None:
    checkpoint = checkpoints["directory"]
    network, layout = checkpoint.network, checkpoint.model.layout
    prompt = prompt_of(checkpoint, TURNS["text"])
    full = network.open(prompt).feed(np.zeros((0, layout.streams), dtype=np.int64), all_logits(layout))
    for main in (
        ((layout.eos, layout.eos + 1),),
        ((2, 5), (layout.text_first, layout.text_end)),
        ((layout.eos, layout.eos + 1), layout.interval(0)),
        ((3, 4), (layout.text_first + 5, layout.text_first + 9), layout.interval(0)),
    ):
        actual = network.open(prompt).feed(np.zeros((0, layout.streams), dtype=np.int64), NeededLogits(main))
        expected = np.concatenate([full.main[:, first:end] for first, end in main], axis=1)
        np.testing.assert_allclose(actual.main, expected, atol=1e-4)
        assert actual.codec is None and actual.main.dtype == np.float32
    empty = network.open(prompt).feed(np.zeros((0, layout.streams), dtype=np.int64), NeededLogits(()))
    assert empty.main.shape == (1, 0)


def test_guidance_null_branch_does_not_depend_on_the_prompt(checkpoints: dict[str, OpenCheckpoint]) -> None:
    """Two prompts of equal length have the same null branch, and `join` removes it."""
    checkpoint = checkpoints["directory"]
    network, layout = checkpoint.network, checkpoint.model.layout
    row, needed = layout.row(layout.audio)[None], all_logits(layout)
    outputs = []
    for first in (layout.user, layout.system, layout.user):
        for short in (True, False):
            prompt = [np.array([layout.row(first)] * (4 if short else 7))]
            state = network.open(prompt)
            state.split()
            guided = state.feed(row, needed).main
            state.join()
            unguided = state.feed(row, needed).main
            plain = network.open(prompt).feed(np.concatenate([row, row]), needed).main
            np.testing.assert_allclose(unguided, plain, atol=1e-4)
            if short:
                outputs.append(guided)
    assert all(np.array_equal(output[1], outputs[0][1]) for output in outputs)
    assert not np.allclose(outputs[0][0], outputs[1][0]) and np.array_equal(outputs[0], outputs[2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_traced_stages_have_expected_shapes_and_equal_the_reference_logits(
    checkpoints: dict[str, OpenCheckpoint], dtype: str
) -> None:
    tiny = checkpoints["directory"].tiny
    checkpoint = open_checkpoint(tiny, dtype=dtype)
    layout, recorder = tiny.layout, Recorder(StageFilter())
    turns = TURNS["dialogue"]
    checkpoint.network.trace(prompt_of(checkpoint, turns), recorder)
    stages, reference = recorder.stages, checkpoint.reference
    positions = plain_prompt(checkpoint, turns)
    width, count = LANGUAGE["hidden_size"], len(positions)
    layers = [f"llm.layers.{number}" for number in range(LANGUAGE["num_hidden_layers"])]
    assert {name: value.shape for name, value in stages.items()} == {
        "llm.embeddings": (count, width),
        **dict.fromkeys(layers, (count, width)),
        "llm.norm": (count, width),
        "logits": (count, layout.vocabulary),
        "codec.logits": (count, layout.streams - 1, layout.layer_size),
    }
    assert all(value.dtype == np.dtype(dtype) for value in stages.values())
    embeddings = torch.stack([reference.embedded(position) for position in positions]).numpy()
    np.testing.assert_allclose(stages["llm.embeddings"], embeddings, atol=2e-5 * np.abs(embeddings).max())
    for index in (3, count - 1):
        expected = reference.logits(positions[: index + 1]).numpy()
        np.testing.assert_allclose(stages["logits"][index], expected[0], atol=1e-3)
        for stream in range(1, layout.streams):
            first, end = layout.interval(stream)
            np.testing.assert_allclose(
                stages["codec.logits"][index, stream - 1], expected[stream, first:end], atol=1e-3
            )


def test_trace_continues_from_given_stages(checkpoints: dict[str, OpenCheckpoint]) -> None:
    checkpoint = checkpoints["directory"]
    prompt = prompt_of(checkpoint, TURNS["text"])
    full = Recorder(StageFilter())
    checkpoint.network.trace(prompt, full)
    given_stages = {"llm.norm": full.stages["llm.norm"][::-1].copy()}
    continued = Recorder(lambda name: name == "codec.logits", given=given_stages)
    checkpoint.network.trace(prompt, continued)
    assert list(continued.stages) == ["codec.logits"]
    np.testing.assert_allclose(continued.stages["codec.logits"], full.stages["codec.logits"][::-1], atol=1e-5)


# Bad input -----------------------------------------------------------------------------------------------------------


def change_release(directory: Path, **changes: Tensor | None) -> None:
    content = torch.load(directory / "model.pt", weights_only=True)["module"] | changes
    torch.save(
        {"module": {name: tensor for name, tensor in content.items() if tensor is not None}}, directory / "model.pt"
    )


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("lm_head.weight", None, "lacks language tensor lm_head.weight"),
        ("model.norm.bias", torch.zeros(3), "has language tensor model.norm.bias"),
        ("model.norm.weight", torch.zeros(3), "tensor model.norm.weight has shape (3,)"),
        ("stream_emb.weight", None, "lacks tensor stream_emb.weight"),
        ("stream_emb.weight", torch.zeros(4, 32), "has the shape (4, 32) for tensor stream_emb.weight"),
        ("adaptor.continuous_audio.weight", None, "lacks tensor adaptor.continuous_audio.weight"),
        ("multimodal_io_dict.discrete_audio.codec_model.fc2.bias", None, "codec lacks tensor fc2.bias"),
        ("rotary.weight", torch.zeros(2), "has tensor rotary.weight, which belongs to no part of a SpeechLM"),
    ],
)
def test_missing_extra_or_misshapen_tensor_raises_one_line_error(
    name: str, value: Tensor | None, says: str, tmp_path: Path
) -> None:
    tiny = tiny_espnet_release(tmp_path / "it")
    change_release(tiny.directory, **{name: value})
    with pytest.raises(BadInput) as error:
        open_speechlm(tiny.directory, Settings())
    assert says in str(error.value) and "\n" not in str(error.value)


def test_checkpoint_without_codec_weights_is_unavailable(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    (tiny.directory / "xcodec" / "model.safetensors").unlink()
    with pytest.raises(Unavailable, match="the codec is missing"):
        open_speechlm(tiny.directory, Settings())


def test_damaged_shard_is_refused(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    shard = sorted(tiny.directory.glob("model-*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(BadInput, match="is damaged or not a safetensors file"):
        open_speechlm(tiny.directory, Settings())


def test_prompts_of_wrong_size_or_token_ids_raise_one_line_error(checkpoints: dict[str, OpenCheckpoint]) -> None:
    checkpoint = checkpoints["directory"]
    network, layout = checkpoint.network, checkpoint.model.layout
    for part, says in (
        (np.zeros((0, layout.streams), dtype=np.int64), "the prompt has 0 positions"),
        (np.zeros((network.context, layout.streams), dtype=np.int64), "the model has room for 600"),
        (np.full((2, layout.streams), layout.vocabulary), f"expected 0 to {layout.vocabulary - 1}"),
        (np.zeros((2, layout.streams + 1), dtype=np.int64), "expected [rows, 5] ids"),
    ):
        with pytest.raises(BadInput) as error:
            network.open([part])
        assert says in str(error.value) and "\n" not in str(error.value)


def test_audio_beyond_the_context_is_refused_and_embedded_by_a_larger_context(
    checkpoints: dict[str, OpenCheckpoint], tmp_path: Path
) -> None:
    recording = sound(300)
    with pytest.raises(BadInput, match=r"the recording of 300\.0 s fills 3750 positions; the model has room for 600"):
        checkpoints["directory"].network.embed_audio(recording)
    larger = open_checkpoint(tiny_speechlm(tmp_path / "it", language={"max_position_embeddings": 8192}))
    assert len(larger.network.embed_audio(recording)) == 3750


def test_audio_without_an_audio_encoder_is_refused(tmp_path: Path) -> None:
    tiny = tiny_speechlm(tmp_path / "it")
    _, network, _ = open_speechlm(tiny.directory, Settings())
    network.audio_encoder = None
    with pytest.raises(BadInput, match="has no audio encoder"):
        network.embed_audio(sound(1))
