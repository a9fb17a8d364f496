"""Reads structs in the compact protocol of Thrift, in which Parquet files describe themselves."""

from __future__ import annotations

from typing import Any, BinaryIO

MAX_STRUCT_BYTES = 1 << 24  # bytes of a struct
MAX_VALUES = 1 << 21  # in a struct
DEEPEST = 32  # structs and lists inside each other
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
Struct = dict[int, Any]
"""The values of a struct by the numbers of its fields: `int`, `bool`, `bytes`, lists of these, and structs."""


class ThriftReader:
    """Reads structs from where a file stands; raises `ValueError` for what is none, and for one that is too large."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.length = 0  # bytes that were read
        self._values = 0

    def read_struct(self, depth: int = 0) -> Struct:
        """Returns the values of a struct; the fields of maps are left out."""
        if depth > DEEPEST:
            raise ValueError("a struct is nested too deeply")
        fields: Struct = {}
        name = 0
        while (head := self._take(1)[0]) & 0x0F:
            step, kind = head >> 4, head & 0x0F
            name = name + step if step else self._signed()
            fields[name] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"a struct has more than {MAX_VALUES} values")
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _BINARY:
            return self._take(self._number())
        if kind == _STRUCT:
            return self.read_struct(depth)
        if kind in (_LIST, _SET):
            head = self._take(1)[0]
            count = head >> 4
            if depth > DEEPEST:
                raise ValueError("a list is nested too deeply")
            return [self._value(head & 0x0F, depth + 1) for _ in range(self._number() if count == 15 else count)]
        if kind in (_TRUE, _FALSE, _BYTE):  # inside a list, also a truth takes a byte
            return self._take(1)[0]
        if kind == _DOUBLE:
            return self._take(8)
        if kind == _MAP:
            return self._skip_map(depth)
        raise ValueError(f"a field has the type {kind}, which is not known")

    def _skip_map(self, depth: int) -> None:
        if count := self._number():
            kinds = self._take(1)[0]
            if depth > DEEPEST:
                raise ValueError("a map is nested too deeply")
            for _ in range(count):
                self._value(kinds >> 4, depth + 1)
                self._value(kinds & 0x0F, depth + 1)

    def _take(self, count: int) -> bytes:
        self.length += count
        if self.length > MAX_STRUCT_BYTES:
            raise ValueError(f"a struct is longer than {MAX_STRUCT_BYTES} bytes")
        found = self._file.read(count)
        if len(found) < count:
            raise ValueError("it ends inside a struct")
        return found

    def _number(self) -> int:
        """Returns a whole number without a sign: seven bits in each byte, the lowest first."""
        number = 0
        for shift in range(0, 70, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return number
        raise ValueError("a number is too long")

    def _signed(self) -> int:
        number = self._number()
        return (number >> 1) ^ -(number & 1)
