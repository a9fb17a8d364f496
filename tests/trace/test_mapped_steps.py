"""Mapping of decoding steps from other programs: step, layer and beam numbers, and arrays of all steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.trace.mapping import read_mapping
from workbench.trace.read import read_trace
from workbench.trace.trace import Trace

PROMPT, STEPS, HEADS, WIDTH = 4, 3, 2, 5
RNG = np.random.default_rng(0)


def read_dump(folder: Path, mapping: str, **arrays: np.ndarray) -> Trace:
    np.savez(folder / "port.npz", **arrays)  # type: ignore[arg-type]
    (folder / "names.toml").write_text(f"[stages]\n{mapping}\n")
    return read_trace(folder / "port.npz", read_mapping(folder / "names.toml"))


def test_mapping_reads_step_and_layer_numbers_from_names(tmp_path: Path) -> None:
    arrays = {f"step_{n}_blk_{m:02}": RNG.normal(size=(1, 6)) for n in (1, 2, 10) for m in (1, 2)}
    arrays["step_1_blk_00"] = RNG.normal(size=(1, 6))  # is before their first layer, and keeps its name
    trace = read_dump(tmp_path, '"steps.{n}.llm.layers.{m}" = { from = "step_{n}_blk_{m}", first_m = 1 }', **arrays)
    assert [stage for stage in trace if stage != "step_1_blk_00"] == [
        f"steps.{n}.llm.layers.{m}" for n in (1, 2, 10) for m in (0, 1)
    ]
    assert "step_1_blk_00" in trace
    assert np.array_equal(trace["steps.10.llm.layers.1"], arrays["step_10_blk_02"])


def test_steps_counted_from_zero_are_renumbered_by_first(tmp_path: Path) -> None:
    arrays = {f"decode{n}": np.full((1, 2), n) for n in range(3)}
    trace = read_dump(tmp_path, '"steps.{n}.logits" = { from = "decode{n}", first = -1 }', **arrays)
    assert {stage: array[0, 0] for stage, array in trace.items()} == {f"steps.{n}.logits": n - 1 for n in (1, 2, 3)}


def test_arrays_with_rows_of_all_steps_are_split_by_step(tmp_path: Path) -> None:
    rows = RNG.normal(size=(PROMPT + STEPS, 6))
    caches = [RNG.normal(size=(1, HEADS, 32, WIDTH)) for _ in range(2)]  # with room for more positions
    layout = f"shape = [{HEADS}, 32, {WIDTH}], axes = [1, 0, 2], rows = [0, {PROMPT + STEPS}]"
    mapping = f"""
    "steps.{{n}}.logits" = {{ from = "all_logits", prompt = {PROMPT} }}
    "steps.{{n}}.llm.norm" = {{ from = "new_norms", prompt = 0 }}
    "steps.{{n}}.llm.layers.{{m}}.cache.key" = {{ from = "k{{m}}", prompt = {PROMPT}, {layout} }}
    "steps.{{n}}.llm.layers.0.cache.value" = {{ from = "v0", prompt = {PROMPT}, {layout} }}
    """
    trace = read_dump(
        tmp_path, mapping, all_logits=rows, new_norms=rows[PROMPT:], k0=caches[0], k1=caches[1], v0=caches[1]
    )
    assert len(trace) == 5 * STEPS
    for step in range(1, STEPS + 1):
        for stage in ("logits", "llm.norm"):
            assert np.array_equal(trace[f"steps.{step}.{stage}"], rows[PROMPT + step - 1 : PROMPT + step])
        for layer, cache in enumerate(caches):
            expected = cache[0].swapaxes(0, 1)[: PROMPT + step]
            assert np.array_equal(trace[f"steps.{step}.llm.layers.{layer}.cache.key"], expected)
        assert np.array_equal(trace[f"steps.{step}.llm.layers.0.cache.value"], expected)


def test_beam_hypotheses_are_read_from_names_or_from_an_axis(tmp_path: Path) -> None:
    blocks = {f"step_{n}_blk_{m}": RNG.normal(size=(3, 1, 6)) for n in (1, 2) for m in (0, 1)}
    caches = {f"k_{n}_1": RNG.normal(size=(3, HEADS, PROMPT + n, WIDTH)) for n in (1, 2)}
    logits = {f"step_{n}_beam_{b}": np.full((1, 4), 10 * n + b) for n in (1, 2) for b in (1, 2, 3)}
    mapping = """
    "steps.{n}.beams.{b}.llm.layers.{m}" = { from = "step_{n}_blk_{m}", beams = 0 }
    "steps.{n}.beams.{b}.llm.layers.{m}.cache.key" = { from = "k_{n}_{m}", beams = 0, axes = [0, 2, 1, 3] }
    "steps.{n}.beams.{b}.logits" = { from = "step_{n}_beam_{b}", first_b = 1 }
    "steps.{n}.beams.{b}.llm.norm" = { from = "norms_{n}", beams = 0 }
    "steps.{n}.beams.{b}.llm.norm.scale" = { from = "scales_{n}", beams = -1 }
    "steps.{n}.beams.parents" = "beam_idx_{n}"
    """
    others = {
        "norms_1": RNG.normal(size=(3, 6)),
        "scales_1": RNG.normal(size=(1, 6, 3)),
        "beam_idx_2": np.array([0, 0, 1]),
    }
    trace = read_dump(tmp_path, mapping, **blocks, **caches, **logits, **others)
    assert len(trace) == 12 + 6 + 6 + 3 + 3 + 1
    for beam in range(3):
        assert np.array_equal(trace[f"steps.2.beams.{beam}.llm.layers.1"], blocks["step_2_blk_1"][beam])
        expected = caches["k_1_1"][beam].swapaxes(0, 1)
        assert np.array_equal(trace[f"steps.1.beams.{beam}.llm.layers.1.cache.key"], expected)
        assert trace[f"steps.2.beams.{beam}.logits"][0, 0] == 20 + beam + 1
        assert np.array_equal(trace[f"steps.1.beams.{beam}.llm.norm"], others["norms_1"][beam : beam + 1])
        assert np.array_equal(trace[f"steps.1.beams.{beam}.llm.norm.scale"], others["scales_1"][..., beam])


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ('"steps.{n}.logits" = { from = "a_{n}", beams = 0 }', "expected a stage steps.{n}.beams.{b}.NAME"),
        (
            '"steps.1.beams.{b}.logits" = { from = "a", beams = 2 }',
            "of shape (7, 6) with beams = 2; expected",
        ),
        (
            '"steps.1.beams.{b}.logits" = { from = "a_{b}", beams = 0 }',
            "and an array without {b} that has all hypotheses",
        ),
        ('"steps.1.beams.{b}.logits" = { from = "a", beams = -3 }', "of shape (7, 6) with beams = -3; expected"),
        ('"steps.1.beams.{b}.logits" = { from = "a", beams = 0, prompt = 1 }', "has both prompt and beams; expected"),
        ('"steps.1.beams.{b}.logits" = "a"', "expected a name, with {n}, {m} and {b} on both sides or on none"),
        ('"logits" = { from = "a", prompt = 4 }', "expected a stage steps.{n}.NAME, and an array without {n}"),
        ('"steps.{n}.logits" = { from = "a{n}", prompt = 4 }', "expected a stage steps.{n}.NAME, and an array without"),
        ('"steps.{n}.logits" = { from = "a", prompt = -1 }', "expected a whole number from 0 on"),
        ('"steps.{n}.logits" = { from = "a", prompt = 7 }', "of shape (7, 6) with prompt = 7; expected more rows"),
        ('"steps.{n}.logits" = { from = "scalar", prompt = 0 }', "of shape () with prompt = 0; expected more rows"),
        ('"steps.{n}.logits" = { from = "a", prompt = 9 }', "of shape (7, 6) with prompt = 9; expected more rows"),
        ('"steps.{n}.llm.layers.{m}" = "a_{n}"', "expected a name, with {n}, {m} and {b} on both sides or on none"),
        ('"steps.{n}.x.{n}" = "a_{n}_{n}"', "expected each of {n}, {m} and {b} at most once"),
    ],
)
def test_invalid_step_mapping_is_refused(tmp_path: Path, mapping: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        read_dump(tmp_path, mapping, a=RNG.normal(size=(7, 6)), scalar=np.array(1.0))
    stage = mapping.split('"')[1]
    assert message in str(error.value) and any(
        each in str(error.value) for each in (f"'{stage}' in names", f"of {stage}")
    )
