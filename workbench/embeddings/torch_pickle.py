"""Reads the description of tensors in a PyTorch file without unpickling: nothing is imported and nothing is called.

A pickle is a program. This file interprets only the few instructions that describe a dense tensor, or a dict of
tensors; names of functions are plain words here. Any other instruction or name raises `BadInput`. Python's
`pickletools` documents the instructions and splits the bytes into them; `torch/_utils.py` and `torch/serialization.py`
show what PyTorch writes. This file reads no values.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.core.errors import BadInput, message_of

MAX_DESCRIPTION_BYTES = 1_000_000  # bytes of a description; enough for five thousand tensors

TYPES: Mapping[str, int] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""PyTorch's types of elements, and the size of each in bytes."""

_UNTYPED = "UntypedStorage"
_STORAGES = {
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "DoubleStorage": "float64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    _UNTYPED: "uint8",
}
_REBUILD, _REBUILD_TYPED, _PARAMETER = "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_parameter"
_ORDERED = "OrderedDict"
_KNOWN = {
    "torch._utils": {_REBUILD, _REBUILD_TYPED, _PARAMETER},
    "torch": {*_STORAGES, *TYPES},
    "torch.storage": {_UNTYPED},
    "collections": {_ORDERED},
}
_OTHERS = {
    "torch._utils": {
        "_rebuild_sparse_tensor": "a sparse tensor",
        "_rebuild_sparse_csr_tensor": "a sparse tensor",
        "_rebuild_qtensor": "a quantised tensor",
        "_rebuild_nested_tensor": "a nested tensor",
        "_rebuild_meta_tensor_no_storage": "a tensor on the device meta, without values",
        "_rebuild_device_tensor_from_numpy": "a tensor of another device, stored as an array of numpy",
    },
    "torch._tensor": {"_rebuild_from_type_v2": "a tensor of a class of its own, or with attributes"},
    "numpy.core.multiarray": {"_reconstruct": "an array of numpy, which numpy.save writes"},
    "numpy._core.multiarray": {"_reconstruct": "an array of numpy, which numpy.save writes"},
}
"""Functions that this file does not interpret, with a description of what their files hold."""
_EXPECTED = "expected one dense tensor, as torch.save(tensor.detach().cpu(), path) writes it, or a dict of them"


@dataclass(frozen=True)
class DescribedTensor:
    """The position of a tensor's values in a storage: from `offset` on, `strides` apart, counted in elements."""

    dtype: str  # one of `TYPES`
    storage: str  # name of the storage
    storage_bytes: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The index after its last element in the storage."""
        if not math.prod(self.shape):
            return 0
        return self.offset + 1 + sum((side - 1) * stride for side, stride in zip(self.shape, self.strides))


def describe(pickle: bytes, where: str) -> DescribedTensor | dict[Any, Any]:
    """Returns the tensor that a `data.pkl` describes, or the dict of tensors and plain values.

    Raises `BadInput` for anything else, and names it.
    """
    if len(pickle) > MAX_DESCRIPTION_BYTES:
        raise BadInput(
            f"{where} describes its tensors in {len(pickle)} bytes, more than {MAX_DESCRIPTION_BYTES}; {_EXPECTED}"
        )
    found = _Interpreter(where).run(pickle)
    if isinstance(found, DescribedTensor | dict):
        return found
    raise BadInput(f"{where} holds {_kind(found)}; {_EXPECTED}")


@dataclass(frozen=True)
class _Word:
    """A name that the pickle would look up."""

    module: str
    name: str


@dataclass(frozen=True)
class _Storage:
    name: str
    dtype: str
    bytes: int


class _Damaged(Exception):
    """The error for instructions that do not fit each other."""


class _Interpreter:
    """An interpreter of the pickle instructions that tensors need."""

    def __init__(self, where: str):
        self.where = where
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stack below each mark
        self.memo: dict[int, Any] = {}

    def run(self, pickle: bytes) -> Any:
        """Returns the value of the pickle: tensors, dicts, lists, tuples and plain values."""
        try:
            for instruction, argument, _ in pickletools.genops(pickle):
                if instruction.name == "STOP":
                    break
                self.follow(instruction.name, argument)
            [found] = self.stack
            if self.below:
                raise _Damaged
        except BadInput:
            raise
        except (_Damaged, IndexError, KeyError, ValueError) as error:  # from the stack, the memo, or pickletools
            detail = f": {message_of(error, 120)}" if type(error) is ValueError else ""
            raise BadInput(f"the description of tensors in {self.where} is damaged{detail}; {_EXPECTED}") from error
        return found

    def follow(self, name: str, argument: Any) -> None:
        """Executes one instruction on the stack."""
        match name:
            case "BINUNICODE" | "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT":
                if isinstance(argument, int) and argument.bit_length() > 63:
                    raise _Damaged
                self.stack.append(argument)
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self.stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[name])
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "MARK":
                self.below.append(self.stack)
                self.stack = []
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = 0 if name == "EMPTY_TUPLE" else int(name[-1])
                items = [self.stack.pop() for _ in range(count)]
                self.stack.append(tuple(reversed(items)))
            case "TUPLE":
                found = self.marked()
                self.stack.append(tuple(found))
            case "EMPTY_LIST" | "EMPTY_DICT":
                self.stack.append([] if name == "EMPTY_LIST" else {})
            case "APPEND" | "APPENDS":
                items = [self.stack.pop()] if name == "APPEND" else self.marked()
                self.top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = [self.stack.pop(-2), self.stack.pop()] if name == "SETITEM" else self.marked()
                self.put(items)
            case "GLOBAL":
                self.stack.append(self.word(argument))
            case "BINPERSID":
                self.stack.append(self.storage(self.stack.pop()))
            case "REDUCE":
                arguments, function = self.stack.pop(), self.stack.pop()
                self.stack.append(self.rebuild(function, arguments))
            case "BUILD":  # the versions of modules in a state dict
                self.stack.pop()
                self.top(dict)
            case "PROTO":
                if argument != 2:
                    raise BadInput(
                        f"{self.where} is written with pickle protocol {argument}; expected torch.save's own, 2"
                    )
            case _:
                raise BadInput(f"{self.where} has the pickle instruction {name}, which no tensor needs; {_EXPECTED}")

    def marked(self) -> list[Any]:
        """Returns the items above the last mark, and removes them with the mark."""
        found, self.stack = self.stack, self.below.pop()
        return found

    def top(self, kind: type) -> Any:
        """Returns the top of the stack, which must be of a kind."""
        if type(self.stack[-1]) is not kind:
            raise _Damaged
        return self.stack[-1]

    def put(self, items: list[Any]) -> None:
        """Puts keys and values into the dict on top of the stack."""
        keys = items[::2]
        # No tuples: a nested tuple that holds the same tuple twice at each level takes exponential time to hash.
        if len(items) % 2 or not all(type(key) in (str, int) for key in keys):
            raise BadInput(f"{self.where} has a dict whose keys are not all texts or numbers; {_EXPECTED}")
        self.top(dict).update(zip(keys, items[1::2]))

    def word(self, argument: str) -> _Word:
        """Returns a name, which must be one that describes tensors."""
        module, _, name = argument.partition(" ")
        if description := _OTHERS.get(module, {}).get(name):
            raise BadInput(f"{self.where} holds {description}; {_EXPECTED}")
        if name not in _KNOWN.get(module, ()):
            full_name = f"{module}.{name}"
            full_name = full_name if full_name.isprintable() and len(full_name) <= 100 else f"{full_name[:80]!r}"
            raise BadInput(
                f"{self.where} asks for {full_name}, which is code, not a tensor, and was not run; {_EXPECTED}"
            )
        return _Word(module, name)

    def storage(self, identity: Any) -> _Storage:
        """Returns the storage of a persistent id: ("storage", its type, its name, its device, its elements)."""
        match identity:
            case ("storage", _Word(name=kind), str(name), str(), int(count)) if kind in _STORAGES and count >= 0:
                return _Storage(name, _STORAGES[kind], count * TYPES[_STORAGES[kind]])
        raise _Damaged

    def rebuild(self, function: Any, arguments: Any) -> Any:
        """Returns what a function of PyTorch would have returned."""
        match function, arguments:
            case _Word(name="OrderedDict"), ():
                return {}
            case _Word(name="_rebuild_parameter"), (DescribedTensor() as tensor, bool(), dict()):
                return tensor
            case _Word(name="_rebuild_tensor_v2"), (_Storage() as storage, *place, bool(), dict() as hooks):
                return self.tensor(storage, storage.dtype, place, hooks, {})
            case _Word(name="_rebuild_tensor_v2"), (
                _Storage() as storage,
                *place,
                bool(),
                dict() as hooks,
                dict() as bits,
            ):
                return self.tensor(storage, storage.dtype, place, hooks, bits)
            case _Word(name="_rebuild_tensor_v3"), (
                _Storage() as storage,
                *place,
                bool(),
                dict() as hooks,
                _Word(name=dtype),
            ) if dtype in TYPES:
                return self.tensor(storage, dtype, place, hooks, {})
        raise _Damaged

    def tensor(self, storage: _Storage, dtype: str, place: list[Any], hooks: Any, bits: Any) -> DescribedTensor:
        """Returns a tensor by its offset, shape and strides."""
        if any(bits.values()):
            raise BadInput(f"{self.where} holds a tensor that PyTorch negates or conjugates on reading; {_EXPECTED}")
        match place:
            case (int(offset), tuple(shape), tuple(strides)) if not hooks and len(shape) == len(strides):
                if all(type(each) is int and each >= 0 for each in (offset, *shape, *strides)):
                    return DescribedTensor(dtype, storage.name, storage.bytes, offset, shape, strides)
        raise _Damaged


def _kind(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "nothing" if value is None else "a storage" if isinstance(value, _Storage) else f"a {type(value).__name__}"
