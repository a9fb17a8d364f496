"""The result of comparing a weight file with its checkpoint: which tensors and keys differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.compare.weights.tensor import WeightDifference
from workbench.core.phrases import counted

MAX_CLAUSES = 4  # differences that the sentence names
_MIN_GROUP = 3  # fewest tensors with one cause that are named together
_MOVES = ("layers", "names")
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")


@dataclass(frozen=True)
class WeightReport:
    """What differs between a weight file and its checkpoint, by more than the rounding of the file's types."""

    file: str
    compared: int  # number of tensors
    tensors: tuple[WeightDifference, ...] = ()  # in the order of the computation
    keys: tuple[str, ...] = ()  # a clause for each key of the metadata that differs

    @property
    def differs(self) -> bool:
        """Whether any tensor or key differs from the checkpoint."""
        return bool(self.tensors or self.keys)

    @property
    def clauses(self) -> list[str]:
        """Everything that differs, tensors of one cause together."""
        return [*self.keys, *_grouped_clauses(self.tensors)]

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        if not self.differs:
            return f"{self.file} has the checkpoint's weights: {counted(self.compared, 'tensor')}, to within rounding."
        if len(self.tensors) > self.compared / 2 and self.compared >= 2 * _MIN_GROUP and not self._is_rearranged:
            return (
                f"{self.file} has other weights than the checkpoint: {len(self.tensors)} of {self.compared} tensors "
                "differ; it may come from another checkpoint."
            )
        clauses = self.clauses
        omitted_count = len(clauses) - MAX_CLAUSES
        listed_clauses = (
            clauses
            if omitted_count <= 0
            else [*clauses[:MAX_CLAUSES], f"and {counted(omitted_count, 'more difference')}"]
        )
        return f"In {self.file}, {'; '.join(listed_clauses)}."

    @property
    def _is_rearranged(self) -> bool:
        """Whether most of the tensors are the checkpoint's, in other places or forms."""
        return sum(each.kind not in ("values", "shape") for each in self.tensors) > len(self.tensors) / 2

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return {**asdict(self), "sentence": self.sentence}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> WeightReport:
        """Returns the report from the values of `to_dict`."""
        tensors = tuple(WeightDifference(**each) for each in fields["tensors"])
        return cls(fields["file"], fields["compared"], tensors, tuple(fields["keys"]))


def _grouped_clauses(differences: Sequence[WeightDifference]) -> list[str]:
    """Returns a clause for each difference; one for two tensors that are exchanged, and for the layers of a group."""
    groups: dict[tuple[str, ...], list[WeightDifference]] = {}
    for each in differences:
        groups.setdefault(_cause(each), []).append(each)
    clauses, exchanged_tensors = [], set[str]()
    held_tensors = {each.tensor: each.other for each in differences if each.other}
    exchanged = set[tuple[str, ...]]()
    for cause, group in groups.items():
        reverse = (cause[0], *cause[:0:-1])
        if len(group) >= _MIN_GROUP:
            if len(groups.get(reverse, ())) == len(group) and cause != reverse and cause[0] in _MOVES:
                exchanged.add(reverse)
                if cause not in exchanged:
                    clauses.append(_of_exchange(cause, group))
            else:
                clauses.append(_of_group(cause, group))
            continue
        for each in group:
            if each.tensor in exchanged_tensors:
                continue
            if each.other and held_tensors.get(each.other) == each.tensor:
                exchanged_tensors.add(each.other)
                clauses.append(f"{each.tensor} and {each.other} are exchanged")
            else:
                clauses.append(f"{each.tensor} {each.sentence}")
    return clauses


def _cause(each: WeightDifference) -> tuple[str, ...]:
    """Returns a key that is the same for all tensors that one mistake has changed."""
    if not each.other:
        return each.kind, _LAYER.sub("N", each.tensor), each.sentence
    layers = [".".join(_LAYER.findall(name)) for name in (each.tensor, each.other)]
    if layers[0] != layers[1] and _LAYER.sub("N", each.tensor) == _LAYER.sub("N", each.other):
        return "layers", *layers
    return "names", _LAYER.sub("N", each.tensor), _LAYER.sub("N", each.other)


def _of_exchange(cause: tuple[str, ...], group: Sequence[WeightDifference]) -> str:
    exchanged = f"layers {cause[1]} and {cause[2]}" if cause[0] == "layers" else f"{cause[1]} and {cause[2]}"
    return f"{exchanged} are exchanged ({group[0].tensor} holds {group[0].other} and {len(group) - 1} more)"


def _of_group(cause: tuple[str, ...], group: Sequence[WeightDifference]) -> str:
    first = group[0]
    if cause[0] == "layers":
        return (
            f"{len(group)} tensors of layer {cause[1]} are those of layer {cause[2]} ({first.tensor} holds "
            f"{first.other}, ...)"
        )
    if cause[0] == "names":
        return f"{len(group)} tensors {cause[1]} are those of the checkpoint's {cause[2]}"
    return f"{len(group)} tensors {cause[1]} differ alike: {first.tensor} {first.sentence}"
