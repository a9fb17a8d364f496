"""A run over several inputs: each side loads once, no trace remains, and small faults are found over all inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_lab import FakeRegistry
from workbench.cli.parity_inputs import lines
from workbench.core.errors import BadInput
from workbench.parity_lab import several
from workbench.parity_lab.inputs import Input
from workbench.parity_lab.outcome import ParityRun
from workbench.parity_lab.report.several_report import several_page
from workbench.parity_lab.run import run_parity
from workbench.parity_lab.several import ParityRuns, run_parity_on_inputs

INPUTS = [Input(name, f"{name}.wav") for name in ("one", "two", "three", "four", "five", "six")]


def parity(fakes: FakeRegistry, *candidates: str, **how: Any) -> ParityRuns:
    return run_parity_on_inputs(fakes, "tiny", INPUTS, candidates=candidates, **how)  # type: ignore[arg-type]


def test_each_side_is_loaded_once_and_no_trace_file_remains(
    fakes: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def run_noting_its_folder(*arguments: Any, **options: Any) -> ParityRun:
        run = run_parity(*arguments, **options)
        folders.append(run.folder)
        assert run.folder.is_dir()
        return run

    monkeypatch.setattr(several, "run_parity", run_noting_its_folder)
    shares: list[float] = []
    activities: list[str] = []

    def on_progress(share: float, activity: str) -> None:
        shares.append(share)
        activities.append(activity)

    runs = parity(fakes, "gguf", on_progress=on_progress)
    assert runs.status == 0 and runs["gguf"].faulty_stage is None, runs["gguf"].sentence
    assert not any(folder.exists() for folder in folders) and len(folders) == len(INPUTS)
    assert fakes.open_now == [] and fakes.opened == fakes.most_open == 4, "reference, float64, candidate, clean"
    assert shares == sorted(shares) and shares[-1] == 1
    names = [activity.partition(": ")[0] for activity in activities if ": " in activity]
    assert list(dict.fromkeys(names)) == [each.name for each in INPUTS], "each activity names its input"
    assert "No stage is in error over 6 inputs" in runs["gguf"].sentence


def test_small_fault_is_named_from_all_inputs_together(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {"encoder.layers.3": lambda x: x * (1 + 1e-6)}
    runs = parity(fakes, "gguf")
    result = runs["gguf"]
    assert result.faulty_stage == "encoder.layers.3" and runs.status == 1
    assert result.consistency and result.consistency.first_fault and result.consistency.inputs == 6
    printed = list(lines(runs))
    assert printed[0].startswith("gguf (beyond): encoder.layers.3 is the first stage in error over 6 inputs")
    assert any(line.startswith("! encoder.layers.3 at the median position") for line in printed)
    document = json.loads(runs.to_json())
    assert document["candidates"][0]["consistency"]["first_fault"] == "encoder.layers.3"
    assert [each["input"] for each in document["candidates"][0]["inputs"]] == [each.name for each in INPUTS]
    assert document["candidates"][0]["inputs"][0]["result"]["comparison"]["stages"]
    page = several_page(runs)
    assert "encoder.layers.3 is the first stage in error over 6 inputs" in page and 'id="data"' in page


def test_unavailable_candidate_is_reported_for_all_inputs(fakes: FakeRegistry) -> None:
    fakes.missing["vllm"] = "vLLM is not installed"
    runs = parity(fakes, "vllm")
    assert runs.status == 3 and runs["vllm"].consistency is None
    assert "6 of 6 inputs could not be compared: one: vLLM is not installed" in runs["vllm"].sentence
    with pytest.raises(KeyError, match="no candidate 'gguf'; there are vllm"):
        runs["gguf"]


def test_dump_folder_without_a_dump_for_an_input_is_refused(fakes: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(BadInput, match="has no dump of the input two"):
        parity(fakes, str(tmp_path))
    assert fakes.traced == []
