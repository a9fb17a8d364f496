"""The choice of the stages that a report shows first."""

from __future__ import annotations

from tests.support.networks import computed
from workbench.compare import compare, judge, noise_or_bug
from workbench.parity_lab.report.figures import stages_to_show


def test_faulty_stage_is_shown_first_even_within_tolerance() -> None:
    faults = {"encoder.layers.3": lambda x: x * (1 + 1e-5), "encoder.output": lambda x: 1.01 * x}
    reference, bug = computed(), computed(faults=faults)
    comparison = compare(reference, bug)
    verdict = judge(comparison, noise_or_bug(reference, bug, computed("float64")))
    assert (verdict.faulty_stage, verdict.first_divergent) == ("encoder.layers.3", "encoder.output")
    for most, expected in ((1, ["encoder.layers.3"]), (2, ["encoder.layers.3", "encoder.output"])):
        displayed = stages_to_show(comparison, verdict.largest_own, most, verdict.faulty_stage)
        assert [each.stage for each in displayed] == expected
    assert [each.stage for each in stages_to_show(comparison, None, 1)] == ["encoder.output"]
