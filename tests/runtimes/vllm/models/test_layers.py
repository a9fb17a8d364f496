"""Layers of the audio towers split over two tensor-parallel workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models import split_tower  # noqa: E402
from tests.support import with_vllm  # noqa: E402
from workbench.runtimes.pytorch.checkpoints.weights import build, load_into  # noqa: E402
from workbench.runtimes.pytorch.networks.nano_encoder import NanoEncoder  # noqa: E402


@pytest.mark.slow
def test_two_workers_compute_one_tower(tmp_path: Path) -> None:
    outs = [tmp_path / f"{rank}.pt" for rank in range(2)]
    meeting = tmp_path / f"meeting-{os.getpid()}"
    identity = {"VLLM_DIST_IDENT": meeting.name}  # of shared memory
    logs = [out.with_suffix(".log") for out in outs]
    workers = [
        with_vllm.start(split_tower.__name__, [str(meeting), str(rank), str(out)], log, identity)
        for rank, (out, log) in enumerate(zip(outs, logs))
    ]
    try:
        for worker, log in zip(workers, logs):
            assert worker.wait(timeout=200) == 0, log.read_text()[-3000:]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    network = build(NanoEncoder, split_tower.ENCODER, split_tower.ADAPTOR)
    load_into(network, split_tower.weights(), "the test")
    outputs = [torch.load(out, weights_only=True) for out in outs]
    for number, rows in enumerate(split_tower.features()):
        speech, _ = network(rows[None], torch.tensor([len(rows)]))
        for output in outputs:
            assert torch.allclose(output["found"][number], speech[0], rtol=0, atol=1e-4 * float(speech.abs().max()))
    shapes = outputs[0]["shapes"]
    assert shapes["audio_encoder.encoders.0.self_attn.linear_q_k_v.weight"] == (24, 16)
    assert shapes["audio_encoder.encoders.0.self_attn.fsmn_block.weight"] == (8, 1, 5)
    assert shapes["audio_encoder.encoders.0.feed_forward.w_1.weight"] == (12, 16)
    assert shapes["audio_adaptor.blocks.0.self_attn.qkv.weight"] == (72, 24)
