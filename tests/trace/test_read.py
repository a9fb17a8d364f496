"""Traces read from files of every format compare directly or by a mapping, with little memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.networks import META, STAGES, computed
from workbench.compare import compare, judge, read_mapping, read_trace
from workbench.core.errors import BadInput
from workbench.trace.trace import Trace

SMALL = np.ones((2, 3), np.float32)
FOREIGN = """
[meta]
dtype = "float32"
input_digest = "a1b2"
[stages]
"frontend.fbank" = { from = "mel", transpose = true }
"prompt.tokens" = "prompt"
"encoder.input" = { from = "inp", shape = [24, 64] }
"encoder.layers.{n}" = { from = "l_{n}", first = 1, squeeze = true }
"encoder.output" = { from = "enc", rows = [0, 24] }
"logits" = { from = "ctc", scale = 0.5 }
"""


def foreign(trace: Trace) -> dict[str, np.ndarray]:
    """The stages as another program might write them."""
    arrays = {
        "mel": trace["frontend.fbank"].T.copy(),
        "prompt": trace["prompt.tokens"].astype(np.float32),
        "inp": trace["encoder.input"].ravel(),
        "enc": np.vstack([trace["encoder.output"], np.zeros((8, 64), np.float32)]),
        "ctc": 2 * trace["logits"],
        "tokens": trace["tokens"].astype(np.int32),
        "text": np.frombuffer(str(trace["text"]).encode(), np.uint8),
    }
    return arrays | {f"l_{n + 1}": trace[f"encoder.layers.{n}"][None] for n in range(8)}


def write_dump(folder: Path, kind: str, arrays: dict[str, np.ndarray]) -> Path:
    path = folder / f"foreign.{kind}"
    if kind == "safetensors":
        save_file(arrays, path)
    elif kind == "npz":
        np.savez(path, **arrays)
    else:
        path.mkdir()
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
    return path


@pytest.mark.parametrize("kind", ["safetensors", "npz", "folder"])
def test_dumps_of_another_program_compare_by_a_mapping_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "names.toml").write_text(FOREIGN)
    reference = read_trace(computed().save(tmp_path / "ours.safetensors"))
    path = write_dump(tmp_path, kind, foreign(computed(reverse=True)))
    candidate = read_trace(path, read_mapping(tmp_path / "names.toml"))
    assert list(reference) == list(candidate) == STAGES
    comparison = compare(reference, candidate)
    assert comparison.within and comparison.warnings == () and len(comparison.stages) == len(STAGES)


def test_saved_trace_is_read_unchanged(tmp_path: Path) -> None:
    trace = Trace({"z.first": np.ones((2, 3)), **computed()}, META)
    loaded = read_trace(trace.save(tmp_path / "t.safetensors"))
    assert list(loaded) == list(trace) and loaded.meta == trace.meta and len(loaded) == len(trace)
    for stage, array in trace.items():
        np.testing.assert_array_equal(loaded[stage], array)
    assert "logits" in loaded and "x" not in loaded and loaded.get("x") is None
    assert compare(trace, loaded).within
    with pytest.raises(KeyError, match=r"no stage 'x' in this trace; it has z.first, "):
        loaded["x"]


def test_trace_without_an_order_is_sorted_in_computation_order(tmp_path: Path) -> None:
    names = ["tokens", "encoder.layers.10", "encoder.layers.9", "logits", "frontend.fbank"]
    np.savez(tmp_path / "t.npz", **{name: np.ones((2, 2)) for name in names})
    assert list(read_trace(tmp_path / "t.npz")) == [
        "frontend.fbank",
        "encoder.layers.9",
        "encoder.layers.10",
        "logits",
        "tokens",
    ]


FOREIGN_NAMES = ["wav.conv", "wav.layers.0.q_proj", "wav.layers.0.out_proj", "wav.layers.10.q_proj", "wav.a_head"]


def test_npz_file_keeps_the_order_of_names_that_tell_none(tmp_path: Path) -> None:
    arrays = {name: np.random.default_rng(n).standard_normal((4, 8)) for n, name in enumerate(FOREIGN_NAMES)}
    wrong = {name: each if name == "wav.conv" else each + 1 for name, each in arrays.items()}
    for name, each in (("a", arrays), ("b", wrong)):
        np.savez(tmp_path / f"{name}.npz", **each)
        Trace(each, {}).save(tmp_path / f"{name}.safetensors")
    for reference, candidate in (
        (arrays_read := read_trace(tmp_path / "a.npz"), read_trace(tmp_path / "b.npz")),
        (read_trace(tmp_path / "a.safetensors"), read_trace(tmp_path / "b.safetensors")),
        (Trace(arrays, {}), Trace(wrong, {})),
    ):
        comparison = compare(reference, candidate)
        assert judge(comparison).faulty_stage == "wav.layers.0.q_proj"
        assert [each.stage for each in comparison.stages] == FOREIGN_NAMES
        assert not any("order" in each for each in comparison.warnings)
    assert not arrays_read.has_lost_order


@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_a_lost_order_of_foreign_names_is_a_warning(tmp_path: Path, kind: str) -> None:
    arrays = {name: np.ones((4, 8), np.float32) for name in sorted(FOREIGN_NAMES)}
    trace = read_trace(write_dump(tmp_path, kind, arrays))
    [warning] = [each for each in compare(trace, trace).warnings if "order" in each]
    assert warning.startswith("the stages come in the order of their names")
    (tmp_path / "known").mkdir()
    known = read_trace(write_dump(tmp_path / "known", kind, {"logits": SMALL, "encoder.input": SMALL}))
    assert not any("order" in each for each in compare(known, known).warnings)


@pytest.mark.parametrize("kind", ["safetensors", "npz", "folder"])
def test_traces_are_compared_in_less_memory_than_a_third_of_one_trace(tmp_path: Path, kind: str) -> None:
    stages = {f"encoder.layers.{n}": np.full((500, 400), n + 1, np.float32) for n in range(24)}
    path = write_dump(tmp_path, kind, stages)
    size = sum(array.nbytes for array in stages.values())
    tracemalloc.start()
    compare(read_trace(path), read_trace(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < size / 3, "both traces are twice as large"


@pytest.mark.parametrize("kind", ["safetensors", "npz", "folder"])
def test_float16_arrays_set_the_dtype_when_metadata_is_missing(tmp_path: Path, kind: str) -> None:
    reference = computed()
    halves = {f"encoder.layers.{n}": reference[f"encoder.layers.{n}"].astype(np.float16) for n in range(8)}
    path = write_dump(tmp_path, kind, halves | {"tokens": reference["tokens"]})
    comparison = compare(reference, read_trace(path))
    assert comparison.within and (comparison.tolerances.preset.name, comparison.reason) == (
        "f16",
        "the reference has the dtype float32 and the candidate the dtype float16",
    )
    (tmp_path / "names.toml").write_text('[meta]\nquantization = "f32"')
    assert not compare(reference, read_trace(path, read_mapping(tmp_path / "names.toml"))).within


def test_bfloat16_arrays_set_the_dtype(tmp_path: Path) -> None:
    header = (
        b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},"b":{"dtype":"F16","shape":[1],"data_offsets":[2,4]}}'
    )
    (tmp_path / "t.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    assert read_trace(tmp_path / "t.safetensors").meta == {"dtype": "bfloat16"}


def test_missing_mapped_array_error_names_stage_and_array(tmp_path: Path) -> None:
    (tmp_path / "names.toml").write_text("[stages]\nlogits = 'ctc'")
    np.savez(tmp_path / "t.npz", other=np.ones(2))
    with pytest.raises(BadInput, match=r"^names.toml takes logits from ctc, which is not there; the arrays are other$"):
        read_trace(tmp_path / "t.npz", read_mapping(tmp_path / "names.toml"))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_slashes_in_array_names_become_dots_of_stage_names(tmp_path: Path, kind: str) -> None:
    arrays = dict.fromkeys(("encoder/layers/0", "encoder/layers/1", "mine/own"), SMALL)
    assert set(read_trace(write_dump(tmp_path, kind, arrays))) == {"encoder.layers.0", "encoder.layers.1", "mine/own"}


def test_name_with_slashes_is_kept_if_the_dotted_name_exists(tmp_path: Path) -> None:
    arrays = dict.fromkeys(("encoder/output", "encoder.output"), SMALL)
    assert set(read_trace(write_dump(tmp_path, "npz", arrays))) == {"encoder/output", "encoder.output"}


@pytest.mark.parametrize(
    "stated, dtype",
    [({}, "float16"), ({"dtype": "float32"}, "float32"), ({"quantization": "q8_0"}, None), ({"model": "x"}, "float16")],
)
def test_arrays_in_half_precision_state_the_arithmetic_only_where_nothing_else_does(
    tmp_path: Path, stated: dict[str, str], dtype: str | None
) -> None:
    np.save(tmp_path / "logits.npy", np.zeros((2, 3), np.float16))
    (tmp_path / "meta.json").write_text(json.dumps(stated))
    assert read_trace(tmp_path).meta.get("dtype") == dtype
