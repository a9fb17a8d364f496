"""Maps names and layouts of another program's arrays to ours, by a small TOML or JSON file.

    [meta]                              # metadata that the dumps lack
    dtype = "float16"

    [stages]
    "encoder.output" = "enc_out"        # our name = theirs
    "encoder.layers.{n}" = { from = "blk.{n}.out", transpose = true }
    "decoder.layers.{n}" = [{ from = "dec.{n}" }, { from = "last.{n}", first = -16 }]
    "logits" = { from = "ctc", shape = [740, 25055], rows = [0, 736], scale = 0.5 }

`{n}` stands for the number of a layer, or of a decoding step; a second number is `{m}`:
`"steps.{n}.llm.layers.{m}" = "step_{n}_blk_{m}"`. `{b}` is the hypothesis of a beam search:
`"steps.{n}.beams.{b}.llm.layers.{m}" = "step_{n}_beam_{b}_blk_{m}"`. `first = 1` says that the other program counts
from 1; `first = -16` says that its layer 0 is our layer 16; `first_m` is the same for `{m}`, `first_b` for `{b}`. A
list names the parts of a stack that the other program has divided. Changes to an array apply in this order: `shape`
reshapes it (one entry may be -1), `axes` or `transpose` changes the order of the axes, `squeeze` drops axes of length
1, `join` makes one axis of the last two, `rows` and `columns` select a range (begin, end; negative numbers count from
the end; begin alone goes on to the end), `scale` multiplies. Arrays that the file does not name keep their names.

If the other program has a part of a stage only, `reference_rows` and `reference_columns` say which part of the
reference it is: `"logits" = { from = "last_logits", reference_rows = [-1] }` for the logits of the last position.

Heads that stand before the rows, heads × rows × head width, become rows × width by
`"encoder.layers.{n}.attention.context" = { from = "ctx_{n}", axes = [1, 0, 2], join = true }`.

An array with the rows of all decoding steps is cut by step. `prompt` says how many of its rows belong to the prompt:
`"steps.{n}.logits" = { from = "all_logits", prompt = 26 }` takes row 26 for step 1, and of a cache,
`"steps.{n}.llm.layers.{m}.cache.key" = { from = "k_cache_{m}", prompt = 26 }`, step 1 is the first 27 rows.

An array with all hypotheses is divided: `beams = 0` says that its first axis, after the other changes, counts them:
`"steps.{n}.beams.{b}.llm.layers.{m}" = { from = "step_{n}_blk_{m}", beams = 0 }`. Of an array with two axes, each
hypothesis gets one row.

For several recordings in a batch that were padded to 40 frames, `shape = [-1, 512]` and `rows = [80, 115]` select the
third, of 35 frames. In `[meta]`, `dtype` or `quantization` choose the tolerance, and the `input_digest` of the
reference states that both were computed on the same input.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.errors import BadInput
from workbench.formats.array_headers import unique_names
from workbench.formats.text_files import check_named
from workbench.trace.cuts import Cut, is_range, slice_of

_MAX_BYTES = 1 << 20  # bytes of a mapping file
_NUMBER, _SECOND, _BEAM = "{n}", "{m}", "{b}"
_STEPS = "steps.{n}."  # the beginning of our name for an array with the rows of all decoding steps
_MARKS = f"{_NUMBER}, {_SECOND} and {_BEAM}"
_CACHES = (".cache.key", ".cache.value")  # ends of stages that hold all rows so far


@dataclass(frozen=True)
class Rule:
    """The source of a stage, or of the layers of a stack, and the changes that make it ours."""

    stage: str
    source: str
    first: int = 0
    first_m: int = 0
    first_b: int = 0
    prompt: int | None = None
    beams: int | None = None
    shape: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None
    transpose: bool = False
    squeeze: bool = False
    join: bool = False
    rows: tuple[int, ...] | None = None
    columns: tuple[int, ...] | None = None
    scale: float | None = None
    reference_rows: tuple[int, ...] | None = None
    reference_columns: tuple[int, ...] | None = None

    @property
    def cut(self) -> Cut | None:
        """The part of the reference's stage that the array holds; None if it holds the whole stage."""
        part = Cut(self.reference_rows, self.reference_columns)
        return None if part == Cut() else part

    def apply(self, array: np.ndarray, step: int = 0, beam: int | None = None) -> np.ndarray:
        """Returns the array as the stage; raises `BadInput` if its shape does not fit the rule.

        Args:
            step: the decoding step whose rows are taken, of an array that has those of all steps; 0 for all rows.
            beam: the hypothesis that is taken, of an array that has all of them.
        """
        array = self._rearranged(array)
        if self.beams is not None and beam is not None:
            array = array.take([beam] if array.ndim == 2 else beam, axis=self.beams)
        if self.prompt is None or not step:
            return array
        last = self.prompt + step
        return array[:last] if self.stage.endswith(_CACHES) else array[last - 1 : last]

    def _rearranged(self, array: np.ndarray) -> np.ndarray:
        source_shape = array.shape
        try:
            if self.shape is not None:
                array = array.reshape(self.shape)
            if self.axes is not None:
                array = array.transpose(self.axes)
            if self.transpose:
                array = array.T
            if self.squeeze:
                array = array.squeeze()
            if self.join:
                if array.ndim < 2:
                    raise ValueError("it has no two axes to join")
                array = array.reshape(*array.shape[:-2], -1)
            if self.rows is not None:
                array = array[slice_of(self.rows)]
            if self.columns is not None:
                array = array[..., slice_of(self.columns)]
            if self.scale is None:
                return array
            with np.errstate(all="ignore"):  # what is not finite then is reported with the stage
                # In float64, because integers and half precision cannot hold the scaled values.
                return np.asarray(np.multiply(array, self.scale, dtype=_float64_type(array)))
        except (ValueError, IndexError, TypeError) as error:
            raise BadInput(
                f"the mapping of {self.stage} does not fit {self.source} of shape {source_shape}: {error}"
            ) from error


def _float64_type(array: np.ndarray) -> type:
    return np.complex128 if array.dtype.kind == "c" else np.float64


@dataclass(frozen=True)
class Mapped:
    """One of our stages, the array that it comes from, and the rule that converts it."""

    stage: str
    source: str
    rule: Rule | None
    step: int = 0  # if the array has the rows of all decoding steps: the step of this stage
    beam: int | None = None  # if the array has all hypotheses of a beam search: the hypothesis of this stage


def _unread(name: str) -> np.ndarray:
    raise BadInput(f"{name} has the rows of several stages, and its array is not at hand")


@dataclass(frozen=True)
class StageMapping:
    """A mapping file."""

    name: str
    rules: tuple[Rule, ...]
    meta: Mapping[str, Any]

    def stages(self, arrays: list[str], read: Callable[[str], np.ndarray] = _unread) -> list[Mapped]:
        """Returns our stages of a file with these arrays.

        Args:
            read: returns an array; asked for one with the rows of several stages, for their number.

        Raises `BadInput` if one is missing or a name is used twice.
        """
        stages_by_name: dict[str, Mapped] = {}
        used_arrays = set()
        for rule in self.rules:
            sources = _matches(rule, arrays)
            if not sources:
                raise BadInput(_missing_source_message(self.name, rule, arrays))
            for each in (each for source in sources for each in _divided(*source, rule, read)):
                if each.stage in stages_by_name:
                    sources_in_words = f"for {stages_by_name[each.stage].source} and {each.source}"
                    raise BadInput(f"{self.name} names {each.stage} twice, {sources_in_words}")
                stages_by_name[each.stage] = each
                used_arrays.add(each.source)
        for name in arrays:
            if name not in used_arrays:
                stages_by_name.setdefault(name, Mapped(name, name, None))
        return list(stages_by_name.values())


def _missing_source_message(file: str, rule: Rule, arrays: list[str]) -> str:
    """Returns the error message for a rule without a source: it lists the names that exist and a likely mistake."""
    message = f"{file} takes {rule.stage:.80} from {rule.source:.80}, which is not there"
    if rule.stage in arrays:
        message += (
            f", while {rule.stage:.80} is: our name stands before the equals sign and theirs behind it, and a file "
            "with our names needs no mapping"
        )
    elif not any(each in rule.source for each in (_NUMBER, _SECOND, _BEAM)) and set(rule.source) & set("*?[]{}()\\"):
        message += f": names are literal, except {_MARKS}, which are any numbers"
    listing = ", ".join(f"{name:.80}" for name in sorted(arrays)[:8])
    return f"{message}; the arrays are {listing}{' ...' if len(arrays) > 8 else ''}"


def _matches(rule: Rule, arrays: list[str]) -> list[tuple[str, str]]:
    """Returns (stage, array) for each array that a rule takes, in the order of their numbers."""
    firsts = {_NUMBER: rule.first, _SECOND: rule.first_m, _BEAM: rule.first_b}
    marks = [mark for mark in firsts if mark in rule.source]
    if not marks:
        return [(rule.stage, rule.source)] if rule.source in arrays else []
    pattern = re.escape(rule.source)
    for mark in marks:
        pattern = pattern.replace(re.escape(mark), f"(?P<{mark[1]}>[0-9]{{1,9}})", 1)
    matches = [match for name in arrays if (match := re.fullmatch(pattern, name))]
    numbered = [([int(match[mark[1]]) - firsts[mark] for mark in marks], match.string) for match in matches]
    stage_sources = []
    for numbers, name in sorted(each for each in numbered if min(each[0]) >= 0):
        stage = rule.stage
        for mark, number in zip(marks, numbers, strict=True):
            stage = stage.replace(mark, str(number))
        stage_sources.append((stage, name))
    return stage_sources


def _divided(stage: str, source: str, rule: Rule, read: Callable[[str], np.ndarray]) -> Iterator[Mapped]:
    """Yields the stage; or if the array has the rows of all decoding steps or hypotheses, the stage of each."""
    if rule.prompt is None and rule.beams is None:
        yield Mapped(stage, source, rule)
        return
    shape = rule.apply(read(source)).shape
    if rule.beams is not None:
        if not -len(shape) <= rule.beams < len(shape):
            raise BadInput(
                f"the mapping of {rule.stage} takes {source} of shape {shape} with beams = {rule.beams}; expected the "
                "number of one of its axes"
            )
        for beam in range(shape[rule.beams]):
            yield Mapped(stage.replace(_BEAM, str(beam), 1), source, rule, beam=beam)
        return
    assert rule.prompt is not None
    if not shape or shape[0] <= rule.prompt:
        raise BadInput(
            f"the mapping of {rule.stage} takes {source} of shape {shape} with prompt = {rule.prompt}; expected more "
            "rows than those of the prompt"
        )
    for step in range(1, shape[0] - rule.prompt + 1):
        yield Mapped(stage.replace(_NUMBER, str(step), 1), source, rule, step)


def read_mapping(path: str | Path) -> StageMapping:
    """Reads a mapping file, `.toml` or `.json`. Raises `BadInput`, which names the fault."""
    path = Path(path)
    is_json = path.suffix.lower() == ".json"
    check_named(path, f"the mapping file {path}")
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadInput(
                f"{path.name} is {path.stat().st_size} bytes long; expected a mapping file of at most {_MAX_BYTES}"
            )
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
        content = json.loads(text, object_pairs_hook=unique_names) if is_json else tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"the mapping file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        kind, advice = ("JSON", "") if is_json else ("TOML", "; names of stages need quotes")
        raise BadInput(f"the mapping file {path.name} is not {kind}: {error}{advice}") from error
    if not isinstance(content, dict) or (unknown_entries := content.keys() - {"meta", "stages"}):
        fault = f"the unknown entry {min(unknown_entries)!r:.80}" if isinstance(content, dict) else "no tables"
        raise BadInput(f"the mapping file {path.name} has {fault}; expected [meta] and [stages]")
    meta, stages = content.get("meta", {}), content.get("stages", {})
    if not isinstance(meta, dict) or not isinstance(stages, dict) or not (meta or stages):
        raise BadInput(f"the mapping file {path.name} needs a table [stages], of our names and theirs")
    plain_meta = json.loads(json.dumps(meta, default=str))  # TOML has dates
    return StageMapping(path.name, tuple(_rules(path.name, stages)), plain_meta)


def _rules(file: str, stages: Mapping[str, Any]) -> Iterator[Rule]:
    for stage, entry in stages.items():
        if not stage or not stage.isprintable():
            raise BadInput(f"{file} has the name {stage!r:.80} for a stage; expected letters, digits and dots")
        for part in entry if isinstance(entry, list) and entry else [entry]:
            yield _rule(file, stage, part)


def _rule(file: str, stage: str, entry: Any) -> Rule:
    place = f"{stage!r:.80} in {file}"
    if isinstance(entry, str):
        entry = {"from": entry}
    if not isinstance(entry, dict):
        raise BadInput(f"{place} is {entry!r:.40}; expected the name of an array, or a table with from")
    fields = dict(entry)
    source = fields.pop("from", stage)
    for key, value in fields.items():
        if key not in _CHECKS:
            raise BadInput(
                f"{place} has the unknown key {key!r:.40}; known are from, {', '.join(_CHECKS)}, and a stage's name "
                "with dots needs quotes"
            )
        expected, check = _CHECKS[key]
        if not check(value):
            raise BadInput(f"{place} has {key} = {value!r:.40}; expected {expected}")
        fields[key] = tuple(value) if isinstance(value, list) else value
    if "prompt" in fields and "beams" in fields:
        raise BadInput(f"{place} has both prompt and beams; expected an array of all steps, or of all hypotheses")
    # A number that the array counts itself.
    array_number = _NUMBER if "prompt" in fields else _BEAM if "beams" in fields else ""
    if "prompt" in fields and (not stage.startswith(_STEPS) or not isinstance(source, str) or _NUMBER in source):
        raise BadInput(
            f"{place} has prompt and comes from {source!r:.80}; expected a stage steps.{_NUMBER}.NAME, and an "
            f"array without {_NUMBER} that has the rows of all steps"
        )
    if "beams" in fields and (_BEAM not in stage or not isinstance(source, str) or _BEAM in source):
        raise BadInput(
            f"{place} has beams and comes from {source!r:.80}; expected a stage steps.{_NUMBER}.beams.{_BEAM}.NAME, "
            f"and an array without {_BEAM} that has all hypotheses"
        )
    marks = (_NUMBER, _SECOND, _BEAM)
    numbers_on_both_sides = [each for each in marks if each != array_number]
    if not isinstance(source, str) or any(source.count(each) != stage.count(each) for each in numbers_on_both_sides):
        raise BadInput(f"{place} comes from {source!r:.80}; expected a name, with {_MARKS} on both sides or on none")
    if any(stage.count(each) > 1 for each in marks):
        raise BadInput(f"{place} comes from {source!r:.80}; expected each of {_MARKS} at most once")
    return Rule(stage, source, **fields)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_integer_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_integer, value))


def _shape(value: Any) -> bool:
    return _is_integer_list(value) and min(value) >= -1 and value.count(-1) <= 1


def _number(value: Any) -> bool:
    return (isinstance(value, float) or _is_integer(value)) and -sys.float_info.max <= value <= sys.float_info.max


_CHECKS = {
    "first": ("a whole number", _is_integer),
    "shape": ("a list of whole numbers, one of which may be -1", _shape),
    "axes": ("a list of whole numbers", _is_integer_list),
    "transpose": ("true or false", lambda value: isinstance(value, bool)),
    "squeeze": ("true or false", lambda value: isinstance(value, bool)),
    "join": ("true or false", lambda value: isinstance(value, bool)),
    "rows": ("[begin, end] or [begin]", is_range),
    "columns": ("[begin, end] or [begin]", is_range),
    "scale": ("a number", _number),
    "reference_rows": ("[begin, end] or [begin]", is_range),
    "reference_columns": ("[begin, end] or [begin]", is_range),
    "first_m": ("a whole number", _is_integer),
    "first_b": ("a whole number", _is_integer),
    "beams": ("the number of an axis", _is_integer),
    "prompt": ("a whole number from 0 on", lambda value: _is_integer(value) and value >= 0),
}
