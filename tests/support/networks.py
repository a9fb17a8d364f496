"""A small residual network in numpy whose arithmetic can be chosen and in which faults can be planted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from workbench.trace.recorder import stage_digest
from workbench.trace.trace import Trace

FRAMES, WIDTH, LAYERS, VOCABULARY = 24, 64, 8, 40
META = {"model": "tiny", "runtime": "numpy", "input_digest": "a1b2"}

Fault = Callable[[np.ndarray], np.ndarray]


def blocks(weight: np.ndarray, levels: int) -> np.ndarray:
    """The weight [out, in] with each 32 values of a row rounded to that many steps on either side of zero."""
    parts = weight.reshape(-1, 32)
    scale = np.maximum(np.abs(parts).max(axis=1, keepdims=True), 1e-30) / levels
    return (np.round(parts / scale) * scale).reshape(weight.shape)


ROUNDED: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "float64": lambda w: w,
    "float32": lambda w: w.astype(np.float32),
    "float16": lambda w: w.astype(np.float16).astype(np.float32),
    "bfloat16": lambda w: ((w.astype(np.float32).view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32),
    "q8_0": lambda w: blocks(w, 127).astype(np.float32),
    "q4_0": lambda w: blocks(w, 8).astype(np.float32),
}


def computed(
    dtype: str = "float32",
    seed: int = 0,
    layers: int = LAYERS,
    faults: Mapping[str, Fault] | None = None,
    reverse: bool = False,
    given: Mapping[str, np.ndarray] | None = None,
) -> Trace:
    """The trace of a pass.

    Args:
        dtype: of weights; float16 and the quantised types compute in float32.
        faults: what happens to the output of a stage, before what follows it.
        reverse: sum in the opposite order, as another library may: the same numbers but for rounding.
        given: what follows a stage goes on with, in place of what was computed there.
    """
    with np.errstate(all="ignore"):  # an overflow may be what is planted
        stages = _stages(dtype, seed, layers, faults or {}, reverse, given or {})
        used = {} if given is None else {stage: stage_digest(given[stage]) for stage in stages if stage in given}
        return Trace(stages, META | {"dtype": dtype} | ({} if given is None else {"isolated": True, "given": used}))


def _stages(
    dtype: str, seed: int, layers: int, faults: Mapping[str, Fault], reverse: bool, given: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = np.float64 if dtype == "float64" else np.float32
    stages: dict[str, np.ndarray] = {}

    def put(stage: str, value: np.ndarray) -> np.ndarray:
        change = faults.get(stage)
        stages[stage] = value if change is None else change(value).astype(value.dtype)
        return given[stage].astype(value.dtype) if stage in given else stages[stage]

    def linear(x: np.ndarray, out: int) -> np.ndarray:
        weight = ROUNDED[dtype](rng.standard_normal((out, x.shape[1])) / np.sqrt(x.shape[1])).astype(kind)
        return x[:, ::-1] @ weight[:, ::-1].T if reverse else x @ weight.T

    def normalised(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + kind(1e-5))

    fbank = put("frontend.fbank", rng.standard_normal((FRAMES, 32)).astype(np.float32).astype(kind))
    put("prompt.tokens", np.array([7, 8, 9]))
    x = put("encoder.input", linear(fbank, WIDTH))
    for n in range(layers):
        hidden = np.maximum(linear(normalised(x), 2 * WIDTH), kind(0))
        x = put(f"encoder.layers.{n}", x + linear(hidden, WIDTH))
    x = put("encoder.output", normalised(x))
    logits = put("logits", 4 * linear(x, VOCABULARY))
    best = logits.argmax(axis=1)
    tokens = best[(np.diff(best, prepend=-1) != 0) & (best != 0)]
    put("tokens", tokens)
    put("text", np.array(" ".join(f"w{token}" for token in tokens)))
    return stages


STAGES = list(computed(layers=LAYERS))
NUMBERS = [stage for stage in STAGES if stage not in ("prompt.tokens", "tokens", "text")]
