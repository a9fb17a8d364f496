"""A trace: the arrays of one computation by stage, with who computed them; and which stages are wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from workbench.core.errors import BadInput


class Trace(Mapping[str, np.ndarray]):
    """An ordered mapping from stage name to array, with who computed it.

    `meta` holds plain JSON values: model, runtime, dtype, versions, the options, the input's digest. The stage
    `text` is a zero-dimensional string array; in a file it is UTF-8 bytes.
    """

    def __init__(self, stages: Mapping[str, np.ndarray], meta: Mapping[str, Any]):
        self._stages = dict(stages)
        self.meta = dict(meta)

    def __getitem__(self, stage: str) -> np.ndarray:
        try:
            return self._stages[stage]
        except KeyError:
            raise KeyError(f"no stage {stage!r} in this trace; it has {', '.join(self._stages)}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._stages)

    def __len__(self) -> int:
        return len(self._stages)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {'×'.join(map(str, array.shape)) or 'scalar'}" for name, array in self.items())
        return f"Trace({self.meta.get('model')}, {self.meta.get('runtime')}: {shapes})"

    def save(self, path: str | Path) -> Path:
        """Writes a `.safetensors` file: the arrays, and `meta` and the order of the stages as JSON metadata.

        One array is in memory at a time, where they are in a file. Raises `BadInput` where the path cannot be written
        or the format has no place for an array.
        """
        from workbench.trace.write import write_trace

        return write_trace(path, self, self.meta)

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads a `.safetensors` trace, also one that another program wrote without our metadata.

        Numbers of type bfloat16, which numpy does not have, come as float32. Raises `BadInput` if the file is missing,
        truncated or no safetensors file, or if its metadata is damaged.
        """
        from safetensors import SafetensorError, safe_open

        path = Path(path)
        if not path.is_file():
            raise BadInput(f"there is no trace file {path}")
        try:
            with safe_open(str(path), framework="numpy") as file:
                header = file.metadata() or {}
                held = list(file.keys())
                brain = {name for name in held if file.get_slice(name).get_dtype() == "BF16"}
                stages = {name: file.get_tensor(name) for name in held if name not in brain}
            if brain:
                stages |= _brain_floats(path, brain)
        except (SafetensorError, OSError, TypeError, AttributeError) as error:  # the last two: a type numpy has not
            raise BadInput(f"{path.name} is not a readable safetensors trace: {error}") from error
        order = _metadata(path, header, "stages", list)
        strings = _metadata(path, header, "strings", list)
        meta = _metadata(path, header, "meta", dict)
        for name in stages.keys() & {name for name in strings if isinstance(name, str)}:
            stages[name] = np.array(stages[name].astype(np.uint8).tobytes().decode("utf-8", "replace"))
        named = [name for name in order if isinstance(name, str) and name in stages]
        return cls({name: stages[name] for name in (*named, *sorted(stages))}, meta)


Json = TypeVar("Json", list[Any], dict[str, Any])


def _metadata(path: Path, header: Mapping[str, str], key: str, kind: type[Json]) -> Json:
    """The JSON value that a trace's metadata has under a key; empty where another program wrote none."""
    try:
        value = json.loads(header.get(key) or "null")
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the metadata {key} of {path.name} is not JSON: {error}") from error
    if value is None:
        return kind()
    if not isinstance(value, kind):
        expected = "an object" if kind is dict else "a list"
        raise BadInput(f"the metadata {key} of {path.name} is a JSON {type(value).__name__}; expected {expected}")
    return value


def _brain_floats(path: Path, names: set[str]) -> dict[str, np.ndarray]:
    """The named bfloat16 tensors as float32: the upper half of its bits."""
    from safetensors import deserialize

    found = {name: tensor for name, tensor in deserialize(path.read_bytes()) if name in names}
    return {
        name: (np.frombuffer(tensor["data"], dtype="<u2").astype(np.uint32) << 16)
        .view(np.float32)
        .reshape(tensor["shape"])
        for name, tensor in found.items()
    }


class StageFilter:
    """Which stages a trace keeps: a glob such as `encoder.*`, several separated by commas, or `*` for all."""

    def __init__(self, pattern: str = "*"):
        self.patterns = tuple(part.strip() for part in pattern.split(",") if part.strip())
        if not self.patterns:
            raise BadInput("the stage pattern is empty; expected a glob such as encoder.* or *")

    def __call__(self, stage: str) -> bool:
        return any(fnmatchcase(stage, pattern) for pattern in self.patterns)


Given = Trace | str | Path | None
"""What a trace is computed from in place of its own stages: a trace, or the path of one."""


Out = str | Path | None
"""The file that a trace is written to; none where it is only returned."""
