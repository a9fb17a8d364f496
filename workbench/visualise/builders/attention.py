"""The view of attention: the weights of a layer, their rollout through all layers, and from a token back to the sound.

Rows are queries, columns are keys. If a model has an FSMN memory, the rollout treats its output as the row itself:
rollout follows only attention and residual connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.core.phrases import counted, numbers_below
from workbench.plots.layers import Axis, Layer, Scale, scale_of
from workbench.system.tempdirs import tempdir
from workbench.trace.times import RowTimes
from workbench.visualise.answers import AUDIO_EMBEDDINGS, EMBEDDINGS, Answered, answered
from workbench.visualise.builders.ctc import blank_of, peaks_of
from workbench.visualise.options import ViewOptions
from workbench.visualise.rollout import rollout
from workbench.visualise.scene import Scene, token_number
from workbench.visualise.stacks import PREFIXES, layer_of, stack_of
from workbench.visualise.view_content import ViewContent, token_spans

WEIGHTS, CROSS = "attention.weights", "cross_attention.weights"
CROSSED = f"decoder.layers.*.{CROSS}"
FSMN = "the FSMN memory of each layer mixes neighbouring frames too; rollout counts it as the frame itself"
PROMPT_ALONE = "the layers read the prompt alone here: the runtime does not go on from given stages"


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a matrix of weights: its axis, and the rows that hold sound."""

    axis: Axis
    times: RowTimes | None = None  # of the rows that hold sound
    sound: tuple[int, int] | None = None  # those rows; None for all

    def sound_weights(self, weights: np.ndarray) -> tuple[np.ndarray, Axis]:
        """Returns the weights [..., keys] of the keys that hold sound, and their axis in seconds."""
        first, end = self.sound or (0, weights.shape[-1])
        axis = Axis("seconds", "seconds", *self.times) if self.times else Axis("row of sound", "rows")
        return weights[..., first:end], axis


def attention(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the picture that the options ask for: each head, the mean, rollout, or from a token back to the sound."""
    if options.attention == "token":
        return _attention_to_sound(scene, options)
    if options.stack == "cross" and options.attention == "rollout":
        raise BadInput("rollout goes through the layers of one stack, and cross is between two; expected another stack")
    if options.stack == "cross":
        return _matrix(scene, options, *_crossed(scene, options.layer))
    prefix, count = stack_of(scene, options.stack)
    _check_kind(scene, prefix)
    if options.attention == "rollout":
        return _rolled(scene, prefix, count)
    layer = layer_of(scene, options.layer, prefix, count)
    stage = f"{prefix}.{layer}.{WEIGHTS}"
    if prefix == PREFIXES["llm"]:
        weights, side, notes = _of_language(scene, stage)
        return _matrix(scene, options, stage, weights, side, side, notes)
    weights = scene.stage(stage, "the weights of attention")
    side = Side(scene.rows(stage), scene.times(stage))
    return _matrix(scene, options, stage, weights, side, side)


def _check_kind(scene: Scene, prefix: str) -> None:
    if prefix == PREFIXES["decoder"]:
        raise BadInput(
            f"the decoder of {scene.session.model} attends to the sound alone; expected the stack cross, or encoder"
        )


def _crossed(scene: Scene, layer: int | None) -> tuple[str, np.ndarray, Side, Side]:
    """Returns the attention of a decoder's tokens to the sound: stage, weights [heads, tokens, frames], both sides."""
    stages = scene.stages(CROSSED)
    numbers = sorted(int(match[1]) for stage in stages if (match := re.fullmatch(r"decoder\.layers\.(\d+)\..*", stage)))
    if not numbers:
        scene.check_written()
        raise scene.lacks("attention from tokens to sound", CROSSED)
    if layer is not None and layer not in numbers:
        raise BadInput(
            f"layer {layer} of the decoder of {scene.session.model} does not attend to the sound; expected one of "
            f"{', '.join(map(str, numbers))}"
        )
    stage = f"decoder.layers.{numbers[-1] if layer is None else layer}.{CROSS}"
    scene.stages("encoder.output")
    tokens = Axis("token", "tokens", ticks=scene.texts(scene.stage("tokens")), down=True)
    return stage, stages[stage], Side(tokens), Side(scene.rows("encoder.output"), scene.times("encoder.output"))


def _of_language(scene: Scene, stage: str) -> tuple[np.ndarray, Side, tuple[str, ...]]:
    """Returns the weights of a layer of a language model over prompt and answer, the axis of its positions, notes."""
    try:
        answer = answered(scene)
        weights = scene.stages_resumed_from({EMBEDDINGS: answer.embeddings}, stage)[stage]
    except Unavailable:
        weights, answer = scene.stage(stage, "the weights of attention"), None
    side = _positions(scene, answer, weights.shape[-1])
    return weights, side, () if answer else (PROMPT_ALONE,)


def _positions(scene: Scene, answer: Answered | None, count: int) -> Side:
    """Returns the axis of the positions of a language model, with the text of each that holds a token."""
    if answer is None:
        return Side(Axis("position", "tokens", down=True))
    prompt_tokens = scene.stages("prompt.tokens").get("prompt.tokens")
    words = ["♪"] * count
    first, end = answer.sound_rows
    if prompt_tokens is not None:
        # The sound's placeholder between them may have no text, or an id outside the vocabulary.
        after = prompt_tokens[len(prompt_tokens) - (answer.prompt - end) :]
        texts = scene.texts([*prompt_tokens[:first], *after])
        words[:first], words[end : answer.prompt] = texts[:first], texts[first:]
    elif first == end:
        words[: answer.prompt] = [""] * answer.prompt
    words[answer.prompt :] = scene.texts(answer.ids[:-1])
    axis = Axis("position", "tokens", ticks=tuple(words[:count]), down=True)
    return Side(axis, scene.times(AUDIO_EMBEDDINGS), (first, end) if end > first else None)


def _matrix(
    scene: Scene,
    options: ViewOptions,
    stage: str,
    weights: np.ndarray,
    queries: Side,
    keys: Side,
    notes: tuple[str, ...] = (),
) -> ViewContent:
    """Returns the weights [heads, queries, keys] of all heads, of one, or their mean."""
    heads = len(weights)
    if options.head is not None and options.head >= heads:
        raise BadInput(
            f"{stage} has {counted(heads, 'head')}, but head {options.head} is requested; expected "
            f"{numbers_below(heads)}"
        )
    y = replace(queries.axis, down=True)
    x = replace(keys.axis, down=False)
    layer = stage.rpartition(f".{CROSS if stage.endswith(CROSS) else WEIGHTS}")[0]
    labels: tuple[str, ...] = ()
    if options.head is not None:
        values, title = weights[options.head], f"head {options.head} of {layer}"
    elif options.attention == "mean" or heads == 1:
        values, title = weights.mean(axis=0), f"mean of {counted(heads, 'head')} of {layer}"
    else:
        values, title = weights, f"each head of {layer}"
        labels = tuple(f"head {number}" for number in range(heads))
    image = Layer("attention", "image", title, values, x, y, labels=labels, scale=_scale(values))
    tokens = scene.tokens()
    spans = token_spans(tokens)
    timed = x.unit == "seconds" and len(spans.values) > 0
    return ViewContent("Attention", (image, *((spans,) if timed else ())), tokens, notes)


def _scale(weights: np.ndarray) -> Scale:
    return scale_of("attention", weights, low=0.0)


def _rolled(scene: Scene, prefix: str, count: int) -> ViewContent:
    """Returns the rollout of a stack. Reads the weights from a file, one layer at a time."""
    weights, side, notes = rolled(scene, prefix, count)
    x, y = replace(side.axis, down=False), replace(side.axis, down=True)
    title = f"rollout through {counted(count, 'layer')} of {prefix.partition('.')[0]}"
    return ViewContent(
        "Attention", (Layer("rollout", "image", title, weights, x, y, scale=_scale(weights)),), scene.tokens(), notes
    )


def rolled(scene: Scene, prefix: str, count: int) -> tuple[np.ndarray, Side, tuple[str, ...]]:
    """Returns the rollout [rows, rows] through all layers of a stack, the axis of its rows, and notes."""
    substituted, answer = {}, None
    if prefix == PREFIXES["llm"]:
        answer = answered(scene)
        substituted = {EMBEDDINGS: answer.embeddings}
    stages = [f"{prefix}.{number}.{WEIGHTS}" for number in range(count)]
    attention = rollout(_one_by_one(scene, substituted, stages))
    if answer is not None:
        return attention, _positions(scene, answer, len(attention)), ()
    side = Side(scene.rows(stages[0]), scene.times(stages[0]))
    return attention, side, (FSMN,) if f"{prefix}.0.fsmn" in scene.stages(f"{prefix}.0.fsmn") else ()


def _one_by_one(scene: Scene, substituted: dict[str, np.ndarray], stages: list[str]) -> Iterator[np.ndarray]:
    with tempdir() as folder:
        trace = scene.trace_to_file(",".join(stages), folder / "weights.safetensors", substituted)
        for stage in stages:
            if stage not in trace:
                raise scene.lacks("the weights of attention", stage)
            yield trace[stage]


# From a token back to the sound.


def _attention_to_sound(scene: Scene, options: ViewOptions) -> ViewContent:
    """Returns the attention of one token's choice to the recording: each head, their mean, and all tokens."""
    if options.stack in ("auto", "cross"):
        scene.check_written()
    if options.stack in ("auto", "cross") and "decoder" in _stacks(scene):
        stage, weights, _, keys = _crossed(scene, options.layer)
        ids = scene.stage("tokens").tolist()
        return _arrow(scene, options, stage, weights, keys, ids)
    prefix, count = stack_of(scene, options.stack, ("llm", "encoder"))
    stage = f"{prefix}.{layer_of(scene, options.layer, prefix, count)}.{WEIGHTS}"
    if prefix == PREFIXES["llm"]:
        answer = answered(scene)
        if answer.sound_rows[0] == answer.sound_rows[1]:
            raise BadInput(f"{scene.session.model} was given no recording, so no token goes back to a sound")
        weights = scene.stages_resumed_from({EMBEDDINGS: answer.embeddings}, stage)[stage][:, answer.rows]
        return _arrow(scene, options, stage, weights, _positions(scene, answer, weights.shape[-1]), list(answer.ids))
    ids, rows = _frames(scene)
    weights = scene.stage(stage, "the weights of attention")[:, rows]
    return _arrow(scene, options, stage, weights, Side(scene.rows(stage), scene.times(stage)), ids)


def _stacks(scene: Scene) -> set[str]:
    return {"decoder"} if scene.stages(CROSSED) else set()


def _frames(scene: Scene) -> tuple[list[int], np.ndarray]:
    """Returns the tokens of a CTC model and the frame of each where it is likeliest."""
    posteriors = scene.stage("ctc.posteriors", "posteriors of a CTC head, which tell the frame of a token")
    frames, ids = peaks_of(posteriors, blank_of(posteriors, scene.stage("tokens").tolist()))
    return ids.tolist(), frames


def _arrow(
    scene: Scene, options: ViewOptions, stage: str, weights: np.ndarray, keys: Side, ids: list[int]
) -> ViewContent:
    """Returns the picture of weights [heads, tokens, keys], with one row for each token of the output."""
    words = scene.texts(ids)
    number = token_number(options.token, words)
    name = f"token {number}, {scene.word(words, number)}"
    sound, x = keys.sound_weights(weights)
    mean = sound.mean(axis=0)
    heads = Axis("head", "rows", ticks=tuple(map(str, range(len(sound)))), down=True)
    token_weights = sound[:, number]
    layer = stage.removesuffix(f".{CROSS}").removesuffix(f".{WEIGHTS}")
    layers = [
        Layer(
            "token", "bars", f"{name}: mean over the heads of {layer}", token_weights.mean(axis=0), x, Axis("attention")
        ),
        Layer("heads", "image", f"{name}: each head", token_weights, x, heads, scale=_scale(token_weights)),
        Layer(
            "all_tokens",
            "image",
            "all tokens, mean over the heads",
            mean,
            x,
            Axis("token", "tokens", ticks=words, down=True),
            scale=_scale(mean),
        ),
    ]
    tokens = scene.tokens()
    spans = token_spans(tokens)
    notes = []
    if keys.sound is not None:
        share = float(weights[:, number].mean(axis=0)[keys.sound[0] : keys.sound[1]].sum())
        notes.append(f"{share:.0%} of the attention of this token falls on the sound, the rest on the text around it")
    return ViewContent(
        "Attention back to the sound", (*layers, *((spans,) if len(spans.values) else ())), tokens, tuple(notes)
    )
