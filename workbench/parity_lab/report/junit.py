"""A parity run as JUnit XML, which continuous integrations show: a suite for each candidate, a case for each stage.

Jenkins, GitLab and others read this form: `testsuites`, `testsuite`, `testcase`, with `failure`, `error` or `skipped`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from xml.etree import ElementTree

from workbench.compare.stage import StageComparison
from workbench.parity_lab.judgement.baseline import Regression
from workbench.parity_lab.outcome import Outcome, ParityRun
from workbench.system.atomic_files import write_whole

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that XML 1.0 forbids


def write_junit(run: ParityRun, path: str | Path, worse: Collection[Regression] | None = None) -> None:
    """Writes `junit` to a file; raises an error of `write_whole` if the file cannot be written."""
    write_whole(Path(path), junit(run, worse).encode())


def junit(run: ParityRun, worse: Collection[Regression] | None = None) -> str:
    """Returns the document.

    Args:
        worse: what got worse since a baseline. Then only these are failures, and other errors are skipped cases that
            say "known". None without a baseline.
    """
    root = ElementTree.Element("testsuites", name=_xml_text(f"parity of {run.model}"))
    for outcome in run.outcomes:
        root.append(_suite(run, outcome, worse))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ElementTree.indent(root, " ")
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(run: ParityRun, outcome: Outcome, worse: Collection[Regression] | None) -> ElementTree.Element:
    seconds = outcome.computed.trace_seconds if outcome.computed else 0.0
    suite = ElementTree.Element("testsuite", name=_xml_text(outcome.name), time=f"{seconds:.3f}")
    regressions_by_stage = {each.stage: each.sentence for each in worse or () if each.candidate == outcome.name}
    states = [("verdict", *_case_of_candidate(outcome, regressions_by_stage.pop("", None), worse is not None))]
    if outcome.comparison and outcome.verdict:
        for each in outcome.comparison.stages:
            fault = _fault_of_stage(outcome, each)
            if worse is None:
                states.append((each.stage, "failure" if fault else "", fault))
            elif each.stage in regressions_by_stage:
                states.append((each.stage, "failure", regressions_by_stage.pop(each.stage)))
            else:
                states.append((each.stage, "skipped" if fault else "", f"known: {fault}"))
    states += [(stage, "failure", sentence) for stage, sentence in regressions_by_stage.items()]  # stages that are gone
    for name, kind, sentence in states:
        case = ElementTree.SubElement(
            suite, "testcase", classname=_xml_text(f"{run.model}.{outcome.name}"), name=_xml_text(name), time="0"
        )
        if kind:
            ElementTree.SubElement(case, kind, message=_xml_text(sentence)).text = _xml_text(sentence)
    suite.set("tests", str(len(states)))
    for key, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(key, str(sum(each == kind for _, each, _ in states)))
    return suite


def _case_of_candidate(outcome: Outcome, worse: str | None, baseline: bool) -> tuple[str, str]:
    """Returns the kind and the sentence of the case for a whole candidate."""
    if worse is not None:
        return "failure", worse
    kind = {"within": "", "beyond": "failure", "unusable": "error", "unavailable": "skipped"}[outcome.status]
    if baseline and kind:
        return "skipped", f"known: {outcome.sentence}"
    return kind, outcome.sentence


def _fault_of_stage(outcome: Outcome, stage: StageComparison) -> str:
    """Returns what is wrong with a stage of a candidate; empty if nothing is."""
    assert outcome.comparison and outcome.verdict
    if outcome.verdict.within:
        return ""
    if not outcome.comparison.passes(stage):
        excesses = ", ".join(f"{each.measure} {each.value:.2g}, limit {each.limit:.2g}" for each in stage.beyond)
        return stage.mismatch or excesses or "values that are not finite in the same places"
    return outcome.sentence if stage.stage in outcome.verdict.faulty_stages else ""


def _xml_text(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
