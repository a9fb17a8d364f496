"""Captured stages inside a decoder layer, on a layer with vLLM's interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.runtimes.vllm.small_runner import Model, Norm, Runner
from workbench.runtimes.vllm.capture.hooks import Hooks
from workbench.runtimes.vllm.capture.inside import ReadRows, hook_inside
from workbench.runtimes.vllm.capture.rows import Capture, Captures
from workbench.trace.inside import PARTS

WIDTH, HEADS, KEY_HEADS, HEAD = 4, 4, 2, 6  # the width is that of `small_runner`
QUERIES, KEYS = HEADS * HEAD, KEY_HEADS * HEAD


class Pair(nn.Linear):
    """Like vLLM's linear layers it returns a pair; the second is a bias that the caller adds."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Rotary(nn.Module):
    """Changes queries and keys in place, as vLLM's kernel does; all layers share it."""

    def forward(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q.mul_(2), k.mul_(3)


ROTARY = Rotary()


class SumAttention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + k.repeat(1, HEADS // KEY_HEADS) + v.repeat(1, HEADS // KEY_HEADS)


class Gate(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=-1)
        return torch.tanh(gate) * up


class Attention(nn.Module):
    """An attention block whose query, key and value come from one product."""

    def __init__(self, norms: bool) -> None:
        super().__init__()
        self.head_dim, self.q_size, self.kv_size = HEAD, QUERIES, KEYS
        self.qkv_proj = Pair(WIDTH, QUERIES + 2 * KEYS)
        self.rotary_emb, self.attn = ROTARY, SumAttention()
        self.o_proj = Pair(QUERIES, WIDTH, bias=False)
        if norms:
            self.q_norm, self.k_norm = nn.LayerNorm(HEAD), nn.LayerNorm(HEAD)

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        q, k, v = self.qkv_proj(hidden_states)[0].split([QUERIES, KEYS, KEYS], dim=-1)
        if hasattr(self, "q_norm"):
            q, k = (norm(x.unflatten(-1, (-1, HEAD))).flatten(1) for norm, x in ((self.q_norm, q), (self.k_norm, k)))
        q, k = self.rotary_emb(positions, q, k)
        output: Tensor = self.o_proj(self.attn(q, k, v))[0]
        return output


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj, self.act_fn, self.down_proj = Pair(WIDTH, 10), Gate(), Pair(5, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.down_proj(self.act_fn(self.gate_up_proj(x)[0]))[0]
        return output


class DecoderLayer(nn.Module):
    """A layer whose norms add the residual stream in place."""

    def __init__(self, norms: bool = True) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(norms), FeedForward()
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if residual is None:
            residual, hidden_states = hidden_states.clone(), self.input_layernorm(hidden_states)
        else:
            hidden_states, residual = self.input_layernorm(hidden_states, residual)
        hidden_states = self.self_attn(positions=positions, hidden_states=hidden_states)
        hidden_states, residual = self.post_attention_layernorm(hidden_states, residual)
        return self.mlp(hidden_states), residual


@torch.inference_mode()
def reference_stages(layer: DecoderLayer, stream: Tensor) -> dict[str, np.ndarray]:
    """The stages, each computed from its previous stage without in-place operations."""
    attention, mlp = layer.self_attn, layer.mlp
    values = {"input_norm": layer.input_layernorm(stream.clone())}
    parts = attention.qkv_proj(values["input_norm"])[0].split([QUERIES, KEYS, KEYS], dim=-1)
    for name, value in zip(("query", "key", "value"), parts, strict=True):
        values[f"attention.{name}"] = value.clone().unflatten(-1, (-1, HEAD))
    rotated = {name: values[f"attention.{name}"] for name in ("query", "key")}
    if hasattr(attention, "q_norm"):
        for name, norm in (("query", attention.q_norm), ("key", attention.k_norm)):
            rotated[name] = values[f"attention.{name}_norm"] = norm(rotated[name])
    values["attention.query_rope"], values["attention.key_rope"] = rotated["query"] * 2, rotated["key"] * 3
    repeated = [values[name].flatten(1).repeat(1, 2) for name in ("attention.key_rope", "attention.value")]
    values["attention.context"] = values["attention.query_rope"].flatten(1) + repeated[0] + repeated[1]
    values["attention.output"] = attention.o_proj(values["attention.context"])[0]
    values["attention.residual"] = stream + values["attention.output"]
    values["mlp_norm"] = layer.post_attention_layernorm(values["attention.residual"].clone())
    values["mlp.gate"], values["mlp.up"] = mlp.gate_up_proj(values["mlp_norm"])[0].chunk(2, dim=-1)
    values["mlp.activation"] = torch.tanh(values["mlp.gate"]) * values["mlp.up"]
    values["mlp.down"] = mlp.down_proj(values["mlp.activation"])[0]
    return {part: value.numpy() for part, value in values.items()}


@pytest.mark.parametrize("norms", [True, False])
def test_inner_stages_are_captured_before_in_place_changes(norms: bool) -> None:
    layer, stream, rows = DecoderLayer(norms), torch.randn(7, WIDTH), slice(2, 6)
    stored: dict[str, np.ndarray] = {}

    def store(stage: str, take: ReadRows) -> None:
        stored[stage] = take(rows).numpy().copy()

    handles = hook_inside("llm.layers.3", layer, store)
    with torch.inference_mode():
        layer(torch.arange(7), stream.clone(), None)
    expected = reference_stages(layer, stream)
    assert {stage.removeprefix("llm.layers.3.") for stage in stored} == set(expected) <= set(PARTS)
    for part, array in expected.items():
        np.testing.assert_allclose(stored[f"llm.layers.3.{part}"], array[rows], atol=1e-6, err_msg=part)
    for handle in handles:
        handle.remove()
    assert not any(module._forward_hooks for module in layer.modules())


def capture_stages(pattern: str, devices: int = 1) -> Capture:
    model = Model(DecoderLayer)  # type: ignore[arg-type]
    for layer in model.model.layers:
        layer.self_attn.qkv_proj.tp_size = devices  # type: ignore[union-attr]
    runner, captures, capture = Runner(model), Captures(), Capture([pattern])
    captures.add(1, capture)
    hooks = Hooks(runner, captures, True)
    runner.add("a", [1, 2, 3, 4, 5], capture=1)
    runner.step(("a", 0, 2))
    runner.step(("a", 2, 5))
    hooks.remove()
    return capture


def test_only_requested_inner_stages_are_captured_over_all_steps() -> None:
    assert not any(".attention." in stage or ".mlp" in stage for stage in capture_stages("*").stages())
    stages = capture_stages("llm.layers.1.*").stages()
    assert {stage.split(".", 3)[3] for stage in stages} == set(reference_stages(DecoderLayer(), torch.zeros(1, WIDTH)))
    assert stages["llm.layers.1.attention.key_rope"].shape == (5, KEY_HEADS, HEAD)
    attention_stages = capture_stages("llm.layers.*.attention.*").stages()
    for layer in range(3):
        rotated, normed = (attention_stages[f"llm.layers.{layer}.attention.key_{name}"] for name in ("rope", "norm"))
        np.testing.assert_allclose(rotated, normed * 3, rtol=1e-6)
    layer_stages = capture_stages("llm.layers.0,llm.layers.0.*").stages()
    stream = layer_stages["llm.layers.0.attention.residual"] + layer_stages["llm.layers.0.mlp.down"]
    np.testing.assert_allclose(layer_stages["llm.layers.0"], stream, atol=1e-6)


def test_inner_stages_are_refused_with_tensor_parallelism() -> None:
    assert capture_stages("*", devices=2).failure_reason() == ""
    assert capture_stages("llm.layers.1.mlp.up", devices=2).failure_reason() == (
        "llm.layers.1.mlp.up cannot be captured: 2 devices share the layers; stages inside a layer need "
        "tensor_parallel 1"
    )
