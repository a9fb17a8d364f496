"""The heat map of a parity report: its rows, their colours, and which layers are shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.parity_lab.report.test_html_report import NASTY, Parts
from tests.support.fake_lab import FakeRegistry
from tests.support.networks import META, NUMBERS, STAGES, Fault, computed
from workbench.parity_lab import ParityRun, run_parity
from workbench.parity_lab.report.heat_map import heat_map
from workbench.trace.trace import Trace

Run = Callable[..., ParityRun]


@pytest.fixture
def start_run() -> Iterator[Run]:
    runs: list[ParityRun] = []

    def run(*candidates: str, faults: dict[str, Fault] | None = None, **options: object) -> ParityRun:
        fakes = FakeRegistry()
        fakes.faults["gguf"] = faults or {}
        runs.append(run_parity(fakes, "tiny", "a", candidates=candidates, exact=False, **options))  # type: ignore[arg-type]
        return runs[-1]

    yield run
    for run_ in runs:
        run_.close()


def rows(run: ParityRun, pressable: bool = False) -> dict[str, str]:
    """Returns the rows of the map by the name that a screen reader reads."""
    page = "".join(heat_map(run, pressable))
    by_name = {}
    for row in re.findall(r"<tr.*?</tr>", page.partition("</thead>")[2], re.DOTALL):
        [name] = re.findall(r"<th.*?</th>", row)
        by_name["".join(Parts(name).texts).strip()] = row
    return by_name


def kinds(row: str) -> list[str]:
    return re.findall(r'<td class="(\w+)"', row)


def test_heat_map_has_a_row_per_stage_and_one_for_logits_predictions(start_run: Run) -> None:
    by_name = rows(start_run("gguf:f32", "pytorch:f64"))
    group = next(name for name in by_name if name.startswith("encoder.layers 0 to 7"))
    assert "worst of 8" in group
    expected = [*STAGES[: STAGES.index("logits") + 1], "logits, as predictions", *STAGES[STAGES.index("logits") + 1 :]]
    assert [name for name in by_name if name != group] == sorted(expected, key=_front)
    assert "KL" in by_name["logits, as predictions"] and "top-1\n100 %" in by_name["logits, as predictions"]
    assert by_name["tokens"].count("equal") == 2


def test_a_stage_that_one_candidate_lacks_has_a_row(start_run: Run, tmp_path: Path) -> None:
    trace = {name: each for name, each in computed().items() if name not in ("encoder.output", "logits")}
    path = Trace(trace, META).save(tmp_path / "part.safetensors")
    by_name = rows(start_run("gguf:f32", str(path)))
    assert {"encoder.output", "logits", "logits, as predictions"} <= by_name.keys()
    both, one = (kinds(by_name[stage]) for stage in ("encoder.layers.7", "encoder.output"))
    assert all(kind.startswith("h") for kind in both) and [kind[0] for kind in one[:3]] == ["h"] * 3
    assert not any(kind.startswith("h") for kind in one[3:]), "there is nothing of the second candidate"


def _front(stage: str) -> int:
    return 0 if stage.startswith("frontend") else 1 if stage.startswith("prompt") else 2


@pytest.mark.parametrize(
    ("factor", "kind"), [(1.0, "h0"), (1 + 5e-6, "h3"), (1 + 5e-5, "h4"), (1.0005, "h5"), (2, "h6")]
)
def test_heat_map_colour_depends_on_error_relative_to_the_limit(start_run: Run, factor: float, kind: str) -> None:
    fault: Fault = lambda x: factor * x  # noqa: E731
    run = start_run("pytorch:f32", "gguf:f32", faults={"frontend.fbank": fault})
    row = rows(run)["frontend.fbank"]
    assert kinds(row)[0] == "h0" and kinds(row)[3] == kind
    assert "limit 0.0001" in row


def test_layer_group_row_shows_its_worst_layer(start_run: Run) -> None:
    run = start_run("gguf:f32", faults={"encoder.layers.7": lambda x: 1.02 * x})
    by_name = rows(run)
    group = next(row for name, row in by_name.items() if name.startswith("encoder.layers 0"))
    cells = re.findall(r"<td.*?</td>", by_name["encoder.layers.7"])
    assert re.findall(r"<td.*?</td>", group) == cells
    broken = start_run("gguf:f32", faults={"encoder.layers.2": lambda x: np.where(x > 2, np.nan, x)})
    group = next(row for name, row in rows(broken).items() if name.startswith("encoder.layers 0"))
    assert kinds(group) == ["h6"] * 3 and "not finite" in group


def test_layer_groups_of_a_deep_model_are_collapsed_unless_a_layer_fails(start_run: Run, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.safetensors" for name in ("one", "same", "other")]
    for path in paths:
        trace = dict(computed(layers=60))
        if path.stem == "other":
            trace["encoder.layers.50"] = 2 * trace["encoder.layers.50"]
        Trace(trace, META).save(path)
    for candidate, opened in (("same", False), ("other", True)):
        run = start_run(str(tmp_path / f"{candidate}.safetensors"), reference=str(paths[0]))
        [group] = [row for name, row in rows(run).items() if "worst of 60" in name]
        assert (" checked" in group) is opened


def test_opened_stage_is_marked_and_its_group_is_expanded(start_run: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        Trace(computed(layers=60), META).save(tmp_path / f"{name}.safetensors")
    run = start_run(str(tmp_path / "b.safetensors"), reference=str(tmp_path / "a.safetensors"))
    page = "".join(heat_map(run, True, "encoder.layers.7"))
    assert re.findall(r'<tr class="opened" data-stage="([^"]*)"', page) == ["encoder.layers.7"]
    assert 'checkbox" checked' in page and "checked" not in "".join(heat_map(run, True))


def test_stage_names_are_escaped_and_only_an_interactive_page_has_buttons(start_run: Run, tmp_path: Path) -> None:
    odd = {**computed(), NASTY: np.ones(3)}
    for name in ("a", "b"):
        Trace(odd, META).save(tmp_path / f"{name}.safetensors")
    run = start_run(str(tmp_path / "b.safetensors"), reference=str(tmp_path / "a.safetensors"))
    for pressable in (False, True):
        page = "".join(heat_map(run, pressable))
        assert "<script" not in page and "<img" not in page
        assert ("<button" in page) is pressable is ("data-stage" in page)
    stages = [each.get("data-stage") for tag, each in Parts("".join(heat_map(run, True))).elements if tag == "tr"]
    assert {stage for stage in stages if stage} == set(odd) and NASTY in stages
    assert len(NUMBERS) < len(odd)
