"""The detail view of a stage: the reported statistics match the arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.parity_lab.report.test_html_report import NASTY, Parts
from tests.support.fake_lab import FakeRegistry
from workbench.core.softmax import log_softmax
from workbench.parity_lab import ParityRun, run_parity
from workbench.parity_lab.report.stage_detail import stage_details


@pytest.fixture(scope="module")
def run() -> Iterator[ParityRun]:
    fakes = FakeRegistry()
    fakes.faults["gguf"] = {
        "encoder.layers.3": lambda x: 1.5 * x,
        "logits": lambda x: np.arange(x.size).reshape(x.shape) % 7.0,
        "text": lambda x: np.array(NASTY),
    }
    with run_parity(fakes, "tiny", "a", candidates=["gguf:f32"]) as run:  # type: ignore[arg-type]
        yield run


def detail_text(run: ParityRun, stage: str) -> tuple[str, Parts]:
    parts = Parts("".join(stage_details(run, run.outcomes[0], stage)))
    return " ".join(text.strip() for text in parts.texts if text.strip()), parts


def test_stage_detail_statistics_match_the_arrays(run: ParityRun) -> None:
    text, parts = detail_text(run, "encoder.layers.3")
    computed = run.outcomes[0].computed
    assert computed
    reference, candidate = run.reference.trace["encoder.layers.3"], computed.trace["encoder.layers.3"]
    distance = np.abs(candidate.astype(float) - reference)
    row, column = np.unravel_index(distance.argmax(), distance.shape)
    assert text.startswith("The first divergent stage; where the error grows most; relative L2 0.5, limit 0.0001")
    assert f"worst element [{row}, {column}]: {reference[row, column]:.7g} and {candidate[row, column]:.7g}" in text
    assert "shape 24 × 64 type float32" in text and "strictest preset that passes none" in text
    assert f"root mean square of the reference {np.sqrt((reference**2).mean()):.2g}" in text
    assert "nearest multiple of the reference 1.5" in text and "a bug, because it is above" in text
    assert len([tag for tag, _ in parts.elements if tag == "img"]) == 5
    assert len([each for tag, each in parts.elements if tag == "tr" and each.get("class") == "over"]) == 2


def test_stage_before_the_fault_passes_the_strictest_preset(run: ParityRun) -> None:
    text, _ = detail_text(run, "frontend.fbank")
    assert "verdict within tolerance strictest preset that passes exact" in text
    assert "signal to noise no noise" in text


def test_stage_details_of_logits_tokens_and_text_show_their_measures(run: ParityRun) -> None:
    text, _ = detail_text(run, "logits")
    assert "rows with another favourite" in text and "overlap of the best 5" in text
    candidate = run.outcomes[0].computed
    assert candidate
    reference, candidate_logits = (
        log_softmax(each["logits"].astype(np.float64)) for each in (run.reference.trace, candidate.trace)
    )
    divergence = (np.exp(reference) * (reference - candidate_logits)).sum(axis=1)
    assert f"largest KL divergence {divergence.max():.2g}, row {divergence.argmax()}" in text
    text, _ = detail_text(run, "tokens")
    assert ", no near tie. " in text
    assert "edits, " in text and "The first token that differs is at place" in text and "token error rate" in text
    text, parts = detail_text(run, "text")
    assert NASTY in text and "WER" in text
    assert not any(tag in ("script", "img") for tag, _ in parts.elements)
    with pytest.raises(KeyError):
        detail_text(run, "encoder.layers.99")
