"""Guesses at a fault of a norm: another epsilon, no weight, no bias, a mean that is not subtracted, or an extra norm.

The reference shows the norm: the normalised input of the stage, times a weight plus a bias for each channel, gives the
stage. A fit finds weight and bias. If no such norm fits, no guess is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, relative_l2

EPSILONS = (1e-6, 1e-5, 1e-12, 1e-8, 1e-7, 1e-3, 1e-4, 0.0, 1e-2)
_INPUTS = 3  # earlier stages that may be the norm's input
_MIN_ROWS = 4
_VISIBLE = 1e-3  # share of the largest weight or bias: smaller changes are rounding
_MINORITY = 0.1  # share of the channels
_SAME_WEIGHT = 1e-4  # relative L2 of two weights that count as the same
_MAX_VALUES = 1 << 23  # of a stage
_MAX_NORMS = 64  # other norms that are looked at
_ROWS_ELSEWHERE = 256  # rows of each norm from which its weight is read
_CLEARLY = 0.7  # a norm fits better only if it leaves at most this share of the other's error


@dataclass(frozen=True)
class Norm:
    """What a norm computes over the last axis."""

    centred: bool  # LayerNorm subtracts the mean, RMSNorm does not
    epsilon: float
    weight: np.ndarray
    bias: np.ndarray
    epsilons: tuple[float, ...] = ()  # the epsilons that the numbers cannot tell apart, if it was read off
    formula: str = ""  # a key of `_FORMULAS`

    def __call__(self, x: np.ndarray) -> np.ndarray:
        output: np.ndarray = normalised(x, self.centred, self.epsilon, self.formula) * self.weight + self.bias
        return output


_FORMULAS = {
    "outside": "adds its epsilon to the root, where the reference adds it under the root",
    "unbiased": "divides its sum of squares by {less}, where the reference divides by {width}",
    "unsubtracted": "divides by the deviation without subtracting the mean",
}
"""Other formulas of a norm that ports have, as predicates."""


def normalised(x: np.ndarray, centred: bool, epsilon: float, formula: str = "") -> np.ndarray:
    """Returns x / sqrt(mean(x^2) + epsilon) over the last axis, x without its mean first if `centred`.

    Args:
        formula: a key of `_FORMULAS` for another one.
    """
    if centred:
        x = x - x.mean(axis=-1, keepdims=True)
    width = x.shape[-1]
    with np.errstate(all="ignore"):
        squares = np.square(x - x.mean(axis=-1, keepdims=True) if formula == "unsubtracted" else x)
        mean = squares.sum(axis=-1, keepdims=True) / (width - 1 if formula == "unbiased" else width)
        output: np.ndarray = x / (np.sqrt(mean) + epsilon if formula == "outside" else np.sqrt(mean + epsilon))
    return output


def norms(scene: Scene) -> Iterator[Guess]:
    """Yields other norms of the stage's input."""
    if scene.reference.ndim < 2 or scene.reference.shape[-1] < 4:
        return
    for name, reference_input, candidate_input in scene.inputs(_INPUTS):
        reference = _read_off(
            _last_axis_rows(reference_input, scene.sample), _last_axis_rows(scene.reference, scene.sample), scene
        )
        if reference is not None:
            # If the right norm of the candidate's input gives the candidate, the error came in with the input.
            if not is_close(
                reference(_last_axis_rows(candidate_input, scene.sample)),
                _last_axis_rows(scene.candidate, scene.sample),
                2 * scene.allowed,
            ):
                yield from _wrong_norms(scene, reference, name, candidate_input)
                yield from _other_axes(scene, reference, name, candidate_input)
            return


def _other_axes(scene: Scene, reference: Norm, name: str, candidate_input: np.ndarray) -> Iterator[Guess]:
    """Yields the norm over the rows of each channel, and over all values at once."""
    if scene.reference.ndim != 2 or scene.reference.size > _MAX_VALUES:
        return
    x = np.asarray(candidate_input, np.float64)
    over_rows = normalised(x.T, reference.centred, reference.epsilon).T
    over_all = normalised(x.reshape(-1), reference.centred, reference.epsilon).reshape(x.shape)
    for axes, values in (("the rows of each channel", over_rows), ("all values at once", over_all)):
        words = f"the norm of {name} is taken over {axes}, where the reference's is over the channels of each row"
        expected = values * reference.weight + reference.bias
        yield Guess("norm", words, lambda rows, expected=expected: expected[rows])  # type: ignore[misc]


def _last_axis_rows(array: np.ndarray, rows: Rows) -> np.ndarray:
    """Returns rows as [rows, channels of the last axis]: a norm of heads treats each head as a row."""
    values: np.ndarray = np.asarray(array[rows], np.float64).reshape(-1, array.shape[-1])
    return values


def _read_off(x: np.ndarray, y: np.ndarray, scene: Scene) -> Norm | None:
    """Returns the norm that makes y of x; None if none does."""
    if len(x) < _MIN_ROWS or not np.isfinite(x).all():
        return None
    if is_close(np.broadcast_to(y.mean(axis=0), y.shape), y, _VISIBLE):
        return None  # if all rows are alike, any norm fits
    candidates = list[tuple[float, Norm]]()
    for centred in (False, True):
        for epsilon in EPSILONS:
            norm = _fitted(normalised(x, centred, epsilon), y, centred, epsilon)
            candidates.append((relative_l2(y, norm(x)), norm))
    least_error, best_norm = candidates[0]
    for error, norm in candidates[1:]:
        if error < _CLEARLY * least_error:
            least_error, best_norm = error, norm
    if not least_error <= scene.allowed:
        return None
    epsilons = [
        each.epsilon
        for error, each in candidates
        if each.centred == best_norm.centred and _CLEARLY * error <= least_error
    ]
    return replace(best_norm, epsilons=tuple(epsilons))


def _fitted(n: np.ndarray, y: np.ndarray, centred: bool, epsilon: float) -> Norm:
    """Returns weight and bias by least squares; an RMSNorm has no bias."""
    if not np.isfinite(n).all():
        n = np.nan_to_num(n)
    mean_n, mean_y = (n.mean(axis=0), y.mean(axis=0)) if centred else (0.0, 0.0)
    square = np.square(n - mean_n).sum(axis=0)
    product = ((n - mean_n) * (y - mean_y)).sum(axis=0)
    weight = np.divide(product, square, out=np.zeros_like(product), where=square > 0)
    return Norm(centred, epsilon, weight, mean_y - weight * mean_n + np.zeros_like(weight))


def _wrong_norms(scene: Scene, reference: Norm, name: str, candidate_input: np.ndarray) -> Iterator[Guess]:
    ones, zeros = np.ones_like(reference.weight), np.zeros_like(reference.bias)

    def guess(kind: str, words: str, norm: Norm, twice: bool = False, option: str = "") -> Guess:
        def expected(rows: Rows) -> np.ndarray:
            y = norm(_last_axis_rows(candidate_input, rows))
            return (norm(y) if twice else y).reshape(len(rows), -1)

        return Guess(kind, words, expected, option=option)

    for epsilon in EPSILONS:
        if epsilon not in reference.epsilons:
            reference_epsilon = _epsilon_in_words(reference.epsilons, epsilon)
            words = f"the norm of {name} has the epsilon {{}}, where the reference has {reference_epsilon}"
            candidate_norm = Norm(reference.centred, epsilon, reference.weight, reference.bias)
            yield guess("epsilon", words, candidate_norm, option=f"{epsilon:g}")
    kinds = "RMSNorm", "LayerNorm"
    for words, norm in (
        ("without its weight", Norm(reference.centred, reference.epsilon, ones, reference.bias)),
        ("without its bias", Norm(reference.centred, reference.epsilon, reference.weight, zeros)),
        ("without its weight and bias", Norm(reference.centred, reference.epsilon, ones, zeros)),
        (
            "with one plus its weight",
            Norm(reference.centred, reference.epsilon, reference.weight + 1, reference.bias),
        ),
        (
            "with its weight less one",
            Norm(reference.centred, reference.epsilon, reference.weight - 1, reference.bias),
        ),
        (
            f"of the kind {kinds[not reference.centred]}, where the reference has {kinds[reference.centred]}",
            Norm(not reference.centred, reference.epsilon, reference.weight, reference.bias),
        ),
    ):
        yield guess("norm", f"it is the norm of {name} {words}", norm)
    width = len(ones)
    for formula, predicate in _FORMULAS.items():
        if formula == "unsubtracted" and reference.centred:
            continue
        words = f"the norm of {name} {predicate.format(less=width - 1, width=width)}"
        for epsilon in reference.epsilons if formula == "outside" else (reference.epsilon,):
            yield guess("norm", words, replace(reference, formula=formula, epsilon=epsilon))
    yield guess("norm twice", f"the norm of {name} is applied twice", reference, twice=True)


def _epsilon_in_words(epsilons: Sequence[float], epsilon: float) -> str:
    """Returns the reference's epsilon in words; where large values hide which one it is, how it compares."""
    if len(epsilons) == 1:
        return f"{epsilons[0]:g}"
    return "a smaller one" if max(epsilons) < epsilon else "a larger one" if min(epsilons) > epsilon else "another"


def norm_weights(scene: Scene) -> Iterator[Guess]:
    """Yields the norm of the stage's input with another weight or bias, and names the norm that has the same ones."""
    if scene.reference.ndim < 2 or scene.reference.shape[-1] < 4:
        return
    for name, reference_input, candidate_input in scene.inputs(_INPUTS):
        reference = _read_off(
            _last_axis_rows(reference_input, scene.sample), _last_axis_rows(scene.reference, scene.sample), scene
        )
        if reference is None:
            continue
        n = normalised(_last_axis_rows(candidate_input, scene.sample), reference.centred, reference.epsilon)
        candidate_norm = _fitted(
            n, _last_axis_rows(scene.candidate, scene.sample), reference.centred, reference.epsilon
        )
        changed_shares = [
            _changed(*pair)
            for pair in ((reference.weight, candidate_norm.weight), (reference.bias, candidate_norm.bias))
        ]
        if max(changed_shares) <= _MINORITY:
            return  # nothing, or a few channels, which are named as such
        parts = [part for part, share in zip(("weight", "bias"), changed_shares) if share]
        source = _norm_with_parameters(scene, candidate_norm, parts)
        words = f"it is the norm of {name} with another {' and '.join(parts)}"
        if source:
            words += f", {'those' if len(parts) > 1 else 'that'} of {source}"

        def expected(rows: Rows, norm: Norm = candidate_norm, array: np.ndarray = candidate_input) -> np.ndarray:
            return norm(_last_axis_rows(array, rows)).reshape(len(rows), -1)

        yield Guess("norm", words, expected)
        return


def _changed(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Returns the share of the channels in which two vectors of a norm differ."""
    size = max(float(np.abs(reference).max()), float(np.abs(candidate).max()))
    return float((np.abs(candidate - reference) > _VISIBLE * size).mean()) if size else 0.0


def _norm_with_parameters(scene: Scene, norm: Norm, parts: Sequence[str]) -> str:
    """Returns the nearest stage of the reference whose norm has the same weight, bias or both; empty without one."""
    order = [*scene.before[::-1], scene.stage, *scene.after]
    own_index = len(scene.before)
    indices = [n for n, name in enumerate(order) if "norm" in name.rpartition(".layers.")[2] and n != own_index]
    for index in sorted(indices, key=lambda n: abs(n - own_index))[:_MAX_NORMS]:
        y = scene.reference_stages[order[index]]
        inputs = (scene.reference_stages[name] for name in order[:index][::-1])
        if y.ndim < 2 or y.shape[-1] != len(norm.weight) or len(y) < _MIN_ROWS:
            continue
        rows = np.unique(np.linspace(0, len(y) - 1, min(len(y), _ROWS_ELSEWHERE)).round().astype(int))
        for x in islice((each for each in inputs if each.shape == y.shape), _INPUTS):
            n = normalised(_last_axis_rows(x, rows), norm.centred, norm.epsilon)
            other_norm = _fitted(n, _last_axis_rows(y, rows), norm.centred, norm.epsilon)
            if all(is_close(getattr(other_norm, part), getattr(norm, part), _SAME_WEIGHT) for part in parts):
                return order[index]
    return ""


def extra_norms(scene: Scene) -> Iterator[Guess]:
    """Yields the stage after a norm that it does not have, and before one that it has."""
    if scene.reference.ndim < 2 or scene.reference.shape[-1] < 4:
        return
    r, c = _last_axis_rows(scene.reference, scene.sample), _last_axis_rows(scene.candidate, scene.sample)
    if len(r) < 2 * _MIN_ROWS:
        return
    for norm in (_read_off(r, c, scene), _row_normalisation(r, c, scene)):
        if norm is not None and not is_close(r, c, scene.allowed):

            def expected(rows: Rows, norm: Norm = norm) -> np.ndarray:
                return norm(_last_axis_rows(scene.reference, rows)).reshape(len(rows), -1)

            yield Guess("already normed", "it is the reference after a norm: it is already normed", expected)
            return
    norm = _read_off(c, r, scene)
    if norm is not None:
        # A norm cannot be inverted, so the prediction is made in the other direction, and is equally close.
        wrong = norm

        def normed(rows: Rows) -> np.ndarray:
            r, c = _last_axis_rows(scene.reference, rows), _last_axis_rows(scene.candidate, rows)
            return (c + (r - wrong(c)) * (float(np.linalg.norm(c)) / max(float(np.linalg.norm(r)), 1e-300))).reshape(
                len(rows), -1
            )

        yield Guess("before the norm", "the reference is a norm of it: it is before the norm", normed)


def _row_normalisation(r: np.ndarray, c: np.ndarray, scene: Scene) -> Norm | None:
    """Returns the division of each row by its length, if that is the change."""
    norm = Norm(False, 0.0, np.full(r.shape[1], r.shape[1] ** -0.5), np.zeros(r.shape[1]))
    return norm if is_close(norm(r), c, scene.allowed) else None
