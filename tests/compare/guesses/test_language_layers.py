"""Explanations of faults in a layer of a language model that the candidate shows only as a whole.

The port is the layer of transformers with one line of its code changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from tests.support.faulty_demos import Demo, Plant, method, opened_demos
from workbench.trace.trace import Trace

Rotate = Callable[[Tensor, int], Tensor]


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    for open_demo in opened_demos():
        yield open_demo("causal_lm")


def rotated(x: Tensor, base: float = 1e6, times: float = 1.0, neighbours: bool = False) -> Tensor:
    """Queries or keys [1, heads, rows, width] with rotary positions."""
    rows, width = x.shape[2:]
    angles = times * torch.arange(rows)[:, None] * base ** (-torch.arange(0, width, 2) / width)
    if neighbours:
        one, other = x[..., 0::2], x[..., 1::2]
        turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()
        return torch.stack(turned, dim=-1).flatten(3)
    one, other = x.chunk(2, dim=-1)
    return torch.cat([one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()], dim=-1)


def attention(
    rope: Callable[[Tensor], Tensor] = rotated,
    normed: Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]] = lambda self, q, k: (
        self.q_norm(q),
        self.k_norm(k),
    ),
    causal: bool = True,
    in_turn: bool = False,
    scale: float | None = None,
    exchanged: bool = False,
) -> Plant:
    """The attention of Qwen3, written again with these things changed."""

    def forward(self: Any, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
        q, k, v = (
            getattr(self, f"{part}_proj")(hidden_states).unflatten(2, (-1, self.head_dim)).transpose(1, 2)
            for part in "qkv"
        )
        if exchanged:
            k, v = v, k
        q, k = normed(self, q, k)
        q, k = rope(q), rope(k)
        groups = q.shape[1] // k.shape[1]
        k, v = ((each.repeat(1, groups, 1, 1) if in_turn else each.repeat_interleave(groups, 1)) for each in (k, v))
        context = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)
        return self.o_proj(context.transpose(1, 2).flatten(2)), None

    return method(qwen3.Qwen3Attention, "forward", forward)


def mlp(change: Callable[[Any, Tensor], Tensor]) -> Plant:
    return method(qwen3.Qwen3MLP, "forward", change)


def layer(change: Callable[[Any, Tensor, Callable[[Tensor], Tensor]], Tensor]) -> Plant:
    """A layer whose parts are put together in another way."""

    def forward(self: Any, hidden_states: Tensor, **others: Any) -> Tensor:
        return change(self, hidden_states, lambda x: self.self_attn(hidden_states=x, **others)[0])

    return method(qwen3.Qwen3DecoderLayer, "forward", forward)


def norm(change: Callable[[Any, Tensor], Tensor], width: int = 128) -> Plant:
    """Norms over that many channels: 128 are those of the layer, 32 those of heads."""
    right = qwen3.Qwen3RMSNorm.forward

    def forward(self: Any, x: Tensor) -> Tensor:
        return change(self, x) if x.shape[-1] == width else right(self, x)

    return method(qwen3.Qwen3RMSNorm, "forward", forward)


FAULTS: list[tuple[Plant, str]] = [
    (attention(lambda x: rotated(x, 1e4)), "RoPE has the base 10000, where the reference has 1000000"),
    (attention(lambda x: rotated(x, neighbours=True)), "RoPE turns neighbouring channels together"),
    (attention(lambda x: x), "RoPE is left out"),
    (attention(lambda x: rotated(x, times=-1.0)), "RoPE turns the other way"),
    (attention(lambda x: rotated(x, times=0.5)), "RoPE turns by 0.5 times the reference's angles"),
    (attention(normed=lambda self, q, k: (q, k)), "the norms of queries and keys are left out"),
    (attention(normed=lambda self, q, k: (self.k_norm(q), self.q_norm(k))), "norms of queries and keys are exchanged"),
    (attention(normed=lambda self, q, k: (q, self.k_norm(k))), "the norm of the queries is left out"),
    (attention(causal=False), "a row sees later rows too"),
    (attention(in_turn=True), "key heads are shared in turn"),
    (attention(scale=1.0), "the scores are not divided by the root of the head's width"),
    (attention(exchanged=True), "the projections of keys and values are exchanged"),
    (mlp(lambda self, x: self.down_proj(F.gelu(self.gate_proj(x)) * self.up_proj(x))),
     "the activation of the gate is GELU, where the reference's is SiLU"),
    (mlp(lambda self, x: self.down_proj(self.gate_proj(x) * F.silu(self.up_proj(x)))),
     "the activation is on the projection up"),
    (mlp(lambda self, x: self.down_proj(F.silu(self.gate_proj(x)))), "the projection up is left out"),
    (mlp(lambda self, x: self.down_proj(F.silu(x @ self.gate_proj.weight.reshape(128, 256)) * self.up_proj(x))),
     "the weight of the projection gate is read as 128×256, not 256×128"),
    (norm(lambda self, x: F.layer_norm(x, x.shape[-1:], self.weight, None, 1e-6)),
     "the norm in front of attention as well as the feed-forward part is LayerNorm, where the reference's is RMSNorm"),
    (norm(lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight + 1, 1e-6)), "has one plus its weight as its weight"),
    (norm(lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight, 1e-3)), "is 0.001, where the reference's is 1e-06"),
    (layer(lambda self, x, attend: x + attend(self.input_layernorm(x)) + self.mlp(self.post_attention_layernorm(x))),
     "attention and feed-forward part both read the layer's input"),
    (layer(lambda self, x, attend: (y := attend(self.input_layernorm(x))) + self.mlp(self.post_attention_layernorm(y))),
     "the input of attention is not added to its output"),
]  # fmt: skip


@pytest.mark.parametrize("plant, sentence", FAULTS, ids=[each[1][:50] for each in FAULTS])
def test_fault_in_a_layer_of_a_language_model_is_named(
    demo: Demo, monkeypatch: pytest.MonkeyPatch, plant: Plant, sentence: str
) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        candidate = demo.traced()
    stage, hint = demo.judged(candidate)
    assert stage == "llm.layers.0"
    assert hint is not None and sentence in hint, hint


def test_attention_written_again_is_right(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the faults above would be others than their words say."""
    with monkeypatch.context() as patch:
        attention()(patch)
        assert demo.judged(demo.traced()) == (None, None)


def test_unknown_change_of_a_layer_has_no_hint(demo: Demo) -> None:
    stage, draw = "llm.layers.1", np.random.default_rng(4)
    right = demo.reference[stage]
    wrong = right * (1 + 0.01 * draw.standard_normal(right.shape)).astype(np.float32)
    assert demo.judged(Trace({**demo.reference, stage: wrong}, demo.reference.meta)) == (stage, None)
