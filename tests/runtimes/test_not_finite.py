"""Overflow in a network: every family on PyTorch and ggml raises NotFinite and writes no text, and its trace shows the
first overflowing stage.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import safetensors.torch
import torch

from tests.runtimes.test_given_stages import FAMILIES, RUNTIMES, open_tiny_session
from tests.support.tiny_checkpoints import noise
from workbench.core.errors import NotFinite
from workbench.core.finite import check_logits

HUGE = 3e38  # a sum of two such values is infinite in float32
CHANGED_WEIGHTS = ("feed_forward.w_2.weight", "ffn1.net.4.weight")  # in the first layer of an encoder
SPEECH_FAMILIES = [family for family in FAMILIES if family != "causal_lm"]


def plant(directory: Path) -> None:
    """Make one matrix of the first encoder layer so large that its output overflows."""
    file = next(path for path in (directory / "model.pth.tar", directory / "model.pt") if path.exists())
    content = torch.load(file, weights_only=False)
    tensors = content.get("model_state_dict", content)
    name = next(name for name in tensors if name.endswith(CHANGED_WEIGHTS))
    tensors[name] = torch.full_like(tensors[name], HUGE)
    torch.save(content, file)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("family", SPEECH_FAMILIES)
def test_encoder_overflow_raises_not_finite_and_the_trace_shows_the_first_layer(
    tmp_path: Path, family: str, runtime: str
) -> None:
    write, source = FAMILIES[family]
    plant(write(tmp_path / "it"))
    with closing(open_tiny_session(family, runtime, tmp_path / "it")) as session:
        with pytest.raises(NotFinite, match="overflow"):
            session.transcribe(source)  # type: ignore[attr-defined]
        trace = session.trace(source)
    overflowing = [stage for stage in trace if trace[stage].dtype.kind == "f" and not np.isfinite(trace[stage]).all()]
    assert overflowing[0].startswith("encoder.layers.0")
    assert {"encoder.input", "encoder.output"} <= set(trace)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("causal_lm", {}),
        ("causal_lm", {"temperature": 0.7}),
        ("fireredasr", {"beam_size": 1}),
        ("fireredasr", {"beam_size": 3}),
    ],
    ids=["greedy", "drawn", "recogniser", "beams"],
)
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_language_model_nan_logits_raise_not_finite_in_every_decoding_mode(
    tmp_path: Path, runtime: str, family: str, options: dict[str, Any]
) -> None:
    write, source = FAMILIES[family]
    [file] = write(tmp_path / "it").rglob("model.safetensors")
    tensors = safetensors.torch.load_file(file)
    name = next(name for name in tensors if name.endswith("down_proj.weight"))
    tensors[name] = torch.full_like(tensors[name], HUGE)
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    with closing(open_tiny_session(family, runtime, tmp_path / "it")) as session:
        use: Any = session.transcribe if family == "fireredasr" else session.generate  # type: ignore[attr-defined]
        with pytest.raises(NotFinite, match="logits are NaN"):
            use(source, **options)
        if family == "causal_lm":
            with pytest.raises(NotFinite):
                session.score_texts(["seven one"])  # type: ignore[attr-defined]
        trace = session.trace(source, **options)
    assert np.isnan(trace["logits"]).all() and "text" not in trace


@pytest.mark.parametrize("position", [(0, 0), (2, 1), (3, 4)])
def test_check_logits_refuses_one_nan_and_accepts_infinities_and_empty_arrays(position: tuple[int, int]) -> None:
    logits = noise(1.0)[0][:20].reshape(4, 5).astype(np.float32)
    logits[1] = -np.inf
    check_logits(logits)
    check_logits(np.empty((0, 5), np.float32))
    logits[position] = np.nan
    for with_nan in (logits, logits.max(axis=1)):
        with pytest.raises(NotFinite):
            check_logits(with_nan)
