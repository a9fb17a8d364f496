"""Explanations of faults in steps that the candidate shows only as a whole, with the weights of a demo checkpoint.

The port is the network of this project with one line of its code changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.support.faulty_demos import Demo, Plant, method, opened_demos
from workbench.compare import compare
from workbench.compare.explain import with_hints
from workbench.compare.guesses.guess import Linear
from workbench.runtimes.pytorch.networks import cif, conformer, nano_encoder, sanm, sanm_decoder
from workbench.runtimes.pytorch.sensevoice import SenseVoiceNetwork
from workbench.trace.inside import is_inside
from workbench.trace.trace import Trace


@pytest.fixture(scope="module")
def demos() -> Iterator[Callable[[str], Demo]]:
    yield from opened_demos()


def maps(change: Callable[[Any, Tensor], Tensor]) -> Plant:
    """FireRedASR's subsampling with other convolutions or another order of their channels."""

    def forward(self: Any, features: Tensor) -> Tensor:
        x = F.pad(features, (0, 0, 0, conformer.CONTEXT_FRAMES - 1)).unsqueeze(1)
        rows: Tensor = self.out(change(self, x))
        return rows

    return method(conformer.Subsampling, "forward", forward)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def adaptor(change: Callable[[Any, Tensor], Tensor]) -> Plant:
    def forward(self: Any, encoded: Tensor, tap: Any) -> Tensor:
        stacks = encoded.shape[1] // self.downsample_rate
        x = encoded[:, : stacks * self.downsample_rate].unflatten(1, (stacks, self.downsample_rate))
        rows: Tensor = tap("adaptor.output", change(self, x))
        return rows

    return method(conformer.StackingAdaptor, "forward", forward)


def relative(
    change: Callable[[Any, Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Plant:
    """FireRedASR's attention with other scores."""

    def forward(self: Any, x: Tensor, positions: Tensor, keys: Any, tap: Any, stage: str) -> Tensor:
        q, k, v = (
            self._split(getattr(self, f"w_{part}s")(getattr(self, f"layer_norm_{part}")(x))) for part in ("q", "k", "v")
        )
        weights = (change(self, q, k, v, self._split(self.linear_pos(positions)[None])) * q.shape[-1] ** -0.5).softmax(
            -1
        )
        rows: Tensor = x + tap(f"{stage}.attention", self.fc((weights @ v).transpose(1, 2).flatten(2)))
        return rows

    return method(conformer.RelativeAttention, "forward", forward)


def scores(self: Any, q: Tensor, k: Tensor, p: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return (q + u[:, None]) @ k.transpose(2, 3) + conformer._position_scores(q + v[:, None], p, None)


def distances(of: Callable[[int], Tensor]) -> Plant:
    def positions(frames: int, size: int, like: Tensor) -> Tensor:
        angles = of(frames)[:, None].to(like.dtype) * 10000.0 ** (-torch.arange(0, size, 2) / size)
        return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)

    return method(conformer, "relative_positions", positions)


def local(change: Callable[[Any, Tensor, Tensor], Tensor]) -> Plant:
    """Paraformer's predictor with another convolution in front of its weights."""

    def forward(self: Any, encoded: Tensor, residual: bool = False) -> Tensor:
        convolved = self.cif_conv1d(F.pad(encoded.transpose(1, 2), self.padding)).transpose(1, 2)
        return change(self, convolved, encoded)

    return method(cif.CifPredictor, "_local", forward)


def cross(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Plant:
    def forward(self: Any, x: Tensor, encoded: Tensor, frames: Any) -> Tensor:
        k, v = change(*self.linear_k_v(encoded).chunk(2, dim=-1))
        q, k, v = map(self._in_heads, (self.linear_q(x), k, v))
        rows: Tensor = self.linear_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        return rows

    return method(sanm_decoder.CrossAttention, "forward", forward)


def queries(*rows: int) -> Plant:
    def forward(self: Any, features: Tensor, _: Tensor, lengths: Any = None, tap: Any = None) -> Tensor:
        x = torch.cat([self.embed(torch.tensor([rows])), features], dim=1)
        logits: Tensor = self.ctc(self.encoder(x, None, tap))
        return logits

    return method(SenseVoiceNetwork, "forward", forward)


def fused(order: tuple[int, int, int]) -> Plant:
    """SAN-M's attention with the parts of its fused projection in another order."""

    def forward(self: Any, x: Tensor, mask: Any, tap: Any, stage: str) -> Tensor:
        parts = self.linear_q_k_v(x).chunk(3, dim=-1)
        q, k, v = (parts[number] for number in order)
        memory = tap(f"{stage}.fsmn", self.fsmn_block(v, None))
        q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
        context = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        rows: Tensor = tap(f"{stage}.attention", self.linear_out(context)) + memory
        return rows

    return method(sanm.SanmAttention, "forward", forward)


def in_front(self: Any, x: Tensor, mask: Any, tap: Any, stage: str) -> Tensor:
    """SAN-M's attention with the memory in front of the output projection."""
    q, k, v = self.linear_q_k_v(x).chunk(3, dim=-1)
    memory = tap(f"{stage}.fsmn", self.fsmn_block(v, None))
    q, k, v = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in (q, k, v))
    context = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    rows: Tensor = tap(f"{stage}.attention", self.linear_out(context + memory))
    return rows


def sanm_layer(change: Callable[[Any, Tensor], Tensor]) -> Plant:
    """A layer of SAN-M with another end."""

    def forward(self: Any, x: Tensor, mask: Any, tap: Any, stage: str) -> Tensor:
        attention = self.self_attn(self.norm1(x), mask, tap, stage)
        return change(self, x + attention if self.residual else attention)

    return method(sanm.SanmLayer, "forward", forward)


def one_norm(self: Any, x: Tensor, positions: Tensor, keys: Any, tap: Any, stage: str) -> Tensor:
    """FireRedASR's attention with the norm of the keys for everything."""
    normed = self.layer_norm_k(x)
    q, k, v = (self._split(getattr(self, f"w_{part}s")(normed)) for part in ("q", "k", "v"))
    p = self._split(self.linear_pos(positions)[None])
    weights = (scores(self, q, k, p, self.pos_bias_u, self.pos_bias_v) * q.shape[-1] ** -0.5).softmax(-1)
    rows: Tensor = x + tap(f"{stage}.attention", self.fc((weights @ v).transpose(1, 2).flatten(2)))
    return rows


def exchanged_halves(self: Any, x: Tensor, positions: Tensor, mask: Any, tap: Any, stage: str) -> Tensor:
    rows: Tensor = self.layer_norm(
        self.ffn1(self.conv(self.mhsa(self.ffn2(x), positions, None, tap, stage), mask, tap, stage))
    )
    return rows


def causal(self: Any, x: Tensor, encoded: Tensor, frames: Any) -> Tensor:
    """Cross attention in which token n sees the first n + 1 frames."""
    k, v = self.linear_k_v(encoded).chunk(2, dim=-1)
    q, k, v = map(self._in_heads, (self.linear_q(x), k, v))
    context = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    rows: Tensor = self.linear_out(context.transpose(1, 2).reshape(x.shape))
    return rows


def nano_adaptor(change: Callable[[Any, Tensor], Tensor]) -> Plant:
    def forward(self: Any, encoded: Tensor, lengths: Any, tap: Any) -> Tensor:
        rate = self.config.downsample_rate
        x = F.pad(encoded, (0, 0, 0, -encoded.shape[1] % rate)).unflatten(1, (-1, rate)).flatten(2)
        x = change(self, x)
        for number, block in enumerate(self.blocks):
            x = tap(f"{self.stack}.{number}", block(x, None))
        return x

    return method(nano_encoder.Adaptor, "forward", forward)


def block_attention(heads: Callable[[Any], int]) -> Plant:
    """The attention of Fun-ASR-Nano's adaptor with another number of heads."""

    def forward(self: Any, x: Tensor, keys: Any) -> Tensor:
        q, k, v = (getattr(self, f"linear_{part}")(x).unflatten(2, (heads(self), -1)).transpose(1, 2) for part in "qkv")
        rows: Tensor = self.linear_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return rows

    return method(nano_encoder.Attention, "forward", forward)


def convolved(gate: Callable[[Tensor], Tensor], activation: Callable[[Tensor], Tensor] = F.silu) -> Plant:
    """FireRedASR's convolution part with another gate or activation."""

    def forward(self: Any, x: Tensor, mask: Any, tap: Any, stage: str) -> Tensor:
        up = conformer._pointwise(self.pre_layer_norm(x), self.pointwise_conv1)
        inner = self.batch_norm(self.depthwise_conv(gate(up).transpose(1, 2)).transpose(1, 2))
        inner = conformer._pointwise(activation(inner), self.pointwise_conv2)
        rows: Tensor = x + tap(f"{stage}.convolution", inner)
        return rows

    return method(conformer.Convolution, "forward", forward)


FAULTS: list[tuple[str, Plant, str, str]] = [
    ("fireredasr", maps(lambda self, x: self._maps(x).permute(0, 2, 3, 1).flatten(2)), "encoder.input",
     "its channels are joined frequency by frequency"),
    ("fireredasr", maps(lambda self, x: joined(self.conv[2](self.conv[1](self.conv[0](x))))), "encoder.input",
     "the activation behind the second convolution is left out"),
    ("fireredasr", maps(lambda self, x: joined(F.gelu(self.conv[2](F.gelu(self.conv[0](x)))))), "encoder.input",
     "the activation behind the first convolution as well as the activation behind the second convolution is GELU"),
    ("fireredasr", adaptor(lambda self, x: F.relu(self.linear2(self.linear1(x.flatten(2))))), "adaptor.output",
     "the activation comes behind the second projection"),
    ("fireredasr", adaptor(lambda self, x: self.linear2(F.gelu(self.linear1(x.flatten(2))))), "adaptor.output",
     "the activation is GELU, where the reference's is ReLU"),
    ("fireredasr", adaptor(lambda self, x: self.linear2(F.relu(self.linear1(x.transpose(2, 3).flatten(2))))),
     "adaptor.output", "the 2 frames of a stack are joined by channel"),
    ("fireredasr", distances(lambda count: torch.arange(1 - count, count)), "encoder.layers.0.attention",
     "its relative positions are reversed"),
    ("fireredasr", distances(lambda count: torch.arange(count, 1 - count, -1)), "encoder.layers.0.attention",
     "its relative positions are off by +1"),
    ("fireredasr", relative(lambda self, q, k, v, p: scores(self, q, k, p, self.pos_bias_v, self.pos_bias_u)),
     "encoder.layers.0.attention", "the biases of content and position (u and v) are exchanged"),
    ("fireredasr", relative(lambda self, q, k, v, p: scores(self, q, k, p, 0 * self.pos_bias_u, self.pos_bias_v)),
     "encoder.layers.0.attention", "the bias of the content (u) is left out"),
    ("fireredasr", relative(lambda self, q, k, v, p: scores(self, k, q, p, self.pos_bias_u, self.pos_bias_v)),
     "encoder.layers.0.attention", "its queries and keys are exchanged"),
    ("fireredasr", method(conformer.FeedForward, "forward", lambda self, x: x + self.net(x)),
     "encoder.layers.0.attention", "the whole output of the first feed-forward part is added, where the reference"),
    ("fireredasr", convolved(lambda x: x.chunk(2, 2)[1] * x.chunk(2, 2)[0].sigmoid()), "encoder.layers.0.convolution",
     "the gate takes the first half, where the reference's takes the second"),
    ("fireredasr", convolved(lambda x: F.glu(x, 2), F.relu), "encoder.layers.0.convolution",
     "the activation behind it is ReLU, where the reference's is SiLU"),
    ("paraformer", local(lambda self, y, x: y), "predictor.alphas",
     "the activation behind the convolution is left out"),
    ("paraformer", local(lambda self, y, x: F.relu(y + x)), "predictor.alphas",
     "the frames are added to their convolution before the activation"),
    ("paraformer", method(sanm_decoder.DecoderFeedForward, "forward", lambda self, x: self.w_2(F.relu(self.w_1(x)))),
     "decoder.layers.0", "the norm over the hidden units is left out"),
    ("paraformer", cross(lambda k, v: (v, k)), "decoder.layers.0",
     "the keys and values of cross attention are exchanged"),
    ("paraformer", fused((0, 2, 1)), "encoder.layers.0.fsmn",
     "it is the memory of the keys, where the reference's is of the values"),
    ("paraformer", method(sanm_decoder.CrossAttention, "forward", causal), "decoder.layers.0",
     "cross attention sees no later rows"),
    ("paraformer", method(sanm.SanmAttention, "forward", in_front), "encoder.layers.0.attention",
     "the memory is added in front of the output projection"),
    ("sensevoice", sanm_layer(lambda self, x: self.norm2(x + self.feed_forward(x))), "encoder.layers.0",
     "the norm in front of the feed-forward part stands behind the residual (post-norm)"),
    ("sensevoice", sanm_layer(lambda self, x: x + self.norm2(self.feed_forward(x))), "encoder.layers.0",
     "stands behind the feed-forward part, before the residual is added"),
    ("sensevoice", sanm_layer(lambda self, x: self.norm2(x) + self.feed_forward(self.norm2(x))), "encoder.layers.0",
     "the residual of the feed-forward part is taken behind its norm"),
    ("sensevoice", sanm_layer(lambda self, x: x + self.feed_forward(F.rms_norm(x, x.shape[-1:], self.norm2.weight,
                                                                              1e-5) + self.norm2.bias)),
     "encoder.layers.0", "the norm in front of the feed-forward part is RMSNorm, where the reference's is LayerNorm"),
    ("fireredasr", method(conformer.RelativeAttention, "forward", one_norm), "encoder.layers.0.attention",
     "the norm of the keys stands in front of queries, keys and values"),
    ("fireredasr", method(conformer.ConformerBlock, "forward", exchanged_halves), "encoder.layers.0.attention",
     "the second feed-forward part stands in the place of the first feed-forward part"),
    ("sensevoice", queries(4, 1, 2, 15), "encoder.input",
     "before its positions are added, its row 0 is query 4, where the reference has 0"),
    ("sensevoice", queries(3, 1, 2, 14), "encoder.input", "its rows 0 to 3 are queries 3, 1, 2, 14, where the refer"),
    ("sensevoice", method(sanm.FeedForward, "forward", lambda self, x: self.w_2(F.gelu(self.w_1(x)))),
     "encoder.layers.0", "the activation of the feed-forward part is GELU, where the reference's is ReLU"),
    ("funasr_nano", block_attention(lambda self: self.heads * 2), "adaptor.layers.0",
     "attention has 16 heads, where the reference's has 8"),
    ("funasr_nano", nano_adaptor(lambda self, x: self.linear2(self.linear1(x))), "adaptor.layers.0",
     "the activation is left out"),
    ("funasr_nano", nano_adaptor(lambda self, x: F.relu(self.linear2(self.linear1(x)))), "adaptor.layers.0",
     "the activation comes behind the second projection"),
]  # fmt: skip


@pytest.mark.parametrize("family, plant, stage, sentence", FAULTS, ids=[each[3][:50] for each in FAULTS])
def test_fault_in_a_step_is_named(
    demos: Callable[[str], Demo], monkeypatch: pytest.MonkeyPatch, family: str, plant: Plant, stage: str, sentence: str
) -> None:
    demo = demos(family)
    with monkeypatch.context() as patch:
        plant(patch)
        candidate = demo.traced()
    faulty, hint = demo.judged(candidate)
    assert faulty == stage
    assert hint is not None and sentence in hint, hint


@pytest.mark.parametrize(
    "family, stage",
    [
        ("fireredasr", "encoder.input"),
        ("fireredasr", "adaptor.output"),
        ("fireredasr", "encoder.layers.1.attention"),
        ("paraformer", "predictor.alphas"),
        ("paraformer", "decoder.layers.0"),
        ("sensevoice", "encoder.layers.1"),
    ],
)
def test_unknown_change_has_no_hint(demos: Callable[[str], Demo], family: str, stage: str) -> None:
    """Every value is changed a little at random; what enters is right."""
    demo, draw = demos(family), np.random.default_rng(4)
    right = demo.reference[stage]
    wrong = right * (1 + 0.01 * draw.standard_normal(right.shape)).astype(np.float32)
    assert demo.judged(Trace({**demo.reference, stage: wrong}, demo.reference.meta)) == (stage, None)


def test_checkpoint_is_read_once_for_a_stage_that_nothing_explains(demos: Callable[[str], Demo]) -> None:
    """Each read takes a process; here three kinds of guesses need parameters."""
    demo, stage, draw = demos("fireredasr"), "encoder.layers.0.attention", np.random.default_rng(4)
    right = demo.reference[stage]
    wrong = right * (1 + 0.01 * draw.standard_normal(right.shape)).astype(np.float32)
    coarse = {each: array for each, array in demo.reference.items() if not is_inside(each)}
    candidate = Trace({**coarse, stage: wrong}, demo.reference.meta)
    reads = []

    def layers(stages: Sequence[str]) -> Mapping[str, Linear]:
        reads.append(stages)
        return demo.layers(stages)

    comparison = with_hints(compare(demo.reference, candidate), None, demo.reference, candidate, layers=layers)
    assert comparison[stage].explanation is None
    [names] = reads
    assert {f"{stage}.output", f"{stage}.positions", "encoder.layers.0.ffn1.up"} <= set(names)


def test_subsampling_of_few_frames_is_recomputed_in_whole(
    demos: Callable[[str], Demo], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The padding stands within the rows that are tried."""
    demo = demos("fireredasr")
    samples = np.random.default_rng(7).standard_normal(6400).astype(np.float32) / 10
    reference = demo.session.trace((samples, 16000), stages="frontend.*,encoder.input")
    with monkeypatch.context() as patch:
        maps(lambda self, x: self._maps(x.roll(3, 2)).transpose(1, 2).flatten(2))(patch)
        candidate = demo.session.trace((samples, 16000), stages="frontend.*,encoder.input")
    comparison = with_hints(compare(reference, candidate), None, reference, candidate, layers=demo.layers)
    explanation = comparison["encoder.input"].explanation
    assert explanation and "6 frames of padding stand at both ends" in explanation.sentence
