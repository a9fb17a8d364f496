"""Layers of the towers split over two workers, which compute what one computes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.runtimes.vllm.models import split_tower  # noqa: E402
from workbench.runtimes.pytorch.nano_encoder import NanoEncoder  # noqa: E402
from workbench.runtimes.pytorch.weights import build, load_into  # noqa: E402


@pytest.mark.slow
def test_two_workers_compute_one_tower(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[4]
    outs = [tmp_path / f"{rank}.pt" for rank in range(2)]
    meeting = tmp_path / f"meeting-{os.getpid()}"
    command = [sys.executable, "-m", split_tower.__name__, str(meeting)]
    workers = [
        subprocess.Popen(
            [*command, str(rank), str(out)],
            cwd=root,
            env={**os.environ, "OMP_NUM_THREADS": "1", "VLLM_DIST_IDENT": meeting.name},  # of shared memory
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, out in enumerate(outs)
    ]
    try:
        for each in workers:
            said, _ = each.communicate(timeout=200)
            assert each.returncode == 0, said[-3000:]
    finally:
        for each in workers:
            each.kill()
            each.wait()
    network = build(NanoEncoder, split_tower.ENCODER, split_tower.ADAPTOR)
    load_into(network, split_tower.weights(), "the test")
    loaded = [torch.load(out, weights_only=True) for out in outs]
    for number, rows in enumerate(split_tower.features()):
        speech, _ = network(rows[None], torch.tensor([len(rows)]))
        for each in loaded:
            assert torch.allclose(each["found"][number], speech[0], rtol=0, atol=1e-4 * float(speech.abs().max()))
    shapes = loaded[0]["shapes"]
    assert shapes["audio_encoder.encoders.0.self_attn.linear_q_k_v.weight"] == (24, 16)
    assert shapes["audio_encoder.encoders.0.self_attn.fsmn_block.weight"] == (8, 1, 5)
    assert shapes["audio_encoder.encoders.0.feed_forward.w_1.weight"] == (12, 16)
    assert shapes["audio_adaptor.blocks.0.self_attn.qkv.weight"] == (72, 24)
