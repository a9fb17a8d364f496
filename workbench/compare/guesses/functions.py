"""Guesses at another function: of the values of the stage itself, the activation of a part, or a gate of halves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, table
from workbench.core.softmax import log_softmax, softmax

Function = Callable[[np.ndarray], np.ndarray]
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.logaddexp(0.0, x))


ACTIVATIONS: Mapping[str, Function] = {
    "SiLU": lambda x: x * _sigmoid(x),
    "GELU": lambda x: 0.5 * x * (1 + _erf(x * 0.5**0.5).astype(np.float64)),
    "GELU by tanh": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "GELU by a sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "ReLU": lambda x: np.maximum(x, 0.0),
    "squared ReLU": lambda x: np.square(np.maximum(x, 0.0)),
    "the identity": lambda x: x,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "softplus": _softplus,
    "ELU": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    "hard swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "ReLU6": lambda x: np.clip(x, 0.0, 6.0),
    "leaky ReLU": lambda x: np.where(x > 0, x, 0.01 * x),
}
"""Activations by name."""

EXTRA_FUNCTIONS: Mapping[str, Function] = {
    **{name: function for name, function in ACTIVATIONS.items() if name != "the identity"},
    "log-softmax": log_softmax,
    "softmax": softmax,
    "exp": lambda x: np.exp(np.minimum(x, 700.0)),
    "log": np.log,
    "square": np.square,
    "square root": np.sqrt,
    "absolute value": np.abs,
}
"""Functions that a stage may have too many or too few of."""


_ACTIVATED = ("mlp.up", "ffn1.up", "ffn2.up", "conv.depthwise_norm")  # what enters an activation
_BENT, _MIN_BENT = 1e-3, 4  # the share by which a soft cap changes a value, and how many values it changes so


def activations(scene: Scene) -> Iterator[Guess]:
    """Yields other activations of a feed-forward or convolution part, if its input is traced too."""
    if scene.part != "activation":
        return
    gate_input, up_input = scene.input_named("mlp.gate"), scene.input_named(*_ACTIVATED)
    inputs = [each for each in (gate_input, up_input) if each is not None]
    if not inputs or any(each[0].shape != scene.reference.shape for each in inputs):
        return
    reference_activation = None
    for name in ACTIVATIONS:
        reference_inputs = [each[0][scene.sample] for each in inputs]
        with np.errstate(all="ignore"):
            if is_close(_activated(name, *map(table, reference_inputs)), scene.pair[0], scene.allowed):
                reference_activation = name
                break
    if reference_activation is None:
        return
    candidate_inputs = [each[1] for each in inputs]
    with np.errstate(all="ignore"):
        expected = _activated(reference_activation, *(table(each[scene.sample]) for each in candidate_inputs))
    if is_close(expected, scene.pair[1], 2 * scene.allowed):
        return  # the error came in with the input

    def guess_of(kind: str, words: str, name: str, *arrays: np.ndarray) -> Guess:
        return Guess(kind, words, lambda rows: _activated(name, *(table(each[rows]) for each in arrays)), option=name)

    for name in ACTIVATIONS:
        if name != reference_activation:
            yield guess_of(
                "activation",
                "the activation is {}, where the reference has " + reference_activation,
                name,
                *candidate_inputs,
            )
    if len(candidate_inputs) == 2:
        yield guess_of(
            "gate", "the activation is applied to up, not to the gate", reference_activation, *candidate_inputs[::-1]
        )
        yield guess_of("gate", "the activated gate is not multiplied by up", reference_activation, candidate_inputs[0])
        yield guess_of("gate", "it is the activated up without the gate", reference_activation, candidate_inputs[1])


def _activated(name: str, gate: np.ndarray, up: np.ndarray | None = None) -> np.ndarray:
    activated = ACTIVATIONS[name](gate)
    return activated if up is None else activated * up


def gates(scene: Scene) -> Iterator[Guess]:
    """Yields other gates of the two halves of a projection: the Conformer's gated linear unit."""
    inputs = scene.input_named("conv.up") if scene.part == "gate" else None
    if inputs is None or inputs[0].shape != (*scene.reference.shape[:-1], 2 * scene.reference.shape[-1]):
        return

    def halves(array: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        first, second = np.split(table(array[rows]), 2, axis=1)
        return first, second

    def gated(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(first * _sigmoid(second))

    reference_input, candidate_input = inputs
    with np.errstate(all="ignore"):
        if not is_close(gated(*halves(reference_input, scene.sample)), scene.pair[0], scene.allowed):
            return
        if is_close(gated(*halves(candidate_input, scene.sample)), scene.pair[1], 2 * scene.allowed):
            return  # the error came in with the input

    def interleaved(rows: Rows) -> np.ndarray:
        x = table(candidate_input[rows])
        return gated(x[:, 0::2], x[:, 1::2])

    yield Guess(
        "gate",
        "the first half is the gate, where the reference's is the second",
        lambda rows: gated(*halves(candidate_input, rows)[::-1]),
    )
    yield Guess("gate", "even and odd channels are value and gate, where the reference has two halves", interleaved)
    yield Guess("gate", "the gate is left out: it is the first half", lambda rows: halves(candidate_input, rows)[0])
    for name in ("SiLU", "tanh", "ReLU", "GELU", "the identity"):

        def expected(rows: Rows, function: Function = ACTIVATIONS[name]) -> np.ndarray:
            first, second = halves(candidate_input, rows)
            return np.asarray(first * function(second))

        yield Guess("gate", f"the activation of the gate is {name}, where the reference has sigmoid", expected)


def caps(scene: Scene) -> Iterator[Guess]:
    """Yields soft caps, cap * tanh(x / cap), of the reference, or ones that only the reference has."""
    r, c = scene.pair
    place = np.unravel_index(np.abs(r).argmax(), r.shape)
    for words, large, small, is_left_out in (
        ("its values are capped softly at {:.6g}: cap * tanh(x / cap)", r, c, False),
        ("the reference's values are capped softly at {:.6g}, cap * tanh(x / cap), and these are not", c, r, True),
    ):
        x, y = float(large[place]), float(small[place])
        if not (math.isfinite(x) and 0 < y / x < 1 if x else False):
            continue
        low, high = 0.0, 1e3  # of x / cap: tanh(z) / z falls with z
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if math.tanh(middle) / middle > y / x else (low, middle)
        for cap in dict.fromkeys((float(f"{abs(x) / middle:.3g}"), abs(x) / middle)):
            side = scene.candidate if is_left_out else scene.reference

            def capped(x: np.ndarray, cap: float = cap) -> np.ndarray:
                return np.asarray(cap * np.tanh(x / cap))

            def expected(rows: Rows, capped: Function = capped, left_out: bool = is_left_out) -> np.ndarray:
                if not left_out:
                    return capped(table(scene.reference[rows]))
                x = table(scene.candidate[rows])
                return np.asarray(x + table(scene.reference[rows]) - capped(x))

            values = table(side[scene.sample])
            bent = values[np.abs(capped(values) - values) > _BENT * np.abs(values)]
            # The cap is read off one value, so others have to confirm it.
            if len(np.unique(bent)) >= _MIN_BENT and is_close(capped(values), small, 2 * scene.allowed):
                yield Guess("cap", words.format(cap), expected)


def functions(scene: Scene) -> Iterator[Guess]:
    """Yields functions of the reference, and functions whose result is the reference."""
    r, c = scene.pair
    reference, candidate = scene.reference, scene.candidate
    for name, function in EXTRA_FUNCTIONS.items():
        with np.errstate(all="ignore"):
            function_of_reference, function_of_candidate = function(r), function(c)
        if is_close(function_of_reference, c, 2 * scene.allowed):

            def expected(rows: Rows, function: Function = function) -> np.ndarray:
                return function(table(reference[rows]))

            yield Guess("function", f"it is the {name} of the reference: {name} is applied once too often", expected)
        elif is_close(r, function_of_candidate, 2 * scene.allowed) and function_of_candidate.any():
            # Not every function can be inverted, so the prediction is made in the other direction, and is equally
            # close.
            def expected_input(rows: Rows, function: Function = function) -> np.ndarray:
                r, c = table(reference[rows]), table(candidate[rows])
                times = np.linalg.norm(c) / max(float(np.linalg.norm(r)), 1e-300)
                return np.asarray(c + (r - function(c)) * times)

            yield Guess("function", f"the reference is the {name} of it: that is left out", expected_input)
