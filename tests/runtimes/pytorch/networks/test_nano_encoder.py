"""Fun-ASR-Nano's adaptor against a reference, padding in batches, and the published dimensions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.support.tiny_checkpoints import drawn_tensors
from workbench.families.sanm.encoder import SanmConfig
from workbench.families.speech_llm.funasr_nano import AdaptorConfig
from workbench.runtimes.pytorch.networks.nano_encoder import Adaptor, NanoEncoder

ENCODER = SanmConfig(12, 16, 2, linear_units=24, num_blocks=2, tp_blocks=1, kernel_size=5, sanm_shift=0, norm_eps=1e-5)


def adaptor_config(**changes: int) -> AdaptorConfig:
    values = {"downsample_rate": 1, "ffn_dim": 24, "llm_dim": 32, "n_layer": 2, "attention_heads": 4, **changes}
    return AdaptorConfig(use_low_frame_rate=True, encoder_dim=16, **values)


def with_random_weights(network: torch.nn.Module) -> torch.nn.Module:
    network.load_state_dict(drawn_tensors(network, 1))
    return network.eval()


def reference_adaptor(adaptor: Adaptor, frames: Tensor) -> Tensor:
    """The adaptor over one row [T, D], frame by frame and head by head."""
    weights = adaptor.state_dict()

    def linear(name: str, x: Tensor) -> Tensor:
        return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean()
        return centred / (centred.square().mean() + 1e-12).sqrt() * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    rate = adaptor.config.downsample_rate
    rows = []
    for start in range(0, len(frames), rate):
        stack = [frames[n] if n < len(frames) else torch.zeros(frames.shape[1]) for n in range(start, start + rate)]
        rows.append(linear("linear2", linear("linear1", torch.cat(stack)).relu()))
    for number in range(adaptor.config.n_layer):
        block = f"blocks.{number}"
        normalised = [norm(f"{block}.norm1", row) for row in rows]
        queries, keys, values = (
            [linear(f"{block}.self_attn.linear_{kind}", row) for row in normalised] for kind in ("q", "k", "v")
        )
        size = adaptor.config.llm_dim // adaptor.config.attention_heads
        for index, query in enumerate(queries):
            heads = []
            for begin in range(0, adaptor.config.llm_dim, size):
                part = slice(begin, begin + size)
                scores = torch.stack([query[part] @ key[part] / size**0.5 for key in keys]).softmax(0)
                heads.append(sum(score * value[part] for score, value in zip(scores, values, strict=True)))
            rows[index] = rows[index] + linear(f"{block}.self_attn.linear_out", torch.cat(heads))
        for index, row in enumerate(rows):
            inner = linear(f"{block}.feed_forward.w_1", norm(f"{block}.norm2", row)).relu()
            rows[index] = row + linear(f"{block}.feed_forward.w_2", inner)
    return torch.stack(rows)


@pytest.mark.parametrize("changes", [{}, {"n_layer": 0}, {"downsample_rate": 3}, {"attention_heads": 1, "n_layer": 1}])
@pytest.mark.parametrize("frames", [1, 7, 9])
def test_adaptor_equals_the_reference_implementation(changes: dict[str, int], frames: int) -> None:
    adaptor = with_random_weights(Adaptor(adaptor_config(**changes)))
    x = torch.randn(frames, 16, generator=torch.Generator().manual_seed(frames))
    with torch.inference_mode():
        torch.testing.assert_close(adaptor(x[None])[0], reference_adaptor(adaptor, x), atol=2e-5, rtol=1e-4)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [1, 2])
def test_padding_changes_nothing(rate: int) -> None:
    """Padding is zero before the first layer only, and must not change the speech in any layer."""
    network = with_random_weights(NanoEncoder(ENCODER, adaptor_config(downsample_rate=rate)))
    draw = torch.Generator().manual_seed(3)
    rows = [torch.randn(length, 12, generator=draw) for length in (40, 1, 17, 33)]
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    with torch.inference_mode():
        batched, counts = network(padded, torch.tensor([len(row) for row in rows]))
        assert counts.tolist() == [5, 1, 3, 5] and batched.shape == (4, 5, 32)
        for number, row in enumerate(rows):
            single, count = network(row[None], torch.tensor([len(row)]))
            assert count.tolist() == [counts[number]]
            torch.testing.assert_close(batched[number, : count[0]], single[0], atol=2e-5, rtol=1e-4)


def test_the_published_dimensions_have_the_published_parameters() -> None:
    """914 tensors of encoder; 36 tensors and 12,604,928 parameters of adaptor."""
    config = SanmConfig(
        560, 512, 4, linear_units=2048, num_blocks=50, tp_blocks=20, kernel_size=11, sanm_shift=0, norm_eps=1e-5
    )
    with torch.device("meta"):
        network = NanoEncoder(config, AdaptorConfig(1, True, 512, 2048, 1024, 2, 8))
    adaptor = {name: value for name, value in network.state_dict().items() if name.startswith("audio_adaptor.")}
    assert len(network.state_dict()) - len(adaptor) == 914
    assert len(adaptor) == 36 and sum(value.numel() for value in adaptor.values()) == 12_604_928
    assert adaptor["audio_adaptor.blocks.1.feed_forward.w_1.weight"].shape == (256, 1024)
