"""Planted faults through the user interfaces: `run_parity`, `workbench parity`, and a trace of a faulty model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("llama_cpp")

from tests.support.faults import Planted, sinusoid
from tests.support.faults_judged import SAMPLE
from tests.support.faults_on_ggml import Port, f16_overflow, fsmn_tap, rope_base
from workbench.cli import commands
from workbench.parity_lab import run_parity, write_page
from workbench.registry.registry import Registry
from workbench.trace.trace import Trace


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry with all sessions in this process, where the test can alter their code."""
    with Registry(isolate=False) as registry:
        yield registry


def test_run_and_command_name_the_faulty_stage_of_the_candidate(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One test for the library and the command, since the model is converted once for each."""
    monkeypatch.setattr(  # in ggml's encoder, and nowhere else
        "workbench.runtimes.gguf.networks.sanm.sinusoid", lambda frames, depth: sinusoid(frames, depth, first=0).numpy()
    )
    settings = {"threads": 1}
    for isolated in (False, True):
        with run_parity(
            registry, "demo/sensevoice", SAMPLE, candidates="gguf:f32", settings=settings, isolated=isolated
        ) as run:
            [outcome] = run.outcomes
            assert outcome.verdict and outcome.verdict.faulty_stage == "encoder.input" and outcome.status == "beyond"
            inputs = "Computed from the reference's own inputs, " if isolated else ""
            assert outcome.sentence.startswith(f"{inputs}encoder.input is the ")
            assert outcome.verdict.faulty_stages == ("encoder.input",)
            document = json.loads(run.to_json())["candidates"][0]["comparison"]["verdict"]
            assert (document["faulty_stage"], document["found_by"]) == ("encoder.input", "tolerance and float64")
            if isolated:
                page = write_page(run, tmp_path / "report.html", figures=1).read_text(encoding="utf-8")
                first, *more = outcome.sentences
                assert f"<p>{escape(first)}</p>" in page
                assert more and all(f"<li>{escape(each)}</li>" in page for each in more)
    monkeypatch.setattr(commands, "Registry", lambda: Registry(isolate=False))
    words = ["parity", "demo/sensevoice", str(SAMPLE), "--candidates", "gguf:f32", "--isolated"]
    assert commands.main(words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any("gguf:f32 (beyond): " in line and "encoder.input is the first stage " in line for line in lines), lines
    assert commands.main([*words[:-1], "--stages", "frontend.*"]) == 0


@pytest.mark.parametrize("plant", [fsmn_tap, rope_base, f16_overflow])
def test_faulty_stage_of_a_saved_trace_is_named(
    registry: Registry, tmp_path: Path, plant: Callable[[Port], Planted]
) -> None:
    """The port's trace is saved, as another program would, and compared as a file."""
    with Port("funasr_nano", tmp_path, Trace({}, {}), seed=3) as port:
        planted = plant(port)
        with port.session() as session:
            trace = session.trace(SAMPLE, stages="frontend.*,prompt.*,encoder.*,adaptor.*,llm.*,logits")
    file = trace.save(tmp_path / "port.safetensors")
    with run_parity(registry, "demo/funasr-nano", SAMPLE, candidates=[str(file)]) as run:
        [outcome] = run.outcomes
        assert outcome.verdict and outcome.verdict.faulty_stage == planted.stage, outcome.sentence
        if plant is f16_overflow:
            assert "infinite or not a number" in outcome.sentence
            assert not np.isfinite(trace[planted.stage]).all()
