"""The parity table: it equals the generator's output, its claims keep to the presets, and some are run again."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import parity_table
from benchmarks.parity_page import (
    COLUMNS,
    GROUPED,
    GROUPS,
    NOTHING,
    REFERENCE,
    RESULTS,
    Page,
    Row,
    group_of,
    read,
    render,
)
from benchmarks.parity_table import ISOLATED, KINDS, MODELS, Found, inputs, joined, merged, outcomes, phrase, row
from tests.support.fake_lab import FakeRegistry, FakeSession, dies
from workbench.cli.parity import lines
from workbench.compare import PRESETS, preset_of, read_mapping, read_trace
from workbench.core.errors import BadInput
from workbench.parity_lab import ParityRun, run_parity
from workbench.registry.cards import Card
from workbench.registry.registry import Availability, Registry
from workbench.registry.sources import assets
from workbench.trace.ancestry import Ancestry, ancestry_of_stages

ROOT = Path(parity_table.__file__).resolve().parents[1]
TEXT = parity_table.PAGE.read_text(encoding="utf-8")
PAGE = read(TEXT)
ROWS = [(model, each) for model, table in PAGE.tables.items() for each in table]
COMPARED = [(model, each) for model, each in ROWS if each.preset]
pytestmark = pytest.mark.usefixtures("shared_cache")


# The document.


def test_parity_document_equals_the_generator_output_for_its_rows() -> None:
    assert render(PAGE) == TEXT


def test_parity_document_states_command_date_versions_and_recordings() -> None:
    assert PAGE.facts["Command"].startswith("`python -m benchmarks.parity_table --write`")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", PAGE.facts["Date"])
    for package in ("torch", "llama-cpp-python", "vllm", "transformers"):
        assert re.search(rf"\b{package}(-cpu)? \d", PAGE.facts["Versions"])
    held = {path.name for path in parity_table.sample_recordings()}
    assert set(PAGE.facts["Recordings"].split(", ")) == held


def test_every_model_runtime_and_type_has_its_row() -> None:
    assert tuple(PAGE.tables) == MODELS
    for table in PAGE.tables.values():
        kinds = [(each.runtime, kind) for each in table for kind in each.type.split(", ")]
        assert kinds == [(runtime, kind) for runtime, several in KINDS.items() for kind in several]


def test_rows_without_a_comparison_give_the_reason_of_the_registry(registry: Registry) -> None:
    for model, each in ROWS:
        if each.preset or each.verdict == REFERENCE:
            continue
        assert set(vars(each).values()) == {each.runtime, each.type, each.verdict, NOTHING}
        reason = registry.availability(registry.card(model), each.runtime).reason or ""
        assert each.verdict in reason or each.verdict == "no language model that it would apply to", each


def test_every_claim_keeps_to_the_limits_of_its_preset() -> None:
    assert {(model, each.runtime) for model, each in COMPARED} >= {(model, "gguf") for model in MODELS[:5]}
    for model, each in COMPARED:
        preset, _ = preset_of({"quantization" if each.runtime == "gguf" else "dtype": each.type})
        assert each.preset == preset.name, (model, each)
        assert max(each.errors.values()) == each.worst_error
        if each.within:
            assert each.worst_error <= PRESETS[preset.name].limits.relative_l2, (model, each)
        else:
            assert re.fullmatch(rf"beyond {preset.name} in \d+ of \d+: .+", each.verdict)


def test_demo_models_are_within_tolerance_in_float32_and_q8_0() -> None:
    """What the workbench is there for: in float32 and in 8 bits, every demo model on every runtime that has it."""
    those = [each for model, each in COMPARED if each.type in ("f32", "float32", "q8_0") and model in MODELS[:5]]
    assert len(those) >= 13  # five models on GGUF in two types, three on vLLM
    assert [each for each in those if not each.within] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "q8_0"])
def test_repeated_comparison_confirms_the_claim_in_the_table(registry: Registry, kind: str) -> None:
    model = "demo/sensevoice"
    [claimed] = [each for each in PAGE.tables[model] if (each.runtime, each.type) == ("gguf", kind)]
    [recording] = inputs(registry, model, 1)
    with run_parity(registry, model, recording, candidates=[f"gguf:{kind}"], settings={"threads": 1}) as run:
        found = row(model, "gguf", kind, Found(list(run.outcomes)))
    assert claimed.within and found.verdict == claimed.verdict
    assert found.tokens == "1 of 1" and (found.noise, claimed.noise) == ("noise", "noise")
    # Of one input in place of all, on another processor perhaps, whose sums round otherwise.
    assert all(error <= 3 * claimed.errors[group] for group, error in found.errors.items())


# The generator.


@pytest.fixture
def fakes() -> FakeRegistry:
    return FakeRegistry()


def parity(fakes: FakeRegistry, *candidates: str, isolated: bool = False) -> ParityRun:
    return run_parity(fakes, "tiny", "talk.wav", candidates=candidates, isolated=isolated)  # type: ignore[arg-type]


def test_table_row_holds_the_worst_result_of_all_inputs(fakes: FakeRegistry) -> None:
    with parity(fakes, "gguf:f32") as clean:
        fakes.faults["gguf"] = {"encoder.layers.3": lambda x: 1.01 * x}
        with parity(fakes, "gguf:f32") as faulty, parity(fakes, "gguf:f32", isolated=True) as alone:
            found = Found([*clean.outcomes, *faulty.outcomes], [*alone.outcomes])
            made, only = row("tiny", "gguf", "f32", found), row("tiny", "gguf", "f32", Found([*clean.outcomes]))
    assert made.verdict == "beyond f32 in 1 of 2: encoder.layers.3" and only.verdict == "within f32"
    assert made.noise == "bug at encoder.layers.3" and only.noise == "noise"
    assert made.errors["encoder"] == made.worst_error >= 0.009 > only.worst_error
    assert made.isolated == "1.0e-02 encoder.layers.3, beyond" and only.isolated == NOTHING
    assert made.tokens.endswith("of 2") and only.tokens == "1 of 1"


class HoldingRegistry(FakeRegistry):
    """One that says beforehand what it cannot run, and opens sessions for whoever is not told how far that is."""

    def availability(self, card: Card, runtime: str) -> Availability:
        return Availability(runtime not in self.missing, self.missing.get(runtime))

    def open(self, model: str, runtime: str, on_progress: Any = lambda *_: None, **settings: Any) -> FakeSession:
        return super().open(model, runtime, on_progress, **settings)


def test_every_candidate_runs_on_every_input_with_one_vllm_engine_at_a_time() -> None:
    fakes = HoldingRegistry()
    names = ["pytorch:float64", "gguf:f32", "gguf:f16", "vllm:float32", "vllm:float16"]
    found = outcomes(fakes, "tiny", names, ["one", "two", "three"])  # type: ignore[arg-type]
    assert {name: [each.status for each in those.whole] for name, those in found.items()} == {
        name: ["within"] * 3 for name in names
    }
    assert {name: len(those.alone) for name, those in found.items()} == dict.fromkeys(names, ISOLATED)
    assert fakes.open_now == [] and fakes.most_open == 6  # the reference, float64, three candidates, one for a run


def test_unavailable_runtime_is_not_traced() -> None:
    fakes = HoldingRegistry()
    fakes.missing["vllm"] = "there is nothing to serve"
    found = outcomes(fakes, "tiny", ["vllm:float32", "vllm:float16"], ["one", "two"])  # type: ignore[arg-type]
    assert [[each.reason for each in those.whole] for those in found.values()] == [["there is nothing to serve"]] * 2
    assert fakes.traced == []


def test_missing_result_gives_its_reason_in_the_row(fakes: FakeRegistry) -> None:
    fakes.missing["vllm"] = "vLLM needs the Python package vllm, which is not installed; run: pip install vllm"
    fakes.acts["gguf"] = dies
    with parity(fakes, "vllm", "gguf") as run:
        made = [row("tiny", each.name, "f32", Found([each])) for each in run.outcomes]
    assert [each.verdict for each in made] == [
        "vLLM needs the Python package vllm, which is not installed",
        "the process of tiny ended",
    ]
    assert phrase("demo/x", "vllm", "demo/x cannot run on vllm: there is nothing to serve; use gguf") == (
        "there is nothing to serve"
    )


def test_empty_rows_with_the_same_reason_are_joined() -> None:
    blank = [NOTHING] * (len(COLUMNS) - 3)
    rows = [Row("vllm", kind, "nothing to serve", *blank) for kind in KINDS["vllm"]]
    there = Row("gguf", "f32", "within f32", *blank)
    assert list(joined([there, replace(there, type="f16"), *rows])) == [
        there,
        replace(there, type="f16"),
        Row("vllm", "float32, bfloat16, float16", "nothing to serve", *blank),
    ]


def test_rendered_page_text_follows_its_rows() -> None:
    model, each = COMPARED[0]
    bad = replace(each, verdict=f"beyond {each.preset} in 1 of 8: logits", noise="bug at logits", tokens="7 of 8")
    page = Page(PAGE.facts, {model: [bad]})
    text = render(page)
    assert read(text) == page and f"All are within their presets except {each.runtime} {each.type}" in text
    assert "bug at logits" in text.partition("## What is not")[0]
    assert f"in some traces of {each.runtime} {each.type}" in text or each.preset == "f32"


def test_text_that_is_not_a_parity_page_is_refused() -> None:
    with pytest.raises(BadInput, match="does not say Command"):
        read("# Another page\n")
    last = PAGE.tables[MODELS[0]][-1]
    assert last.isolated == NOTHING
    with pytest.raises(BadInput, match=f"has {len(COLUMNS) - 1} cells; expected {len(COLUMNS)}"):
        read(render(Page(PAGE.facts, {MODELS[0]: [last]})).replace(f" | {NOTHING} |\n", " |\n", 1))


def test_groups_cover_the_columns() -> None:
    assert set(GROUPED) == {*GROUPS.values(), RESULTS}


def test_stage_group_is_found_by_stage_name_or_first_word() -> None:
    found = [group_of(stage) for stage in ("tower.mel", "tower.layers.0", "codec.logits", "codec.audio", "logits")]
    assert found == ["front end", "encoder", "logits", "codec", "logits"]


def test_partial_update_replaces_only_its_own_rows() -> None:
    model, other = MODELS[0], MODELS[2]
    new = replace(PAGE.tables[other][-1], verdict="within f16", type="float16")
    found = merged(PAGE.tables, {other: [new]}, ["vllm"])
    assert tuple(found) == MODELS and found[model] == list(PAGE.tables[model])
    assert found[other] == [*(row for row in PAGE.tables[other] if row.runtime != "vllm"), new]
    assert merged({}, PAGE.tables, list(KINDS)) == {name: list(rows) for name, rows in PAGE.tables.items()}


def test_document_is_not_written_when_inputs_are_limited() -> None:
    command = [sys.executable, "-m", "benchmarks.parity_table", "--write", "--inputs", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "leave --inputs out" in done.stderr
    assert parity_table.PAGE.read_text(encoding="utf-8") == TEXT


# What docs/parity.md shows.


def shown() -> str:
    return (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_example_output_in_the_docs_equals_a_real_run(registry: Registry) -> None:
    [(candidates, stages)] = re.findall(r"`--candidates (\S+) --stages \"(\S+)\"` prints", shown())
    block = re.findall(r"```text\n(.*?)```", shown(), flags=re.DOTALL)[0]
    recording = assets() / "samples" / "three_seven_one.wav"
    with run_parity(registry, "demo/sensevoice", recording, candidates=candidates, stages=stages) as run:
        printed = "\n".join(lines(run))
    number = r"\d+(\.\d+)?(e[+-]\d+)?"
    found, said = (re.sub(number, "N", " ".join(text.split())) for text in (printed, block))
    assert found == said


def test_example_mapping_in_the_docs_maps_the_described_stages(tmp_path: Path) -> None:
    [block] = re.findall(r"```text\n(\[meta\].*?)```", shown(), flags=re.DOTALL)
    (tmp_path / "names.toml").write_text(block, encoding="utf-8")
    layer = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    output = np.arange(1024.0, dtype=np.float32).reshape(2, 512)
    theirs = {"blk_03_out": layer[None], "enc": output.reshape(512, 2), "lfr": layer.T, "ctc": np.zeros((740, 4))}
    theirs["last_norm"] = np.ones((1, 3))
    adapted, codes = np.arange(3 * 40 * 512.0, dtype=np.float32).reshape(3, 40, 512), np.arange(-4, 4, dtype=np.int8)
    theirs |= {"adapted": adapted, "ctc_q8": codes.reshape(2, 4)}
    cache = np.arange(56.0).reshape(28, 1, 2)
    theirs |= {"step_1_blk_0": layer, "all_logits": np.arange(28.0)[:, None], "k_cache_0": cache}
    theirs |= {"step_1_beam_2_blk_0": layer, "step_1_logits": np.arange(12.0).reshape(3, 4)}
    heads = np.arange(24.0, dtype=np.float32).reshape(3, 4, 2)  # heads, frames, width
    theirs |= {"ctx_3": heads}
    theirs |= {"step_1_beam_idx": np.zeros(3, np.int64), "step_1_ids": np.arange(3)}
    (tmp_path / "dumps").mkdir()
    for name, array in theirs.items():
        np.save(tmp_path / "dumps" / f"{name}.npy", array)
    found = read_trace(tmp_path / "dumps", read_mapping(tmp_path / "names.toml"))
    assert found.meta["dtype"] == "float16"
    assert np.array_equal(found["encoder.layers.3"], layer) and np.array_equal(found["frontend.lfr"], layer)
    assert np.array_equal(found["encoder.layers.3.attention.context"], np.concatenate([*heads], axis=1))
    assert np.array_equal(found["encoder.output"], output) and found["logits"].shape == (736, 4)
    assert np.array_equal(found["adaptor.output"], adapted[1, :35])
    assert np.allclose(found["ctc.logits"], 0.0193 * codes.reshape(2, 4).astype(np.float32))
    assert np.array_equal(found["steps.1.llm.layers.0"], layer)
    assert [float(found[f"steps.{n}.logits"].item()) for n in (1, 2)] == [26, 27]
    assert np.array_equal(found["steps.1.llm.layers.0.cache.key"], cache[:27])
    assert np.array_equal(found["steps.1.beams.2.llm.layers.0"], layer)
    assert np.array_equal(found["steps.1.beams.1.logits"], theirs["step_1_logits"][1:2])
    assert ancestry_of_stages(found) == Ancestry(((0, 0, 0),), ((0, 1, 2),))
