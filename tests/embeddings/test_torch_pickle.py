"""The pickled tensor description is parsed and never executed: hostile pickles raise one-line errors."""

from __future__ import annotations

import contextlib
import io
import pickle
import pickletools
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.embeddings.files import Trap, assert_refused, pt, pt_with_description
from workbench.core.errors import BadInput
from workbench.embeddings.torch_pickle import MAX_DESCRIPTION_BYTES, DescribedTensor, describe

DAMAGED = "the description of tensors in the embedding is damaged"


class Storage:
    """Pickled by a persistent identity, as a storage is."""

    def __init__(self, *identity: Any):
        self.identity = identity


class PickledCall:
    """Pickled as the call of a function."""

    def __init__(self, function: Any, *arguments: Any):
        self.call = function, arguments

    def __reduce__(self) -> tuple:
        return self.call


class Writer(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.identity if isinstance(value, Storage) else None


def pickle_of(value: Any) -> bytes:
    file = io.BytesIO()
    Writer(file, protocol=2).dump(value)
    return file.getvalue()


FLOATS = Storage("storage", torch.FloatStorage, "0", "cpu", 6)
REBUILD = torch._utils._rebuild_tensor_v2


def tensor(
    storage: Any = FLOATS, offset: Any = 0, shape: Any = (2, 3), strides: Any = (3, 1), *arguments: Any
) -> PickledCall:
    return PickledCall(REBUILD, storage, offset, shape, strides, *(arguments or (False, OrderedDict())))


def test_tensor_pickle_is_parsed_to_a_description() -> None:
    assert describe(pickle_of(tensor()), "x") == DescribedTensor("float32", "0", 24, 0, (2, 3), (3, 1))
    description = describe(pickle_of({"a": tensor(offset=1, shape=(5,), strides=(1,)), 3: "text"}), "x")
    assert (
        isinstance(description, dict)
        and list(description) == ["a", 3]
        and description["a"].end == 6
        and description[3] == "text"
    )


@pytest.mark.parametrize(
    "call",
    [
        tensor(storage="0"),
        tensor(storage=Storage("storage", torch.FloatStorage, 0, "cpu", 6)),
        tensor(storage=Storage("storage", torch.FloatStorage, "0", "cpu", -6)),
        tensor(storage=Storage("module", torch.FloatStorage, "0", "cpu", 6)),
        tensor(storage=Storage("storage", torch.float16, "0", "cpu", 6)),
        tensor(storage=Storage("storage", "FloatStorage", "0", "cpu", 6)),
        tensor(offset=-1),
        tensor(offset=1 << 70),
        tensor(offset=None),
        tensor(shape=(2, -3)),
        tensor(shape=(2, 3.0)),
        tensor(shape=(True, 3)),
        tensor(shape=(2, 3, 1)),
        tensor(shape=3),
        tensor(strides=(-3, 1)),
        tensor(strides=("3", 1)),
        PickledCall(REBUILD, FLOATS, 0, (2, 3), (3, 1), False, OrderedDict(a=1)),
        PickledCall(REBUILD, FLOATS, 0, (2, 3), (3, 1), 0, OrderedDict()),
        PickledCall(REBUILD, FLOATS, 0, (2, 3), (3, 1), False),
        PickledCall(REBUILD, FLOATS),
        PickledCall(REBUILD),
        PickledCall(torch._utils._rebuild_parameter, "tensor", False, OrderedDict()),
        PickledCall(
            torch._utils._rebuild_tensor_v3, FLOATS, 0, (2, 3), (3, 1), False, OrderedDict(), torch.FloatStorage
        ),
        PickledCall(OrderedDict, [("a", 1)]),
        PickledCall(torch.FloatStorage, 3),
    ],
)
def test_pickle_calls_that_build_no_tensor_are_refused(call: PickledCall) -> None:
    assert_refused(pt_with_description(pickle_of(call)), DAMAGED)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (tensor(offset=1), "ends at byte 28 of its storage, which has 24: shape (2, 3), strides (3, 1), offset 1"),
        (tensor(shape=(2, 4)), "ends at byte 28 of its storage"),
        (tensor(strides=(3, 2)), "ends at byte 32 of its storage"),
        (tensor(strides=(1 << 62, 1)), "of its storage, which has 24"),
        (tensor(shape=(1 << 40, 3)), "of its storage, which has 24"),
        (tensor(shape=(1 << 25, 1 << 25), strides=(0, 0)), "expected at most 256 MB"),
        (tensor(offset=1 << 62), "of its storage, which has 24"),
        (tensor(storage=Storage("storage", torch.FloatStorage, "0", "cpu", 7)), "has its values in 28 bytes, and"),
        (tensor(storage=Storage("storage", torch.FloatStorage, "../up", "cpu", 6)), "has its values in 'x/data/../up'"),
        (tensor(FLOATS, 0, (2, 3), (3, 1), False, OrderedDict(), {"neg": True}), "that PyTorch negates or conjugates"),
    ],
)
def test_tensor_positions_outside_the_storage_are_refused(call: PickledCall, message: str) -> None:
    assert_refused(pt_with_description(pickle_of(call)), message)


def test_stride_of_a_dimension_of_size_one_is_ignored() -> None:
    description = describe(pickle_of(tensor(shape=(1, 3), strides=(1 << 62, 1))), "x")
    assert isinstance(description, DescribedTensor) and description.end == 3


CODE = "which is code, not a tensor, and was not run; expected one dense tensor"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("position", ["alone", "in a dict", "as an argument", "as a key"])
def test_pickled_code_is_not_executed(tmp_path: Path, protocol: int, position: str) -> None:
    trap = Trap(tmp_path / "made")
    value = {
        "alone": trap,
        "in a dict": {"a": 1, "b": trap},
        "as an argument": PickledCall(dict, trap),
        "as a key": {trap: 1},
    }
    content = pickle.dumps(value[position], protocol)
    sentence = assert_refused(pt_with_description(content), "expected")
    if protocol == 2 and position in ("alone", "in a dict"):
        assert f"asks for posix.mkdir, {CODE}" in sentence
    assert not (tmp_path / "made").exists()
    with contextlib.suppress(Exception):
        pickle.loads(content)
    assert (tmp_path / "made").exists()  # unpickling runs the code


def test_pickled_code_beside_a_tensor_is_not_executed(tmp_path: Path) -> None:
    content = pt({"a": torch.ones(2, 3), "b": Trap(tmp_path / "made")})
    assert_refused(content, f"the embedding asks for posix.mkdir, {CODE}", tensor="a")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"\x80\x02cos\nsystem\n.", f"asks for os.system, {CODE}"),
        (b"\x80\x02c__builtin__\neval\n.", f"asks for __builtin__.eval, {CODE}"),
        (b"\x80\x02ctorch\nload\n.", f"asks for torch.load, {CODE}"),
        (
            b"\x80\x02ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
            "asks for torch._utils._rebuild_tensor_v2.__glob",
        ),
        (b"\x80\x02ccollections\nOrderedDict.__init__\n.", "asks for collections.OrderedDict.__init__"),
        (b"\x80\x02c" + b"a" * 5000 + b"\nb\n.", "asks for 'aaaaaa"),
        (b"\x80\x02c\x1b[31m\nb\n.", "asks for '\\x1b[31m.b', which is code"),
        (b"\x80\x02(ios\nsystem\n.", "has the pickle instruction INST, which no tensor needs"),
        (b"\x80\x02(o.", "has the pickle instruction OBJ, which no tensor needs"),
        (b"\x80\x02)\x81.", "has the pickle instruction NEWOBJ, which no tensor needs"),
        (b"\x80\x02\x82\x01.", "has the pickle instruction EXT1, which no tensor needs"),
        (b"\x80\x02P1\n.", "has the pickle instruction PERSID, which no tensor needs"),
        (
            b"\x80\x02\x8c\x02os\x8c\x06system\x93.",
            "has the pickle instruction SHORT_BINUNICODE, which no tensor needs",
        ),
        (b"\x80\x04.", "is written with pickle protocol 4; expected torch.save's own, 2"),
        (b"", DAMAGED),
        (b".", DAMAGED),
        (b"\x80\x02NN.", DAMAGED),
        (b"\x80\x02(N.", DAMAGED),
        (b"\x80\x02t.", DAMAGED),
        (b"\x80\x02h\x05.", DAMAGED),
        (b"\x80\x02q\x05.", DAMAGED),
        (b"\x80\x02NX\x00\x00\x00\x00Ns.", DAMAGED),
        (b"\x80\x02Na.", DAMAGED),
        (b"\x80\x02}(Nu.", "has a dict whose keys are not all texts or numbers"),
        (b"\x80\x02}NNs.", "has a dict whose keys are not all texts or numbers"),
        (b"\x80\x02NR.", DAMAGED),
        (b"\x80\x02NNR.", DAMAGED),
        (b"\x80\x02NNb.", DAMAGED),
        (b"\x80\x02NQ.", DAMAGED),
        (b"\x80\x02\xff.", DAMAGED),
        (b"\x80\x02X\xff\xff\xff\x7fabc.", DAMAGED),
        (b"\x80\x02X\x01\x00\x00\x00\xff.", DAMAGED),
        (b"\x80\x02\x8a\xff" + b"\x7f" * 255 + b".", DAMAGED),
        (b"\x80\x02I" + b"9" * 100_000 + b"\n.", DAMAGED),
        (b"\x80\x02]q\x00h\x00a.", "holds a list of 1; expected one dense tensor"),
    ],
)
def test_unsupported_pickle_opcodes_are_refused(code: bytes, message: str) -> None:
    assert_refused(pt_with_description(code), message)


def test_deeply_nested_tuples_are_refused_quickly() -> None:
    """Each tuple has the previous one twice, so that its hash or repr would take 2^200 steps."""
    tower = b"\x80\x02)" + b"q\x00h\x00\x86" * 200
    assert_refused(pt_with_description(tower + b"."), "holds a tuple of 2; expected")
    assert_refused(
        pt_with_description(b"\x80\x02}" + tower[2:] + b"Ns."), "has a dict whose keys are not all texts or numbers"
    )
    assert_refused(pt_with_description(b"\x80\x02}" + tower[2:] + b"R."), DAMAGED)
    assert_refused(
        pt_with_description(b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."), "holds a tuple of 1; expected"
    )
    assert sys.getrecursionlimit() < 100_000


def test_shape_with_very_many_dimensions_is_refused_quickly() -> None:
    sides = (1 << 62,) * 90_000  # their product takes a minute
    assert_refused(
        pt_with_description(pickle_of(tensor(shape=sides, strides=sides))), "claims a shape of 90000 axes; expected at"
    )


def test_too_long_tensor_description_is_refused() -> None:
    assert_refused(
        pt_with_description(b"\x80\x02" + b"N0" * MAX_DESCRIPTION_BYTES),
        f"describes its tensors in {MAX_DESCRIPTION_BYTES + 1} bytes, more than {MAX_DESCRIPTION_BYTES}",
    )


CODES = [code.code.encode("latin1") for code in pickletools.opcodes]
USED = [
    *(bytes([code]) for code in b"}])(Nsutabe.RQ\x85\x86\x87\x88"),
    *(b"K\x01", b"q\x00", b"h\x00", b"X\x01\x00\x00\x00a", b"X\x07\x00\x00\x00storage"),
    *(b"ccollections\nOrderedDict\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n"),
]


@settings(max_examples=500)
@given(
    st.lists(
        st.one_of(st.sampled_from(USED), st.sampled_from(USED), st.sampled_from(CODES), st.binary(max_size=3)),
        max_size=30,
    )
)
def test_random_pickle_program_is_parsed_or_refused(parts: list[bytes]) -> None:
    with contextlib.suppress(BadInput):  # any other error fails the test
        describe(b"\x80\x02" + b"".join(parts) + b".", "x")


@given(st.data())
def test_randomly_changed_description_is_parsed_or_refused(data: st.DataObject) -> None:
    content = bytearray(pickle_of({"a": tensor(), "b": [1, (2, None)]}))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadInput):
        describe(bytes(content), "x")
