"""Paraformer's decoder against a reference implementation, and padding in batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from workbench.families.sanm.decoder import DecoderConfig
from workbench.runtimes.pytorch.networks.sanm_decoder import NORM_EPS, SanmDecoder

SIZE, VOCABULARY = 16, 11


def decoder(num_blocks: int = 3, attending: int = 2, shift: int = 0) -> SanmDecoder:
    torch.manual_seed(0)
    return SanmDecoder(DecoderConfig(4, 24, num_blocks, attending, 5, shift), SIZE, VOCABULARY).eval()


def test_layers_are_feed_forward_memory_attention_in_that_order() -> None:
    """The residual connection spans feed-forward and memory; the last layer has none."""
    network = decoder()
    encoded, embeddings = torch.randn(1, 7, SIZE), torch.randn(1, 4, SIZE)

    def norm(x: torch.Tensor, layer: torch.nn.LayerNorm) -> torch.Tensor:
        return F.layer_norm(x, (x.shape[-1],), layer.weight, layer.bias, NORM_EPS)

    def feed_forward(x: torch.Tensor, part: torch.nn.Module) -> torch.Tensor:
        return norm(F.relu(part.w_1(x)), part.norm) @ part.w_2.weight.T  # type: ignore[operator,arg-type,union-attr]

    x = embeddings
    with torch.no_grad():
        for layer in [*network.decoders, *network.decoders2]:
            h = norm(feed_forward(norm(x, layer.norm1), layer.feed_forward), layer.norm2)
            kernel = layer.self_attn.fsmn_block.weight
            memory = F.conv1d(F.pad(h.transpose(1, 2), (2, 2)), kernel, groups=SIZE).transpose(1, 2) + h
            x = x + memory
            if layer.src_attn is not None:
                y = norm(x, layer.norm3)
                k, v = layer.src_attn.linear_k_v(encoded).split(SIZE, dim=-1)
                heads = [
                    torch.softmax(q @ key.T / 2.0, dim=-1) @ value
                    for q, key, value in zip(
                        layer.src_attn.linear_q(y)[0].split(4, dim=-1),
                        k[0].split(4, dim=-1),
                        v[0].split(4, dim=-1),
                        strict=True,
                    )
                ]
                x = x + layer.src_attn.linear_out(torch.cat(heads, dim=-1)[None])
        last = network.decoders3[0]
        x = feed_forward(norm(x, last.norm1), last.feed_forward)
        expected = network.output_layer(norm(x, network.after_norm))
        actual = network(encoded, None, embeddings, None)
    np.testing.assert_allclose(actual.numpy(), expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(("blocks", "attending", "shift"), [(2, 2, 0), (3, 2, 0), (3, 2, 2)])
def test_batched_rows_equal_single_rows_whatever_the_padding_contains(blocks: int, attending: int, shift: int) -> None:
    network = decoder(blocks, attending, shift)
    frames, counts = torch.tensor([9, 3, 6]), torch.tensor([4, 1, 5])
    encoded, embeddings = torch.randn(3, 9, SIZE), torch.randn(3, 5, SIZE)
    with torch.no_grad():
        random_padding = network(encoded, frames, embeddings, counts)
        for row, (length, count) in enumerate(zip(frames.tolist(), counts.tolist(), strict=True)):
            encoded[row, length:], embeddings[row, count:] = 1e3, 1e3
        large_padding = network(encoded, frames, embeddings, counts)
        for row, (length, count) in enumerate(zip(frames.tolist(), counts.tolist(), strict=True)):
            single = network(encoded[row : row + 1, :length], None, embeddings[row : row + 1, :count], None)
            for actual in (random_padding, large_padding):
                np.testing.assert_allclose(actual[row, :count].numpy(), single[0].numpy(), atol=5e-6)


def test_parameters_have_the_published_names() -> None:
    names = set(decoder().state_dict())
    assert {name.split(".")[0] for name in names} == {
        "decoders",
        "decoders2",
        "decoders3",
        "after_norm",
        "output_layer",
    }
    assert "decoders3.0.norm1.weight" in names and "decoders3.0.norm2.weight" not in names
    assert "decoders2.0.self_attn.fsmn_block.weight" in names and "decoders2.0.src_attn.linear_q.weight" not in names
    assert "decoders.0.feed_forward.w_2.bias" not in names and "decoders.0.feed_forward.norm.weight" in names
