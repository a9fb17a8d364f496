"""Plants faults in funasr's SenseVoice, and writes the dumps of faulty and of correct ports.

    python -m benchmarks.faults_in_funasr FOLDER

This file is independent of the comparison; see `benchmarks.faults_in_transformers`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.funasr_sensevoice import MODEL, STAGES, Dump, Port, inputs_of, network, recordings
from benchmarks.planting import Field
from benchmarks.transformers_port import reordered

Fault = Callable[[Port, int, np.random.Generator], str]
INPUTS, FAULTY_INPUTS, TYPE = 5, 2, "float32"


def run(port: Port, features: np.ndarray, queries: tuple[int, ...], **options: Any) -> dict[str, np.ndarray]:
    """Returns the stages of a recording.

    Args:
        options: `threads`; `padded`, frames of padding in a batch of two.
    """
    torch.set_num_threads(options.get("threads", 1))
    speech, padded = torch.from_numpy(features)[None], options.get("padded", 0)
    lengths = torch.tensor([len(features)])
    dump = Dump(port, 1 if padded else 0, len(features) + len(queries))
    if padded:
        other = torch.from_numpy(np.resize(features[::-1], (1, len(features) + padded, features.shape[1])).copy())
        speech = torch.cat([other, F.pad(speech, (0, 0, 0, padded))])
        lengths = torch.tensor([len(features) + padded, len(features)])
    with torch.inference_mode():
        port(speech.clone(), lengths, torch.tensor([queries] * len(speech)))
    return {"frontend.features": features, **dump.arrays}


def _set(weight: nn.Parameter, value: torch.Tensor) -> None:
    with torch.no_grad():
        weight.copy_(value)


def _weight(path: str, stage: str, change: Callable[..., torch.Tensor], name: str = "weight") -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        module = port.layers[n].get_submodule(path)
        weight = getattr(module, name)
        _set(weight, change(weight.detach().clone(), draw))
        return f"encoder.layers.{n}.{stage}"

    return fault


def _epsilon(path: str, stage: str, value: float) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        (port.layers[n] if stage[0] != "!" else port.encoder).get_submodule(path).eps = value
        return f"encoder.layers.{n}.{stage}" if stage[0] != "!" else f"encoder.{stage[1:]}"

    return fault


def _positions(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        embed = port.encoder.embed
        embed.forward = lambda x: x + change(embed.encode(torch.arange(0, x.shape[1] + 1)[None], x.shape[2], x.dtype))
        return "encoder.input"

    return fault


def _scale(times: float) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        size = port.encoder.output_size()
        port.encoder.output_size = lambda: size * times**2
        return "encoder.input"

    return fault


def _part(order: tuple[int, ...]) -> Callable[..., torch.Tensor]:
    return lambda w, draw: torch.cat([w.chunk(3)[each] for each in order])


def _heads(part: int) -> Callable[..., torch.Tensor]:
    def change(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
        parts = list(w.chunk(3))
        parts[part] = parts[part].unflatten(0, (4, -1))[[1, 0, 2, 3]].flatten(0, 1)
        return torch.cat(parts)

    return change


def _one_row(times: float) -> Callable[..., torch.Tensor]:
    def change(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
        w[int(draw.integers(len(w)))] *= times
        return w

    return change


def _tap(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    w[:, :, int(draw.integers(w.shape[2]))] = 0
    return w


def _scores(times: float) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        attention = port.layers[n].self_attn
        right = attention.forward_attention
        attention.forward_attention = lambda value, scores, *more: right(value, scores * times, *more)
        return f"encoder.layers.{n}.attention.context"

    return fault


def _masked(hidden: Callable[[int], torch.Tensor]) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        attention = port.layers[n].self_attn
        right = attention.forward_attention

        def forward(value: torch.Tensor, scores: torch.Tensor, *more: Any) -> torch.Tensor:
            return right(value, scores.masked_fill(hidden(scores.shape[-1]), -math.inf), *more)

        attention.forward_attention = forward
        return f"encoder.layers.{n}.attention.context"

    return fault


def _no_memory_residual(port: Port, n: int, draw: np.random.Generator) -> str:
    attention = port.layers[n].self_attn
    attention.forward_fsmn = lambda x, mask, *more: attention.fsmn_block(attention.pad_fn(x.transpose(1, 2))).transpose(
        1, 2
    )
    return f"encoder.layers.{n}.fsmn"


def _shifted_memory(port: Port, n: int, draw: np.random.Generator) -> str:
    attention = port.layers[n].self_attn
    attention.pad_fn = nn.ConstantPad1d((6, 4), 0.0)
    return f"encoder.layers.{n}.fsmn"


def _activation(change: Callable[[torch.Tensor], torch.Tensor]) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        feed = port.layers[n].feed_forward
        feed.forward = lambda x: feed.w_2(change(feed.w_1(x)))
        return f"encoder.layers.{n}.mlp.activation"

    return fault


def _no_residual(port: Port, n: int, draw: np.random.Generator) -> str:
    n = max(n, 1)
    layer = port.layers[n]
    layer.in_size = -1
    return f"encoder.layers.{n}.attention.residual"


def _skipped(port: Port, n: int, draw: np.random.Generator) -> str:
    n = max(n, 1)
    port.layers[n].forward = lambda x, mask, *more: (x, mask, None, None, None)
    return f"encoder.layers.{n}"


def _norm_left_out(port: Port, n: int, draw: np.random.Generator) -> str:
    port.encoder.after_norm.forward = lambda x: x
    return "encoder.after_norm"


def _query(port: Port, n: int, draw: np.random.Generator) -> str:
    weight = port.embed.weight
    _set(weight, weight.detach().roll(1, 0))
    return "encoder.input"


def _head(change: Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]) -> Fault:
    def fault(port: Port, n: int, draw: np.random.Generator) -> str:
        weight, bias = change(port.head.weight.detach().clone(), port.head.bias.detach().clone())
        _set(port.head.weight, weight)
        _set(port.head.bias, bias)
        return "logits"

    return fault


_QKV = "self_attn.linear_q_k_v"
FAULTS: dict[str, Fault] = {
    "first norm's epsilon 1e-3": _epsilon("norm1", "input_norm", 1e-3),
    "second norm's epsilon 1e-2": _epsilon("norm2", "mlp_norm", 1e-2),
    "norm after the first stack: epsilon 1e-2": _epsilon("after_norm", "!after_norm", 1e-2),
    "norm after the first stack left out": _norm_left_out,
    "first norm without its bias": _weight("norm1", "input_norm", lambda w, draw: 0 * w, "bias"),
    "second norm without its weight": _weight("norm2", "mlp_norm", lambda w, draw: 0 * w + 1),
    "positions from 0": _positions(lambda p: p[:, :-1]),
    "positions from 2": _positions(lambda p: p[:, 1:].roll(-1, 1)),
    "sines and cosines exchanged": _positions(lambda p: p[:, 1:].roll(p.shape[2] // 2, 2)),
    "no positions": _positions(lambda p: 0 * p[:, 1:]),
    "features not scaled": _scale(144**-0.5),
    "features scaled by the input's width": _scale((560 / 144) ** 0.5),
    "queries and keys exchanged": _weight(_QKV, "attention.query", _part((1, 0, 2))),
    "keys and values exchanged": _weight(_QKV, "attention.key", _part((0, 2, 1))),
    "two query heads exchanged": _weight(_QKV, "attention.query", _heads(0)),
    "two value heads exchanged": _weight(_QKV, "attention.value", _heads(2)),
    "no bias of the projections": _weight(_QKV, "attention.query", lambda w, draw: 0 * w, "bias"),
    "no bias of the output": _weight("self_attn.linear_out", "attention.output", lambda w, draw: 0 * w, "bias"),
    "output transposed": _weight("self_attn.linear_out", "attention.output", lambda w, draw: w.T),
    "output in float16": _weight("self_attn.linear_out", "attention.output", lambda w, draw: w.half().float()),
    "a row of the output with the other sign": _weight("self_attn.linear_out", "attention.output", _one_row(-1.0)),
    "scores scaled twice": _scores(36**-0.5),
    "scores of the width 32": _scores((36 / 32) ** 0.5),
    "causal mask": _masked(lambda count: ~torch.ones(count, count, dtype=torch.bool).tril()),
    "the last frame hidden": _masked(lambda count: torch.arange(count).expand(count, count) == count - 1),
    "a tap of the memory zero": _weight("self_attn.fsmn_block", "fsmn", _tap),
    "memory's kernel reversed": _weight("self_attn.fsmn_block", "fsmn", lambda w, draw: w.flip(2)),
    "memory one frame off": _shifted_memory,
    "no residual in the memory": _no_memory_residual,
    "GELU for ReLU": _activation(F.gelu),
    "SiLU for ReLU": _activation(F.silu),
    "no activation": _activation(lambda x: x),
    "no bias of the first feed-forward product": _weight("feed_forward.w_1", "mlp.up", lambda w, draw: 0 * w, "bias"),
    "a row of the first feed-forward product zero": _weight("feed_forward.w_1", "mlp.up", _one_row(0.0)),
    "second feed-forward product in bfloat16": _weight(
        "feed_forward.w_2", "mlp.down", lambda w, draw: w.bfloat16().float()
    ),
    "no residual around attention": _no_residual,
    "a layer left out": _skipped,
    "query rows one off": _query,
    "head without bias": _head(lambda w, b: (w, 0 * b)),
    "head's rows one off": _head(lambda w, b: (w.roll(1, 0), b.roll(1, 0))),
}
"""The faults by name; where they lie is drawn."""


def main() -> None:
    """Plants and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    field, digests, inputs = Field(options.folder, options.seed), {}, {}
    draw = np.random.default_rng(options.seed)
    for path, (features, queries, digest) in inputs_of(recordings(INPUTS)).items():
        group = path.stem
        digests[group] = digest
        inputs[group] = features, queries
        field.group(group, MODEL, str(path), STAGES)
        for description, ways in (
            ("1 thread", {}),
            ("2 threads", {"threads": 2}),
            ("padded", {"padded": int(draw.integers(1, 20))}),
            ("padded, 2 threads", {"padded": int(draw.integers(20, 50)), "threads": 2}),
        ):
            field.correct(group, TYPE, description, run(Port(network()), features, queries, **ways))
        port = reordered(Port(network()), draw)
        field.correct(group, TYPE, "other orders of sums", run(port, features, queries))
    groups = list(inputs)[:FAULTY_INPUTS]
    for name, fault in FAULTS.items():
        group = groups[int(draw.integers(len(groups)))]
        port = Port(network())
        stage = fault(port, int(draw.integers(len(port.layers))), draw)
        field.faulty(group, TYPE, name, stage, run(port, *inputs[group]))
    field.seal(digests)


if __name__ == "__main__":
    main()
