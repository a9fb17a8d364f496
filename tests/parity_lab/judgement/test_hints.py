"""Hints on the cause of a fault: in a run's verdict, its JSON, its report and the command output."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_lab import FakeRegistry
from tests.support.networks import computed
from workbench.audio.fbank import FbankOptions, fbank
from workbench.audio.read import read, write_wav
from workbench.cli import commands
from workbench.core.phrases import as_sentence
from workbench.parity_lab import run_parity, write_page
from workbench.parity_lab.judgement.clean_spread import CleanRun
from workbench.parity_lab.judgement.judging import Judge
from workbench.parity_lab.judgement.sources import Sources
from workbench.parity_lab.outcome import Computed
from workbench.registry.sources import assets
from workbench.trace.trace import Trace


def test_run_json_and_report_contain_the_hint(tmp_path: Path) -> None:
    fakes = FakeRegistry()
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: x[::-1]}
    with run_parity(fakes, "tiny", "talk.wav", candidates=("gguf",)) as run:  # type: ignore[arg-type]
        [outcome] = run.outcomes
        assert outcome.verdict and outcome.verdict.explanation
        hint = outcome.verdict.explanation
        assert (hint.kind, hint.stage) == ("rows reversed", "encoder.layers.3") and hint.remaining < 1e-5
        assert as_sentence(hint.sentence) in outcome.sentences
        document = json.loads(run.to_json())["candidates"][0]["comparison"]["verdict"]["explanation"]
        assert document["kind"] == "rows reversed"
        assert escape(hint.sentence) in write_page(run, tmp_path / "report.html", figures=1).read_text(encoding="utf-8")


def test_compare_command_explains_a_fault_found_only_by_float64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = {"encoder.layers.3": lambda x: x * np.float32(1 + 5e-5)}
    traces = {"exact": computed("float64"), "reference": computed(), "port": computed(faults=faults, reverse=True)}
    paths = {name: str(trace.save(tmp_path / f"{name}.safetensors")) for name, trace in traces.items()}
    assert isinstance(traces["port"], Trace)
    assert commands.main(["compare", paths["reference"], paths["port"], "--float64", paths["exact"]]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "though within tolerance" in output and "It is 1.00005 times the reference; a difference of" in output


def test_hint_names_the_window_of_another_fbank_implementation(tmp_path: Path) -> None:
    sound = tmp_path / "talk.wav"
    write_wav(sound, 0.1 * np.random.default_rng(0).standard_normal(9000).astype(np.float32))
    samples = read(sound).samples
    reference, candidate = (
        Computed(window, Trace({"frontend.fbank": fbank(samples, FbankOptions(window=window))}, {}))
        for window in ("hamming", "povey")
    )
    sources = Sources(reference, (None, ""), (None, ""))
    outcome = Judge("*", None, (), False, False, sound).outcome(sources, candidate)
    assert "The filter bank has a povey window, where the reference has a hamming window; a diff" in outcome.sentence
    assert Judge("*", None, (), False, False).outcome(sources, candidate).verdict.explanation is None  # type: ignore[union-attr]


def test_hint_names_a_weight_of_the_checkpoint_that_is_transposed() -> None:
    pytest.importorskip("torch")
    from workbench.artifacts.linear_layers import CheckpointLayers

    stage, context = "encoder.layers.1.attention.output", "encoder.layers.1.attention.context"
    layers = CheckpointLayers(assets() / "demo-sensevoice", "sensevoice")
    weight, bias = layers([stage])[stage]
    x = np.random.default_rng(1).standard_normal((9, weight.shape[1])).astype(np.float32)
    reference, candidate = (
        Computed(name, Trace({context: x, stage: x @ each.T + bias}, {}))
        for name, each in (("right", weight), ("wrong", weight.T))
    )
    sources = Sources(reference, (None, ""), (None, ""))
    outcome = Judge("*", None, (), False, False, layers=layers).outcome(sources, candidate)
    assert "Its weight is transposed; a difference of" in outcome.sentence
    assert CheckpointLayers(assets(), "sensevoice")([stage]) == {}, "a folder without a checkpoint"


def test_hint_on_a_quantised_port_takes_the_pass_with_the_weights_of_its_file() -> None:
    stage, file = "encoder.layers.3", Path("port-q8_0.gguf")
    in_float64, reference = {"dtype": "float64"}, computed()
    truth, same_weights = (Trace(each, each.meta | in_float64) for each in (reference, computed("q8_0")))
    clean = CleanRun(
        "q8_0", (Computed("clean", computed("q8_0", reverse=True)),), Computed("float64", same_weights), file
    )
    sources = Sources(Computed("reference", reference), (Computed("float64", truth), ""), (clean, ""))
    port = Computed("port", computed("q8_0", faults={stage: lambda x: 1.02 * x}))
    outcome = Judge("*", None, (), False, False).outcome(sources, port)
    assert outcome.faulty_stage == stage
    assert "It is 1.02 times the reference; a difference of" in outcome.sentence, outcome.sentence
