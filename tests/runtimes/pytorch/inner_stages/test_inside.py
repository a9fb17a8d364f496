"""Stages inside layers, recomputed from one another, for every family with tiny and demo checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.inner_stages import MODELS, layers_of, opened, relative_error, traced
from workbench.core.errors import BadInput
from workbench.runtimes.pytorch.inner_stages.layer_maps import CONFORMER, LANGUAGE, SANM_DECODER, LayerMap
from workbench.runtimes.pytorch.networks.conformer import ConformerBlock
from workbench.trace.inside import DECODER_PARTS, PARTS, is_inside
from workbench.trace.trace import Trace

CLOSE = 1e-5


class InspectedModel:
    """A session, its trace of all stages, and the layers of its network."""

    def __init__(self, model: str, folder: Path):
        self.session = opened(model, folder)
        self.trace: Trace = traced(self.session)
        self.layers = layers_of(self.session)

    @property
    def second_stage(self) -> int:
        """The first layer of the second stage of a SAN-M encoder, which begins with a norm."""
        recogniser = self.session.recogniser
        network = getattr(recogniser, "encoder", recogniser).network.network
        encoder = getattr(network, "audio_encoder", None) or network.encoder
        return 1 + len(encoder.encoders)

    def part(self, layer: str, part: str) -> np.ndarray:
        return np.asarray(self.trace[f"{layer}.{part}"], np.float64)

    def attentions(self) -> Iterator[tuple[str, nn.Module, LayerMap, str]]:
        for stage, (layer, places) in self.layers.items():
            for part in places.attention:
                if f"{stage}.{part}.weights" in self.trace:
                    yield stage, layer, places, part


@pytest.fixture(scope="module", params=MODELS)
def inspected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InspectedModel]:
    instance = InspectedModel(request.param, tmp_path_factory.mktemp("inside"))
    yield instance
    instance.session.close()


def apply_module(module: Any, rows: np.ndarray) -> np.ndarray:
    """The output of a linear layer or norm for rows, in float64."""
    x = torch.from_numpy(rows)
    weight = module.weight.detach()
    weight = (weight.to_dense() if weight.is_mkldnn else weight).double()
    if hasattr(module, "variance_epsilon"):  # RMSNorm
        output = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon) * weight
    else:
        bias = None if module.bias is None else module.bias.detach().double()
        norm = isinstance(module, nn.LayerNorm)
        output = F.layer_norm(x, x.shape[-1:], weight, bias, module.eps) if norm else F.linear(x, weight, bias)
    return output.numpy()


def test_weights_times_values_are_the_context_and_the_output(inspected: InspectedModel) -> None:
    count = 0
    for stage, layer, places, part in inspected.attentions():
        weights, values = inspected.part(stage, f"{part}.weights"), inspected.part(stage, f"{part}.value")
        heads = len(weights)
        assert weights.min() >= 0 and relative_error(weights.sum(axis=2), np.ones(weights.shape[:2])) < CLOSE
        assert weights.shape[1:] == (len(inspected.part(stage, f"{part}.query")), len(values))
        values = np.repeat(values, heads // values.shape[1], axis=1)
        context = np.einsum("hqk,khd->qhd", weights, values).reshape(weights.shape[1], -1)
        assert relative_error(inspected.part(stage, f"{part}.context"), context) < CLOSE
        output = apply_module(layer.get_submodule(places.places[f"{part}.output"].module), context)
        assert relative_error(inspected.part(stage, f"{part}.output"), output) < CLOSE
        if f"{stage}.attention" in inspected.trace:
            assert np.array_equal(inspected.trace[f"{stage}.attention"], inspected.trace[f"{stage}.attention.output"])
        count += 1
    expected = [
        name for layer, places in inspected.layers.values() for name in places.attention.values() if has(layer, name)
    ]
    assert count == len(expected) > 0


def has(layer: nn.Module, name: str) -> bool:
    return getattr(layer, name, None) is not None


def layer_input(inspected: InspectedModel, stage: str) -> np.ndarray | None:
    """The input of a layer; None for the first layer of SAN-M, which has no residual connection."""
    stack, _, number = stage.rpartition(".")
    if stack == "encoder.layers" and "encoder.after_norm" in inspected.trace and int(number) == inspected.second_stage:
        return np.asarray(inspected.trace["encoder.after_norm"], np.float64)
    if int(number):
        return np.asarray(inspected.trace[f"{stack}.{int(number) - 1}"], np.float64)
    names = {"decoder.layers": "predictor.embeddings", "llm.layers": "llm.embeddings"}
    if stack in names:
        return np.asarray(inspected.trace[names[stack]], np.float64)
    if stack == "encoder.layers" and isinstance(inspected.layers[stage][0], ConformerBlock):
        return np.asarray(inspected.trace["encoder.input"], np.float64)
    return None


def test_the_parts_of_a_layer_add_up_to_its_output(inspected: InspectedModel) -> None:
    for stage, (layer, places) in inspected.layers.items():

        def part(name: str, stage: str = stage) -> np.ndarray:
            return inspected.part(stage, name)

        layer_input_rows, output = layer_input(inspected, stage), np.asarray(inspected.trace[stage], np.float64)
        if places is CONFORMER:
            assert layer_input_rows is not None
            for name in ("ffn1", "ffn2"):
                start = layer_input_rows if name == "ffn1" else part("conv.residual")
                assert relative_error(part(f"{name}.residual"), start + part(f"{name}.down") / 2) < CLOSE
            assert relative_error(part("attention.residual"), part("ffn1.residual") + part("attention.output")) < CLOSE
            assert relative_error(part("conv.residual"), part("attention.residual") + part("convolution")) < CLOSE
            assert (
                relative_error(output, apply_module(layer.get_submodule("layer_norm"), part("ffn2.residual"))) < CLOSE
            )
        elif places is SANM_DECODER:
            if not has(layer, "self_attn"):
                assert relative_error(output, part("mlp.down")) < CLOSE
                continue
            assert layer_input_rows is not None
            residual = layer_input_rows + part("fsmn")
            if has(layer, "src_attn"):
                assert relative_error(part("fsmn_residual"), residual) < CLOSE
                residual = residual + part("cross_attention.output")
            assert relative_error(output, residual) < CLOSE
        else:
            assert relative_error(output, part("attention.residual") + part("mlp.down")) < CLOSE
            sum_of_parts = part("attention.output") + (part("fsmn") if f"{stage}.fsmn" in inspected.trace else 0)
            if layer_input_rows is not None:
                assert relative_error(part("attention.residual"), layer_input_rows + sum_of_parts) < CLOSE


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def test_norms_projections_and_activations_equal_recomputation_in_float64(inspected: InspectedModel) -> None:
    """Norms, projections and activations, in float64."""
    for stage, (layer, places) in inspected.layers.items():

        def assert_follows(
            part: str, source: np.ndarray, stage: str = stage, layer: Any = layer, places: Any = places
        ) -> None:
            place = places.places[part]
            recomputed = apply_module(layer.get_submodule(place.module), source)
            recomputed = np.split(recomputed, place.share[1], axis=-1)[place.share[0]]
            expected = inspected.part(stage, part)
            assert relative_error(expected, recomputed.reshape(expected.shape)) < CLOSE, f"{stage}.{part}"

        def part(name: str, stage: str = stage) -> np.ndarray:
            return inspected.part(stage, name)

        if places is CONFORMER:
            for name in ("query", "key", "value"):
                assert_follows(f"input_norm.{name}", part("ffn1.residual"))
                assert_follows(f"attention.{name}", part(f"input_norm.{name}"))
            for name in ("ffn1", "ffn2"):
                assert_follows(f"{name}.up", part(f"{name}.norm"))
                assert relative_error(part(f"{name}.activation"), silu(part(f"{name}.up"))) < CLOSE
                assert_follows(f"{name}.down", part(f"{name}.activation"))
            assert_follows("conv.norm", part("attention.residual"))
            left, right = np.split(part("conv.up"), 2, axis=1)
            assert relative_error(part("conv.gate"), left / (1 + np.exp(-right))) < CLOSE
            assert_follows("conv.depthwise_norm", part("conv.depthwise"))
            assert relative_error(part("conv.activation"), silu(part("conv.depthwise_norm"))) < CLOSE
            continue
        if places is not SANM_DECODER:
            for name in ("query", "key", "value"):
                assert_follows(f"attention.{name}", part("input_norm"))
            assert_follows("mlp_norm", part("attention.residual"))
        elif has(layer, "src_attn"):
            assert_follows("input_norm", part("fsmn_residual"))
            assert_follows("cross_attention.query", part("input_norm"))
            for name in ("key", "value"):
                assert_follows(f"cross_attention.{name}", np.asarray(inspected.trace["encoder.output"], np.float64))
        assert_follows("mlp.up", part("mlp_norm"))
        if places is LANGUAGE:
            assert_follows("mlp.gate", part("mlp_norm"))
            assert relative_error(part("mlp.activation"), silu(part("mlp.gate")) * part("mlp.up")) < CLOSE
        elif not stage.startswith("tower"):
            assert relative_error(part("mlp.activation"), part("mlp.up").clip(min=0)) < CLOSE
        if places is SANM_DECODER:
            assert_follows("mlp.hidden_norm", part("mlp.activation"))
            assert_follows("mlp.down", part("mlp.hidden_norm"))
        else:
            assert_follows("mlp.down", part("mlp.activation"))


def rotate(x: np.ndarray, theta: float) -> np.ndarray:
    """The rotary embedding by its definition: the pair (i, i + half) of position t turns by t / theta ** (i / half).

    Su et al., "RoFormer", 2021, in the order of channels of GPT-NeoX and Llama.
    """
    rows, _, width = x.shape
    half, result = width // 2, np.empty_like(x)
    for t in range(rows):
        for i in range(half):
            angle = t / theta ** (i / half)
            a, b = x[t, :, i], x[t, :, i + half]
            result[t, :, i] = a * np.cos(angle) - b * np.sin(angle)
            result[t, :, i + half] = b * np.cos(angle) + a * np.sin(angle)
    return result


def test_queries_and_keys_are_rotated_by_their_position(inspected: InspectedModel) -> None:
    for stage, (layer, places) in inspected.layers.items():
        if not places.rotary:
            assert f"{stage}.attention.query_rope" not in inspected.trace
            continue
        theta = layer.self_attn.config.rope_parameters["rope_theta"]
        for name in ("query", "key"):
            normed = f"{stage}.attention.{name}_norm"
            assert (normed in inspected.trace) == hasattr(layer.self_attn, "q_norm")
            source = inspected.part(stage, f"attention.{name}{'_norm' if normed in inspected.trace else ''}")
            assert relative_error(inspected.part(stage, f"attention.{name}_rope"), rotate(source, theta)) < CLOSE


def test_attention_weights_are_zero_for_later_tokens_and_beyond_the_window(inspected: InspectedModel) -> None:
    for stage in inspected.layers:
        if stage.startswith("llm."):
            weights = inspected.part(stage, "attention.weights")
            rows = np.arange(weights.shape[1])
            distance = rows[:, None] - rows[None, :]
            window = 4 if inspected.session.model == "tiny mistral" else len(rows)
            assert not weights[:, (distance < 0) | (distance >= window)].any()


def test_tracing_inside_layers_leaves_other_stages_bit_identical(inspected: InspectedModel) -> None:
    plain = traced(inspected.session, "*")
    assert not any(map(is_inside, plain)) and "logits" in plain
    assert set(plain) < set(inspected.trace) and [stage for stage in inspected.trace if stage in plain] == list(plain)
    for stage, array in plain.items():
        np.testing.assert_array_equal(array, inspected.trace[stage], stage)
    unknown = {stage.split(".", 3)[3] for stage in inspected.trace if is_inside(stage)} - {*PARTS, *DECODER_PARTS}
    assert not unknown


def test_only_the_requested_inner_stage_is_traced(inspected: InspectedModel) -> None:
    layer = next(iter(inspected.layers))
    for part in ("mlp.down", "ffn1.up", "attention.weights", "cross_attention.weights", "attention.query_rope"):
        if (stage := f"{layer}.{part}") in inspected.trace:
            trace = traced(inspected.session, stage)
            assert list(trace) == [stage] and np.array_equal(trace[stage], inspected.trace[stage])
    with pytest.raises(BadInput, match=r"no stage inside the layers of .* matches 'llm.layers.99.mlp.up'"):
        traced(inspected.session, "logits,llm.layers.99.mlp.up")


def test_given_inner_stages_are_used_by_the_parts_after_them(tmp_path: Path) -> None:
    """A part is computed from its given inputs; inputs that are not given are computed as usual."""
    session = opened("tiny sensevoice", tmp_path)
    full_trace = traced(session)
    draw = np.random.default_rng(1)
    given_trace = Trace(
        {
            stage: full_trace[stage] + draw.normal(0, 1, full_trace[stage].shape).astype(np.float32)
            for stage in (
                "encoder.layers.1.attention.value",
                "encoder.layers.1.mlp.activation",
                "encoder.layers.1.mlp_norm",
            )
        },
        {},
    )
    trace = traced(session, given=given_trace)
    layer = layers_of(session)["encoder.layers.1"][0]
    stage = "encoder.layers.1."
    values = given_trace[f"{stage}attention.value"].astype(np.float64)
    context = np.einsum("hqk,khd->qhd", full_trace[f"{stage}attention.weights"], values).reshape(len(values), -1)
    assert relative_error(trace[f"{stage}attention.context"], context) < CLOSE
    activation = apply_module(layer.feed_forward.w_1, given_trace[f"{stage}mlp_norm"].astype(np.float64)).clip(min=0)
    assert relative_error(trace[f"{stage}mlp.activation"], activation) < CLOSE
    down = apply_module(layer.feed_forward.w_2, given_trace[f"{stage}mlp.activation"].astype(np.float64))
    assert relative_error(trace[f"{stage}mlp.down"], down) < CLOSE
    session.close()


@pytest.mark.parametrize(
    ("model", "dtype", "stepwise", "tolerance"),
    [
        ("tiny fireredasr", "float64", False, 1e-13),
        ("tiny fireredasr", "float16", True, 0.004),
        ("tiny speechlm", "bfloat16", True, 0.03),
        ("tiny causal_lm", "float64", False, 1e-13),
        ("tiny causal_lm", "float64", True, 1e-13),
        ("tiny causal_lm", "bfloat16", True, 0.03),
    ],
)
def test_attention_stages_are_consistent_in_float64_and_half_precision(
    tmp_path: Path, model: str, dtype: str, stepwise: bool, tolerance: float
) -> None:
    """Also with stepwise attention, which transformers and this project implement differently."""
    session = opened(model, tmp_path, dtype=dtype, stepwise=stepwise)
    trace, plain = traced(session, "*.layers.*.*"), traced(session, "llm.norm")
    both = traced(session, "llm.norm,*.layers.*.*")
    assert np.array_equal(plain["llm.norm"], both["llm.norm"])
    count = 0
    for stage in trace:
        if stage.endswith(".attention.weights"):
            prefix = stage.removesuffix("weights")
            weights, values = (np.asarray(trace[name], np.float64) for name in (stage, f"{prefix}value"))
            context = np.einsum("hqk,khd->qhd", weights, np.repeat(values, len(weights) // values.shape[1], axis=1))
            assert (
                relative_error(trace[f"{prefix}context"].astype(np.float64), context.reshape(len(context), -1))
                < tolerance
            ), stage
            assert relative_error(weights.sum(axis=2), np.ones(weights.shape[:2])) < tolerance
            assert (trace[stage].dtype == np.float64) == (dtype == "float64")
            count += 1
    assert count == len(layers_of(session))
    session.close()
