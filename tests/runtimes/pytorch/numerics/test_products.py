"""Matrix products in 16 bits with float32 sums: which networks, modules and machines use them, and accuracy."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.inner_stages import SAMPLE, opened, traced
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.checkpoints.finalise_weights import PackedLinear, finalise_weights
from workbench.runtimes.pytorch.numerics import products
from workbench.runtimes.pytorch.numerics.products import (
    FLOAT32,
    Arithmetic,
    arithmetic_of,
    fast_half,
    onednn_multiplies,
)

CPU = torch.device("cpu")
BFLOAT16 = Arithmetic(torch.float32, torch.bfloat16)


def cosine_distance(actual: np.ndarray, expected: np.ndarray) -> float:
    """1 - cosine."""
    a, b = (np.asarray(array, np.float64).ravel() for array in (actual, expected))
    return float(1 - a @ b / np.sqrt((a @ a) * (b @ b)))


# The choice of types -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "stepwise", "expected"),
    [
        ("float32", False, FLOAT32),
        ("float64", False, Arithmetic(torch.float64, torch.float64)),
        ("bfloat16", False, BFLOAT16),
        ("float16", False, Arithmetic(torch.float32, torch.float16)),
        ("bfloat16", True, Arithmetic(torch.bfloat16, torch.bfloat16)),
    ],
)
def test_requested_dtype_gives_the_expected_arithmetic(dtype: str, stepwise: bool, expected: Arithmetic) -> None:
    assert arithmetic_of(Settings(dtype=dtype, stepwise=stepwise), CPU) == expected
    assert expected.name == dtype and expected.is_mixed == (dtype in ("bfloat16", "float16") and not stepwise)


class Machine:
    """A processor as torch describes it."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        capability: str = "AVX512",
        onednn: bool = True,
        vectors: bool = True,
        amx: bool = False,
        maker: str = "AuthenticAMD",
    ):
        products.onednn_multiplies(torch.bfloat16)  # oneDNN reads its variable once, so read it before the change
        patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
        patch.setattr(products, "onednn_multiplies", lambda dtype: onednn)
        patch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: vectors)
        patch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        patch.setattr(products, "vendor", lambda: maker)
        patch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


@pytest.mark.parametrize(
    ("features", "variable", "expected"),
    [
        ({}, None, torch.bfloat16),
        ({}, "AVX512_CORE_AMX", torch.bfloat16),
        ({}, "avx512_core_bf16", torch.bfloat16),
        ({}, "AVX512_CORE", None),
        ({}, "SSE41", None),
        ({"capability": "DEFAULT"}, None, None),
        ({"onednn": False}, None, None),
        ({"vectors": False}, None, None),
        ({"maker": "GenuineIntel"}, None, None),
        ({"maker": "GenuineIntel", "amx": True}, None, torch.bfloat16),
        ({"maker": "GenuineIntel", "amx": True}, "avx512_core_amx", torch.bfloat16),
        ({"maker": "GenuineIntel", "amx": True}, "AVX512_CORE_BF16", None),
        ({"maker": "GenuineIntel", "amx": True}, "AVX512_CORE_FP16", None),
        ({"maker": ""}, None, torch.bfloat16),
    ],
)
def test_auto_takes_bfloat16_where_the_processor_is_faster_in_it_and_this_is_not_masked(
    monkeypatch: pytest.MonkeyPatch, features: dict[str, Any], variable: str | None, expected: torch.dtype | None
) -> None:
    Machine(monkeypatch, **features)
    if variable:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", variable)
    assert fast_half(CPU) == expected
    auto = Settings(dtype="auto")
    assert arithmetic_of(auto, CPU) == (BFLOAT16 if expected else FLOAT32)
    assert arithmetic_of(auto, CPU, "bfloat16") == (BFLOAT16 if expected else FLOAT32)
    assert arithmetic_of(auto, CPU, "float32") == FLOAT32  # the dtype of the language model takes precedence


@pytest.mark.parametrize(("units", "expected"), [(True, torch.bfloat16), (False, torch.float16)])
def test_auto_on_a_gpu_selects_bfloat16_or_else_float16(
    monkeypatch: pytest.MonkeyPatch, units: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: units)
    assert arithmetic_of(Settings(dtype="auto"), torch.device("cuda")).products == expected
    assert fast_half(torch.device("meta")) is None


# Networks ------------------------------------------------------------------------------------------------------------


def network_of(session: Any) -> nn.Module:
    name = session.model.split()[1]
    if name == "speechlm":
        return session.network.audio_encoder._network
    recogniser = session.recogniser
    return getattr(recogniser, "encoder", recogniser).network.network


@pytest.mark.parametrize(
    ("model", "stages"),
    [
        ("tiny sensevoice", "encoder.*,logits"),
        ("tiny paraformer", "encoder.*,predictor.*,decoder.*,logits"),
        ("tiny funasr_nano", "encoder.*,adaptor.*"),
        ("tiny fireredasr", "encoder.*,adaptor.*"),
        ("tiny speechlm", "tower.*,adaptor.*"),
    ],
)
def test_products_are_in_16_bits_and_everything_else_is_not(tmp_path: Path, model: str, stages: str) -> None:
    exact = traced(opened(model, tmp_path), stages)
    session = opened(model, tmp_path, dtype="bfloat16")
    actual = traced(session, stages)
    network = network_of(session)
    for name, module in network.named_modules():
        kinds = {parameter.dtype for parameter in module.parameters(recurse=False)}
        depthwise = isinstance(module, (nn.Conv1d, nn.Conv2d)) and module.groups > 1
        if isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) and not depthwise and not name.startswith("predictor"):
            assert kinds == {torch.bfloat16}, name
        elif not isinstance(module, PackedLinear):
            assert kinds <= {torch.float32}, name
    assert actual.meta["dtype"] == "bfloat16" and set(actual) == set(exact)
    changed_count = 0
    for stage, array in exact.items():
        assert array.shape == actual[stage].shape and cosine_distance(actual[stage], array) < 2e-3, stage
        changed_count += not np.array_equal(array, actual[stage])
        if re.fullmatch(r"(encoder|tower)\.layers\.\d+", stage):
            # A sum that had been rounded to bfloat16 would have 16 zero bits at the end of each value.
            assert (actual[stage].view(np.uint32) & 0xFFFF).any(), stage
    assert changed_count > len(exact) / 2  # many stages were computed in 16 bits
    session.close()


def test_gradients_flow_through_products_in_16_bits(tmp_path: Path) -> None:
    stages = "tokens,gradient.*"
    exact, actual = (
        opened("tiny sensevoice", tmp_path, dtype=dtype).trace(SAMPLE, stages) for dtype in ("float32", "bfloat16")
    )
    shared_stages = [stage for stage in exact if stage.startswith("gradient.") and stage in actual]
    assert list(exact["tokens"]) != list(actual["tokens"]) or shared_stages
    assert all(cosine_distance(actual[stage], exact[stage]) < 0.05 for stage in shared_stages)


def test_a_layer_that_is_exact_keeps_its_type() -> None:
    network = nn.ModuleDict({"rough": nn.Linear(4, 4), "exact": nn.Linear(4, 4), "norm": nn.LayerNorm(4)})
    finalise_weights(network, CPU, arithmetic=BFLOAT16, exact=("exact*",))
    x = torch.randn(3, 4)
    assert network["rough"].weight.dtype == torch.bfloat16 and network["rough"](x).dtype == torch.bfloat16
    assert network["exact"].weight.dtype == network["norm"].weight.dtype == torch.float32
    assert network["norm"](x.bfloat16()).dtype == torch.float32


@pytest.mark.skipif(not onednn_multiplies(torch.bfloat16), reason="oneDNN has no bfloat16 on this processor")
def test_a_packed_layer_multiplies_in_bfloat16_as_a_plain_one_does() -> None:
    linear = nn.Linear(96, 64, dtype=torch.bfloat16)
    x = torch.randn(2, 7, 96)
    torch.testing.assert_close(PackedLinear(linear, torch.bfloat16)(x), linear(x.bfloat16()), rtol=2e-2, atol=2e-2)


# Machines without units ----------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
import torch
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.sensevoice import open_session
for dtype in ("auto", "bfloat16"):
    session = open_session(Path(sys.argv[1]), "it", Settings(threads=1, dtype=dtype))
    print(session.recogniser.dtype, session.transcribe(sys.argv[2]).text, sep=":")
"""


def test_masked_cpu_features_give_the_same_text_and_auto_selects_float32(tmp_path: Path) -> None:
    from workbench.registry.sources import assets

    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    command = [sys.executable, "-c", PROGRAM, str(assets() / "demo-sensevoice"), str(SAMPLE)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert process.returncode == 0, process.stderr
    text = "three seven one"
    assert process.stdout.splitlines() == [f"{kind}:{text}" for kind in ("float32", "bfloat16")]
