"""Plants faults in a plain `transformers` port of Qwen3, and writes the dumps of faulty and of correct ports.

    python -m benchmarks.faults_in_transformers FOLDER [--types float32,bfloat16,float16]

This file is independent of the comparison. A fault edits weights, constants or code at one place of the port; its stage
is the first one after that place. The correct ports differ in attention kernel, threads, padding, pieces of the prompt
and order of sums.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.planting import Field
from benchmarks.transformers_port import (
    PROMPTS,
    STAGES,
    attending,
    checkpoint,
    input_of,
    opened,
    prompt_ids,
    reordered,
    run,
)

Fault = Callable[[Any, int, np.random.Generator], str]
"""Changes a model at a layer; returns the first stage that it changes."""


def _set(weight: nn.Parameter, value: torch.Tensor) -> None:
    with torch.no_grad():
        weight.copy_(value.to(weight.dtype))


def _eps(path: str, epsilon: float, stage: str) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        _norm(model, n, path).variance_epsilon = epsilon
        return stage.format(n=n)

    return fault


def _norm(model: Any, n: int, path: str) -> Any:
    return model.model.norm if path == "norm" else model.model.layers[n].get_submodule(path)


def _norm_forward(path: str, stage: str, forward: Callable[[Any, torch.Tensor], torch.Tensor]) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        norm = _norm(model, n, path)
        norm.forward = lambda x: forward(norm, x)
        return stage.format(n=n)

    return fault


def _rms(x: torch.Tensor, epsilon: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)).to(x.dtype)


def _weight(path: str, stage: str, change: Callable[[torch.Tensor, np.random.Generator], torch.Tensor]) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        weight = model.model.layers[n].get_submodule(path).weight
        _set(weight, change(weight.detach().clone(), draw))
        return stage.format(n=n)

    return fault


def _heads(order: list[int]) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    return lambda w, draw: w.unflatten(0, (len(order), -1))[order].flatten(0, 1)


def _heads_in(order: list[int]) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    return lambda w, draw: w.unflatten(1, (len(order), -1))[:, order].flatten(1, 2)


def _rows_swapped(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    one, other = draw.choice(len(w), 2, replace=False).tolist()
    order = list(range(len(w)))
    order[one], order[other] = other, one
    return w[order]


def _row(times: float) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    def change(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
        w[int(draw.integers(len(w)))] *= times
        return w

    return change


def _column_zero(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    w[:, int(draw.integers(w.shape[1]))] = 0
    return w


def _rounded(kind: str) -> Callable[[torch.Tensor, np.random.Generator], torch.Tensor]:
    def change(w: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
        if kind == "int8":
            scale = w.abs().amax(1, keepdim=True) / 127
            return (w / scale).round() * scale
        lower = torch.float8_e4m3fn if w.dtype != torch.float32 else getattr(torch, kind)
        return w.to(lower).to(w.dtype)

    return change


def _attention(stage: str = "llm.layers.{n}.attention.context", **change: Any) -> Fault:
    """Another computation of attention in one layer; see `attending`."""

    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        layer = model.model.layers[n].self_attn
        layer.forward = attending(layer, **change)
        return stage.format(n=n)

    return fault


def _activation(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        mlp = model.model.layers[n].mlp
        mlp.forward = lambda x: mlp.down_proj(change(mlp.gate_proj(x), mlp.up_proj(x)))
        return f"llm.layers.{n}.mlp.activation"

    return fault


def _layer(change: Callable[..., torch.Tensor], stage: str) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        layer = model.model.layers[n]
        layer.forward = lambda x, **more: change(layer, x, **more)
        return stage.format(n=n)

    return fault


def _block(layer: Any, x: torch.Tensor, first: float = 1.0, second: float = 1.0, **more: Any) -> torch.Tensor:
    """Computes the layer with other factors of its two residual connections."""
    y = first * x + layer.self_attn(hidden_states=layer.input_layernorm(x), **more)[0]
    return second * y + layer.mlp(layer.post_attention_layernorm(y))


def _skipped(model: Any, n: int, draw: np.random.Generator) -> str:
    model.model.layers[n].forward = lambda x, **_: x
    return f"llm.layers.{n}"


def _layers_swapped(model: Any, n: int, draw: np.random.Generator) -> str:
    n = min(n, len(model.model.layers) - 2)
    one, other = (copy.deepcopy(model.model.layers[each].state_dict()) for each in (n, n + 1))
    model.model.layers[n].load_state_dict(other)
    model.model.layers[n + 1].load_state_dict(one)
    return f"llm.layers.{n}.input_norm"


def _from_below(path: str, stage: str) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        n = max(n, 1)
        source = model.model.layers[n - 1].get_submodule(path).weight
        _set(model.model.layers[n].get_submodule(path).weight, source)
        return stage.format(n=n)

    return fault


def _exchanged(one: str, other: str, stage: str) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        pair = [model.model.layers[n].get_submodule(path).weight for path in (one, other)]
        values = [each.detach().clone() for each in pair]
        for weight, value in zip(pair, values[::-1]):
            _set(weight, value)
        return stage.format(n=n)

    return fault


def _embedding(change: Callable[[torch.Tensor, torch.Tensor, np.random.Generator], torch.Tensor]) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        embed = model.model.embed_tokens
        weight = embed.weight.detach().clone()
        embed.forward = lambda ids: change(weight, ids, draw)
        return "llm.embeddings"

    return fault


def _head(change: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]) -> Fault:
    def fault(model: Any, n: int, draw: np.random.Generator) -> str:
        weight = model.lm_head.weight.detach().clone()
        model.lm_head.forward = lambda x: change(draw, x, weight)
        return "logits"

    return fault


def _one_row(weight: torch.Tensor, ids: torch.Tensor, draw: np.random.Generator) -> torch.Tensor:
    wrong = weight.clone()
    wrong[ids[0, 3]] = weight[(ids[0, 3] + 1) % len(weight)]
    return F.embedding(ids, wrong)


def _bias(model: Any, n: int, draw: np.random.Generator) -> str:
    down = model.model.layers[n].mlp.down_proj
    down.bias = nn.Parameter((0.02 * torch.from_numpy(draw.standard_normal(len(down.weight)))).to(down.weight.dtype))
    return f"llm.layers.{n}.mlp.down"


_X = "llm.layers.{n}"
FAULTS: dict[str, Fault] = {
    "input norm's epsilon 1e-5": _eps("input_layernorm", 1e-5, f"{_X}.input_norm"),
    "input norm's epsilon 1e-2": _eps("input_layernorm", 1e-2, f"{_X}.input_norm"),
    "second norm's epsilon 1e-3": _eps("post_attention_layernorm", 1e-3, f"{_X}.mlp_norm"),
    "final norm's epsilon 1e-4": _eps("norm", 1e-4, "llm.norm"),
    "query norm's epsilon 1e-3": _eps("self_attn.q_norm", 1e-3, f"{_X}.attention.query_norm"),
    "key norm's epsilon 1e-2": _eps("self_attn.k_norm", 1e-2, f"{_X}.attention.key_norm"),
    "query norm left out": _norm_forward("self_attn.q_norm", f"{_X}.attention.query_norm", lambda norm, x: x),
    "key norm left out": _norm_forward("self_attn.k_norm", f"{_X}.attention.key_norm", lambda norm, x: x),
    "final norm left out": _norm_forward("norm", "llm.norm", lambda norm, x: x),
    "final norm twice": _norm_forward(
        "norm", "llm.norm", lambda norm, x: norm.weight * _rms(norm.weight * _rms(x, 1e-6), 1e-6)
    ),
    "LayerNorm for RMSNorm": _norm_forward(
        "input_layernorm", f"{_X}.input_norm", lambda norm, x: norm.weight * _rms(x - x.mean(-1, keepdim=True), 1e-6)
    ),
    "norm's weight plus one": _norm_forward(
        "post_attention_layernorm", f"{_X}.mlp_norm", lambda norm, x: (1 + norm.weight) * _rms(x, 1e-6)
    ),
    "norm without its weight": _norm_forward("input_layernorm", f"{_X}.input_norm", lambda norm, x: _rms(x, 1e-6)),
    "query and key norms exchanged": _exchanged("self_attn.q_norm", "self_attn.k_norm", f"{_X}.attention.query_norm"),
    "RoPE interleaved": _attention(layout="neighbours"),
    "RoPE base 1e4": _attention(base=1e4),
    "RoPE base 5e5": _attention(base=5e5),
    "RoPE of half of each head": _attention(share=0.5),
    "RoPE the other way": _attention(sign=-1.0, key_shift=1),
    "keys one position late": _attention(key_shift=1),
    "one position counted twice": _attention(stuck=5),
    "RoPE left out": _attention(base=1e30, sign=0.0),
    "k/v heads repeated in blocks": _attention(repeat="blocks"),
    "scores divided by the width": _attention(scale=1 / 32),
    "scores not scaled": _attention(scale=1.0),
    "scale of the hidden width": _attention(scale=128**-0.5),
    "mask shows one key more": _attention(sees=1),
    "no causal mask": _attention(sees=1000),
    "mask hides the own position's neighbour": _attention(window=4),
    "window of 12": _attention(window=12),
    "softmax plus one": _attention(sink=True),
    "softmax in bfloat16": _attention(soft="bfloat16"),
    "two query heads exchanged": _weight("self_attn.q_proj", f"{_X}.attention.query", _heads([0, 2, 1, 3])),
    "two key heads exchanged": _weight("self_attn.k_proj", f"{_X}.attention.key", _heads([1, 0])),
    "two value heads exchanged": _weight("self_attn.v_proj", f"{_X}.attention.value", _heads([1, 0])),
    "heads enter the output in another order": _weight(
        "self_attn.o_proj", f"{_X}.attention.output", _heads_in([1, 0, 2, 3])
    ),
    "output projection transposed": _weight("self_attn.o_proj", f"{_X}.attention.output", lambda w, draw: w.T),
    "query projection transposed": _weight("self_attn.q_proj", f"{_X}.attention.query", lambda w, draw: w.T),
    "keys 2 % too large before their norm": _weight("self_attn.k_proj", f"{_X}.attention.key", lambda w, d: 1.02 * w),
    "query weights in RoPE's other layout": _weight(
        "self_attn.q_proj", f"{_X}.attention.query",
        lambda w, draw: w.unflatten(0, (4, 2, 16)).transpose(1, 2).flatten(0, 2),
    ),
    "query projection of the layer below": _from_below("self_attn.q_proj", f"{_X}.attention.query"),
    "MLP of the layer below": _from_below("mlp.down_proj", f"{_X}.mlp.down"),
    "GELU for SiLU": _activation(lambda gate, up: F.gelu(gate) * up),
    "GELU by tanh for SiLU": _activation(lambda gate, up: F.gelu(gate, approximate="tanh") * up),
    "ReLU for SiLU": _activation(lambda gate, up: F.relu(gate) * up),
    "sigmoid for SiLU": _activation(lambda gate, up: torch.sigmoid(gate) * up),
    "SiLU of up": _activation(lambda gate, up: gate * F.silu(up)),
    "no gate": _activation(lambda gate, up: F.silu(up)),
    "gate and up exchanged": _exchanged("mlp.gate_proj", "mlp.up_proj", f"{_X}.mlp.gate"),
    "two rows of the gate exchanged": _weight("mlp.gate_proj", f"{_X}.mlp.gate", _rows_swapped),
    "a row of down zero": _weight("mlp.down_proj", f"{_X}.mlp.down", _row(0.0)),
    "a row of the output projection with the other sign": _weight(
        "self_attn.o_proj", f"{_X}.attention.output", _row(-1.0)
    ),
    "a column of up zero": _weight("mlp.up_proj", f"{_X}.mlp.up", _column_zero),
    "a bias too many": _bias,
    "down in 8 bits": _weight("mlp.down_proj", f"{_X}.mlp.down", _rounded("int8")),
    "output projection in a lower type": _weight(
        "self_attn.o_proj", f"{_X}.attention.output", _rounded("bfloat16")
    ),
    "up in a lower type": _weight("mlp.up_proj", f"{_X}.mlp.up", _rounded("float16")),
    "no residual around attention": _layer(
        lambda layer, x, **more: _block(layer, x, first=0.0, **more), f"{_X}.attention.residual"
    ),
    "no residual around the MLP": _layer(lambda layer, x, **more: _block(layer, x, second=0.0, **more), _X),
    "residual twice": _layer(lambda layer, x, **more: _block(layer, x, first=2.0, **more), f"{_X}.attention.residual"),
    "a layer left out": _skipped,
    "two layers exchanged": _layers_swapped,
    "embedding rows one off": _embedding(lambda w, ids, draw: F.embedding((ids + 1) % len(w), w)),
    "one embedding wrong": _embedding(_one_row),
    "embeddings times √width": _embedding(lambda w, ids, draw: F.embedding(ids, w) * w.shape[1] ** 0.5),
    "head not tied": _head(lambda draw, x, w: x @ (w + 0.02 * torch.randn_like(w)).T),
    "head's rows one off": _head(lambda draw, x, w: x @ w.roll(1, 0).T),
    "logits capped": _head(lambda draw, x, w: 30 * torch.tanh(x @ w.T / 30)),
}  # fmt: skip
"""The faults by name; where they lie is drawn."""


def fault_cases(field: Field, places: list[Path], dtypes: list[str], count: int, seed: int) -> None:
    """Plants `count` faults in each type, at random places."""
    names = list(FAULTS)
    for dtype in dtypes:
        draw = np.random.default_rng((seed, len(dtype), ord(dtype[0])))
        order = draw.permutation(len(names))
        for name in (names[each] for each in order[:count]):
            place = places[int(draw.integers(len(places)))]
            prompt = int(draw.integers(2))
            model = opened(place, dtype)
            torch.manual_seed(int(draw.integers(1 << 30)))
            stage = FAULTS[name](model, int(draw.integers(model.config.num_hidden_layers)), draw)
            arrays = run(model, prompt_ids(place, prompt))
            field.faulty(f"{place.name}-{prompt}", dtype, name, stage, arrays)


def correct_cases(field: Field, places: list[Path], dtypes: list[str], seed: int) -> None:
    """Computes each prompt with each checkpoint by several correct ports."""
    draw = np.random.default_rng(seed)
    for place in places:
        for prompt in range(len(PROMPTS)):
            ids = prompt_ids(place, prompt)
            for dtype in dtypes:
                group = f"{place.name}-{prompt}"
                field.correct(group, dtype, "eager", run(opened(place, dtype), ids))
                field.correct(group, dtype, "sdpa, 2 threads", run(opened(place, dtype, "sdpa"), ids, threads=2))
                pieces, padded = int(draw.integers(2, 5)), int(draw.integers(1, 9))
                kernel = ("eager", "sdpa")[int(draw.integers(2))]
                field.correct(
                    group, dtype, f"{kernel}, {pieces} pieces", run(opened(place, dtype, kernel), ids, pieces)
                )
                field.correct(group, dtype, f"{kernel}, padded", run(opened(place, dtype, kernel), ids, padded=padded))
                model = opened(place, dtype)
                for layer in model.model.layers:
                    layer.self_attn.forward = attending(layer.self_attn)
                field.correct(group, dtype, "attention written out", run(model, ids))
                field.correct(group, dtype, "other orders of sums", run(reordered(opened(place, dtype), draw), ids))


def main() -> None:
    """Plants and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--types", default="float32,bfloat16,float16")
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dtypes = options.types.split(",")
    models = options.folder.parent / "checkpoints"
    places = [checkpoint(models, seed) for seed in (None, 1, 2)]
    field, digests = Field(options.folder, options.seed), {}
    for place in places:
        prompts = input_of(place)
        (place / "prompts.json").write_text(json.dumps(prompts), encoding="utf-8")
        for number, prompt in enumerate(prompts):
            field.group(f"{place.name}-{number}", str(place), prompt["text"], STAGES)
            digests[f"{place.name}-{number}"] = prompt["digest"]
    correct_cases(field, places, dtypes, options.seed)
    fault_cases(field, places, dtypes, options.faults, options.seed)
    field.seal(digests)


if __name__ == "__main__":
    main()
