"""SpeechLM's language model on llama.cpp against PyTorch: ids, logits, stages, guidance, closed sequences."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.speechlm_gguf import prompt_of, speechlm_file
from tests.support.tiny_speechlm import tiny_espnet_release, tiny_speechlm
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.speechlm.model import read_speechlm
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.llama_cpp.speechlm_network import SpeechLmNetwork
from workbench.runtimes.pytorch.speechlm import open_speechlm
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.network import NeededLogits
from workbench.system.memory import resident_bytes
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

Pair = tuple[Any, SpeechLmNetwork]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """The networks of both forms of a checkpoint on PyTorch and on llama.cpp."""
    root = tmp_path_factory.mktemp("speechlm")
    checkpoints = {
        "directory": tiny_speechlm(root / "directory"),
        "release": tiny_espnet_release(root / "release", seed=2),
    }
    networks = {}
    for name, checkpoint in checkpoints.items():
        model, reference, _ = open_speechlm(checkpoint.directory, Settings())
        file = read_gguf(speechlm_file(checkpoint.directory))
        networks[name] = reference, SpeechLmNetwork(file, model.language, model.layout, None, threads=1)
    yield networks
    for _, network in networks.values():
        network.close()


@pytest.fixture
def pair(pairs: dict[str, Pair]) -> Pair:
    return pairs["directory"]


def prompt(network: Any, first: int = 3, count: int = 7) -> np.ndarray:
    return prompt_of(network.layout, network.layout.text_first + first + np.arange(count))


def plan(modalities: str, **changes: Any) -> AnswerPlan:
    defaults: dict[str, Any] = {"text_temperature": 0.0, "audio_temperature": 0.0, "max_text_tokens": 12}
    return AnswerPlan(modalities, **{**defaults, "min_audio_rows": 20, "max_audio_rows": 40, **changes})


def rows(network: Any, answer: AnswerPlan, **changes: Any) -> np.ndarray:
    return np.array([step.ids for step in answer_steps(network, [prompt(network, **changes)], answer)])


@pytest.mark.parametrize("form", ["directory", "release"])
@pytest.mark.parametrize("cfg", [1.0, 3.0])
@pytest.mark.parametrize("modalities", ["text", "audio", "text_audio", "auto"])
def test_generated_ids_of_all_streams_equal_pytorch(
    form: str, cfg: float, modalities: str, pairs: dict[str, Pair]
) -> None:
    ids = [rows(network, plan(modalities, cfg=cfg)) for network in pairs[form]]
    np.testing.assert_array_equal(ids[1], ids[0])


def test_equal_seeds_sample_the_same_answer_as_pytorch(pair: Pair) -> None:
    sampling = {"text_temperature": 0.8, "audio_temperature": 0.8, "audio_top_k": 8, "cfg": 2.0}
    first, repeated, other_answer = (rows(pair[1], plan("text_audio", seed=seed, **sampling)) for seed in (5, 5, 6))
    np.testing.assert_array_equal(repeated, first)
    assert first.shape != other_answer.shape or (first != other_answer).any()
    np.testing.assert_array_equal(rows(pair[0], plan("text_audio", seed=5, **sampling)), first)


def test_answer_does_not_depend_on_earlier_or_open_sequences(pair: Pair) -> None:
    network = pair[1]
    expected = rows(network, plan("text_audio", cfg=3.0))
    long = AnswerPlan("audio", min_audio_rows=300, max_audio_rows=300, cfg=1.0, audio_temperature=0.7)
    rows(network, long, count=200)
    open_answer = answer_steps(network, [prompt(network, count=60)], long)
    for _ in range(9):
        next(open_answer)
    side_by_side = rows(network, plan("text_audio", cfg=3.0))  # while another sequence is open
    open_answer.close()
    np.testing.assert_array_equal(side_by_side, expected)
    np.testing.assert_array_equal(rows(network, plan("text_audio", cfg=3.0)), expected)


def test_logits_of_each_vocabulary_interval_equal_pytorch(pair: Pair) -> None:
    layout = pair[0].layout
    audio = NeededLogits(((layout.eos, layout.eos + 1), layout.interval(0)), codec=True)
    text = NeededLogits(((layout.eot, layout.eot + 1), (layout.text_first, layout.text_end)))
    interval = NeededLogits(((layout.text_first + 9, layout.text_first + 12),))
    joined = NeededLogits(((layout.text_first - 2, layout.text_first + 5),))  # as for a closing id just before the text
    across_codec = NeededLogits(((layout.codec_first - 3, layout.codec_first + 4),))
    for needed in (audio, text, interval, joined, across_codec, NeededLogits(())):
        outputs = []
        for network in pair:
            state = network.open([prompt(network)])
            state.feed(layout.row(layout.audio)[None], NeededLogits(()))
            state.split()
            outputs.append(state.feed(np.stack([layout.pads + 1, layout.pads + 2]), needed))
            state.join()
            last = state.feed((layout.pads + 2)[None], needed)
            assert last.main.shape[0] == 1
            assert state.length == len(prompt(network)) + 4
            outputs.append(last)
        for logits, expected in zip(outputs[2:], outputs[:2], strict=True):
            np.testing.assert_allclose(logits.main, expected.main, atol=2e-4)
            assert (logits.codec is None) == (expected.codec is None)
            if logits.codec is not None:
                np.testing.assert_allclose(logits.codec, expected.codec, atol=2e-4)


def test_prompt_in_several_passes_gives_the_logits_of_pytorch(pair: Pair) -> None:
    long = np.concatenate([prompt(pair[0], count=200), np.tile(pair[0].layout.pads + 3, (340, 1))])
    needed = NeededLogits((pair[0].layout.interval(0),), codec=True)
    logits = [network.open([long]).feed((network.layout.pads + 1)[None], needed) for network in pair]
    np.testing.assert_allclose(logits[1].main, logits[0].main, atol=2e-4)


def test_stages_equal_those_of_pytorch(pair: Pair) -> None:
    parts = [np.concatenate([prompt(pair[0]), np.tile(pair[0].layout.pads + 3, (3, 1))])]
    stages_of_both = []
    for network in pair:
        recorder = Recorder(StageFilter())
        network.trace(parts, recorder)
        stages_of_both.append(recorder.stages)
    expected, stages = stages_of_both
    assert list(stages) == list(expected)
    for stage, values in expected.items():
        np.testing.assert_allclose(stages[stage], values, atol=2e-4, err_msg=stage)


@pytest.mark.parametrize("stage", ["llm.embeddings", "llm.layers.0", "llm.norm"])
def test_substituted_stage_is_used_by_later_stages(stage: str, pair: Pair) -> None:
    parts = [prompt(pair[0])]
    shape = len(parts[0]), pair[1].config.hidden_size
    substitutes = {stage: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    logits = []
    for network in pair:
        recorder = Recorder(lambda name: name == "codec.logits", substitutes)
        network.trace(parts, recorder)
        logits.append(recorder.stages["codec.logits"])
    np.testing.assert_allclose(logits[1], logits[0], atol=2e-4)


def test_one_hundred_answers_take_no_more_memory(pair: Pair) -> None:
    answer = plan("text_audio", cfg=3.0, min_audio_rows=10, max_audio_rows=10)
    for count in range(20):
        rows(pair[1], answer, count=5 + count)
    before = resident_bytes(os.getpid())
    for count in range(100):
        rows(pair[1], answer, count=5 + count % 20)
    assert resident_bytes(os.getpid()) < before + 4e6


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (np.zeros((0, 5), np.int64), "the prompt has 0 positions"),
        (np.zeros((700, 5), np.int64), "the prompt has 700 positions; the model has room for 600"),
        (np.full((3, 5), 10**6), "the prompt has ids from 1000000 to 1000000; expected 0 to "),
        (np.zeros((3, 4), np.int64), r"rows of the prompt have the shape \(3, 4\)"),
    ],
)
def test_bad_prompt_raises_one_line_error(part: np.ndarray, message: str, pair: Pair) -> None:
    with pytest.raises(BadInput, match=message):
        pair[1].open([part])


def test_closed_model_raises_one_line_error(tmp_path: Path) -> None:
    checkpoint = tiny_speechlm(tmp_path / "it")
    model = read_speechlm(checkpoint.directory)
    network = SpeechLmNetwork(
        read_gguf(speechlm_file(checkpoint.directory)), model.language, model.layout, None, threads=1
    )
    state = network.open([prompt(network)])
    network.close()
    with pytest.raises(BadInput, match="is closed; open it again"):
        state.feed(prompt(network)[:1], NeededLogits(()))
