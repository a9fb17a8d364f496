"""A comparison as JSON and as a table."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from tests.support.networks import META, STAGES, computed
from workbench.compare import compare, judge, noise_or_bug
from workbench.compare.files import Result
from workbench.compare.presets import PRESETS, Tolerances
from workbench.compare.report import table, to_dict, to_json
from workbench.trace.trace import Trace


def faulty_trace() -> Trace:
    return computed(
        faults={"encoder.layers.3": lambda x: x * 2, "encoder.output": lambda x: np.where(x > 2, np.nan, x)}
    )


def test_json_report_has_every_measure_and_no_infinity_or_nan() -> None:
    comparison = compare(computed(), faulty_trace())
    document = json.loads(to_json(comparison, judge(comparison)))
    assert document["format"] == 1 and document["verdict"]["first_divergent"] == "encoder.layers.3"
    assert document["tolerance"]["preset"] == "f32" and document["reference"]["dtype"] == "float32"
    assert [each["stage"] for each in document["stages"]] == STAGES
    stages = {each["stage"]: each for each in document["stages"]}
    numbers = stages["encoder.layers.3"]["numbers"]
    assert numbers["relative_l2"] == pytest.approx(1, rel=1e-6) and numbers["cosine"] == pytest.approx(1)
    assert set(numbers["worst"]) == {"index", "reference", "candidate"} and len(numbers["worst"]["index"]) == 2
    assert stages["encoder.input"]["numbers"]["snr_db"] is None, "infinite"
    assert stages["encoder.output"]["numbers"]["candidate_nonfinite"] > 0
    assert stages["encoder.layers.3"]["passing_preset"] is None
    assert stages["encoder.layers.3"]["passing_limits"]["relative_l2"] >= numbers["relative_l2"]
    assert stages["encoder.layers.3"]["hint"].startswith("it is 2 times the reference")
    assert stages["logits"]["logits"].keys() >= {"kl_mean", "kl_max", "top1_agreement", "top_overlap"}
    assert stages["tokens"]["sequence"]["edits"] and stages["text"]["sequence"]["wer"] is not None
    assert stages["encoder.layers.0"]["within"] and not stages["encoder.layers.3"]["within"]
    assert "error_by_position" not in numbers


def test_profiles_by_position_and_channel_are_included_on_request() -> None:
    comparison = compare(computed(), computed(faults={"encoder.input": lambda x: x + (np.arange(64) == 7)}))
    [_, _, stage, *_] = to_dict(comparison, judge(comparison), profiles=True)["stages"]
    assert stage["numbers"]["worst_channel"] == 7
    assert len(stage["numbers"]["error_by_position"]) == 24
    assert stage["numbers"]["error_by_channel"][7] == pytest.approx(1) and stage["numbers"]["error_by_channel"][8] == 0


OF_FLOAT32 = "The tolerance is f32 (float32 throughout), as both traces have the dtype float32."


def test_table_begins_with_the_verdict_and_has_a_row_per_stage() -> None:
    comparison = compare(computed(), faulty_trace())
    verdict = judge(comparison)
    lines = list(table(comparison, verdict))
    head, (tolerance, empty, columns, *rows) = lines[: len(verdict.sentences)], lines[len(verdict.sentences) :]
    assert head == [*verdict.sentences] and tolerance == OF_FLOAT32 and empty == ""
    assert columns.split()[:3] == ["stage", "rel.", "L2"]
    assert [row.split()[0] if row[0] != "!" else row.split()[1] for row in rows] == STAGES
    assert next(row.split()[1] for row in rows if row[0] == "!") == "encoder.layers.3"
    by_stage = dict(zip(STAGES, rows))
    assert "1.0e+00" in by_stage["encoder.layers.3"] and "worst at [" in by_stage["encoder.layers.3"]
    assert "not finite: 0 in the reference, " in by_stage["encoder.output"]
    assert "first at " in by_stage["tokens"] and "WER " in by_stage["text"]
    assert all(line == line.rstrip() for line in rows)


def test_changed_limits_and_distances_from_float64_are_shown() -> None:
    rules = (("encoder.*", {"relative_l2": 0.5}), ("text", {"text_errors": 1.0}))
    candidate = computed(reverse=True)
    wordless = Trace({stage: candidate[stage] for stage in candidate if stage != "text"}, candidate.meta)
    comparison = compare(computed(), wordless, Tolerances(PRESETS["f16"], rules))
    noise = noise_or_bug(computed(), computed(reverse=True), computed("float64"))
    lines = list(table(comparison, judge(comparison, noise), noise))
    sentence = (
        "The tolerance is f16 (weights or activations in float16), as it was asked for; relative_l2 0.5 for encoder.*."
    )
    place = lines.index(sentence)
    assert "from float64: reference" in lines[place + 2] and lines[0].startswith("Within tolerance f16 with changes: ")
    document = json.loads(to_json(comparison, judge(comparison, noise), noise))
    assert document["noise"]["first_bug"] is None and len(document["noise"]["stages"]) == 12
    assert document["tolerance"]["rules"][0] == {"stages": "encoder.*", "relative_l2": 0.5}


def test_shape_mismatch_has_a_table_row() -> None:
    comparison = compare(computed(), computed(faults={"encoder.layers.3": lambda x: x[1:]}))
    row = next(line for line in table(comparison, judge(comparison)) if "encoder.layers.3 " in line and line[0] == "!")
    assert row.endswith("the reference has 1 row more at the beginning; after this change they differ by 0 %")


def test_report_accepts_wide_characters_in_metadata_and_stage_names() -> None:
    odd = Trace({"編碼.層": np.ones((2, 2)), "ü": np.array(3.0)}, META | {"model": "模型"})
    comparison = compare(odd, odd)
    assert len(list(table(comparison, judge(comparison)))) == 6
    assert "模型" in to_json(comparison, judge(comparison))


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_table_fits_the_screen(width: int) -> None:
    comparison = compare(computed(), faulty_trace())
    verdict = judge(comparison)
    plain, lines = list(table(comparison, verdict)), list(table(comparison, verdict, width=width))
    assert max(map(len, lines)) <= width < max(map(len, plain))
    assert lines.index("") < 12 and " ".join(lines[: lines.index("")]).startswith(verdict.sentence)
    assert [line.split()[0] for line in lines if line.startswith("!")] == ["!"] * sum(
        line.startswith("!") for line in plain
    )
    words = [word for line in plain[plain.index("") + 2 :] for word in line.split() if not word.startswith("×")]
    displayed = " ".join(lines).split()
    assert set(words) - set(displayed) <= {
        word for word in words if word[0].isdigit() or word[0] == "-" or word == "inf"
    }


def test_verdict_is_repeated_below_the_table_on_a_low_screen() -> None:
    comparison = compare(computed(), faulty_trace())
    result = Result(comparison, judge(comparison), None)
    high = list(result.lines(screen=os.terminal_size((80, 100))))
    low = list(result.lines(screen=os.terminal_size((80, 24))))
    head = high[: high.index("")]
    assert low == [*high, "", *head]
    assert list(result.lines()) == list(table(comparison, result.verdict))


def test_stages_without_common_finite_values_have_null_measures() -> None:
    nothing = Trace({**computed(), "encoder.output": np.full((24, 64), np.nan)}, META)
    comparison = compare(computed(), nothing)
    verdict = judge(comparison)
    row = next(line for line in table(comparison, verdict) if line.startswith("!  encoder.output"))
    assert row.split()[2:] == ["-", "not", "finite:", "0", "in", "the", "reference,", "1536", "in", "the", "candidate"]
    stage = next(each for each in to_dict(comparison, verdict)["stages"] if each["stage"] == "encoder.output")
    assert stage["numbers"]["relative_l2"] is stage["numbers"]["snr_db"] is stage["numbers"]["cosine"] is None
    assert stage["numbers"]["candidate_nonfinite"] == 1536 and not stage["within"]


def test_lone_surrogates_do_not_break_the_json() -> None:
    odd = Trace({**computed(), "text": np.array("seven \ud800")}, META | {"model": "\udc00"})
    comparison = compare(computed(), odd)
    assert json.loads(to_json(comparison, judge(comparison)).encode())["candidate"]["model"] == "?"
