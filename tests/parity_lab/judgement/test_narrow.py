"""Narrowing names the faulty stage inside a layer, and traces each side at most once per layer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from tests.support.fake_lab import FakeRegistry
from tests.support.faults_judged import SAMPLE
from workbench.cli import commands
from workbench.core.errors import BadInput
from workbench.parity_lab import run_parity
from workbench.parity_lab.judgement.narrow import _globs, _steps, layer_in_error
from workbench.parity_lab.outcome import Outcome
from workbench.registry.registry import Registry
from workbench.runtimes.pytorch import sensevoice


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry with all sessions in this process, where the test can alter their code."""
    with Registry(isolate=False) as registry:
        yield registry


def parity(fakes: FakeRegistry, *candidates: str, **options: Any) -> Any:
    return run_parity(fakes, "tiny", "talk.wav", candidates=candidates, narrow=True, **options)  # type: ignore[arg-type]


def test_faulty_layer_is_traced_in_detail_once_per_side(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = fakes.faults["vllm"] = {"encoder.layers.3": lambda x: 1.01 * x}
    with parity(fakes, "gguf:f32", "vllm") as run:
        detail_stages = [stages for stages, _ in fakes.asked if stages != "*"]
        assert detail_stages == ["encoder.layers.3,encoder.layers.3.*"] * 4  # two candidates, the reference, float64
        for outcome in run.outcomes:
            assert outcome.inside and outcome.inside.layer == "encoder.layers.3" and outcome.status == "beyond"
            assert outcome.faulty_stage == "encoder.layers.3"
            assert "Inside encoder.layers.3: encoder.layers.3 is the " in outcome.sentence
        document = json.loads(run.to_json())["candidates"][0]["inside"]
        assert (document["layer"], document["faulty_stage"]) == ("encoder.layers.3", "encoder.layers.3")
    assert not fakes.open_now


def test_each_candidate_is_traced_inside_its_own_faulty_layer(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
    fakes.faults["vllm"] = {"encoder.layers.5": lambda x: 1.01 * x}
    with parity(fakes, "gguf:f32", "vllm") as run:
        detail_stages = [stages for stages, _ in fakes.asked if stages != "*"]
        assert sorted(detail_stages) == sorted(
            ["encoder.layers.3,encoder.layers.3.*", "encoder.layers.5,encoder.layers.5.*"] * 3
        )
        for outcome, layer in zip(run.outcomes, ("encoder.layers.3", "encoder.layers.5"), strict=True):
            assert outcome.inside and outcome.inside.layer == layer
            noise = outcome.inside.outcome.noise
            assert noise and noise.first_bug and noise.first_bug.stage == layer, "by float64 of the same layer"


@pytest.mark.parametrize(
    ("stage", "layer", "steps", "caches"),
    [
        ("steps.4.llm.layers.1", "steps.4.llm.layers.1", ["4"], {"steps.4.llm.*.cache.*"}),
        ("steps.4.logits", "steps.4", ["4"], {"steps.4.llm.*.cache.*"}),
        (
            "steps.4.beams.2.llm.layers.1.cache.key",
            "steps.4.beams.2.llm.layers.1",
            ["3", "4"],
            {"steps.4.beams.2.llm.*.cache.*", "steps.3.beams.*.llm.*.cache.*"},
        ),
        ("steps.1.beams.0.logits", "steps.1.beams.0", ["1"], {"steps.1.beams.0.llm.*.cache.*"}),
        ("steps.4.beams.parents", None, [], set()),
    ],
)
def test_faulty_decoding_step_is_traced_in_detail_with_its_kv_caches(
    stage: str, layer: str | None, steps: list[str], caches: Any
) -> None:
    outcome = cast("Outcome", SimpleNamespace(verdict=SimpleNamespace(faulty_stage=stage)))
    assert layer_in_error(outcome) == layer
    if layer:
        assert _steps(layer) == steps and f"{layer}.*" in _globs(layer)
        assert {glob for glob in _globs(layer) if "cache" in glob} == caches
        assert (layer in _globs(layer)) == ("layers" in layer)


@pytest.mark.parametrize("faults", [{}, {"logits": lambda x: 1.01 * x}, {"frontend.fbank": lambda x: 2 * x}])
def test_no_detail_trace_is_made_without_a_faulty_layer(fakes: FakeRegistry, faults: Any) -> None:
    fakes.faults["gguf"] = faults
    with parity(fakes, "gguf:f32") as run:
        assert run.outcomes[0].inside is None and len(fakes.asked) == 3
        assert run.outcomes[0].faulty_stage == next(iter(faults), None)


def test_failed_detail_trace_is_reported(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}

    def refuses(session: Any) -> None:
        if fakes.asked[-1][0] != "*":
            raise BadInput("it is gone")

    fakes.acts["gguf"] = refuses
    with parity(fakes, "gguf:f32") as run:
        assert run.status == 1
        assert run.outcomes[0].sentence.endswith("Inside encoder.layers.3 nothing is compared: it is gone.")
        assert run.outcomes[0].faulty_stage == "encoder.layers.3"


def test_rules_for_other_stages_are_ignored_inside_a_layer(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
    with parity(fakes, "gguf:f32", rules=["logits:relative_l2=0.1"]) as run:
        assert run.outcomes[0].inside and run.outcomes[0].inside.outcome.status == "beyond"


def test_narrowing_an_isolated_run_is_refused(fakes: FakeRegistry) -> None:
    with pytest.raises(BadInput, match="expected narrow or isolated, not both"):
        parity(fakes, "gguf", isolated=True)


def test_dump_is_explained_by_the_inner_stages_of_the_reference(registry: Registry, tmp_path: Path) -> None:
    """The dump lacks the input of the memory block; the reference shows it, once that layer is traced in detail."""
    layer = "encoder.layers.1"
    with registry.open("demo/sensevoice") as session:
        trace = session.trace(SAMPLE, stages=f"encoder.*,logits,{layer}.attention.value")
    arrays = {name.replace("/", "."): array for name, array in trace.items()}
    values = arrays.pop(f"{layer}.attention.value")
    right = arrays[f"{layer}.fsmn"]
    arrays[f"{layer}.fsmn"] = right + values.reshape(right.shape)
    np.savez(tmp_path / "port.npz", **arrays)
    arrays[f"{layer}.fsmn"] = right + np.sin(np.arange(right.size, dtype=np.float32)).reshape(right.shape)
    np.savez(tmp_path / "other.npz", **arrays)
    files = [str(tmp_path / name) for name in ("port.npz", "other.npz")]
    with run_parity(registry, "demo/sensevoice", SAMPLE, candidates=files, exact=False, narrow=True) as run:
        explained, other = run.outcomes
        assert f"Beside what is inside {layer}: its input is added twice to its convolution;" in explained.sentence
        assert explained.sentence.count("is the first stage beyond") == 1 and explained.faulty_stage == f"{layer}.fsmn"
        assert f"To look further, write these stages too: {layer}.input_norm, .attention.query, " in other.sentence


def test_a_wrong_activation_of_one_layer_is_named(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The candidate is this project's own model with one activation altered."""
    plain = sensevoice.open_session

    def open_faulty(directory: Path, name: str, settings: Any) -> Any:
        session = plain(directory, name, settings)
        if settings.threads == 1:  # of the candidate alone
            part = session.recogniser.network.network.encoder.layers[2].feed_forward
            part.forward = lambda x: part.w_2(torch.nn.functional.gelu(part.w_1(x)))
        return session

    monkeypatch.setattr(sensevoice, "open_session", open_faulty)
    monkeypatch.setattr(commands, "Registry", lambda: registry)
    report = tmp_path / "report.html"
    words = ["parity", "demo/sensevoice", str(SAMPLE), "--candidates", "pytorch+threads=1", "--narrow"]
    assert commands.main([*words, "--stages", "encoder.*,logits", "--report", str(report)]) == 1
    out = capsys.readouterr().out
    assert "encoder.layers.2 is the first stage " in out.splitlines()[0]
    inside = "Inside encoder.layers.2: encoder.layers.2.mlp.activation is the first stage beyond"
    assert f"\n  {inside}" in out
    assert inside in report.read_text(encoding="utf-8")
