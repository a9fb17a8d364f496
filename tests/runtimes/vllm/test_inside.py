"""Captured stages inside a decoder layer, on a layer with vLLM's interfaces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.runtimes.vllm.small_runner import Model, Norm, Runner
from workbench.runtimes.vllm.capture import Capture, Captures
from workbench.runtimes.vllm.hooks import Hooks
from workbench.runtimes.vllm.inside import Take, hook_inside
from workbench.trace.inside import PARTS

WIDTH, HEADS, KEY_HEADS, HEAD = 4, 4, 2, 6  # the width is that of `small_runner`
QUERIES, KEYS = HEADS * HEAD, KEY_HEADS * HEAD


class Pair(nn.Linear):
    """vLLM's linear layers give a pair; the second is a bias that is still to be added."""

    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Rotary(nn.Module):
    """Turns in place, as vLLM's kernel does; all layers share it."""

    def forward(self, positions: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return q.mul_(2), k.mul_(3)


ROTARY = Rotary()


class Attend(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return q + k.repeat(1, HEADS // KEY_HEADS) + v.repeat(1, HEADS // KEY_HEADS)


class Gate(nn.Module):
    def forward(self, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        return torch.tanh(gate) * up


class Attention(nn.Module):
    """Query, key and value are one product."""

    def __init__(self, norms: bool) -> None:
        super().__init__()
        self.head_dim, self.q_size, self.kv_size = HEAD, QUERIES, KEYS
        self.qkv_proj = Pair(WIDTH, QUERIES + 2 * KEYS)
        self.rotary_emb, self.attn = ROTARY, Attend()
        self.o_proj = Pair(QUERIES, WIDTH, bias=False)
        if norms:
            self.q_norm, self.k_norm = nn.LayerNorm(HEAD), nn.LayerNorm(HEAD)

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        q, k, v = self.qkv_proj(hidden_states)[0].split([QUERIES, KEYS, KEYS], dim=-1)
        if hasattr(self, "q_norm"):
            q, k = (norm(x.unflatten(-1, (-1, HEAD))).flatten(1) for norm, x in ((self.q_norm, q), (self.k_norm, k)))
        q, k = self.rotary_emb(positions, q, k)
        found: Tensor = self.o_proj(self.attn(q, k, v))[0]
        return found


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj, self.act_fn, self.down_proj = Pair(WIDTH, 10), Gate(), Pair(5, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.down_proj(self.act_fn(self.gate_up_proj(x)[0]))[0]
        return found


class DecoderLayer(nn.Module):
    """Norms add the residual stream up in place."""

    def __init__(self, norms: bool = True) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(norms), Feed()
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
def slow(layer: DecoderLayer, stream: Tensor) -> dict[str, np.ndarray]:
    """The stages, each from the one before it and with nothing in place."""
    attention, mlp = layer.self_attn, layer.mlp
    found = {"input_norm": layer.input_layernorm(stream.clone())}
    parts = attention.qkv_proj(found["input_norm"])[0].split([QUERIES, KEYS, KEYS], dim=-1)
    for name, value in zip(("query", "key", "value"), parts, strict=True):
        found[f"attention.{name}"] = value.clone().unflatten(-1, (-1, HEAD))
    last = {name: found[f"attention.{name}"] for name in ("query", "key")}
    if hasattr(attention, "q_norm"):
        for name, norm in (("query", attention.q_norm), ("key", attention.k_norm)):
            last[name] = found[f"attention.{name}_norm"] = norm(last[name])
    found["attention.query_rope"], found["attention.key_rope"] = last["query"] * 2, last["key"] * 3
    shared = [found[name].flatten(1).repeat(1, 2) for name in ("attention.key_rope", "attention.value")]
    found["attention.context"] = found["attention.query_rope"].flatten(1) + shared[0] + shared[1]
    found["attention.output"] = attention.o_proj(found["attention.context"])[0]
    found["attention.residual"] = stream + found["attention.output"]
    found["mlp_norm"] = layer.post_attention_layernorm(found["attention.residual"].clone())
    found["mlp.gate"], found["mlp.up"] = mlp.gate_up_proj(found["mlp_norm"])[0].chunk(2, dim=-1)
    found["mlp.activation"] = torch.tanh(found["mlp.gate"]) * found["mlp.up"]
    found["mlp.down"] = mlp.down_proj(found["mlp.activation"])[0]
    return {part: value.numpy() for part, value in found.items()}


@pytest.mark.parametrize("norms", [True, False])
def test_inner_stages_are_captured_before_in_place_changes(norms: bool) -> None:
    layer, stream, rows = DecoderLayer(norms), torch.randn(7, WIDTH), slice(2, 6)
    kept: dict[str, np.ndarray] = {}

    def put(stage: str, take: Take) -> None:
        kept[stage] = take(rows).numpy().copy()

    handles = hook_inside("llm.layers.3", layer, put)
    with torch.inference_mode():
        layer(torch.arange(7), stream.clone(), None)
    expected = slow(layer, stream)
    assert {stage.removeprefix("llm.layers.3.") for stage in kept} == set(expected) <= set(PARTS)
    for part, array in expected.items():
        np.testing.assert_allclose(kept[f"llm.layers.3.{part}"], array[rows], atol=1e-6, err_msg=part)
    for handle in handles:
        handle.remove()
    assert not any(module._forward_hooks for module in layer.modules())


def captured(pattern: str, devices: int = 1) -> Capture:
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
    assert not any(".attention." in stage or ".mlp" in stage for stage in captured("*").stages())
    found = captured("llm.layers.1.*").stages()
    assert {stage.split(".", 3)[3] for stage in found} == set(slow(DecoderLayer(), torch.zeros(1, WIDTH)))
    assert found["llm.layers.1.attention.key_rope"].shape == (5, KEY_HEADS, HEAD)
    normed = captured("llm.layers.*.attention.*").stages()
    for layer in range(3):
        rotated, before = (normed[f"llm.layers.{layer}.attention.key_{name}"] for name in ("rope", "norm"))
        np.testing.assert_allclose(rotated, before * 3, rtol=1e-6)
    several = captured("llm.layers.0,llm.layers.0.*").stages()
    stream = several["llm.layers.0.attention.residual"] + several["llm.layers.0.mlp.down"]
    np.testing.assert_allclose(several["llm.layers.0"], stream, atol=1e-6)


def test_inner_stages_are_refused_with_tensor_parallelism() -> None:
    assert captured("*", devices=2).missing() == ""
    assert captured("llm.layers.1.mlp.up", devices=2).missing() == (
        "llm.layers.1.mlp.up cannot be captured: 2 devices share the layers; stages inside a layer need "
        "tensor_parallel 1"
    )
