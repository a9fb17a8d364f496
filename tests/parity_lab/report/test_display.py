"""The notebook display of a parity run."""

from __future__ import annotations

from pathlib import Path

from tests.support.html_fragments import HOSTILE, checked, text_of
from tests.support.networks import computed
from workbench.compare import compare, judge
from workbench.parity_lab.outcome import Computed, Outcome, ParityRun


def test_notebook_display_shows_verdicts_heat_map_and_all_stages(tmp_path: Path) -> None:
    reference, wrong = computed(), computed(faults={"encoder.layers.1": lambda x: x * 1.5})
    comparison = compare(reference, wrong)
    outcomes = [
        Outcome(
            "gguf:f32", "within", comparison=compare(reference, reference), verdict=judge(compare(reference, reference))
        ),
        Outcome(HOSTILE, "beyond", comparison=comparison, verdict=judge(comparison)),
        Outcome("vllm", "unavailable", "this machine has no vLLM"),
    ]
    run = ParityRun(HOSTILE, HOSTILE, Computed("pytorch", reference), None, "", outcomes, tmp_path, is_kept=True)
    html = run._repr_html_()
    text = text_of(html)
    for part in (
        "gguf:f32: within",
        "✗",
        "encoder.layers.1",
        "this machine has no vLLM",
        "End to end",
        "reference: pytorch",
    ):
        assert part in text
    assert len(list(checked(html).iter("img"))) == 1 and html.count("<details>") == 2


def test_notebook_display_without_a_comparison_has_no_heat_map(tmp_path: Path) -> None:
    none = Outcome("vllm", "unavailable", "this machine has no vLLM")
    run = ParityRun("m", "talk.wav", Computed("pytorch", computed()), None, "", [none], tmp_path, is_kept=True)
    assert "<img" not in run._repr_html_()
