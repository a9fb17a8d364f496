"""Regressions of a parity run against a baseline, and its outputs for continuous integration."""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from PIL import Image

from tests.support.fake_lab import FakeRegistry, dies
from tests.support.processes import ROOT
from workbench.cli.arguments.parser import parser
from workbench.core.errors import BadInput
from workbench.parity_lab import ParityRun, run_parity
from workbench.parity_lab.judgement.baseline import Regression, read_baseline, regressions
from workbench.parity_lab.report.junit import junit, write_junit
from workbench.parity_lab.report.summary import summary, write_summary

BROKEN = "encoder.layers.3"


@pytest.fixture
def known(fakes: FakeRegistry) -> Iterator[ParityRun]:
    """A baseline run with a known fault."""
    fakes.faults["gguf"] = {BROKEN: lambda x: 1.01 * x}
    with parity(fakes) as run:
        yield run


def parity(fakes: FakeRegistry, *candidates: str, **options: Any) -> ParityRun:
    return run_parity(fakes, "tiny", "talk.wav", candidates=candidates or ("gguf", "vllm"), **options)  # type: ignore[arg-type]


def find_regressions(baseline: ParityRun, current: ParityRun, factor: float = 1.5) -> tuple[Regression, ...]:
    return regressions(json.loads(baseline.to_json()), current.to_dict(), factor)


def test_unchanged_known_error_is_not_a_regression(fakes: FakeRegistry) -> None:
    fakes.faults["gguf"] = {BROKEN: lambda x: 1.01 * x}
    with parity(fakes, stages="encoder.*") as known:
        assert known.status == 1 and find_regressions(known, known) == ()
        fakes.faults["gguf"] = {BROKEN: lambda x: 1.014 * x}
        with parity(fakes, stages="encoder.*") as current:
            assert current.status == 1 and find_regressions(known, current) == ()
            assert {each.candidate for each in find_regressions(known, current, 1.1)} == {"gguf"}
            assert find_regressions(current, known, 1.0) == ()


def test_larger_error_than_the_baseline_is_a_regression(fakes: FakeRegistry, known: ParityRun) -> None:
    fakes.faults["gguf"] = {BROKEN: lambda x: 1.1 * x}
    with parity(fakes) as current:
        worsened = find_regressions(known, current)
    assert worsened[0].candidate == "gguf" and worsened[0].stage == BROKEN
    assert worsened[0].sentence.startswith(f"{BROKEN} is farther off: relative L2 0.1, limit 0.0001, and was 0.01")
    assert all(each.candidate == "gguf" for each in worsened)


def test_stage_newly_beyond_tolerance_and_missing_stage_are_regressions(fakes: FakeRegistry, known: ParityRun) -> None:
    fakes.faults["vllm"] = {"encoder.layers.5": lambda x: 1.01 * x}
    with parity(fakes) as current:
        worsened = [each for each in find_regressions(known, current) if each.candidate == "vllm"]
    assert worsened[0].stage == "encoder.layers.5"
    assert worsened[0].sentence.startswith("encoder.layers.5 is beyond tolerance now: relative L2 0.01, limit 0.0001")
    with parity(fakes, "gguf", stages="encoder.layers.3") as less:
        worsened = find_regressions(known, less)
    assert Regression("gguf", "encoder.layers.4", "encoder.layers.4, which the baseline has, is gone") in worsened


def test_error_found_only_by_float64_is_a_regression(fakes: FakeRegistry) -> None:
    with parity(fakes) as clean:
        fakes.faults["gguf"] = {BROKEN: lambda x: x * (1 + 3e-5)}
        with parity(fakes, preset="f16") as current:
            assert current["gguf"].verdict and current["gguf"].verdict.found_by == "float64"
            assert find_regressions(clean, current)[0].sentence.startswith(f"{BROKEN} is in error now")


def test_failed_candidate_is_a_regression_and_new_candidate_is_judged_by_its_tolerance(
    fakes: FakeRegistry, known: ParityRun
) -> None:
    fakes.acts["vllm"] = dies
    with parity(fakes) as current:
        (regression,) = find_regressions(known, current)
        assert regression == Regression("vllm", "", "vllm is unusable now: the process of tiny ended")
        assert find_regressions(current, current) == ()
    del fakes.acts["vllm"]
    fakes.missing["gguf"] = "not here"
    with parity(fakes, "vllm:bfloat16", "gguf:q4_0") as current:
        assert find_regressions(known, current) == (
            Regression("gguf:q4_0", "", "gguf:q4_0, which the baseline lacks, is unavailable: not here"),
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "other"}, "the model of the baseline is 'other' and of this run 'tiny'"),
        ({"source": "song.wav"}, "the input of the baseline"),
        ({"isolated": True}, "isolated of the baseline is True"),
        ({"reference": {"name": "gguf"}}, "the reference of the baseline is 'gguf' and of this run 'pytorch'"),
    ],
)
def test_comparing_runs_of_another_model_input_or_mode_is_refused(
    known: ParityRun, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        regressions({**known.to_dict(), **change}, known.to_dict())


def _remove(run: dict[str, Any], *path: Any) -> Any:
    changed = copy.deepcopy(run)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return changed


def _change(run: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    """A copy of a run with another value in one place."""
    changed = copy.deepcopy(run)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def test_broken_baseline_raises_an_error(known: ParityRun, tmp_path: Path) -> None:
    run = json.loads(known.to_json())
    stage = ("candidates", 0, "comparison", "stages", 0)
    broken = [
        "",
        "{",
        "[]",
        "3",
        "[" * 100_000,
        *(json.dumps(_remove(run, key)) for key in ("model", "format", "reference", "candidates", "isolated")),
        *(json.dumps(_remove(run, *stage, key)) for key in ("stage", "within", "beyond", "mismatch")),
        json.dumps(_remove(run, "candidates", 0, "status")),
        json.dumps({**run, "candidates": [3]}),
        json.dumps(_change(run, *stage, "stage", value=[])),
        json.dumps(_change(run, *stage, "beyond", value=[{"measure": "l2", "value": "x", "limit": 1}])),
        json.dumps(_change(run, *stage[:3], "noise", value={"stages": 5})),
        json.dumps(_change(run, *stage[:3], "noise", value={"stages": [{"stage": []}]})),
        json.dumps(_change(run, "candidates", 0, "status", value=[])),
        json.dumps({**run, "format": 99}),
    ]
    path = tmp_path / "baseline.json"
    for text in broken:
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match="baseline") as caught:
            read_baseline(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(b"\xff\xfe\x00")
    for bad in (path, tmp_path, tmp_path / "none.json"):
        with pytest.raises(BadInput, match="cannot be read"):
            read_baseline(bad)
    path.write_text(known.to_json(), encoding="utf-8-sig")  # as some editors write it
    assert regressions(read_baseline(path), known.to_dict()) == ()


def test_junit_report_has_a_test_case_for_each_stage(fakes: FakeRegistry, known: ParityRun, tmp_path: Path) -> None:
    write_junit(known, tmp_path / "parity.xml")
    root = ElementTree.parse(tmp_path / "parity.xml").getroot()
    gguf, vllm = root
    assert [suite.get("name") for suite in root] == ["gguf", "vllm"] and root.get("failures") == gguf.get("failures")
    assert len(gguf) == int(gguf.get("tests", "")) == len(known["gguf"].comparison.stages) + 1  # type: ignore[union-attr]
    failed = [case.get("name") for case in gguf if case.find("failure") is not None]
    assert failed[:2] == ["verdict", BROKEN] and not [case for case in vllm if len(case)]
    message = gguf.find(f"testcase[@name='{BROKEN}']/failure")
    assert message is not None and message.get("message", "").startswith("relative_l2 0.01, limit 0.0001")


def test_junit_report_with_a_baseline_fails_only_regressions(fakes: FakeRegistry, known: ParityRun) -> None:
    root = ElementTree.fromstring(junit(known, ()))
    assert root.get("failures") == "0" and int(root.get("skipped", "")) > 1
    one = Regression("gguf", BROKEN, "got worse \x00 < & \ud800")
    root = ElementTree.fromstring(junit(known, [one, Regression("gguf", "gone", "is gone")]))
    assert [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None] == [BROKEN, "gone"]
    fakes.acts["gguf"], fakes.missing["vllm"] = dies, "not here"
    with parity(fakes) as run:
        root = ElementTree.fromstring(junit(run))
        assert (root.get("errors"), root.get("skipped"), root.get("failures")) == ("1", "1", "0")


def test_markdown_summary_shows_verdicts_regressions_and_a_figure(known: ParityRun, tmp_path: Path) -> None:
    write_summary(known, tmp_path / "my summary.md", [Regression("gguf", BROKEN, "a|b <img src=x>\n*c*")])
    text = (tmp_path / "my summary.md").read_text(encoding="utf-8")
    assert "**1 worse than the baseline.**" in text and "![relative L2 error of each stage](my%20summary.png)" in text
    assert r"- gguf: a\|b &lt;img src=x&gt; \*c\*" in text
    with Image.open(tmp_path / "my summary.png") as image:
        assert image.width > 200
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2].startswith("| gguf | ❌ beyond | encoder.layers.3 is the first") and "✅ within" in rows[3]
    assert "**Nothing is worse than the baseline.**" in summary(known, ())
    assert not any("baseline" in line for line in summary(known))


def test_documented_ci_workflow_uses_valid_command_line_options() -> None:
    workflow = yaml.safe_load((ROOT / "docs" / "parity-workflow.yml").read_text(encoding="utf-8"))
    steps = workflow["jobs"]["parity"]["steps"]
    (line,) = [step["run"] for step in steps if step.get("name") == "Compare"]
    for name, value in workflow["env"].items():
        line = line.replace(f'"${name}"', value)
    parsed = parser().parse_args(shlex.split(line)[1:])
    assert (parsed.command, parsed.model) == ("parity", "demo/sensevoice")
    assert [str(each) for each in (parsed.junit, parsed.summary, parsed.report)] == [
        "parity.xml",
        "parity.md",
        "parity.html",
    ]
