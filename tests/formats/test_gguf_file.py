"""An opened GGUF file: getters, shapes, rows and stated quantisation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from tests.support.gguf_parts import by_hand, tensor, write
from workbench.core.errors import BadInput
from workbench.formats.gguf_file import GgufFile, read_gguf


@pytest.fixture
def typed_file(tmp_path: Path) -> GgufFile:
    def fill(writer: GGUFWriter) -> None:
        writer.add_uint32("whole", 7)
        writer.add_float32("float", 0.25)
        writer.add_bool("flag", True)
        writer.add_string("text", "it")
        writer.add_string("long", "y" * 9000)
        writer.add_array("texts", ["a"])
        writer.add_array("numbers", [1, 2])
        writer.add_float32("nan", float("nan"))

    return read_gguf(write(tmp_path / "it.gguf", fill))


def test_metadata_getters_return_values_and_defaults(typed_file: GgufFile) -> None:
    assert (typed_file.architecture, typed_file.whole("whole"), typed_file.number("float")) == (
        "sensevoice-small",
        7,
        0.25,
    )
    assert (typed_file.number("whole"), typed_file.flag("flag"), typed_file.text("text")) == (7.0, True, "it")
    assert typed_file.text("long") == "y" * 9000
    assert (
        typed_file.whole("no", 3),
        typed_file.number("no", 0.5),
        typed_file.flag("no", False),
        typed_file.text("no", "x"),
    ) == (
        3,
        0.5,
        False,
        "x",
    )
    assert typed_file.texts("no") is None and typed_file.numbers("no") is None and typed_file.length("no") is None


@pytest.mark.parametrize(
    ("read_value", "reason"),
    [
        (lambda file: file.whole("no"), "it.gguf has no metadata key no"),
        (lambda file: file.whole("float"), "float in it.gguf is 0.25; expected a whole number from 0 to"),
        (lambda file: file.whole("flag"), "flag in it.gguf is True; expected a whole number"),
        (lambda file: file.whole("whole", maximum=6), "whole in it.gguf is 7; expected a whole number from 0 to 6"),
        (lambda file: file.whole("texts"), "texts in it.gguf is an array of 1"),
        (lambda file: file.number("nan"), "nan in it.gguf is nan; expected a number"),
        (lambda file: file.number("text"), "text in it.gguf is 'it'; expected a number"),
        (lambda file: file.flag("whole"), "whole in it.gguf is 7; expected true or false"),
        (lambda file: file.text("whole"), "whole in it.gguf is 7; expected a text"),
        (lambda file: file.text("texts"), "texts in it.gguf is an array of 1; expected a text"),
        (lambda file: file.texts("numbers"), "numbers in it.gguf is an array of 2; expected an array of texts"),
        (lambda file: file.texts("long"), "long in it.gguf is a long text; expected an array of texts"),
        (lambda file: file.numbers("whole"), "whole in it.gguf is 7; expected an array of numbers"),
    ],
)
def test_metadata_getters_refuse_values_of_another_type(
    typed_file: GgufFile, read_value: Callable[[GgufFile], Any], reason: str
) -> None:
    with pytest.raises(BadInput, match=reason):
        read_value(typed_file)


def test_missing_rows_and_tensors_are_refused(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("w", np.ones((4, 2), np.float32))
        writer.add_tensor("v", np.ones(4, np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert file.rows("w", []).shape == (0, 2)
    for number in (-1, 4):
        with pytest.raises(BadInput, match=f"tensor w in it.gguf has no row {number}; it has 4 rows"):
            file.rows("w", [0, number])
    with pytest.raises(BadInput, match=r"tensor v in it.gguf has the shape \(4,\); expected a matrix"):
        file.rows("v", [0])
    with pytest.raises(BadInput, match=r"it.gguf has no tensor u"):
        file.array("u")


def test_expect_checks_tensor_presence_and_shape(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("w", np.ones((4, 2), np.float32))
        writer.add_tensor("row", np.ones(4, np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert file.expect("w", (4, 2)) is file.tensors["w"]
    assert file.expect("row", (1, 4)).shape == (4,)  # a file that ggml wrote has no leading ones
    with pytest.raises(BadInput, match=r"tensor w in it.gguf has the shape \(4, 2\); expected \(2, 4\)"):
        file.expect("w", (2, 4))
    with pytest.raises(BadInput, match=r"it.gguf has no tensor v; expected one of shape \(3,\)"):
        file.expect("v", [3])


def test_quantisation_is_the_stated_one_or_that_of_most_matrices(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_tensor("norm", np.ones(4000, np.float32))
        writer.add_tensor("w", np.ones((40, 20), np.float16))
        writer.add_tensor("u", np.ones((4, 2), np.float32))

    def quantization_where_stated(name: str) -> str:
        def write_file_type(writer: GGUFWriter) -> None:
            fill(writer)
            writer.add_string("workbench.quantization", name)

        return read_gguf(write(tmp_path / "it.gguf", write_file_type)).quantization

    assert read_gguf(write(tmp_path / "it.gguf", fill)).quantization == "f16"
    assert quantization_where_stated("q4_0") == "q4_0"
    assert quantization_where_stated("f32") == "f16", "another program has changed the type"
    assert quantization_where_stated("int4") == "f16"
    assert read_gguf(write(tmp_path / "it.gguf")).quantization == "f32"


def test_another_alignment_is_respected(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_custom_alignment(256)
        writer.add_tensor("a", np.arange(3, dtype=np.float32))
        writer.add_tensor("b", np.arange(5, dtype=np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    assert all(info.offset % 256 == 0 for info in file.tensors.values())
    assert file.array("b").tolist() == [0, 1, 2, 3, 4]


def test_version_2_is_read(tmp_path: Path) -> None:
    file = read_gguf(by_hand(tmp_path / "it.gguf", tensors=[tensor()], head=b"GGUF\x02\0\0\0"))
    assert (file.architecture, file.array("w").shape) == ("it", (2, 4))


def test_weights_cannot_be_written_to(tmp_path: Path) -> None:
    file = read_gguf(write(tmp_path / "it.gguf", lambda writer: writer.add_tensor("w", np.ones((4, 2), np.float32))))
    for values in (file.raw("w"), file.array("w")):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 0


def test_gguf_file_changed_since_opening_is_refused(tmp_path: Path) -> None:
    def fill(writer: GGUFWriter) -> None:
        writer.add_array("texts", ["a", "b"])
        writer.add_tensor("w", np.ones((4, 2), np.float32))

    file = read_gguf(write(tmp_path / "it.gguf", fill))
    file.path.write_bytes(file.path.read_bytes()[:-8])
    with pytest.raises(BadInput, match="has been written to since it was opened"):
        file.texts("texts")
    with pytest.raises(BadInput, match="has been written to since it was opened"):
        file.array("w")
    file.path.unlink()
    with pytest.raises(BadInput, match=r"the GGUF file it.gguf cannot be read: No such file"):
        file.texts("texts")


def test_released_memory_range_can_be_read_again(tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal((300, 64)).astype(np.float32)
    writer = GGUFWriter(str(tmp_path / "it.gguf"), "test")
    writer.add_tensor("m", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = read_gguf(tmp_path / "it.gguf")
    array = file.array("m")
    for offset, nbytes in ((file.tensors["m"].offset, file.tensors["m"].nbytes), (0, 10), (0, file.nbytes)):
        file.let_go(offset, nbytes)
        np.testing.assert_array_equal(array, values)
