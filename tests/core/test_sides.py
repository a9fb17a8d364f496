"""Parsing of the sides of a comparison: a runtime with settings and options, or a trace file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.core.errors import BadInput
from workbench.core.sides import Side, read_side, read_sides, with_changes
from workbench.families import FAMILIES

OPTIONS = FAMILIES["sensevoice"].options_class


def side(text: str) -> Side:
    return read_side(text, OPTIONS, "tiny")


def test_type_after_the_colon_is_quantization_for_gguf_and_dtype_for_vllm() -> None:
    assert side("pytorch") == Side("pytorch", "pytorch")
    assert side("gguf:q8_0") == Side("gguf:q8_0", "gguf", {"quantization": "q8_0"})
    assert side("vllm:bfloat16").settings == side("vllm:bf16").settings == {"dtype": "bfloat16"}


def test_settings_and_options_after_plus_signs_are_parsed() -> None:
    found = side("gguf:f16+threads=1+dither=0.5+cmvn=off+kv-cache=q8_0+timestamps=no")
    assert found.settings == {"quantization": "f16", "threads": 1, "kv_cache": "q8_0"}
    assert found.options == {"dither": 0.5, "cmvn": "off", "timestamps": False}
    assert side("vllm+eager=off").settings == {"eager": False}


def test_default_is_used_only_for_settings_that_the_runtime_has_and_the_side_lacks() -> None:
    assert side("gguf").with_default(dtype="float32", quantization="f32").settings == {"quantization": "f32"}
    assert side("gguf:q4_0").with_default(quantization="f32").settings == {"quantization": "q4_0"}


def test_path_of_an_existing_trace_is_parsed_as_a_trace_side(tmp_path: Path) -> None:
    file = tmp_path / "a+b.safetensors"
    file.touch()
    assert side(str(file)) == Side(str(file), path=file)
    assert side(str(file)).with_default(threads=1) == side(str(file))
    assert [each.name for each in read_sides(f"pytorch, {file},", OPTIONS, "tiny")] == ["pytorch", str(file)]


def test_a_parsed_side_stays_unchanged(tmp_path: Path) -> None:
    known = Side("theirs", path=tmp_path)
    assert read_sides(["gguf", known], OPTIONS, "tiny")[1] is known


@pytest.mark.parametrize(
    ("text", "changes", "becomes"),
    [
        ("gguf:q8_0", {"cmvn": "off"}, "gguf:q8_0+cmvn=off"),
        ("gguf:q8_0+cmvn=off+threads=2", {"cmvn": None}, "gguf:q8_0+threads=2"),
        ("gguf+kv-cache=f16+dither=1", {"kv_cache": "q8_0", "dither": "1"}, "gguf+kv_cache=q8_0+dither=1"),
        ("pytorch", {"kv_cache": "q8_0", "threads": "1"}, "pytorch+threads=1"),
        ("a+b.npz", {"threads": "1"}, "a+b.npz"),
        ("", {"threads": "1"}, ""),
    ],
)
def test_a_side_can_be_written_with_other_settings(text: str, changes: dict[str, str | None], becomes: str) -> None:
    assert with_changes(text, changes) == becomes
    assert with_changes(becomes, changes) == becomes


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ggml:q8_0", "neither a runtime nor an existing trace"),
        ("nowhere.safetensors", "neither a runtime nor an existing trace"),
        ("", "neither a runtime nor an existing trace"),
        ("~nobody-here/trace", "neither a runtime nor an existing trace"),
        ("a" * 5000, "neither a runtime nor an existing trace"),
        ("vllm:int3", "expected one of"),
        ("gguf+threads=0", "1 to 1024"),
        ("gguf+threads=many", "a whole number"),
        ("gguf+device=cuda", "not understood"),
        ("pytorch+cmvn", "not understood"),
        ("pytorch+cmvn=maybe", "expected one of"),
        ("pytorch+hotwords=a", "not understood"),
        ("pytorch+timestamps=perhaps", "true or false"),
    ],
)
def test_invalid_side_raises_one_line_error_with_the_cause(text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says) as caught:
        side(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("made", ["checkpoint/config.yaml", "language/config.json", "model.gguf", "MODEL.GGUF"])
def test_a_model_instead_of_a_trace_is_refused_with_advice(made: str, tmp_path: Path) -> None:
    file = tmp_path / made
    file.parent.mkdir(exist_ok=True)
    file.touch()
    model = file if file.parent == tmp_path else file.parent
    with pytest.raises(BadInput, match="is a model, not a trace; to compare it, trace it first") as caught:
        side(str(model))
    assert f"--model {model} --out" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("texts", ["", " , ", []])
def test_empty_list_of_candidates_is_refused(texts: str | list[str]) -> None:
    with pytest.raises(BadInput, match="no candidate"):
        read_sides(texts, OPTIONS, "tiny")


@given(st.text("pytorchgfvlm:+=,_0129 \x00/~é", max_size=30))
def test_any_text_is_a_side_or_bad_input(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert side(text).name == text


def test_error_for_an_unknown_option_lists_the_known_names_as_plain_text() -> None:
    with pytest.raises(BadInput) as caught:
        side("gguf:f32+breadth=3")
    said = str(caught.value)
    assert said.startswith("'breadth=3' in 'gguf:f32+breadth=3' is not understood; expected NAME=VALUE, and ")
    assert (
        " on gguf are threads, quantization, kv_cache, vad, " in said and "[" not in said and said.count("dither") == 1
    )
