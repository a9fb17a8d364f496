"""Steps of a network with known parameters, and what a port may compute in the place of each.

A step maps rows to rows. Its alternatives are the same step with one fault, so a chain of steps has the alternatives of
all its steps: everything else stays right. This file knows no stages and no models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from workbench.compare.guesses.functions import ACTIVATIONS
from workbench.compare.guesses.guess import Linear
from workbench.compare.guesses.norms import normalised

Function = Callable[[np.ndarray], np.ndarray]
_NAME = "\0"  # stands for the name of a step
_OTHER_EPSILONS = (1e-3, 1e-5, 1e-6, 1e-8, 1e-12)


class Wrong(NamedTuple):
    """What a port may compute in the place of a step."""

    words: str  # a sentence without a capital letter and a full stop
    function: Function
    option: str = ""  # takes the place of {} in `words`, as in a `Guess`


class Step(NamedTuple):
    """A step of a network."""

    name: str  # as a sentence calls it, such as "its first projection"
    right: Function
    wrong: Sequence[Wrong] = ()
    may_swap: bool = False  # whether ports put it behind the next step, or before the step in front

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Returns what the right step makes of rows [n, ...]."""
        return self.right(x)


def chain(name: str, *steps: Step) -> Step:
    """Returns steps one after the other as one step."""

    def after(number: int, function: Function, skipped: int = 1) -> Function:
        def computed(x: np.ndarray) -> np.ndarray:
            functions = [each.right for each in steps]
            functions[number : number + skipped] = [function]
            for each in functions:
                x = each(x)
            return x

        return computed

    def all_wrong() -> Iterator[Wrong]:
        for number, step in enumerate(steps):
            for wrong in step.wrong:
                yield wrong._replace(function=after(number, wrong.function))
        yield from _in_several(steps)
        for number, (one, other) in enumerate(pairwise(steps)):
            if one.may_swap != other.may_swap:
                words = f"{one.name} comes behind {other.name}, where the reference's comes before it"
                yield Wrong(words, after(number, lambda x, one=one, other=other: one(other(x)), 2))  # type: ignore[misc]

    return Step(name, after(0, lambda x: x, 0), list(all_wrong()))


def _in_several(steps: Sequence[Step]) -> Iterator[Wrong]:
    """Yields the same fault in all steps that may have it: a port has one function for all its convolutions."""
    faults: dict[tuple[str, str], dict[int, Function]] = {}
    for number, step in enumerate(steps):
        for wrong in step.wrong:
            if step.name in wrong.words:
                key = wrong.words.replace(step.name, _NAME), wrong.option
                faults.setdefault(key, {})[number] = wrong.function
    for (words, option), functions in faults.items():
        if len(functions) > 1:

            def computed(x: np.ndarray, functions: dict[int, Function] = functions) -> np.ndarray:
                for number, step in enumerate(steps):
                    x = functions.get(number, step.right)(x)
                return x

            names = " as well as ".join(steps[number].name for number in functions)
            yield Wrong(words.replace(_NAME, names), computed, option)


def with_residual(step: Step, times: float = 1.0) -> Step:
    """Returns a step whose result, times a factor, is added to its input."""

    def added(function: Function, times: float = times) -> Function:
        return lambda x: x + times * function(x)

    wrong = [each._replace(function=added(each.function)) for each in step.wrong]
    wrong.append(Wrong(f"the input of {step.name} is not added to its output", lambda x: times * step(x)))
    wrong.append(Wrong(f"{step.name} is left out", lambda x: x))
    if times != 1.0:
        wrong.append(
            Wrong(
                f"the whole output of {step.name} is added, where the reference adds {times:g} of it",
                added(step.right, 1.0),
            )
        )
        wrong.append(Wrong(f"{step.name} and its input are multiplied by {times:g}", lambda x: times * (x + step(x))))
    return Step(step.name, added(step.right), wrong)


def pre_norm(name: str, first: Step, *steps: Step, times: float = 1.0) -> Step:
    """Returns a part with a norm in front, whose result, times a factor, is added to the input of the norm."""
    rest = chain(name, *steps)
    whole = with_residual(chain(name, first, rest), times)
    wrong = [
        Wrong(
            f"{first.name} stands behind the residual (post-norm), where the reference's stands in front of {name}",
            lambda x: first(x + times * rest(x)),
        ),
        Wrong(f"{first.name} stands behind {name}, before the residual is added", lambda x: x + times * first(rest(x))),
        Wrong(
            f"the residual of {name} is taken behind its norm, where the reference's is taken before it",
            lambda x: first(x) + times * rest(first(x)),
        ),
    ]
    return whole._replace(wrong=[*whole.wrong, *wrong])


def linear(name: str, layer: Linear, is_vector: bool = False) -> Step:
    """Returns a linear layer; with `is_vector`, one that makes a number of each row."""
    weight = np.asarray(layer.weight, np.float64)
    bias = np.zeros(len(weight)) if layer.bias is None else np.asarray(layer.bias, np.float64)

    def product(x: np.ndarray, weight: np.ndarray = weight, bias: np.ndarray | float = bias) -> np.ndarray:
        y: np.ndarray = x @ weight.T + bias
        return y[:, 0] if is_vector else y

    wrong: list[Wrong] = (
        [Wrong(f"the bias of {name} is left out", lambda x: product(x, bias=0.0))] if bias.any() else []
    )
    out, width = weight.shape
    if min(out, width) > 1:
        words = "is transposed" if out == width else f"is read as {width}×{out}, not {out}×{width}"
        wrong.append(Wrong(f"the weight of {name} {words}", lambda x: product(x, weight.reshape(width, out).T)))
    return Step(name, product, wrong)


def activation(name: str, kind: str, others: Sequence[str] = tuple(ACTIVATIONS), may_swap: bool = True) -> Step:
    """Returns an activation, a key of `ACTIVATIONS`."""
    wrong: list[Wrong] = [
        Wrong(f"{name} is left out", ACTIVATIONS[each])
        if each == "the identity"
        else Wrong(f"{name} is {{}}, where the reference's is {kind}", ACTIVATIONS[each], each)
        for each in others
        if each != kind
    ]
    return Step(name, ACTIVATIONS[kind], wrong, may_swap)


def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first and the second half of the channels of rows [n, channels]."""
    first, second = np.split(x, 2, axis=1)
    return first, second


def gate(name: str) -> Step:
    """Returns a gated linear unit: the first half of the channels times the sigmoid of the second."""
    sigmoid = ACTIVATIONS["sigmoid"]

    def gated(function: Function, first: slice, second: slice) -> Function:
        return lambda x: x[:, first] * function(x[:, second])

    def of_halves(function: Function) -> Function:
        return lambda x: halves(x)[0] * function(halves(x)[1])

    wrong: list[Wrong] = [
        Wrong(
            f"{name} takes the first half, where the reference's takes the second",
            lambda x: sigmoid(halves(x)[0]) * halves(x)[1],
        ),
        Wrong(
            "even and odd channels are value and gate, where the reference has two halves",
            gated(sigmoid, slice(0, None, 2), slice(1, None, 2)),
        ),
        Wrong(f"{name} is left out: only the first half goes on", lambda x: halves(x)[0]),
        *(
            Wrong(
                f"the activation of {name} is {{}}, where the reference has sigmoid", of_halves(ACTIVATIONS[each]), each
            )
            for each in ("SiLU", "tanh", "ReLU", "GELU", "the identity")
        ),
    ]
    return Step(name, of_halves(sigmoid), wrong)


def norm(
    name: str, layer: Linear, epsilon: float, others: Sequence[tuple[str, Linear]] = (), centred: bool = True
) -> Step:
    """Returns a norm over the last axis.

    Args:
        others: norms of the same width that a port may take for it.
        centred: LayerNorm subtracts the mean, RMSNorm does not.
    """

    def scaled(x: np.ndarray, layer: Linear = layer) -> np.ndarray:
        return np.asarray(x * layer.weight + (0.0 if layer.bias is None else layer.bias))

    def normed(x: np.ndarray, layer: Linear = layer, centred: bool = centred, epsilon: float = epsilon) -> np.ndarray:
        return scaled(normalised(x, centred, epsilon), layer)

    kinds = ("LayerNorm", "RMSNorm") if centred else ("RMSNorm", "LayerNorm")
    wrong: list[Wrong] = [
        Wrong(f"{name} is left out", lambda x: x),
        Wrong(f"{name} is without its weight and bias", lambda x: normalised(x, centred, epsilon)),
        Wrong(f"{name} has only its weight and bias: mean and deviation are left out", scaled),
        Wrong(f"{name} is {kinds[1]}, where the reference's is {kinds[0]}", partial(normed, centred=not centred)),
        Wrong(
            f"{name} has one plus its weight as its weight",
            partial(normed, layer=layer._replace(weight=1 + np.asarray(layer.weight, np.float64))),
        ),
        *(
            Wrong(
                f"the epsilon of {name} is {{}}, where the reference's is {epsilon:g}",
                partial(normed, epsilon=each),
                f"{each:g}",
            )
            for each in _OTHER_EPSILONS
            if each != epsilon
        ),
        *(
            Wrong(f"{words} stands in the place of {name}", partial(normed, layer=other))
            for words, other in others
            if other.weight.shape == layer.weight.shape
        ),
    ]
    return Step(name, normed, wrong)


def depthwise(name: str, kernel: np.ndarray, with_input: bool = False) -> Step:
    """Returns a convolution over time with a kernel [channels, taps] for each channel, and zeros beyond the ends.

    Args:
        with_input: whether its input is added.
    """
    taps = kernel.shape[1]
    middle = (taps - 1) // 2

    def convolved(x: np.ndarray, kernel: np.ndarray = kernel, before: int = middle) -> np.ndarray:
        padded = np.pad(x, ((before, taps - 1 - before), (0, 0)))
        return np.asarray(sum(padded[tap : tap + len(x)] * kernel[:, tap] for tap in range(taps)))

    def added(function: Function) -> Function:
        return (lambda x: x + function(x)) if with_input else function

    wrong: list[Wrong] = [
        Wrong(f"the kernel of {name} is reversed in time", added(lambda x: convolved(x, kernel[:, ::-1]))),
        Wrong(f"{name} sees earlier frames only: it is causal", added(lambda x: convolved(x, before=taps - 1))),
        Wrong(f"{name} comes one frame late", added(lambda x: convolved(x, before=middle + 1))),
        Wrong(f"{name} comes one frame early", added(lambda x: convolved(x, before=middle - 1))),
    ]
    if with_input:
        wrong.append(Wrong(f"the input of {name} is not added to it", convolved))
        wrong.append(Wrong(f"{name} is left out: only its input goes on", lambda x: x))
        wrong.append(Wrong(f"{name} and its input are left out", lambda x: 0 * x))
    return Step(name, added(convolved), wrong)


def convolution(name: str, layer: Linear, stride: int = 1, padding: tuple[int, int] = (0, 0)) -> Step:
    """Returns a convolution over time, or over time and frequency, by the number of axes of its weight.

    Args:
        layer: its weight is [out, in, taps] for x [n, in], or [out, in, taps, taps] for x [n, frequencies, in].
        stride: of all axes.
        padding: rows of zeros in front and behind.
    """
    weight = np.asarray(layer.weight, np.float64)
    bias = np.zeros(len(weight)) if layer.bias is None else np.asarray(layer.bias, np.float64)

    def convolved(
        x: np.ndarray, weight: np.ndarray = weight, bias: np.ndarray | float = bias, before: int = padding[0]
    ) -> np.ndarray:
        x = np.pad(x, ((before, sum(padding) - before), *((0, 0) for _ in x.shape[1:])))
        axes = tuple(range(weight.ndim - 2))
        windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axes)  # type: ignore[call-overload]
        windows = windows[(slice(None, None, stride),) * len(axes)]
        return np.tensordot(windows, weight, (range(len(axes), windows.ndim), range(1, weight.ndim))) + bias

    taps = tuple(range(2, weight.ndim))
    wrong: list[Wrong] = [
        Wrong(
            f"the kernels of {name} are reversed, as in a convolution of mathematics",
            lambda x: convolved(x, np.flip(weight, taps)),
        ),
        *([Wrong(f"the bias of {name} is left out", lambda x: convolved(x, bias=0.0))] if bias.any() else []),
    ]
    if len(taps) == 2:
        wrong.append(
            Wrong(
                f"the kernels of {name} have time and frequency exchanged",
                lambda x: convolved(x, weight.swapaxes(2, 3)),
            )
        )
    if weight.shape[0] == weight.shape[1] > 1:
        wrong.append(
            Wrong(
                f"the weight of {name} has its inputs and outputs exchanged",
                lambda x: convolved(x, weight.swapaxes(0, 1)),
            )
        )
    if sum(padding):
        words = f"{name} has all its padding in front: it sees earlier frames only"
        wrong.append(Wrong(words, lambda x: convolved(x, before=sum(padding))))
        wrong.append(Wrong(f"{name} has all its padding behind", lambda x: convolved(x, before=0)))
    return Step(name, convolved, wrong)
