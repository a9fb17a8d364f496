"""FireRedASR-LLM of the published sizes, with few layers and random weights: tokens and stages equal PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

from tests.support.in_process_vllm import audio_prompt, in_process_engine, model_in, written  # noqa: E402
from tests.support.tiny_checkpoints import drawn_tensors, noise  # noqa: E402
from tests.support.tiny_fireredasr import (  # noqa: E402
    ARGUMENTS,
    ENCODER_ARGUMENTS,
    write_language,
    write_package,
    write_statistics,
)
from workbench.conversion.vllm_checkpoint.checkpoint import plan_of  # noqa: E402
from workbench.conversion.vllm_checkpoint.directory import write_directory  # noqa: E402
from workbench.core.settings import SessionSpec  # noqa: E402
from workbench.families.speech_llm.conformer import ConformerConfig  # noqa: E402
from workbench.families.speech_llm.fireredasr import (  # noqa: E402
    CMVN,
    ENCODER_WEIGHTS,
    LANGUAGE_DIRECTORY,
    WEIGHTS,
    FireRedAsrOptions,
    prompt_ids,
    read_vllm_fireredasr,
)
from workbench.isolation.loader import open_here  # noqa: E402
from workbench.runtimes.pytorch.fireredasr import AudioEmbeddingNetwork  # noqa: E402
from workbench.trace.recorder import Recorder  # noqa: E402
from workbench.trace.trace import StageFilter  # noqa: E402

pytestmark = pytest.mark.slow

ENCODER = ConformerConfig(idim=80, n_layers=2, n_head=20, d_model=1280, kernel_size=33, pe_maxlen=5000)
HIDDEN, HEADS, GROUPS, UNITS, LAYERS, RANK = 3584, 28, 4, 1024, 2, 64  # of 18944 units and 28 layers
SIZES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN * GROUPS // HEADS, HIDDEN),
    "self_attn.v_proj": (HIDDEN * GROUPS // HEADS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (UNITS, HIDDEN),
    "mlp.up_proj": (UNITS, HIDDEN),
    "mlp.down_proj": (HIDDEN, UNITS),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("large") / "firered"
    write_language(
        directory / LANGUAGE_DIRECTORY,
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        intermediate_size=UNITS,
        num_hidden_layers=LAYERS,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )
    write_statistics(directory / CMVN)
    draw = torch.Generator().manual_seed(2)
    tensors = drawn_tensors(AudioEmbeddingNetwork(ENCODER, HIDDEN, 2), 2)
    for layer in range(LAYERS):
        for name, (outputs, inputs) in SIZES.items():
            prefix = f"llm.base_model.model.model.layers.{layer}.{name}.lora"
            tensors[f"{prefix}_A.default.weight"] = torch.randn(RANK, inputs, generator=draw) / inputs**0.5
            tensors[f"{prefix}_B.default.weight"] = torch.randn(outputs, RANK, generator=draw) / RANK**0.5
    write_package(directory / WEIGHTS, ARGUMENTS, tensors)
    sizes = {"n_layers_enc": 2, "n_head": 20, "d_model": 1280, "kernel_size": 33, "d_inner": 5120}
    write_package(directory / ENCODER_WEIGHTS, {**ENCODER_ARGUMENTS, **sizes}, None)
    return directory


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> Any:
    session: Any = open_here(SessionSpec("large", "fireredasr", "pytorch", checkpoint))
    return session.recogniser


@pytest.fixture(scope="module")
def directory(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "large"
    write_directory(plan_of(checkpoint, "fireredasr"), out)
    return out


@pytest.fixture(scope="module")
def llm(directory: Path) -> Iterator[Any]:
    with in_process_engine(directory, max_model_len=256, max_num_batched_tokens=256, max_num_seqs=4) as llm:
        yield llm


@pytest.fixture(scope="module")
def sounds() -> list[np.ndarray]:
    return [noise(2.0, seed)[0][: 16000 * seed // 4] for seed in (8, 3, 5)]


def test_greedy_token_ids_equal_pytorch(llm: Any, directory: Path, reference: Any, sounds: Any) -> None:
    model = read_vllm_fireredasr(directory)
    ids, stop = prompt_ids(model).tolist(), [model.stop_id]
    options = FireRedAsrOptions(max_new_tokens=20)
    expected = [list(reference.recognise(samples, options).ids) for samples in sounds]
    assert len({tuple(tokens) for tokens in expected}) == len(sounds), "each recording gives other tokens"
    prompts = [audio_prompt(ids, samples, f"large {n}") for n, samples in enumerate(sounds)]
    assert written(llm, prompts, stop, max_tokens=20) == expected


def test_encoder_adaptor_and_llm_stages_equal_pytorch(llm: Any, directory: Path, reference: Any, sounds: Any) -> None:
    """One prompt runs in one step; the residual stream is the sum of the pair that a layer of vLLM returns."""
    model, network = read_vllm_fireredasr(directory), model_in(llm)
    recorder, rows = Recorder(StageFilter()), {}

    def keep(stage: str) -> Any:
        def hook(_module: Any, _inputs: Any, output: Any) -> None:
            rows[stage] = (output[0] + output[1]).numpy()

        return hook

    layers = network.language_model.model.layers
    handles = [layer.register_forward_hook(keep(f"llm.layers.{n}")) for n, layer in enumerate(layers)]

    class Captures:
        def recorder(self, number: int) -> Recorder:
            return recorder

    network.captures = Captures()
    try:
        written(llm, [audio_prompt(prompt_ids(model).tolist(), sounds[0], "stages", capture=1)], [], max_tokens=1)
    finally:
        network.captures = None
        for handle in handles:
            handle.remove()
    actual = {**recorder.stages, **rows}
    expected = reference.trace(sounds[0], FireRedAsrOptions(), StageFilter(",".join(actual)))
    assert set(expected) == set(actual) and len(actual) == 3 + 3 * ENCODER.n_layers + LAYERS
    for stage, value in expected.items():
        assert actual[stage].shape == value.shape, stage
        np.testing.assert_allclose(actual[stage], value, rtol=0, atol=1e-4 * max(1, np.abs(value).max()), err_msg=stage)
