"""Conversion plans: the size of a file is known before it is written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conversion.reading import Read
from workbench.conversion.plan import Plan, PlannedTensor, Value, array_rows, estimated_bytes, total_bytes
from workbench.conversion.writer import write
from workbench.formats.quantization import TYPES, Kind

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.integers(0, 2**32 - 1),
    st.floats(-1e6, 1e6, width=32),
    st.booleans(),
    TEXTS,
    st.binary(max_size=40),
    st.lists(TEXTS, max_size=5),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
)
SHAPES = st.lists(st.sampled_from([1, 3, 7, 32, 40, 64]), min_size=1, max_size=4).map(tuple)


def planned(number: int, shape: tuple[int, ...], kind: Kind) -> PlannedTensor:
    values = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
    return PlannedTensor(f"tensor.{number}.weight", shape, kind, array_rows(values))


@settings(max_examples=30)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,8}\.[a-zé]{1,8}", fullmatch=True), VALUES, max_size=6),
    st.lists(st.tuples(SHAPES, st.sampled_from(Kind)), max_size=5),
    st.sampled_from(TYPES),
    st.booleans(),
)
def test_written_file_has_the_planned_size_keys_and_tensors(
    values: dict[str, Value], tensors: list[tuple[tuple[int, ...], Kind]], name: str, plain: bool
) -> None:
    keys = {**values, **({"general.file_type": 0} if plain else {"workbench.quantization": ""})}
    plan = Plan("made-up", keys, [planned(number, *each) for number, each in enumerate(tensors)])
    with TemporaryDirectory() as folder:
        (path,) = write([plan], name, Path(folder) / "it.gguf")
        assert (
            path.stat().st_size == plan.file_bytes(name) == total_bytes([plan], name) == estimated_bytes([plan])[name]
        )
        read = Read(path)
    assert next(iter(read.keys)) == "general.architecture" and read.keys["general.architecture"] == "made-up"
    for key, value in values.items():
        if isinstance(value, (str, bytes, list)) and not value:
            assert key not in read.keys
        else:
            assert read.keys[key] == (list(value) if isinstance(value, bytes) else value)
    assert read.keys.get("workbench.quantization") == (None if plain else name)
    assert [read.shapes[tensor.name] for tensor in plan.tensors] == [shape for shape, _ in tensors]


def test_several_files_offer_only_their_common_quantisations() -> None:
    tensor = planned(1, (4, 64), Kind.MATRIX)
    plans = [Plan("one", {}, [tensor], types=("f32", "f16")), Plan("two", {}, [tensor], suffix="-two")]
    assert estimated_bytes(plans) == {
        name: plans[0].file_bytes(name) + plans[1].file_bytes(name) for name in ("f32", "f16")
    }


@pytest.mark.parametrize(("quantization", "number"), [("f32", 0), ("f16", 1), ("q8_0", 7)])
def test_file_type_number_is_written_only_in_layouts_that_have_it(quantization: str, number: int) -> None:
    values = Plan("it", {"general.file_type": 0}, []).all_values(quantization)
    assert (values["general.file_type"], values["general.quantization_version"]) == (number, 2)
    assert Plan("it", {"a.b": 1}, []).all_values(quantization) == {"general.architecture": "it", "a.b": 1}
