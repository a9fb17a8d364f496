"""A SpeechLM of the published width and vocabulary, with one layer of random weights, runs end to end in bfloat16."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import transformers
from torch import Tensor

from tests.support.tiny_language import change_json
from tests.support.tiny_speechlm import ACOUSTIC, CODEC_PREFIX, SEMANTIC, tiny_espnet_release
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.speechlm import open_speechlm
from workbench.speech.delay import aligned
from workbench.speech.dialogue import Recording, Turn, prompt_parts
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.phases import Kind

TEXT_ROWS = 151936
WIDTH: dict[str, Any] = {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 1,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rope_theta": 1e6,
    "max_position_embeddings": 32768,
}
PERIOD = 1_000_003
NEEDED = 9 << 30  # bytes of memory: the tensors while they are written, and while they are read


def large(name: str, shape: torch.Size) -> Tensor:
    """Random values of the usual size for a matrix; ones for a norm.

    The values repeat after a prime number, so that all rows differ; drawing each value would take long.
    """
    if len(shape) == 1:
        return torch.ones(shape, dtype=torch.bfloat16)
    values = torch.empty(PERIOD, dtype=torch.bfloat16).uniform_(-0.03, 0.03)
    return values.repeat(-(-shape.numel() // PERIOD))[: shape.numel()].reshape(shape).clone()


def write_wide(directory: Path) -> None:
    """A release of ESPnet's form: the tiny one with the language model and the codebooks of the published sizes."""
    tiny = tiny_espnet_release(directory, streams=8)
    change_json(directory / "Qwen3-tiny-Base" / "config.json", vocab_size=TEXT_ROWS, **WIDTH)
    codec_config = transformers.XcodecConfig(acoustic_model_config=ACOUSTIC, semantic_model_config=SEMANTIC)
    codec = transformers.XcodecModel(codec_config)
    for quantizer in codec.quantizer.quantizers:
        quantizer.codebook.embed.normal_()
    codec_config.save_pretrained(directory / "xcodec-tiny")
    vocabulary = 256 + TEXT_ROWS + 8 * 1025
    with torch.device("meta"):
        decoder = transformers.Qwen3ForCausalLM(transformers.Qwen3Config(vocab_size=vocabulary, **WIDTH))
    tensors = {name: large(name, value.shape) for name, value in decoder.state_dict().items()}
    tensors |= {name: value for name, value in tiny.tensors.items() if "audio_tower" in name}
    tensors["stream_emb.weight"] = large("stream_emb", torch.Size((8, WIDTH["hidden_size"])))
    tensors["adaptor.continuous_audio.weight"] = large("adaptor", torch.Size((WIDTH["hidden_size"], 20)))
    tensors["adaptor.continuous_audio.bias"] = torch.zeros(WIDTH["hidden_size"], dtype=torch.bfloat16)
    tensors |= {f"{CODEC_PREFIX}{name}": value.bfloat16() for name, value in codec.state_dict().items()}
    tensors["vocab_weight"] = torch.ones(vocabulary)
    torch.save({"module": tensors}, directory / "model.pt")


@pytest.mark.slow
def test_speechlm_of_published_width_generates_audio_end_to_end(tmp_path: Path) -> None:
    free = psutil.virtual_memory().available
    if free < NEEDED:
        pytest.skip(f"{free / 2**30:.1f} GiB of memory are free; this test takes {NEEDED >> 30}")
    write_wide(tmp_path / "wide")
    try:
        model, network, codec = open_speechlm(tmp_path / "wide", Settings(dtype="bfloat16"))
        layout = model.layout
        assert (layout.vocabulary, layout.codec_first, layout.streams, layout.layer_size) == (160392, 152192, 8, 1025)
        assert codec is not None and model.tower is not None and network.dtype == "bfloat16"
        samples = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
        turns = [Turn("user", samples=samples), Turn("user", text="Repeat it.")]
        parts = prompt_parts(turns, layout, model.tokenizer.encode, model.context, model.tower.rows)
        prompt = [network.embed_audio(part.samples) if isinstance(part, Recording) else part for part in parts]
        plan = AnswerPlan(
            "text_audio", max_text_tokens=4, min_audio_rows=10, max_audio_rows=10, audio_temperature=0.8, cfg=3.0
        )
        rows = [step.ids for step in answer_steps(network, prompt, plan) if step.phase is Kind.AUDIO]
        assert len(rows) == 10
        codes = aligned(np.array(rows), layout)
        assert codes.shape == (3, 8)
        audio = codec.decode(codes)
        assert audio.shape == (960,) and np.isfinite(audio).all() and audio.any()
    finally:
        (tmp_path / "wide" / "model.pt").unlink()  # 3.0 GB
