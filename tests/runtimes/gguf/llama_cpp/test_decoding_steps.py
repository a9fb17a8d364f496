"""Stages of decoding steps on llama.cpp against the network of transformers, and with planted faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.faults_in_decoding_on_ggml import FAULTS
from tests.support.tiny_gguf import tiny_gguf
from workbench.compare import compare, judge, noise_or_bug
from workbench.core.errors import BadInput, Unavailable
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config, read_dimensions
from workbench.runtimes.gguf.llama_cpp.cache_state import read_cache_state
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language
from workbench.runtimes.pytorch.language_models.language import LanguageModel as TorchModel
from workbench.trace.steps import ForcedDecoding
from workbench.trace.trace import StageFilter, Trace

PROMPT = [5, 300, 17, 17, 290, 8, 44, 91, 300, 2, 71, 66, 5, 9, 410, 33]
IDS = [7, 41, 300, 7, 2]
INSIDE = "*,llm.layers.*.*"


def open_model(path: Path, kv_cache: str = "f32") -> LanguageModel:
    file = read_gguf(path)
    return open_language(file, language_config(file), threads=1, kv_cache=kv_cache)


def follow_steps(language: Any, stages: str = INSIDE, dtype: str = "float32", ids: Sequence[int] = IDS) -> Trace:
    forced = ForcedDecoding(ids, range(1, len(ids)), StageFilter(stages))
    language.follow(language.prompt([PROMPT]), forced)
    return Trace(forced.recorder.stages, {"dtype": dtype, "input_digest": "a", **forced.meta()})


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Any]]:
    folder = tmp_path_factory.mktemp("steps")
    kinds = ("qwen3", "llama")
    return {kind: (folder / f"{kind}.gguf", tiny_gguf(folder / f"{kind}.gguf", kind)) for kind in kinds}


@pytest.fixture(scope="module")
def sides(paths: dict[str, tuple[Path, Any]]) -> tuple[LanguageModel, Trace, Trace]:
    """A model on llama.cpp, and the traces of PyTorch in float32 and float64."""
    path, network = paths["qwen3"]
    language = open_model(path)
    cpu = torch.device("cpu")
    reference = follow_steps(TorchModel(network.float(), language.config, cpu))
    exact = follow_steps(TorchModel(network.double(), language.config, cpu), dtype="float64")
    network.float()
    return language, reference, exact


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_decoding_steps_and_kv_cache_equal_transformers(paths: dict[str, tuple[Path, Any]], kind: str) -> None:
    path, network = paths[kind]
    language = open_model(path)
    expected = follow_steps(TorchModel(network.float(), language.config, torch.device("cpu")))
    trace = follow_steps(language)
    assert set(trace) == set(expected)
    for stage, array in expected.items():
        np.testing.assert_allclose(trace[stage], array, rtol=2e-3, atol=2e-4, err_msg=stage)


@pytest.mark.parametrize(("kv_cache", "limit"), [("f16", 4e-3), ("q8_0", 2e-2)])
def test_kv_cache_of_rounded_types_is_read(tmp_path: Path, kv_cache: str, limit: float) -> None:
    tiny_gguf(tmp_path / "it.gguf", head_dim=32)
    stages = "llm.layers.*.cache.*"
    exact, rounded = (follow_steps(open_model(tmp_path / "it.gguf", each), stages) for each in ("f32", kv_cache))
    for stage, array in exact.items():
        error = np.linalg.norm(rounded[stage] - array) / np.linalg.norm(array)
        assert 0 < error < limit, f"{stage} {error}"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_by_step_and_stage(sides: tuple[LanguageModel, Trace, Trace], fault: str) -> None:
    language, reference, exact = sides
    plant, layer, inner_stage = FAULTS[fault]
    with plant():
        faulty = follow_steps(language)
    for stages, expected in (("steps.*.llm.layers.?,steps.*.logits", layer), (INSIDE, inner_stage)):
        verdict = judge(compare(reference, faulty, stages=stages), noise_or_bug(reference, faulty, exact, stages))
        assert verdict.faulty_stage == expected, verdict.sentence


def test_run_without_faults_is_within_tolerance(sides: tuple[LanguageModel, Trace, Trace]) -> None:
    language, reference, exact = sides
    trace = follow_steps(language)
    verdict = judge(compare(reference, trace), noise_or_bug(reference, trace, exact))
    assert verdict.within and "Steps 1 to 4 are within" in verdict.sentence, verdict.sentence


def test_a_step_beyond_the_context_is_refused(sides: tuple[LanguageModel, Trace, Trace]) -> None:
    with pytest.raises(BadInput, match="positions; expected at most 256"):
        follow_steps(sides[0], "logits", ids=[1] * 300)


def test_kv_cache_state_of_an_unknown_format_is_refused(sides: tuple[LanguageModel, Trace, Trace]) -> None:
    language = sides[0]
    sizes = read_dimensions(language.file)
    context = language._context(32, 1, 32)
    context.prefill(language.prompt([PROMPT]).embeddings[0], 0)
    state = context.state(0)
    assert len(read_cache_state(state, sizes)) == sizes.layers
    for wrong in (state[:-4], state + b"\0\0\0\0", state[:8] + b"\2\0\0\0" + state[12:], b""):
        with pytest.raises(Unavailable, match=r"^the cache cannot be shown: llama.cpp writes its state in a form"):
            read_cache_state(wrong, sizes)
    language._give_back(context)
