"""Guesses that name another stage: shifted by one, before or after a norm, an addend missing or doubled, CMVN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import permutations

import numpy as np

from workbench.compare.guesses.guess import Guess, Rows, Scene, is_close, relative_l2, table
from workbench.trace.inside import layer_and_part

_MAX_FEATURES = 1 << 24  # values whose mean and deviation are computed
_NEAREST = 12  # stages that may be missing as an addend
_TIMES = {-1.0: "lacks {}", 1.0: "has {} once more than the reference", -2.0: "subtracts {}"}
_HALF_STEPS = {
    -0.5: "lacks {}",
    0.5: "has the whole of {}, of which the reference adds half",
    -1.0: "subtracts half of {}",
}
_HALVED = (".ffn1.down", ".ffn2.down")  # ends of stages that a Conformer adds by half


def other_stages(scene: Scene) -> Iterator[Guess]:
    """Yields the reference's other stages of this shape, the nearest first."""
    for name in _nearest(scene):
        reference_stage = scene.reference_stages[name]
        if reference_stage.shape != scene.candidate.shape:
            continue
        if not is_close(table(reference_stage[scene.sample]), scene.pair[1], 2 * scene.allowed):
            continue
        kind, words = _about(scene, name)
        yield Guess(kind, words, lambda rows, array=reference_stage: table(array[rows]))  # type: ignore[misc]


def _nearest(scene: Scene) -> Iterator[str]:
    # If the reference's later stages are computed from the candidate's, they may equal this stage by themselves.
    after = () if scene.inputs_of == "candidate" else scene.after
    for number in range(max(len(scene.before), len(after))):
        yield from scene.before[number : number + 1]
        yield from after[number : number + 1]
    yield from scene.lacking


def _about(scene: Scene, name: str) -> tuple[str, str]:
    """Returns kind and words for a candidate that equals the reference's stage `name`."""
    clause = f"it equals the reference's {name}"
    if name in scene.lacking:
        if _counted_from_one(scene, name):
            return (
                "stages shifted",
                f"{clause}: its layers are counted from 1, and stages from 0 (`first = 1` in a mapping)",
            )
        return "other stage", clause
    if _shifted(scene, name):
        direction = "early" if name in scene.after else "late"
        return "stages shifted", f"{clause}: it and the stage after it come one stage too {direction}"
    if name in scene.after:
        return ("already normed", f"{clause}: it is already normed") if _is_norm(name) else ("other stage", clause)
    if _is_norm(scene.stage):
        return "before the norm", f"{clause}: the norm is left out"
    if scene.stage == "frontend.features":
        return "no CMVN", f"{clause}: CMVN is left out"
    if scene.part in ("query_rope", "key_rope") and name.startswith(scene.stage.removesuffix("_rope")):
        position = " or the position is 0" if len(scene.candidate) == 1 else ""
        return "RoPE", f"{clause}: RoPE is left out{position}"
    if name.startswith(f"{scene.stage}.") and name.endswith(".residual"):  # it has the residual stream
        rest = "the norm at the end of the layer" if name.endswith(".ffn2.residual") else "what the layer adds to it"
        return "left out", f"{clause}: {rest} is left out"
    if name.startswith(f"{scene.stage}.") or (scene.part == "residual" and name == scene.before[0]):
        return "no residual", f"{clause}: the residual stream that it is added to is left out"
    earlier_stages = [each for each in scene.before if not each.startswith(f"{scene.stage}.")]
    if earlier_stages and name == earlier_stages[0]:
        return "left out", f"{clause}, as if nothing were computed between them"
    return "other stage", clause


def _counted_from_one(scene: Scene, name: str) -> bool:
    """Returns whether the candidate has the reference's layer 0 as layer 1, and none with the number 0."""
    layer = layer_and_part(scene.stage) or (scene.stage, "")
    stack, _, number = layer[0].rpartition(".")
    reference_name = f"{stack}.0{'.' * bool(layer[1])}{layer[1]}"
    return number == "1" and name == reference_name and f"{stack}.0" not in scene.candidate_stages


def _is_norm(stage: str) -> bool:
    return "norm" in stage.rpartition(".")[2] or stage.endswith(("encoder.output", "decoder.output"))


def _shifted(scene: Scene, name: str) -> bool:
    """Returns whether the candidate's next stage of this shape is as many stages off."""
    stages = (*scene.before[::-1], scene.stage, *scene.after)
    order = [each for each in stages if scene.reference_stages[each].shape == scene.candidate.shape]
    stage_index, name_index = order.index(scene.stage), order.index(name)
    following = stage_index + 1
    source = following + name_index - stage_index
    if following >= len(order) or not 0 <= source < len(order):
        return False
    candidate_next, reference_next = scene.candidate_stages[order[following]], scene.reference_stages[order[source]]
    if candidate_next.shape != reference_next.shape:
        return False
    return is_close(table(reference_next[scene.sample]), table(candidate_next[scene.sample]), 4 * scene.allowed)


def addends(scene: Scene) -> Iterator[Guess]:
    """Yields sums of the reference and a multiple of one of its earlier stages: a residual left out, a wrong scale.

    An earlier stage with fewer rows belongs to the last rows, because the prompt comes before the sound.
    """
    if scene.reference.ndim != 2:
        return
    r, c = scene.pair
    difference = c - r
    for name, earlier_stage, first_row in of_this_width(scene):
        has_addend = scene.sample >= first_row
        part, d = table(earlier_stage[scene.sample[has_addend] - first_row]), difference[has_addend]
        size = float((part * part).sum())
        if not size or not has_addend.any():
            continue
        times = float((part * d).sum()) / size
        if not relative_l2(times * part, d) <= 0.05 or not times:
            continue

        def expected(
            rows: Rows, earlier_rows: np.ndarray = earlier_stage, first_row: int = first_row, times: float = times
        ) -> np.ndarray:
            return table(scene.reference[rows]) + times * table(earlier_rows[rows - first_row])

        yield Guess(*addend_words(scene, name, times, first_row), expected, first_row)


def of_this_width(scene: Scene) -> list[tuple[str, np.ndarray, int]]:
    """Returns the reference's nearest earlier stages that may be an addend, and the row at which each begins."""
    stages = list[tuple[str, np.ndarray, int]]()
    for name in scene.before:
        if len(stages) == _NEAREST:
            break
        earlier_stage = scene.reference_stages[name]
        first_row = len(scene.reference) - len(earlier_stage) if earlier_stage.ndim == 2 else -1
        if (
            first_row >= 0
            and earlier_stage.shape[1:] == scene.reference.shape[1:]
            and len(earlier_stage) >= max(2, len(scene.reference) / 2)
        ):
            stages.append((name, earlier_stage, first_row))
    return stages


def residuals(scene: Scene) -> Iterator[Guess]:
    """Yields the reference with one addend exchanged for another earlier stage: a residual from the wrong place."""
    if scene.reference.ndim != 2:
        return
    r, c = scene.pair
    difference = c - r
    stages = [(name, array) for name, array, first_row in of_this_width(scene) if first_row == 0]
    parts = {name: table(array[scene.sample]) for name, array in stages}
    allowed = 2 * scene.allowed * float(np.linalg.norm(c))
    for (wrong, wrong_array), (right, right_array) in permutations(stages, 2):
        if not float(np.linalg.norm(parts[wrong] - parts[right] - difference)) <= allowed:
            continue

        def expected(rows: Rows, wrong: np.ndarray = wrong_array, right: np.ndarray = right_array) -> np.ndarray:
            return table(scene.reference[rows]) + table(wrong[rows]) - table(right[rows])

        yield Guess("addend", f"it has the reference's {wrong} added in the place of {right}", expected)


def addend_words(scene: Scene, name: str, times: float, first: int) -> tuple[str, str]:
    """Returns kind and words for a reference that has been changed by so many times one of its earlier stages."""
    where, addend = f"from row {first} on " if first else "", f"the reference's {name}"
    for value, words in (_HALF_STEPS if name.endswith(_HALVED) else _TIMES).items():
        if math.isclose(times, value, rel_tol=1e-3):
            return "addend", f"{where}it {words.format(addend)}"
    for width in scene.widths:
        if math.isclose(times, 1 - math.sqrt(width), rel_tol=1e-3):
            return "scale of an addend", f"{where}{name} is in it without the factor {math.sqrt(width):.5g} = √{width}"
    for right, wrong in permutations(scene.widths, 2):
        if math.isclose(times, math.sqrt(wrong) - math.sqrt(right), rel_tol=1e-4):
            return "scale of an addend", f"{where}{name} is in it with the factor √{wrong}, not √{right}"
    return "addend", f"{where}it is the reference plus {times:.5g} times the reference's {name}"


def cmvn(scene: Scene) -> Iterator[Guess]:
    """Yields wrong uses of a shift and a scale of each channel, read off the reference: CMVN, or a norm of batches."""
    if scene.reference.ndim != 2 or len(scene.sample) < 8:
        return
    yield from _own_statistics(scene)
    for _, reference_input, candidate_input in scene.inputs(1):
        x, r = table(reference_input[scene.sample]), scene.pair[0]
        scale, constant = _lines(x, r)
        if not is_close(scale * x + constant, r, scene.allowed) or np.allclose(scale, 1.0) or not scale.all():
            continue
        if is_close(scale * table(candidate_input[scene.sample]) + constant, scene.pair[1], 2 * scene.allowed):
            continue  # the error came in with the input
        shift = constant / scale

        def affine(array: np.ndarray, a: np.ndarray, b: np.ndarray) -> object:
            return lambda rows: a * table(array[rows]) + b

        for words, array, a, b in (
            ("CMVN is applied twice", scene.reference, scale, constant),
            ("CMVN's shift is left out", candidate_input, scale, 0 * scale),
            ("CMVN's scale is left out", candidate_input, 1 + 0 * scale, shift),
            ("CMVN's shift has the wrong sign", candidate_input, scale, -constant),
            ("CMVN divides by its scale", candidate_input, 1 / scale, shift / scale),
            ("CMVN scales before it shifts", candidate_input, scale, shift),
            ("CMVN's shift and scale have changed places", candidate_input, shift, shift * scale),
            ("CMVN multiplies by its scale twice", candidate_input, np.square(scale), shift * np.square(scale)),
            (
                "CMVN multiplies by the root of its scale",
                candidate_input,
                np.sqrt(np.abs(scale)),
                shift * np.sqrt(np.abs(scale)),
            ),
        ):
            yield Guess("CMVN", words, affine(array, a, b))  # type: ignore[arg-type]


def _own_statistics(scene: Scene) -> Iterator[Guess]:
    """Yields features normalised by the recording's own mean and deviation, where the reference's are not."""
    inputs = scene.inputs(1)
    if scene.stage != "frontend.features" or scene.reference.size > _MAX_FEATURES or not inputs:
        return
    [(_, _, candidate_input)] = inputs
    x = table(candidate_input)
    mean, deviation = x.mean(axis=0), x.std(axis=0)
    inverse_deviations = np.divide(1.0, deviation, out=np.ones_like(deviation), where=deviation > 0)

    def guess(words: str, scale: np.ndarray) -> Guess:
        sentence = f"{words} of this recording, which the reference does not do"
        return Guess("CMVN", sentence, lambda rows: scale * (table(candidate_input[rows]) - mean))

    yield guess("it is without the mean", np.ones_like(mean))
    yield guess("it is normalised by mean and deviation", inverse_deviations)
    yield guess("it is normalised by mean and unbiased deviation", inverse_deviations * np.sqrt((len(x) - 1) / len(x)))


def _lines(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns factor and constant of the line through each channel, by least squares."""
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    variance = np.square(x - mean_x).sum(axis=0)
    product = ((x - mean_x) * (y - mean_y)).sum(axis=0)
    factor = np.divide(product, variance, out=np.ones_like(product), where=variance > 0)
    return factor, mean_y - factor * mean_x
