"""The stages inside a layer on gguf: consistent by definition, equal to PyTorch, and without effect on others."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from tests.support.inner_stages import DEMOS, layers_of, opened, relative_error, traced
from tests.support.layers import softmax
from tests.support.tiny_gguf import tiny_gguf
from workbench.compare import compare
from workbench.conversion import writer
from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.formats.gguf_file import read_gguf
from workbench.registry.sources import assets
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.language import open_language
from workbench.runtimes.gguf.networks import attention_stages
from workbench.trace import inside
from workbench.trace.inside import is_inside
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter, Trace

TOLERANCE = 1e-5
# The largest relative error of a stage inside the first layer.
QUANTISED_TOLERANCES = {"f16": 5e-3, "q8_0": 5e-2, "q4_0": 0.6}


def on_gguf(name: str, folder: Path, quantization: str = "f32", **settings: Any) -> Any:
    """A session of a demo model's GGUF file."""
    family = import_module(f"workbench.runtimes.gguf.{name}")
    plans = import_module(f"workbench.conversion.{name}").plans(
        assets() / f"demo-{name.replace('_', '-')}", "workbench"
    )
    [path] = writer.write(plans, quantization, folder / f"{name}-{quantization}.gguf")
    return family.open_session(path, f"demo {name}", Settings(threads=1, **settings))


class Both:
    """A demo model on both runtimes."""

    def __init__(self, name: str, folder: Path):
        self.session = on_gguf(name, folder)
        self.trace: Trace = traced(self.session)
        reference = opened(f"demo {name}", folder)
        self.expected: Trace = traced(reference)
        self.layers = layers_of(reference)
        reference.close()

    def part(self, stage: str) -> np.ndarray:
        return np.asarray(self.trace[stage], np.float64)


@pytest.fixture(scope="module", params=DEMOS)
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    both_runtimes = Both(request.param, tmp_path_factory.mktemp("inside"))
    yield both_runtimes
    both_runtimes.session.close()


def test_attention_weights_times_values_give_context_and_output(both: Both) -> None:
    count = 0
    for stage in filter(lambda stage: stage.endswith("attention.weights"), both.trace):
        prefix = stage.removesuffix(".weights")
        weights, values = both.part(stage), both.part(f"{prefix}.value")
        assert weights.shape[1:] == (len(both.part(f"{prefix}.query")), len(values))
        assert weights.min() >= 0 and relative_error(weights.sum(axis=2), np.ones(weights.shape[:2])) < TOLERANCE
        values = np.repeat(values, len(weights) // values.shape[1], axis=1)
        context = np.einsum("hqk,khd->qhd", weights, values).reshape(weights.shape[1], -1)
        assert relative_error(both.part(f"{prefix}.context"), context) < TOLERANCE
        layer, places = both.layers[prefix.rpartition(".")[0]]
        projection: Any = layer.get_submodule(places.places[f"{prefix.rpartition('.')[2]}.output"].module)
        matrix = projection.weight.detach()
        matrix = (matrix.to_dense() if matrix.is_mkldnn else matrix).double().numpy()
        bias = 0 if projection.bias is None else projection.bias.detach().double().numpy()
        assert relative_error(both.part(f"{prefix}.output"), context @ matrix.T + bias) < TOLERANCE
        count += 1
    assert (
        count == sum(len(places.attention) for _, places in both.layers.values()) or "decoder.layers.0" in both.layers
    )
    assert count


def test_every_stage_inside_the_layers_equals_pytorch(both: Both) -> None:
    assert set(both.trace) == set(both.expected)
    comparison = compare(both.expected, both.trace, stages="*.*")
    assert comparison.tolerances.preset.name == "f32"
    assert [each.stage for each in comparison.stages if not comparison.passes(each)] == []
    assert sum(is_inside(each.stage) for each in comparison.stages) > 40


def test_recording_a_stage_does_not_change_other_stages(both: Both) -> None:
    plain = traced(both.session, "*")
    assert not any(map(is_inside, plain))
    for stage, values in plain.items():
        assert values.tobytes() == both.trace[stage].tobytes(), stage
    layer = next(stage for stage in both.layers if stage.startswith(("encoder", "llm")))
    attention = traced(both.session, f"{layer}.attention.*")
    assert {stage.rpartition(".")[0] for stage in attention} <= {f"{layer}.attention", layer}
    for stage, values in attention.items():
        assert values.tobytes() == both.trace[stage].tobytes(), stage


def test_attention_weights_in_query_blocks_equal_those_of_one_block(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention of long recordings is computed in blocks of rows; here a block is one row."""
    monkeypatch.setattr(attention_stages, "BLOCK_BYTES", 1)
    in_blocks = traced(both.session, "*.layers.*.*attention.weights")
    assert in_blocks
    for stage, values in in_blocks.items():
        np.testing.assert_allclose(values, both.trace[stage], rtol=0, atol=1e-6)


def test_too_large_attention_weights_are_refused(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inside, "MAX_WEIGHTS", 100)
    with pytest.raises(BadInput, match=r"attention\.weights would hold [0-9,]+ numbers \(.*; expected at most 100: "):
        traced(both.session, "*.layers.*.*attention.weights")
    assert traced(both.session, "*.layers.0.*attention.output")


def test_unknown_stage_inside_a_layer_raises_one_line_error(both: Both) -> None:
    stack = next(iter(both.layers)).partition(".")[0]
    with pytest.raises(BadInput, match=r"no stage inside the layers of demo \w+ on gguf matches"):
        traced(both.session, f"{stack}.layers.0.attention.wieghts")


def test_quantised_files_have_the_same_stages_within_tolerance(both: Both, tmp_path: Path) -> None:
    name = both.session.model.split()[1]
    for kind in QUANTISED_TOLERANCES if name == "sensevoice" else ("q8_0",):
        session = on_gguf(name, tmp_path, kind)
        trace = traced(session, "*.layers.0.*")
        session.close()
        assert set(trace) == {stage for stage in both.trace if ".layers.0." in stage}
        first = next(iter(trace)).partition(".layers")[0]
        for stage, values in trace.items():
            exact = both.part(stage)
            if stage.endswith(".weights"):
                assert relative_error(values.sum(axis=2), exact.sum(axis=2)) < TOLERANCE
            elif stage.startswith(first):
                relative_l2 = np.linalg.norm(values - exact) / np.linalg.norm(exact)
                assert relative_l2 <= QUANTISED_TOLERANCES[kind], (stage, kind)


def test_quantised_kv_cache_has_no_attention_weights_stage(tmp_path: Path) -> None:
    """llama.cpp computes attention in separate steps with float16 keys and values, in one step with quantised ones."""
    traces = {}
    for kind in ("f16", "q8_0"):
        session = on_gguf("funasr_nano", tmp_path, "f32", kv_cache=kind)
        traces[kind] = traced(session, "llm.layers.*.attention.*")
        if kind == "q8_0":
            with pytest.raises(BadInput, match="in one step and keeps no weights; choose kv_cache f32 or f16"):
                traced(session, "llm.layers.0.attention.weights")
        session.close()
    weights = {stage for stage in traces["f16"] if stage.endswith("weights")}
    assert weights and set(traces["q8_0"]) == set(traces["f16"]) - weights
    for stage in weights:
        np.testing.assert_allclose(traces["f16"][stage].sum(axis=2), 1, atol=1e-5)


def test_values_substituted_inside_a_layer_are_used_by_later_stages(tmp_path: Path) -> None:
    """SenseVoice's graph has one matrix for queries, keys and values; Fun-ASR-Nano's layers run on llama.cpp."""
    rng = np.random.default_rng(3)
    for name, stage in (("sensevoice", "encoder.layers.1"), ("funasr_nano", "llm.layers.1")):
        session = on_gguf(name, tmp_path)
        original = traced(session, f"{stage}.*")
        substitutes = {
            part: rng.standard_normal(original[f"{stage}.{part}"].shape).astype(np.float32)
            for part in ("attention.query", "attention.value", "mlp.up")
        }
        substituted_trace = Trace({f"{stage}.{part}": values for part, values in substitutes.items()}, {})
        trace = traced(session, f"{stage}.*", given=substituted_trace)
        session.close()
        for part in substitutes:  # the recorded values are those that the pass computes itself
            before = f"{stage}.{part}"
            assert relative_error(trace[before], original[before]) < TOLERANCE or part == "mlp.up"
        weights, values = trace[f"{stage}.attention.weights"], substitutes["attention.value"]
        assert relative_error(weights, original[f"{stage}.attention.weights"]) > 0.01
        values = np.repeat(values, len(weights) // values.shape[1], axis=1)
        context = np.einsum("hqk,khd->qhd", weights, values).reshape(weights.shape[1], -1)
        assert relative_error(trace[f"{stage}.attention.context"], context) < TOLERANCE
        up = substitutes["mlp.up"]
        gate = trace.get(f"{stage}.mlp.gate")
        expected = np.maximum(up, 0) if gate is None else up * gate / (1 + np.exp(-gate))
        assert relative_error(trace[f"{stage}.mlp.activation"], expected) < TOLERANCE


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_stages_of_a_long_prompt_follow_the_layer_formulas_in_checkpoint_order(tmp_path: Path, kind: str) -> None:
    """llama.cpp computes 512 positions at once, and its `llama` files permute the rows of queries and keys."""
    network = tiny_gguf(tmp_path / "it.gguf", kind, max_position_embeddings=1024)
    file = read_gguf(tmp_path / "it.gguf")
    language = open_language(file, language_config(file), threads=1)
    recorder = Recorder(StageFilter("llm.layers.1.*"))
    language.trace(language.prompt([[number % 400 for number in range(600)]]), recorder)
    language.close()
    stages = {stage.removeprefix("llm.layers.1."): values for stage, values in recorder.stages.items()}
    layer = network.model.layers[1]
    for name in ("query", "key", "value"):
        weight = getattr(layer.self_attn, f"{name[0]}_proj").weight.detach().double().numpy()
        projected = (stages["input_norm"] @ weight.T).reshape(stages[f"attention.{name}"].shape)
        assert relative_error(stages[f"attention.{name}"], projected) < TOLERANCE
    query, key = (stages[f"attention.{name}_rope"].astype(np.float64) for name in ("query", "key"))
    cos, sin = network.model.rotary_emb(torch.zeros(1), torch.arange(600)[None])
    before = stages["attention.query" if kind == "llama" else "attention.query_norm"]
    rotated = apply_rotary_pos_emb(*(torch.from_numpy(before)[None].transpose(1, 2),) * 2, cos, sin)[0]
    assert relative_error(query, rotated[0].transpose(0, 1).numpy()) < 1e-4
    key = np.repeat(key, query.shape[1] // key.shape[1], axis=1)
    scores = np.einsum("qhd,khd->hqk", query, key) / query.shape[2] ** 0.5
    scores[:, np.triu(np.ones((600, 600), bool), 1)] = -np.inf
    assert relative_error(stages["attention.weights"], softmax(scores)) < TOLERANCE
    context = stages["attention.context"] @ layer.self_attn.o_proj.weight.detach().numpy().T
    assert relative_error(stages["attention.output"], context) < TOLERANCE
