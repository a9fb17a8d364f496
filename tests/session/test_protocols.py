"""Values exchanged between components: transcripts as JSON, traces as files, stage patterns."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from safetensors.numpy import save_file

from workbench.core.errors import BadInput, Cancelled
from workbench.session.protocols import last_transcript
from workbench.session.values import Progress, Segment, Token, Transcript
from workbench.trace.trace import StageFilter, Trace

DTYPES = (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.complex64)


def trace() -> Trace:
    stages = {
        "frontend.fbank": np.arange(12, dtype=np.float32).reshape(3, 4),
        "encoder.layers.10": np.full((2, 2), np.nan, dtype=np.float16),
        "encoder.layers.9": np.zeros((0, 5), dtype=np.float64),
        "tokens": np.array([3, 1, 2], dtype=np.int64),
        "text": np.array("three 七 one"),
    }
    return Trace(stages, {"model": "demo/x", "runtime": "pytorch", "options": {"itn": True}, "audio_seconds": 1.5})


def assert_same(actual: Trace, expected: Trace) -> None:
    assert list(actual) == list(expected) and actual.meta == expected.meta
    for stage in actual:
        assert actual[stage].dtype == expected[stage].dtype and actual[stage].shape == expected[stage].shape, stage
        np.testing.assert_array_equal(actual[stage], expected[stage])


# Traces in memory.


def test_trace_is_an_ordered_mapping() -> None:
    mapping = trace()
    assert (
        len(mapping) == 5 and next(iter(mapping)) == "frontend.fbank" and "text" in mapping and "logits" not in mapping
    )
    assert mapping.get("logits") is None
    assert "encoder.layers.9 0×5" in repr(mapping) and "text scalar" in repr(mapping)


def test_unknown_stage_raises_an_error_with_the_available_stages() -> None:
    with pytest.raises(KeyError, match=r"no stage .logits. in this trace; it has frontend.fbank, "):
        trace()["logits"]


# Traces as files.


def test_saved_trace_round_trips(tmp_path: Path) -> None:
    path = trace().save(tmp_path / "t.safetensors")
    assert_same(Trace.load(path), trace())


def test_loaded_trace_is_independent_of_its_file_and_suffix(tmp_path: Path) -> None:
    path = trace().save(tmp_path / "t.trace")
    loaded = Trace.load(path)
    path.unlink()
    assert_same(loaded, trace())
    loaded["frontend.fbank"][0] = 7  # the loaded arrays are writable
    assert loaded["frontend.fbank"][0].tolist() == [7, 7, 7, 7]


def test_npz_file_of_another_program_is_loaded_as_a_trace(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", **{"tokens": np.arange(3), "encoder.output": np.ones((2, 3), np.float16)})
    loaded = Trace.load(tmp_path / "t.npz")
    assert list(loaded) == ["encoder.output", "tokens"] and loaded.meta == {"dtype": "float16"}


@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    ),
    text=st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: text.rstrip("\0")),
)
def test_arbitrary_arrays_and_texts_round_trip_through_a_trace_file(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    saved = Trace({"logits": array, "text": np.array(text)}, {"text": text})
    saved.save(path)
    loaded = Trace.load(path)
    assert str(loaded["text"]) == text and loaded["text"].shape == () and loaded.meta == {"text": text}
    assert loaded["logits"].dtype == array.dtype and loaded["logits"].shape == array.shape
    assert loaded["logits"].tobytes() == array.tobytes()


def test_array_views_round_trip_through_a_trace_file(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    views = {"a": array[::2, ::-1], "b": array.T, "c": array.astype(">f4"), "d": np.broadcast_to(np.float32(2), (3, 3))}
    loaded = Trace.load(Trace(views, {}).save(tmp_path / "t.safetensors"))
    for stage, view in views.items():
        np.testing.assert_array_equal(loaded[stage], view)


def test_safetensors_file_of_another_program_is_a_trace_in_alphabetical_order(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"logits": np.ones((2, 3), np.float32), "encoder.output": np.ones(4, np.int32)}, str(path))
    loaded = Trace.load(path)
    assert list(loaded) == ["encoder.output", "logits"] and loaded.meta == {}
    assert loaded["logits"].shape == (2, 3)


def test_foreign_metadata_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    save_file({"x": np.ones(2, np.float32)}, str(path), metadata={"format": "pt"})
    assert Trace.load(path).meta == {}


def test_unlisted_stages_are_loaded_and_missing_listed_stages_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "edited.safetensors"
    arrays = {name: np.ones(1, np.float32) for name in ("b", "a", "new")}
    save_file(arrays, str(path), metadata={"stages": json.dumps(["b", "deleted", "a", 7]), "strings": '["deleted", 7]'})
    assert list(Trace.load(path)) == ["b", "a", "new"]


def raw(path: Path, header: Any, data: bytes) -> Path:
    """A safetensors file of these bytes."""
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)
    return path


def test_bfloat16_tensors_are_loaded_as_float32(tmp_path: Path) -> None:
    values = np.array([[1.0, -2.5, 0.0], [3.0, float("inf"), 2.0**-130]], dtype=np.float32)  # exact in bfloat16
    bits = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    header = {
        "logits": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
        "tokens": {"dtype": "I64", "shape": [1], "data_offsets": [12, 20]},
    }
    loaded = Trace.load(raw(tmp_path / "b.safetensors", header, bits + struct.pack("<q", 7)))
    assert loaded["logits"].dtype == np.float32
    np.testing.assert_array_equal(loaded["logits"], values)
    assert list(loaded) == ["logits", "tokens"] and loaded["tokens"][0] == 7


def write_damaged(folder: Path, name: str) -> Path:
    content = trace().save(folder / "whole.safetensors").read_bytes()
    path = folder / "damaged.safetensors"
    one_tensor = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    match name:
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("this is no trace\n" * 50)
        case "truncated":
            path.write_bytes(content[:-5])
        case "header only":
            path.write_bytes(content[: 8 + struct.unpack("<Q", content[:8])[0]])
        case "huge header":
            path.write_bytes(struct.pack("<Q", 1 << 60) + content[8:])
        case "header beyond the file":
            path.write_bytes(struct.pack("<Q", len(content) * 2) + content[8:])
        case "header no JSON":
            raw(path, b"{" * 40, b"")
        case "unknown type":
            raw(path, {"x": {**one_tensor["x"], "dtype": "F99"}}, b"\0" * 8)
        case "type without numpy":
            raw(path, {"x": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, b"\0" * 8)
        case "wrong offsets":
            raw(path, {"x": {**one_tensor["x"], "data_offsets": [0, 4]}}, b"\0" * 8)
        case "meta no JSON":
            raw(path, {**one_tensor, "__metadata__": {"meta": "{'model'"}}, b"\0" * 8)
        case "meta a list":
            raw(path, {**one_tensor, "__metadata__": {"meta": "[1]"}}, b"\0" * 8)
        case "stages a number":
            raw(path, {**one_tensor, "__metadata__": {"stages": "5"}}, b"\0" * 8)
        case "strings an object":
            raw(path, {**one_tensor, "__metadata__": {"strings": "{}"}}, b"\0" * 8)
        case "metadata nested for ever":
            raw(path, {**one_tensor, "__metadata__": {"meta": "[" * 100_000}}, b"\0" * 8)
        case "folder":
            path.mkdir()
        case "missing":
            pass
    return path


@pytest.mark.parametrize(
    "name",
    [
        "empty", "text", "truncated", "header only", "huge header", "header beyond the file", "header no JSON",
        "unknown type", "type without numpy", "wrong offsets", "meta no JSON", "meta a list", "stages a number",
        "strings an object", "metadata nested for ever", "folder", "missing",
    ],
)  # fmt: skip
def test_damaged_trace_file_raises_one_line_error_with_the_file_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput) as error:
        Trace.load(write_damaged(tmp_path, name))
    assert "damaged.safetensors" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("array", "dtype_name"),
    [
        (np.array(["one", "two"]), "<U3"),
        (np.array([object()]), "object"),
        (np.array([1], dtype="datetime64[s]"), "datetime64"),
        (np.array([b"x"]), "|S1"),
    ],
)
def test_unsupported_array_cannot_be_saved_in_a_trace(tmp_path: Path, array: np.ndarray, dtype_name: str) -> None:
    with pytest.raises(BadInput, match="stage logits holds") as error:
        Trace({"logits": array}, {}).save(tmp_path / "t.safetensors")
    assert dtype_name in str(error.value) and not list(tmp_path.iterdir())


def test_complex_array_cannot_be_saved_in_a_trace(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot be written .*complex128"):
        Trace({"logits": np.ones(2, np.complex128)}, {}).save(tmp_path / "t.safetensors")


@pytest.mark.parametrize("path", ["", "missing/t.safetensors", "file/t.safetensors"])
def test_saving_a_trace_to_an_invalid_path_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"^the trace cannot be written to .*: (it is a folder|there is no folder .*)$"):
        trace().save(tmp_path / path)


# Stage patterns.


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", "abcd"),
        ("encoder.*", "bc"),
        ("encoder.layers.?", "b"),
        ("encoder.layers.[0-9]", "b"),
        ("frontend.fbank, text", "ad"),
        ("Encoder.*", ""),
        (",text,,", "d"),
    ],
)
def test_stage_pattern_selects_matching_stages(pattern: str, expected: str) -> None:
    names = {"a": "frontend.fbank", "b": "encoder.layers.0", "c": "encoder.output", "d": "text"}
    stage_filter = StageFilter(pattern)
    assert "".join(letter for letter, name in names.items() if stage_filter(name)) == expected


@pytest.mark.parametrize("pattern", ["", " ", ",", " , "])
def test_an_empty_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="the stage pattern is empty"):
        StageFilter(pattern)


@pytest.mark.parametrize("pattern", [["encoder.*"], b"encoder.*", None])
def test_a_pattern_that_is_not_a_text_is_refused(pattern: Any) -> None:
    with pytest.raises(
        BadInput, match=r"the stage pattern is of type \w+; expected a text such as 'encoder\.\*,logits'"
    ):
        StageFilter(pattern)


# Transcripts.


def transcript() -> Transcript:
    token = Token(5, "一", 0.5, 0.75)
    return Transcript(
        "m", "pytorch", "一", "zh", (Segment(0.0, 2.0, "一", (token,), {"emotion": "SAD"}),), (1, 5), 2.0, 1.0, 0.5
    )


def test_transcript_json_is_a_single_readable_line() -> None:
    line = transcript().to_json()
    assert "\n" not in line and "一" in line
    parsed = json.loads(line)
    assert parsed == json.loads(json.dumps(transcript().to_dict()))
    assert parsed["segments"][0]["tokens"][0] == {"id": 5, "text": "一", "start": 0.5, "end": 0.75}


def test_the_real_time_factor_of_an_empty_recording_is_zero() -> None:
    assert transcript().real_time_factor == 0.25
    assert Transcript("m", "r", "", None, (), (), 0.0, 0.0, 0.1).real_time_factor == 0.0


def test_last_transcript_is_returned_after_the_stream_has_ended() -> None:
    ended = []

    def events() -> Any:
        yield Progress(0.0, 1.0, "listening")
        yield transcript()
        ended.append(True)

    assert last_transcript(events()) == transcript() and ended
    with pytest.raises(Cancelled):
        last_transcript(iter([Progress(0.0, 1.0, "listening")]))
