"""Explains why an array may have a different shape from the reference, and says where an array differs.

Each guess at a shape is tried on the numbers. The result names the guess under which the two arrays are nearest, with
the remaining error. This file compares arrays; it knows no stages. Other numbers of the right shape are explained in
`workbench.compare.explain`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

import numpy as np

from workbench.compare.guesses.guess import is_dense, is_few, named
from workbench.compare.measures import Measures, measure
from workbench.core.phrases import counted, dimensions

_UNRELATED = 0.5  # relative L2 above which two arrays have nothing in common
_UNRELATED_ROWS = 0.1  # the same without some rows or columns; many arrays resemble themselves a few rows later
_MAX_PLACES = 64  # places at which the shorter array may begin in the longer one
_TRIED_VALUES = 1 << 22  # of larger arrays, only the first rows are compared
_MIN_EQUAL = 2  # rows; the first row alone is often equal, as it attends to itself only
_EQUAL_SHARE = 1e-3  # of the largest error of a row, in rows that agree
_NEARLY_ALL = 0.9  # of the rows behind these; the rest may attend to themselves, or be equal by chance
_JUMP = 10  # least error of the first row that differs, divided by that of the rows before it

_SAME_BITS = 0.05  # relative L2 of two arrays of which one is in half precision

_MAX_AXES = 5  # of an array whose axes may be in another order
_MAX_ITEMS = 64  # of a batch that are compared with the reference
_AMBIGUOUS = 0.5  # a place fits only if its error is at most this share of that at any other place
_PLAIN = 0.01  # relative L2 at which a place fits whatever the others are
_CLEARLY_LESS = 0.999  # the same values in another shape may differ in the last digit of a sum


class Guess(NamedTuple):
    """A change that would give the candidate the reference's shape."""

    words: str
    reference: np.ndarray  # the arrays to compare then
    candidate: np.ndarray
    error_limit: float = _UNRELATED  # relative L2 above which they have nothing in common
    rule: str = ""  # what makes the change in a mapping file
    advice: str = ""  # how to make it with a rule, if its reader has to know that this is right
    is_certain: bool = False  # whether no other change can give this shape, whatever the numbers are


def shapes(reference: np.ndarray, candidate: np.ndarray) -> str:
    """Returns both shapes in words: `740×512 and 512×740`."""
    return " and ".join(dimensions(array.shape) or "a scalar" for array in (reference, candidate))


def explain_shape(reference: np.ndarray, candidate: np.ndarray) -> tuple[str, str]:
    """Returns why the candidate may have a different shape, as one sentence without a full stop, and the rule of a
    mapping file that changes it; empty without one.
    """
    clause = f"the shapes are {shapes(reference, candidate)}"
    best: tuple[float, Guess] | None = None
    first_guess: Guess | None = None
    errors_of_places = list[float]()
    for guess in _guesses(reference, candidate):
        is_place = guess.error_limit == _UNRELATED_ROWS
        first_guess = first_guess or (None if is_place else guess)
        error = _error(guess.reference, guess.candidate) if guess.reference.size else math.inf
        errors_of_places += [error] * is_place
        if error <= guess.error_limit and (best is None or error < _CLEARLY_LESS * best[0]):
            best = error, guess
    if best and best[1].error_limit == _UNRELATED_ROWS and _is_ambiguous(best[0], errors_of_places):
        best = None
    if best:
        error, guess = best
        change = guess.rule or guess.advice
        advice = f"; {change} in a mapping file makes this change" if change else ""
        return f"{clause}: {guess.words}; after this change they differ by {_percent(error)}{advice}", guess.rule
    if first_guess and first_guess.is_certain:
        error = _error(first_guess.reference, first_guess.candidate)
        remainder = f"by {_percent(error)}" if math.isfinite(error) else "too, and some are not finite"
        return (
            f"{clause}: {first_guess.words}; {first_guess.rule} in a mapping file makes this change; the numbers then "
            f"differ {remainder}",
            first_guess.rule,
        )
    if first_guess:
        return f"{clause}, as if {first_guess.words}, but after this change the numbers differ too", ""
    if reference.ndim != candidate.ndim:
        return f"{clause}: the reference has {reference.ndim} dimensions, the candidate {candidate.ndim}", ""
    axes = [n for n, (a, b) in enumerate(zip(reference.shape, candidate.shape)) if a != b]
    counts = ", ".join(f"{reference.shape[n]} and {candidate.shape[n]} along axis {n}" for n in axes)
    return f"{clause}: {counts}", ""


def _is_ambiguous(error: float, errors_of_places: list[float]) -> bool:
    """Returns whether the best place of the shorter array fits hardly better than another, as where frames drift."""
    next_error = min((each for each in errors_of_places if each > error), default=math.inf)
    return error > max(_PLAIN, _AMBIGUOUS * next_error)


def where_it_differs(
    measures: Measures, limit: float = math.inf, units: tuple[str, str] = ("row", "channel")
) -> str | None:
    """Returns where the difference is, if only a few rows or channels differ, or rows from one on; else None.

    Args:
        limit: the relative L2 that the other rows or channels may have together to count as equal.
        units: what the first and the last axis count.
    """
    if not measures.relative_l2 or not math.isfinite(measures.relative_l2) or measures.nonfinite_differences:
        return None
    for errors, unit in zip((measures.by_position, measures.by_channel), units):
        places = _largest_errors(errors)
        if is_dense(places):
            places = np.arange(places[0], places[-1] + 1)  # a few errors between them may be small by chance
        if is_few(places, len(errors)):
            subject, verb = named(unit, places), "differs" if len(places) == 1 else "differ"
            if _error_elsewhere(errors, places, measures.relative_l2) > limit:
                return f"{subject} of {len(errors)} {verb} most, and the others differ too"
            return f"only {subject} of {len(errors)} {verb}"
    return _first_differing_row(measures, limit, units[0])


def whole_numbers(reference: np.ndarray, candidate: np.ndarray, measures: Measures) -> str | None:
    """Returns the sentence about a candidate of quantised values without their scale; None for other types.

    Both arrays have the same shape, [...].
    """
    if candidate.dtype.kind not in "iu" or reference.dtype.kind != "f" or measures.nonfinite_differences:
        return None
    for half, values in _as_half_precision(candidate):
        with np.errstate(all="ignore"):
            error = _error(reference, values)
        if error <= _SAME_BITS:
            return (
                f"the candidate holds the bits of {half} as whole numbers ({candidate.dtype.name}): as {half} they "
                f"differ by {_percent(error)}; write these arrays as float32"
            )
    words = f"the candidate holds whole numbers ({candidate.dtype.name})"
    if not measures.factor or measures.factor_residual > _UNRELATED_ROWS:
        return f"{words}, such as quantised values before scale and zero point are applied"
    scale = 1 / measures.factor
    return (
        f"{words}: times {scale:.6g} they differ by {_percent(measures.factor_residual)}; scale = {scale:.6g} in a "
        "mapping file makes this change"
    )


def _as_half_precision(bits: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yields the numbers in float32 whose 16 bits an array may hold, with the name of their type."""
    if bits.dtype.itemsize == 2:
        unsigned = np.ascontiguousarray(bits).astype(bits.dtype.newbyteorder("=")).view(np.uint16)
        yield "bfloat16", (unsigned.astype(np.uint32) << 16).view(np.float32)
        yield "float16", unsigned.view(np.float16).astype(np.float32)


def where_not_finite(
    reference: np.ndarray, candidate: np.ndarray, error: float, limit: float, units: tuple[str, str]
) -> str | None:
    """Returns where one side alone is infinite or NaN, and whether the other values agree; None if it is everywhere.

    Both arrays have the same shape, [...].

    Args:
        error: the relative L2 of all other values.
        limit: the relative L2 up to which they agree.
        units: what the first and the last axis count.
    """
    finite, candidate_finite = np.isfinite(reference), np.isfinite(candidate)
    is_equal = (reference == candidate) | (np.isnan(reference) & np.isnan(candidate))
    mask = ~((finite & candidate_finite) | (~finite & is_equal))
    if mask.ndim < 1 or mask.all():
        return None
    others = "the other values agree" if error <= limit else "other values differ too"
    table = mask.reshape(-1, mask.shape[-1]) if mask.ndim > 1 else mask[:, None]
    by_row, by_channel = mask.reshape(len(mask), -1).any(axis=1), table.any(axis=0)
    for has_some, unit in zip((by_row, by_channel), units):
        places = np.flatnonzero(has_some)
        if is_few(places, len(has_some)):
            return f"these values are in {named(unit, places)} of {len(has_some)}; {others}"
    first = int(by_row.argmax())
    if first and by_row[first:].all():
        return f"all {units[0]}s from {first} on have such values; {others}"
    return f"the first of these values is in {units[0]} {first} of {len(by_row)}; {others}"


def _error_elsewhere(errors: np.ndarray, places: np.ndarray, relative_l2: float) -> float:
    """Returns the part of the relative L2 that is not in these places."""
    largest = float(errors.max(initial=0.0))
    if not largest:
        return 0.0
    shares = errors / largest  # squares of tiny errors would underflow
    return relative_l2 * float(np.linalg.norm(np.delete(shares, places))) / float(np.linalg.norm(shares))


def _first_differing_row(measures: Measures, limit: float, unit: str) -> str | None:
    """Returns the row from which on nearly all rows differ, as behind the end of a chunk or a mask."""
    errors = measures.by_position
    differing = errors > _EQUAL_SHARE * errors.max(initial=0.0)
    first = int(differing.argmax())
    if first < _MIN_EQUAL or differing[first:].mean() < _NEARLY_ALL:
        return None
    if errors[first] < _JUMP * errors[:first].max():  # the error has only grown
        return None
    if _error_elsewhere(errors, np.arange(first, len(errors)), measures.relative_l2) > limit:
        return None
    amount = "all" if differing[first:].all() else "nearly all"
    return f"the first {first} of {len(errors)} {unit}s agree, and {amount} {unit}s from {first} on differ"


def _largest_errors(errors: np.ndarray) -> np.ndarray:
    """Returns the places with nearly all of the error: those above a hundredth of the largest."""
    return np.flatnonzero(errors > 0.01 * errors.max(initial=0.0))


def _guesses(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields changes that give the candidate the reference's shape, each with the arrays to compare then."""
    if reference.ndim == candidate.ndim == 2 and reference.shape == candidate.shape[::-1]:
        yield Guess("the candidate is transposed", reference, candidate.T, rule="transpose = true")
    if reference.ndim != candidate.ndim:
        reference_values, candidate_values = np.squeeze(reference), np.squeeze(candidate)
        if reference_values.shape == candidate_values.shape:
            side = "reference" if reference.ndim > candidate.ndim else "candidate"
            yield Guess(
                f"the {side} has a dimension of 1 more, such as a batch",
                reference_values,
                candidate_values,
                rule=_rule_without_batch(reference, candidate) if side == "candidate" else "",
                is_certain=side == "candidate",
            )
        elif reference_values.shape == candidate_values.shape[::-1]:
            rule = "transpose = true with squeeze = true" if candidate.ndim > reference.ndim else ""
            words = "one has a dimension of 1 more, and is transposed"
            yield Guess(words, reference_values, candidate_values.T, rule=rule)
    if 3 <= candidate.ndim <= _MAX_AXES:
        yield from _other_axes(reference, candidate)
    if candidate.ndim == reference.ndim + 1 and reference.ndim in (1, 2):
        yield from _items(reference, candidate)
    if reference.ndim == 2 and candidate.ndim in (2, 3):
        yield from _transposed_and_padded(reference, candidate)
    if reference.ndim == candidate.ndim:
        axes = [n for n, (a, b) in enumerate(zip(reference.shape, candidate.shape)) if a != b]
        if len(axes) == 1:
            yield from _surplus_entries(reference, candidate, axes[0])
    if reference.size == candidate.size and reference.ndim and candidate.ndim:
        yield Guess(
            "the same number of values is laid out in another shape",
            reference.reshape(-1),
            np.ascontiguousarray(candidate).reshape(-1),
            rule=f"shape = {list(reference.shape)}",
        )


def _rule_without_batch(reference: np.ndarray, candidate: np.ndarray) -> str:
    """Returns the rule that drops axes of length 1, but not those of the reference, such as that of a single row."""
    return "squeeze = true" if candidate.squeeze().shape == reference.shape else f"shape = {list(reference.shape)}"


def _other_axes(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields the candidate with its axes in another order, also with its heads joined, and without padding behind or
    before its rows; axes of length 1 are dropped.
    """
    long = [axis for axis, length in enumerate(candidate.shape) if length != 1]
    short = [axis for axis, length in enumerate(candidate.shape) if length == 1]
    if len(long) != 3:
        return
    for order in map(list, permutations(long)):
        changed = candidate.transpose(order + short).squeeze()
        rule = f"axes = {order + short}" + " with squeeze = true" * bool(short)
        if changed.shape[1:] == reference.shape[1:] and order != long:
            yield from _without_padding("the candidate's axes are in another order", rule, reference, changed)
        elif reference.ndim == 2 and math.prod(changed.shape[1:]) == reference.shape[1] and order != long:
            heads = candidate.shape[order[1]]
            where = "stand before its rows and " if order[1] < order[0] else ""
            words = f"the candidate's {heads} heads {where}are not joined"
            if order[2] < order[1]:
                words = f"the axes of the candidate's {heads} heads are in another order and are not joined"
            joined = changed.reshape(len(changed), -1)
            link = " and " if short else " with "
            yield from _without_padding(words, f"{rule}{link}join = true", reference, joined)


def _without_padding(words: str, rule: str, reference: np.ndarray, changed: np.ndarray) -> Iterator[Guess]:
    """Yields a change; also without the rows that the reference does not have, at the end or at the beginning."""
    rows, padding = len(reference), len(changed) - len(reference)
    if not padding:
        yield Guess(words, reference, changed, rule=rule)
    for start in dict.fromkeys((0, padding)) if padding > 0 else ():
        place = "beginning" if start else "end"
        link = " and " if " with " in rule else " with "
        yield Guess(
            f"{words}, and it has {counted(padding, 'row')} more at the {place}",
            reference,
            changed[start : start + rows],
            _UNRELATED_ROWS,
            f"{rule}{link}rows = [{start}, {start + rows}]",
        )


def _items(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields the items of a batch [B, T], [B, T, D], [T, B, D] or [B, D, T], without their padding."""
    if reference.ndim == 1:
        reference, candidate = reference[:, None], candidate[:, :, None]
        orders = ["item, row, channel"]
    else:
        orders = ["item, row, channel", "row, item, channel", "item, channel, row"]
    rows, width = reference.shape
    for order in orders:
        axes = [order.split(", ").index(name) for name in ("item", "row", "channel")]
        items = candidate.transpose(axes)
        count, length, items_width = items.shape
        is_one_item = count == 1 and (rows == length or order == "item, channel, row")  # has a simpler rule
        if items_width != width or count > _MAX_ITEMS or rows > length or is_one_item:
            continue
        padding = length - rows
        for item in range(count):
            words = f"the reference is item {item} of the candidate's batch of {count}"
            words += ", which is channels × frames" if order == "item, channel, row" else ""
            for start in dict.fromkeys((0, padding)):
                place = "first" if start else "last"
                clause = f", without its {place} {counted(padding, 'row')}" if padding else ""
                rule = _item_rule(order, (item, length, width), (start, start + rows))
                yield Guess(words + clause, reference, items[item, start : start + rows], _UNRELATED_ROWS, rule)


def _item_rule(order: str, item_shape: tuple[int, int, int], rows: tuple[int, int]) -> str:
    """Returns the rule that takes an item of a batch.

    Args:
        order: of the axes.
        item_shape: the number of the item, its rows with padding, and its channels.
        rows: which of its rows (begin, end).
    """
    item, length, width = item_shape
    begin, end = rows
    if order == "item, row, channel":
        shape = "[-1]" if width == 1 else f"[-1, {width}]"
        return f"shape = {shape} with rows = [{item * length + begin}, {item * length + end}]"
    columns = f"columns = [{item * width}, {(item + 1) * width}]"
    changes = f"shape = [{length}, -1]" if order == "row, item, channel" else f"shape = [-1, {length}]"
    if order == "item, channel, row":
        changes += ", transpose = true"
    return f"{changes} with {columns}" + (f" and rows = [{begin}, {end}]" if end - begin < length else "")


def _transposed_and_padded(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Guess]:
    """Yields a candidate [D, T] or [1, D, T] without the padding of its last axis."""
    is_batch = candidate.ndim == 3
    if is_batch and len(candidate) != 1:
        return
    values = candidate[0].T if is_batch else candidate.T
    rows, padding = len(reference), len(values) - len(reference)
    if values.shape[1] != reference.shape[1] or padding <= 0:
        return
    for start in (0, padding):
        change = "squeeze = true" if is_batch else ""
        rule = f"transpose = true with {change}{' and ' * is_batch}rows = [{start}, {start + rows}]"
        words = f"the candidate is transposed, and has {counted(padding, 'column')} more at the "
        words += "beginning" if start else "end"
        yield Guess(words, reference, values[start : start + rows], _UNRELATED_ROWS, rule)


def _surplus_entries(reference: np.ndarray, candidate: np.ndarray, axis: int) -> Iterator[Guess]:
    extra = candidate.shape[axis] - reference.shape[axis]
    side, longer, shorter = ("candidate", candidate, reference) if extra > 0 else ("reference", reference, candidate)
    extra = abs(extra)
    unit = {0: "row", reference.ndim - 1: "column"}.get(axis, f"entry of axis {axis}")
    if reference.ndim == 1:
        unit = "value"
    surplus_entries = (
        f"{extra} {unit if extra == 1 else unit.replace('entry', 'entries') + ('s' if unit[-1] != '0' else '')}"
    )
    length = shorter.shape[axis]
    for start in dict.fromkeys((0, extra, *range(1, min(extra, _MAX_PLACES)))):
        index = tuple(slice(start, start + length) if n == axis else slice(None) for n in range(longer.ndim))
        removed = np.delete(longer, np.s_[start : start + length], axis=axis)
        padded = " of zeros, padding," if not np.any(removed) else ""
        place = {0: "at the end", extra: "at the beginning"}.get(
            start, f"{start} of them at the beginning and {extra - start} at the end"
        )
        words = f"the {side} has {surplus_entries} more{padded or ',' * (0 < start < extra)} {place}"
        reference_part, candidate_part = (shorter, longer[index]) if side == "candidate" else (longer[index], shorter)
        key = "rows" if axis == 0 else "columns" if axis == reference.ndim - 1 else ""
        change = f"{key} = [{start}, {start + length}]" if key and side == "candidate" else ""
        # Rows of other values may be a fault: only zeros are padding for certain.
        rule, advice = (change, "") if padded else ("", f"if they are padding, {change}" if change else "")
        yield Guess(words, reference_part, candidate_part, _UNRELATED_ROWS, rule, advice)


def _error(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns the relative L2 of two arrays of one shape, or of their first rows; infinite without numbers."""
    if reference.ndim and reference.size > _TRIED_VALUES:
        rows = max(1, _TRIED_VALUES * len(reference) // reference.size)
        reference, candidate = reference[:rows], candidate[:rows]
    measures = measure(reference, candidate)
    return math.inf if measures.nonfinite_differences else measures.relative_l2


def _percent(relative: float) -> str:
    return f"{100 * relative:.2g} %"
