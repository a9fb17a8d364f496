"""Guesses at another order of the same rows, channels, heads or axes, and at other signs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from workbench.compare.guesses.guess import (
    Guess,
    Scene,
    in_order,
    is_close,
    is_few,
    is_range,
    listed,
    named,
    table,
    units_of,
)

_SHIFTS = (1, -1, 2, -2)
_MIN_SHIFTED, _MAX_SHIFTED = 16, 1 << 22  # rows of a stage whose shift is looked for
MAX_MATCHED = 4096  # rows or channels; each is compared with each
MATCHED_VALUES = 64  # of each row or channel, for that
_SORTED = 8  # rows, or channels, whose sorted values are compared


def orders(scene: Scene) -> Iterator[Guess]:
    """Yields changes of order that occur in ports."""
    reference, count = scene.reference, len(scene.reference)
    unit, _ = units_of(scene.stage, reference.ndim)
    if count > 1:
        yield Guess(
            "rows reversed", f"its {unit}s are in reverse order", lambda rows: table(reference[count - 1 - rows])
        )
    for shift in dict.fromkeys((*_SHIFTS, *_likeliest_shift(scene))):
        if count >= abs(shift) + 3:
            yield _row_shift(reference, shift, unit)
    if unit == "head" and reference.shape[1] == reference.shape[2]:
        words = "its queries and keys have changed places"
        yield Guess("transposed", words, lambda rows: table(np.swapaxes(reference[rows], 1, 2)))
    if reference.ndim == 2 and count == reference.shape[1] and count > 1:
        yield Guess("transposed", "it is transposed", lambda rows: table(reference[:, rows].T))
    yield from _reshaped(scene)
    yield from _signs(scene)
    if (channels := channel_order(scene)) is not None:
        order = channels
        yield Guess(*about_channels(order, scene), lambda rows: table(reference[rows])[:, order])
    if (places := _rows(scene)) is not None:
        yield Guess("rows permuted", _about_rows(places, scene), lambda rows: table(reference[places[rows]]))
    if (sources := _copied_rows(scene)) is not None:
        written = table(scene.candidate).any(axis=1) | (sources == np.arange(count))
        words = _about_rows(np.where(written, sources, np.arange(count)), scene)
        if not written.all():
            zeros = np.flatnonzero(~written)
            words = f"{named(unit, zeros)} {'is' if len(zeros) == 1 else 'are'} zeros, and {words}"
        yield Guess("rows copied", words, lambda rows: table(reference[sources[rows]]) * written[rows, None])


def _likeliest_shift(scene: Scene) -> list[int]:
    """Returns by how many rows the candidate comes late; empty if half of what varies would be shifted out."""
    count = len(scene.reference)
    if not _MIN_SHIFTED <= count <= _MAX_SHIFTED:
        return []
    width = scene.reference.size // count
    mixture = np.random.default_rng(0).standard_normal(min(width, MATCHED_VALUES))
    r, c = (
        np.asarray(side.reshape(count, -1)[:, : len(mixture)], np.float64) @ mixture
        for side in (scene.reference, scene.candidate)
    )
    if not (np.isfinite(r).all() and np.isfinite(c).all()):
        return []
    r, c = r - r.mean(), c - c.mean()
    points = 2 * count
    likeness = np.fft.irfft(np.fft.rfft(c, points) * np.fft.rfft(r, points).conj(), points)
    shift = int(likeness.argmax())
    shift -= points * (shift >= count)
    kept = r[: count - shift] if shift > 0 else r[-shift:]
    return [shift] if shift and 2 * float(kept @ kept) >= float(r @ r) else []


def _row_shift(reference: np.ndarray, shift: int, unit: str) -> Guess:
    distance = "one position" if abs(shift) == 1 else f"{abs(shift)} positions"
    words = f"its {unit}s come {distance} {'late' if shift > 0 else 'early'}"
    first, last = max(shift, 0), len(reference) + min(shift, 0)
    return Guess("rows shifted", words, lambda rows: table(reference[rows - shift]), first, last)


def _reshaped(scene: Scene) -> Iterator[Guess]:
    """Yields wrong reshapes around a transposition: all numbers are there, in another order."""
    reference = scene.reference
    if reference.ndim < 2 or reference.size > 1 << 24:
        return
    flat = np.asarray(reference).reshape(len(reference), -1)
    rows, columns = flat.shape
    pieces = [(1, columns)]
    if reference.ndim == 3:
        pieces.append(reference.shape[1:])
    else:
        pieces += [(columns // width, width) for width in _head_widths(columns) if width < columns]
    for heads, width in pieces:
        if rows < 2 or heads * width != columns:
            continue
        if heads == 1:
            yield Guess("layout", "its numbers are the reference's transposed, in the shape of the untransposed",
                        _rows_of(flat.T.reshape(flat.shape)))  # fmt: skip
            continue
        parts = flat.reshape(rows, heads, width)
        yield Guess("layout", f"its {heads} heads of {width} were put before its rows and joined in that order",
                    _rows_of(parts.transpose(1, 0, 2).reshape(rows, columns)))  # fmt: skip
        yield Guess("layout", f"its rows were read as {heads} heads of {width} before rows",
                    _rows_of(flat.reshape(heads, rows, width).transpose(1, 0, 2).reshape(rows, columns)))  # fmt: skip


def _rows_of(array: np.ndarray):  # type: ignore[no-untyped-def]
    return lambda rows: table(array[rows])


def _signs(scene: Scene) -> Iterator[Guess]:
    """Yields other signs of some channels."""
    r, c = scene.pair
    if not is_close(np.abs(r), np.abs(c), 2 * scene.allowed):
        return
    signs = np.where((r * c).sum(axis=0) < 0, -1.0, 1.0)
    flipped = np.flatnonzero(signs < 0)
    if 0 < len(flipped) < len(signs):
        verb = "has" if len(flipped) == 1 else "have"
        words = f"{len(flipped)} of {len(signs)} channels {verb} the other sign: {listed(flipped)}"
        yield Guess("signs", words, lambda rows: signs * table(scene.reference[rows]))


def channel_order(scene: Scene) -> np.ndarray | None:
    """Returns the order of channels, if the candidate has the reference's in another order."""
    r, c = scene.pair
    if not len(r):
        return None
    places = np.arange(r.shape[1]) if r.shape[1] <= MAX_MATCHED else changed_columns(r, c, scene.allowed)
    r, c = r[:, places], c[:, places]
    if not 2 <= len(places) <= MAX_MATCHED:
        return None
    first_rows = slice(0, _SORTED)
    if not is_close(np.sort(r[first_rows], axis=1), np.sort(c[first_rows], axis=1), 2 * scene.allowed):
        return None
    return order_in(places, scene.reference[0].size, matched(r[:MATCHED_VALUES].T, c[:MATCHED_VALUES].T))


def changed_columns(reference: np.ndarray, candidate: np.ndarray, allowed: float) -> np.ndarray:
    """Returns the columns of a table that differ by more than rounding."""
    size = float(np.linalg.norm(reference, axis=0).max(initial=0.0))
    return np.flatnonzero(~(np.linalg.norm(candidate - reference, axis=0) <= 2 * allowed * size))


def order_in(places: np.ndarray, count: int, order: np.ndarray | None) -> np.ndarray | None:
    """Returns the order of all `count` columns, those at some places in this order; None without an order."""
    if order is None:
        return None
    whole = np.arange(count)
    whole[places] = places[order]
    return whole


def _rows(scene: Scene) -> np.ndarray | None:
    """Returns the order of rows, if the candidate has the reference's in another order."""
    if (sides := _some_columns(scene)) is None:
        return None
    r, c = sides
    first_columns = slice(0, _SORTED)
    if not is_close(np.sort(r[:, first_columns], axis=0), np.sort(c[:, first_columns], axis=0), 2 * scene.allowed):
        return None
    return matched(r, c)


def _copied_rows(scene: Scene) -> np.ndarray | None:
    """Returns for each row the reference's row that it holds, if a few hold another one, as of a stale cache."""
    if (sides := _some_columns(scene)) is None:
        return None
    r, c = sides
    sizes = np.linalg.norm(r, axis=1)
    changed = np.flatnonzero(np.linalg.norm(c - r, axis=1) > 2 * scene.allowed * max(sizes.max(), 1e-30))
    if not len(changed) or not is_few(changed, len(r)):
        return None
    if not c[changed].any():
        return None  # zeros, even if a row of the reference is zeros too
    sources = np.arange(len(r))
    sources[changed] = (np.square(sizes) - 2 * c[changed] @ r.T).argmin(axis=1)
    return sources if (sources[changed] != changed).all() else None


def _some_columns(scene: Scene) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns both sides with some of their columns [rows, columns], by which rows are told apart; None if there are
    too many rows, or values that are not finite.
    """
    count = len(scene.reference)
    if not 2 <= count <= MAX_MATCHED:
        return None
    flat = [np.asarray(side).reshape(count, -1) for side in (scene.reference, scene.candidate)]
    width = flat[0].shape[1]
    if not width:
        return None
    columns = np.unique(np.linspace(0, width - 1, min(width, MATCHED_VALUES)).round().astype(int))
    r, c = (side[:, columns].astype(np.float64) for side in flat)
    return (r, c) if np.isfinite(r).all() and np.isfinite(c).all() else None


def matched(reference: np.ndarray, candidate: np.ndarray) -> np.ndarray | None:
    """Returns for each row of `candidate` the nearest row of `reference`; None if two rows have the same nearest row.

    A row that is equally near to the row in its own place stays there, so equal rows do not change the order.
    """
    squares = np.square(reference).sum(axis=1)
    distances = squares[None] - 2 * candidate @ reference.T
    order = distances.argmin(axis=1)
    indices = np.arange(len(reference))
    least_distances = distances[indices, order] + np.square(candidate).sum(axis=1)
    own_distances = np.square(candidate - reference).sum(axis=1)
    in_place = own_distances <= 4 * np.maximum(least_distances, 0.0) + 1e-12 * squares.mean()
    order = np.where(in_place, indices, order)
    if len(np.unique(order)) < len(order) or np.array_equal(order, indices):
        return None
    return order


def about_channels(order: np.ndarray, scene: Scene) -> tuple[str, str]:
    """Returns kind and words for channels in another order: place n of the candidate holds `order[n]`."""
    count = len(order)
    places = np.arange(count)
    if scene.reference.ndim == 3 and (heads := _blocks(order, scene.reference.shape[2])) is not None:
        changed_places = np.flatnonzero(heads != np.arange(len(heads)))
        sentence = (
            f"heads {in_order(changed_places)} hold what the reference has in heads {in_order(heads[changed_places])}"
        )
        return "heads permuted", sentence
    if np.array_equal(order, places[::-1]):
        return "channels reversed", "its channels are in reverse order"
    for width in _head_widths(count):
        blocks_clause = f" of each {width} channels" if width < count else ""
        block = np.arange(width).reshape(2, -1) if width % 2 == 0 else None
        if block is None:
            continue
        for kind, words, block_order in (
            ("halves swapped", f"the halves{blocks_clause} have changed places", block[::-1].ravel()),
            (
                "halves interleaved",
                f"the halves{blocks_clause} are interleaved, as in another layout of RoPE",
                block.T.ravel(),
            ),
            (
                "halves interleaved",
                f"even and odd channels{blocks_clause} are in separate halves, as in another layout of RoPE",
                np.arange(width).reshape(-1, 2).T.ravel(),
            ),
        ):
            if np.array_equal(order, (places.reshape(-1, width)[:, block_order]).ravel()):
                return kind, words
    for width in _head_widths(count)[1:]:
        if np.array_equal(order, places.reshape(width, -1).T.ravel()):
            return "channels interleaved", (
                f"it holds the first channel of each of the reference's {width} blocks of {count // width}, then the "
                "second of each, and so on, as when a stack is transposed"
            )
    for width in sorted(_head_widths(count), reverse=True):
        if 1 < width < count and (heads := _blocks(order, width)) is not None:
            changed_places = np.flatnonzero(heads != np.arange(len(heads)))
            return "heads permuted", (
                f"blocks of {width} channels are permuted: blocks {in_order(changed_places)} hold what the reference "
                f"has in blocks {in_order(heads[changed_places])}"
            )
    changed_places = np.flatnonzero(order != places)
    return (
        "channels permuted",
        f"channels {in_order(changed_places)} hold what the reference has in channels "
        f"{in_order(order[changed_places])}",
    )


def _blocks(order: np.ndarray, width: int) -> np.ndarray | None:
    """Returns the order of blocks of channels; None if channels within a block have changed places."""
    blocks = order.reshape(-1, width)
    contiguous = not (blocks[:, 0] % width).any() and bool((np.diff(blocks, axis=1) == 1).all())
    return blocks[:, 0] // width if contiguous else None


def _head_widths(count: int) -> list[int]:
    """Returns the possible widths of heads if there are `count` channels, the widest first."""
    return [width for width in range(count, 1, -1) if count % width == 0]


def _about_rows(order: np.ndarray, scene: Scene) -> str:
    unit, _ = units_of(scene.stage, scene.reference.ndim)
    places = np.flatnonzero(order != np.arange(len(order)))
    if len(places) == 1:
        return f"{unit} {places[0]} holds what the reference has in {unit} {order[places[0]]}"
    in_words = listed if is_range(places) and is_range(order[places]) else in_order
    return f"{unit}s {in_words(places)} hold what the reference has in {unit}s {in_words(order[places])}"
