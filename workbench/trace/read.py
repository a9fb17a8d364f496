"""Reads traces, ours and those of other programs: `.safetensors`, `.npz`, a directory or `.zip` of `.npy` files.

A trace leaves its arrays in the file until they are used, so a comparison of two traces needs the memory of one stage.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.paths import checked_path
from workbench.trace.cuts import KEY
from workbench.trace.formats import Stored, open_stored
from workbench.trace.mapping import Mapped, StageMapping
from workbench.trace.order import GROUPS, are_known, computation_order
from workbench.trace.trace import Trace


class StoredTrace(Trace):
    """A trace whose arrays are read from a file on each access; a pickle has its path and metadata."""

    def __init__(
        self,
        stored: Stored,
        stages: Mapping[str, Mapped],
        meta: Mapping[str, Any],
        has_lost_order: bool,
        read_from: tuple[Any, ...],
    ):
        super().__init__({}, meta)
        self._has_lost_order = has_lost_order
        self._stored = stored
        self._mapped = dict(stages)
        self._arguments = read_from  # arguments of `read_trace`

    @property
    def label(self) -> str:
        """The name of the trace's file."""
        path: Path = self._arguments[0]
        return path.name

    @property
    def has_lost_order(self) -> bool:
        return self._has_lost_order

    def __getitem__(self, stage: str) -> np.ndarray:
        try:
            mapped = self._mapped[stage]
        except KeyError:
            raise KeyError(f"no stage {stage!r} in this trace; it has {', '.join(self._mapped)}") from None
        array = self._stored.arrays[mapped.source]()
        if mapped.source in self._stored.texts:
            return np.array(array.astype(np.uint8).tobytes().decode("utf-8", "replace"))
        return array if mapped.rule is None else mapped.rule.apply(array, mapped.step, mapped.beam)

    def __contains__(self, stage: object) -> bool:
        return stage in self._mapped

    def __iter__(self) -> Iterator[str]:
        return iter(self._mapped)

    def __len__(self) -> int:
        return len(self._mapped)

    def __reduce__(self) -> tuple[Any, ...]:
        return read_trace, self._arguments, {"meta": self.meta}


def read_trace(path: str | Path, mapping: StageMapping | None = None, otherwise: str = "") -> Trace:
    """Returns the trace in a `.safetensors` or `.npz` file, or a directory or `.zip` of `.npy` files.

    In a directory, folders are parts of names: `encoder/layers.0.npy` is `encoder.layers.0`. So are slashes in the
    names of arrays, without a mapping. Metadata are in `meta.json` there, and a mapping adds its own. If another
    program's metadata do not state its arithmetic, arrays stored in half precision state it. Stages come in the
    recorded order if we wrote the trace, else in the order that their names tell; if most names are another program's,
    in the order of an `.npz` file. Raises `BadInput` if a file is missing, damaged, or not what it claims to be;
    reading a stage later raises it too.

    Args:
        otherwise: the suffix to assume for any other file name; by default such a file is refused.
    """
    stored = open_stored(checked_path(path, "the trace"), otherwise)
    names = list(stored.arrays)
    mapped = (
        mapping.stages(names, lambda name: stored.arrays[name]())
        if mapping
        else [Mapped(stage, name, None) for name, stage in _stage_names(names).items()]
    )
    stages = {each.stage: each for each in mapped}
    recorded = [name for name in stored.order if name in stages]
    unrecorded = [name for name in stages if name not in set(recorded)]
    is_known = are_known(stages)
    if is_known or not stored.is_sequence:
        unrecorded = computation_order(unrecorded)
    meta = {**stored.meta, **(mapping.meta if mapping else {})}
    cuts = {each.stage: each.rule.cut.to_dict() for each in mapped if each.rule and each.rule.cut}
    meta |= {KEY: cuts} if cuts else {}
    if not stored.order and not any(meta.get(key) for key in ("dtype", "quantization")):
        halves = [kind for kind in ("bfloat16", "float16") if kind in stored.types]
        meta |= {"dtype": halves[0]} if halves else {}
    has_lost_order = not (recorded or is_known or stored.is_sequence)
    return StoredTrace(
        stored,
        {name: stages[name] for name in (*recorded, *unrecorded)},
        meta,
        has_lost_order,
        (Path(path).absolute(), mapping, otherwise),
    )


def _stage_names(names: Sequence[str]) -> dict[str, str]:
    """Returns the stage of each array.

    Like folders, slashes are parts of names, as in `encoder/layers/0`. A number in front that counts the arrays is
    left out, as in `007_encoder.layers.0`. A name stays as it is if two arrays would be one stage.
    """
    plain_names = {name: _plain_name(name) for name in names}
    counts = Counter(plain_names.values())
    return {name: plain if counts[plain] == 1 else name for name, plain in plain_names.items()}


def _plain_name(name: str) -> str:
    dotted = name.replace("/", ".").lstrip(".")
    if (numbered := _NUMBERED.fullmatch(dotted)) and are_known([numbered[1]]):
        return numbered[1]
    is_ours = dotted.partition(".")[0] in (*GROUPS, "steps") or are_known([dotted])
    return dotted if is_ours else name


_NUMBERED = re.compile(r"[0-9]{1,6}[._ -]+(.+)", re.DOTALL)
