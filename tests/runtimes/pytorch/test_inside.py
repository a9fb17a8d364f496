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

from tests.support.inner_stages import MODELS, layers_of, opened, traced
from workbench.core.errors import BadInput
from workbench.runtimes.pytorch.conformer import ConformerBlock
from workbench.runtimes.pytorch.layer_maps import CONFORMER, LANGUAGE, SANM_DECODER, LayerMap
from workbench.trace.inside import DECODER_PARTS, PARTS, is_inside
from workbench.trace.trace import Trace

CLOSE = 1e-5


class Looked:
    """A session's trace with everything, and the layers that it came from."""

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
def looked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Looked]:
    found = Looked(request.param, tmp_path_factory.mktemp("inside"))
    yield found
    found.session.close()


def error(found: np.ndarray, expected: np.ndarray) -> float:
    assert found.shape == expected.shape
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def through(module: Any, rows: np.ndarray) -> np.ndarray:
    """What a linear layer or a norm makes of rows, in float64."""
    x = torch.from_numpy(rows)
    weight = module.weight.detach()
    weight = (weight.to_dense() if weight.is_mkldnn else weight).double()
    if hasattr(module, "variance_epsilon"):  # RMSNorm
        found = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + module.variance_epsilon) * weight
    else:
        bias = None if module.bias is None else module.bias.detach().double()
        norm = isinstance(module, nn.LayerNorm)
        found = F.layer_norm(x, x.shape[-1:], weight, bias, module.eps) if norm else F.linear(x, weight, bias)
    return found.numpy()


def test_weights_times_values_are_the_context_and_the_output(looked: Looked) -> None:
    seen = 0
    for stage, layer, places, part in looked.attentions():
        weights, values = looked.part(stage, f"{part}.weights"), looked.part(stage, f"{part}.value")
        heads = len(weights)
        assert weights.min() >= 0 and error(weights.sum(axis=2), np.ones(weights.shape[:2])) < CLOSE
        assert weights.shape[1:] == (len(looked.part(stage, f"{part}.query")), len(values))
        values = np.repeat(values, heads // values.shape[1], axis=1)
        context = np.einsum("hqk,khd->qhd", weights, values).reshape(weights.shape[1], -1)
        assert error(looked.part(stage, f"{part}.context"), context) < CLOSE
        output = through(layer.get_submodule(places.places[f"{part}.output"].module), context)
        assert error(looked.part(stage, f"{part}.output"), output) < CLOSE
        if f"{stage}.attention" in looked.trace:
            assert np.array_equal(looked.trace[f"{stage}.attention"], looked.trace[f"{stage}.attention.output"])
        seen += 1
    expected = [
        name for layer, places in looked.layers.values() for name in places.attention.values() if has(layer, name)
    ]
    assert seen == len(expected) > 0


def has(layer: nn.Module, name: str) -> bool:
    return getattr(layer, name, None) is not None


def before(looked: Looked, stage: str) -> np.ndarray | None:
    """What enters a layer; None for the first layer of SAN-M, which has no residual connection."""
    stack, _, number = stage.rpartition(".")
    if stack == "encoder.layers" and "encoder.after_norm" in looked.trace and int(number) == looked.second_stage:
        return np.asarray(looked.trace["encoder.after_norm"], np.float64)
    if int(number):
        return np.asarray(looked.trace[f"{stack}.{int(number) - 1}"], np.float64)
    names = {"decoder.layers": "predictor.embeddings", "llm.layers": "llm.embeddings"}
    if stack in names:
        return np.asarray(looked.trace[names[stack]], np.float64)
    if stack == "encoder.layers" and isinstance(looked.layers[stage][0], ConformerBlock):
        return np.asarray(looked.trace["encoder.input"], np.float64)
    return None


def test_the_parts_of_a_layer_add_up_to_its_output(looked: Looked) -> None:
    for stage, (layer, places) in looked.layers.items():

        def part(name: str, stage: str = stage) -> np.ndarray:
            return looked.part(stage, name)

        entering, whole = before(looked, stage), np.asarray(looked.trace[stage], np.float64)
        if places is CONFORMER:
            assert entering is not None
            for name in ("ffn1", "ffn2"):
                start = entering if name == "ffn1" else part("conv.residual")
                assert error(part(f"{name}.residual"), start + part(f"{name}.down") / 2) < CLOSE
            assert error(part("attention.residual"), part("ffn1.residual") + part("attention.output")) < CLOSE
            assert error(part("conv.residual"), part("attention.residual") + part("convolution")) < CLOSE
            assert error(whole, through(layer.get_submodule("layer_norm"), part("ffn2.residual"))) < CLOSE
        elif places is SANM_DECODER:
            if not has(layer, "self_attn"):
                assert error(whole, part("mlp.down")) < CLOSE
                continue
            assert entering is not None
            remembered = entering + part("fsmn")
            if has(layer, "src_attn"):
                assert error(part("fsmn_residual"), remembered) < CLOSE
                remembered = remembered + part("cross_attention.output")
            assert error(whole, remembered) < CLOSE
        else:
            assert error(whole, part("attention.residual") + part("mlp.down")) < CLOSE
            added = part("attention.output") + (part("fsmn") if f"{stage}.fsmn" in looked.trace else 0)
            if entering is not None:
                assert error(part("attention.residual"), entering + added) < CLOSE


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def test_norms_projections_and_activations_equal_recomputation_in_float64(looked: Looked) -> None:
    """Norms, projections and activations, in float64."""
    for stage, (layer, places) in looked.layers.items():

        def follows(
            part: str, source: np.ndarray, stage: str = stage, layer: Any = layer, places: Any = places
        ) -> None:
            place = places.places[part]
            found = through(layer.get_submodule(place.module), source)
            found = np.split(found, place.share[1], axis=-1)[place.share[0]]
            expected = looked.part(stage, part)
            assert error(expected, found.reshape(expected.shape)) < CLOSE, f"{stage}.{part}"

        def part(name: str, stage: str = stage) -> np.ndarray:
            return looked.part(stage, name)

        if places is CONFORMER:
            for name in ("query", "key", "value"):
                follows(f"input_norm.{name}", part("ffn1.residual"))
                follows(f"attention.{name}", part(f"input_norm.{name}"))
            for name in ("ffn1", "ffn2"):
                follows(f"{name}.up", part(f"{name}.norm"))
                assert error(part(f"{name}.activation"), silu(part(f"{name}.up"))) < CLOSE
                follows(f"{name}.down", part(f"{name}.activation"))
            follows("conv.norm", part("attention.residual"))
            left, right = np.split(part("conv.up"), 2, axis=1)
            assert error(part("conv.gate"), left / (1 + np.exp(-right))) < CLOSE
            follows("conv.depthwise_norm", part("conv.depthwise"))
            assert error(part("conv.activation"), silu(part("conv.depthwise_norm"))) < CLOSE
            continue
        if places is not SANM_DECODER:
            for name in ("query", "key", "value"):
                follows(f"attention.{name}", part("input_norm"))
            follows("mlp_norm", part("attention.residual"))
        elif has(layer, "src_attn"):
            follows("input_norm", part("fsmn_residual"))
            follows("cross_attention.query", part("input_norm"))
            for name in ("key", "value"):
                follows(f"cross_attention.{name}", np.asarray(looked.trace["encoder.output"], np.float64))
        follows("mlp.up", part("mlp_norm"))
        if places is LANGUAGE:
            follows("mlp.gate", part("mlp_norm"))
            assert error(part("mlp.activation"), silu(part("mlp.gate")) * part("mlp.up")) < CLOSE
        elif not stage.startswith("tower"):
            assert error(part("mlp.activation"), part("mlp.up").clip(min=0)) < CLOSE
        if places is SANM_DECODER:
            follows("mlp.hidden_norm", part("mlp.activation"))
            follows("mlp.down", part("mlp.hidden_norm"))
        else:
            follows("mlp.down", part("mlp.activation"))


def rotated(x: np.ndarray, theta: float) -> np.ndarray:
    """The rotary embedding written out: the pair (i, i + half) of position t turns by t / theta ** (i / half).

    Su et al., "RoFormer", 2021, in the order of channels of GPT-NeoX and Llama.
    """
    rows, _, width = x.shape
    half, turned = width // 2, np.empty_like(x)
    for t in range(rows):
        for i in range(half):
            angle = t / theta ** (i / half)
            a, b = x[t, :, i], x[t, :, i + half]
            turned[t, :, i] = a * np.cos(angle) - b * np.sin(angle)
            turned[t, :, i + half] = b * np.cos(angle) + a * np.sin(angle)
    return turned


def test_queries_and_keys_are_rotated_by_their_position(looked: Looked) -> None:
    for stage, (layer, places) in looked.layers.items():
        if not places.rotary:
            assert f"{stage}.attention.query_rope" not in looked.trace
            continue
        theta = layer.self_attn.config.rope_parameters["rope_theta"]
        for name in ("query", "key"):
            normed = f"{stage}.attention.{name}_norm"
            assert (normed in looked.trace) == hasattr(layer.self_attn, "q_norm")
            source = looked.part(stage, f"attention.{name}{'_norm' if normed in looked.trace else ''}")
            assert error(looked.part(stage, f"attention.{name}_rope"), rotated(source, theta)) < CLOSE


def test_attention_weights_are_zero_for_later_tokens_and_beyond_the_window(looked: Looked) -> None:
    for stage in looked.layers:
        if stage.startswith("llm."):
            weights = looked.part(stage, "attention.weights")
            rows = np.arange(weights.shape[1])
            distance = rows[:, None] - rows[None, :]
            window = 4 if looked.session.model == "tiny mistral" else len(rows)
            assert not weights[:, (distance < 0) | (distance >= window)].any()


def test_tracing_inside_layers_leaves_other_stages_bit_identical(looked: Looked) -> None:
    plain = traced(looked.session, "*")
    assert not any(map(is_inside, plain)) and "logits" in plain
    assert set(plain) < set(looked.trace) and [stage for stage in looked.trace if stage in plain] == list(plain)
    for stage, array in plain.items():
        np.testing.assert_array_equal(array, looked.trace[stage], stage)
    unknown = {stage.split(".", 3)[3] for stage in looked.trace if is_inside(stage)} - {*PARTS, *DECODER_PARTS}
    assert not unknown


def test_only_the_requested_inner_stage_is_traced(looked: Looked) -> None:
    layer = next(iter(looked.layers))
    for part in ("mlp.down", "ffn1.up", "attention.weights", "cross_attention.weights", "attention.query_rope"):
        if (stage := f"{layer}.{part}") in looked.trace:
            found = traced(looked.session, stage)
            assert list(found) == [stage] and np.array_equal(found[stage], looked.trace[stage])
    with pytest.raises(BadInput, match=r"no stage inside the layers of .* matches 'llm.layers.99.mlp.up'"):
        traced(looked.session, "logits,llm.layers.99.mlp.up")


def test_given_inner_stages_are_used_by_the_parts_after_them(tmp_path: Path) -> None:
    """Each part of an isolated trace is computed from the parts that are given, the rest from what comes before."""
    session = opened("tiny sensevoice", tmp_path)
    own = traced(session)
    draw = np.random.default_rng(1)
    given = Trace(
        {
            stage: own[stage] + draw.normal(0, 1, own[stage].shape).astype(np.float32)
            for stage in (
                "encoder.layers.1.attention.value",
                "encoder.layers.1.mlp.activation",
                "encoder.layers.1.mlp_norm",
            )
        },
        {},
    )
    found = traced(session, given=given)
    layer = layers_of(session)["encoder.layers.1"][0]
    stage = "encoder.layers.1."
    values = given[f"{stage}attention.value"].astype(np.float64)
    context = np.einsum("hqk,khd->qhd", own[f"{stage}attention.weights"], values).reshape(len(values), -1)
    assert error(found[f"{stage}attention.context"], context) < CLOSE
    activation = through(layer.feed_forward.w_1, given[f"{stage}mlp_norm"].astype(np.float64)).clip(min=0)
    assert error(found[f"{stage}mlp.activation"], activation) < CLOSE
    down = through(layer.feed_forward.w_2, given[f"{stage}mlp.activation"].astype(np.float64))
    assert error(found[f"{stage}mlp.down"], down) < CLOSE
    session.close()


@pytest.mark.parametrize(
    ("model", "dtype", "stepwise", "close"),
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
    tmp_path: Path, model: str, dtype: str, stepwise: bool, close: float
) -> None:
    """Attention in steps too, which transformers and this project write out in two ways."""
    session = opened(model, tmp_path, dtype=dtype, stepwise=stepwise)
    trace, plain = traced(session, "*.layers.*.*"), traced(session, "llm.norm")
    whole = traced(session, "llm.norm,*.layers.*.*")
    assert np.array_equal(plain["llm.norm"], whole["llm.norm"])
    seen = 0
    for stage in trace:
        if stage.endswith(".attention.weights"):
            at = stage.removesuffix("weights")
            weights, values = (np.asarray(trace[name], np.float64) for name in (stage, f"{at}value"))
            context = np.einsum("hqk,khd->qhd", weights, np.repeat(values, len(weights) // values.shape[1], axis=1))
            assert error(trace[f"{at}context"].astype(np.float64), context.reshape(len(context), -1)) < close, stage
            assert error(weights.sum(axis=2), np.ones(weights.shape[:2])) < close
            assert (trace[stage].dtype == np.float64) == (dtype == "float64")
            seen += 1
    assert seen == len(layers_of(session))
    session.close()
