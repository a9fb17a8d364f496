"""CUDA-graph replays of an encoder give the output of plain passes, for any sequence of lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.reference.checkpoints import write_sensevoice
from tests.runtimes.pytorch.networks.test_sanm import CONFIG
from workbench.families.sanm.sensevoice import SenseVoiceOptions, query_ids, read_sensevoice
from workbench.runtimes.pytorch.networks.sanm import SanmEncoder
from workbench.runtimes.pytorch.numerics.graph_replays import MAX_FRAMES, STEP, Encode, GraphReplays
from workbench.runtimes.pytorch.sensevoice import SenseVoiceOnDevice


class FakeGraph:
    """Records passes like a CUDA graph, which reads its inputs from fixed buffers."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.replay_count = 0

    def record(self, encode: Encode, x: Tensor, lengths: Tensor) -> Encode:
        self.sizes.append(x.shape[1])
        x, lengths = torch.full_like(x, torch.nan), torch.zeros_like(lengths)

        def replay(features: Tensor, frames: Tensor) -> Tensor:
            self.replay_count += 1
            x.copy_(features)
            lengths.copy_(frames)
            return encode(x, lengths)

        return replay


def encoders() -> tuple[SanmEncoder, SanmEncoder, FakeGraph]:
    """Two encoders with the same weights, the second one with replays."""
    torch.manual_seed(1)
    plain, replaying, graph = SanmEncoder(CONFIG).eval(), SanmEncoder(CONFIG).eval(), FakeGraph()
    replaying.load_state_dict(plain.state_dict())
    replaying.replays = GraphReplays(graph.record)
    return plain, replaying, graph


@given(lengths=st.lists(st.integers(1, 2 * STEP + 5), min_size=1, max_size=6), seed=st.integers(0, 99))
def test_every_pass_gives_the_encoders_output(lengths: list[int], seed: int) -> None:
    plain, replaying, graph = encoders()
    torch.manual_seed(seed)
    with torch.inference_mode():
        for frames in lengths:
            x = torch.randn(1, frames, CONFIG.input_size)
            torch.testing.assert_close(replaying(x), plain(x), rtol=1e-5, atol=1e-5)
    sizes = [-(-frames // STEP) for frames in lengths]
    assert sorted(graph.sizes) == sorted(size * STEP for size in {*sizes} if sizes.count(size) > 1)
    assert graph.replay_count == len(sizes) - len({*sizes})


def test_batches_long_inputs_masks_taps_and_gradients_bypass_the_graphs() -> None:
    plain, replaying, graph = encoders()
    stages = []

    def tap(stage: str, value: Tensor) -> Tensor:
        stages.append(stage)
        return value

    single, batch, long_input = (
        torch.randn(*shape, CONFIG.input_size) for shape in ((1, 9), (2, 9), (1, MAX_FRAMES + 1))
    )
    for _ in range(3):
        with torch.inference_mode():
            for x in (batch, long_input):
                torch.testing.assert_close(replaying(x), plain(x))
            replaying(single, torch.tensor([9]))
            replaying(single, None, tap)
        x = single.clone().requires_grad_()
        replaying(x).sum().backward()
        assert x.grad is not None
    assert not graph.sizes and "encoder.output" in stages


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
@pytest.mark.parametrize("frames", [3, STEP, 500])
def test_cuda_graph_outputs_equal_plain_kernel_outputs(tmp_path: Path, frames: int) -> None:
    model = read_sensevoice(write_sensevoice(tmp_path / "sensevoice"))
    replaying, plain = (SenseVoiceOnDevice(model, torch.device("cuda")) for _ in range(2))
    plain.network.encoder.replays = None
    rng, queries = np.random.default_rng(frames), query_ids(SenseVoiceOptions())
    for _ in range(4):  # first without a graph, then recorded, then replayed
        features = rng.normal(size=(frames, 560)).astype(np.float32)
        [actual], [expected] = (network.batch_logits([features], queries) for network in (replaying, plain))
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        ids = [network.best_paths([features], queries, 0, None)[0].ids for network in (replaying, plain)]
        assert (ids[0] == ids[1]).mean() > 0.99  # weights are random: some frames are near ties
