"""Rounding noise or bug on the demo models: float64 reference, other kernels, faults within tolerance."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.support.tiny_checkpoints import noise
from workbench.compare import compare, judge, noise_or_bug
from workbench.core.settings import Settings
from workbench.runtimes.pytorch.checkpoints import finalise_weights
from workbench.trace.trace import Trace

ASSETS = Path(__file__).resolve().parents[3] / "assets"
STAGES = "frontend.*,encoder.*,predictor.*,adaptor.*,decoder.*,llm.*,logits,ctc.*"
EPS = 1e-3
# One norm for each family: its name in the encoder or the language model, and the first stage that it changes.
PLANTED = {
    "sensevoice": ("encoder.encoders.0.norm1", "encoder.layers.1.fsmn"),
    "paraformer": ("decoder.decoders.0.feed_forward.norm", "decoder.layers.0"),
    "funasr-nano": ("audio_encoder.encoders0.0.norm2", "encoder.layers.0"),
    "fireredasr": ("encoder.layer_stack.1.ffn2.net.0", "encoder.layers.1"),
    "funasr-nano, what writes": ("model.layers.2.self_attn.q_norm", "llm.layers.2"),
    "fireredasr, what writes": ("model.layers.2.post_attention_layernorm", "llm.layers.2"),
}


class Model:
    """A demo model's reference in float32 and in float64, and a session in float32 by other kernels."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch):
        self.directory = ASSETS / f"demo-{name}"
        self.module: Any = import_module(f"workbench.runtimes.pytorch.{name.replace('-', '_')}")
        self.reference, self.exact = (self.traced(self.opened(dtype)) for dtype in ("float32", "float64"))
        monkeypatch.setattr(finalise_weights, "_can_pack", lambda kind: False)
        self.other = self.opened("float32")
        monkeypatch.undo()

    def opened(self, dtype: str) -> Any:
        return self.module.open_session(self.directory, "demo", Settings(threads=1, dtype=dtype))

    def traced(self, session: Any) -> Trace:
        trace: Trace = session.trace(noise(2.0), stages=STAGES)
        return trace

    def norm(self, name: str) -> Any:
        """A norm of the other session."""
        recogniser = self.other.recogniser
        if not hasattr(recogniser, "encoder"):
            return recogniser.network.network.get_submodule(name)
        network: nn.Module = recogniser.language.network if name[:6] == "model." else recogniser.encoder.network.network
        return network.get_submodule(name)


@pytest.fixture(scope="module")
def models() -> dict[str, Model]:
    with pytest.MonkeyPatch.context() as patch:
        return {name: Model(name, patch) for name in dict.fromkeys(case.partition(",")[0] for case in PLANTED)}


@pytest.mark.parametrize("name", [case for case in PLANTED if "," not in case])
def test_different_kernels_are_judged_as_noise(models: dict[str, Model], name: str) -> None:
    if not finalise_weights._can_pack(torch.float32):
        pytest.skip("this build of torch has one kernel alone for linear layers")
    model = models[name]
    clean = model.traced(model.other)
    assert any(not np.array_equal(clean[stage], model.reference[stage]) for stage in clean), "they are the same kernels"
    report = noise_or_bug(model.reference, clean, model.exact)
    assert report.first_bug is None and report.sentence.startswith("arithmetic noise: ")
    for each in report.stages:
        assert each.reference < 1e-5 and each.candidate < max(3 * each.reference, 2.0**-24), (
            each
        )  # 2.1 where there are no matrix units


@pytest.mark.parametrize("case", PLANTED)
def test_wrong_epsilon_within_tolerance_is_reported_as_a_bug_at_its_layer(
    models: dict[str, Model], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (name, stage) = models[case.partition(",")[0]], PLANTED[case]
    norm = model.norm(name)
    attribute = "eps" if hasattr(norm, "eps") else "variance_epsilon"
    assert getattr(norm, attribute) <= 1e-5
    monkeypatch.setattr(norm, attribute, EPS)
    faulty = model.traced(model.other)
    comparison = compare(model.reference, faulty)
    assert comparison.tolerances.preset.name == "f32" and judge(comparison).within
    noise = noise_or_bug(model.reference, faulty, model.exact)
    assert noise.first_bug and noise.first_bug.stage == stage
    verdict = judge(comparison, noise)
    assert not verdict.within and f"A bug, not noise: at {stage} " in verdict.sentence
