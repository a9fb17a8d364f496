"""llama.cpp's tensors that hold the stages inside a language model's layers.

One name may stand for several tensors of a layer: `Qcur-3` is the product with a matrix, its sum with a bias, a
reshaped view of the sum, and the result of the rotary embedding. The operation says which it is. This file knows names
and operations; it copies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from workbench.runtimes.gguf.files.language_file import Dimensions
from workbench.runtimes.gguf.graphs.ggml import Library, TensorStruct

PARTS: Mapping[str, tuple[str, ...]] = {
    "input_norm": ("attn_norm-{}",),
    "attention.query": ("Qcur-{} RESHAPE",),
    "attention.key": ("Kcur-{} RESHAPE",),
    "attention.value": ("Vcur-{} RESHAPE",),
    "attention.query_norm": ("Qcur_normed-{}",),
    "attention.key_norm": ("Kcur_normed-{}",),
    "attention.query_rope": ("Qcur-{} ROPE",),
    "attention.key_rope": ("Kcur-{} ROPE",),
    "attention.weights": ("kq_soft_max-{}",),
    "attention.context": ("kqv_out-{}",),
    "attention.output": ("attn_out-{}",),
    "attention.residual": ("ffn_inp-{}",),
    "mlp_norm": ("ffn_norm-{}",),
    "mlp.gate": ("ffn_gate-{}", "ffn_gate_s-{}"),  # the second is the first times a scale of the matrix
    "mlp.up": ("ffn_up-{}", "ffn_up_s-{}"),
    "mlp.activation": ("ffn_swiglu-{}",),
    "mlp.down": ("ffn_out-{}",),
}
"""Labels (see `label`) by the part of the layer. If a layer has several, the last computed one is the stage."""

WEIGHTS = "attention.weights"
_SEVERAL = ("Qcur-", "Kcur-", "Vcur-")  # names that stand for several tensors
_PROJECTION = re.compile(r"blk\.([0-9]+)\.attn_output\..+")  # weights of the output projection


@dataclass(frozen=True)
class InnerStage:
    """A stage inside a layer, and the labels of the tensors that hold it."""

    stage: str
    labels: tuple[str, ...]
    row: tuple[int, ...]  # shape of one row; for weights, the number of heads
    paired: bool = False  # whether llama.cpp has the channels i and i + half of a head side by side


def inner_stages(layer: int, sizes: Dimensions, kind: str) -> Iterator[InnerStage]:
    """Yields the stages inside a layer of a language model, in the order of the computation.

    Args:
        kind: its architecture. Files of `llama` have the rows of queries and keys in another order than checkpoints.
    """
    queries, keys = (sizes.heads, sizes.head_width), (sizes.key_heads, sizes.head_width)
    rows: dict[str, tuple[int, ...]] = {
        **{f"attention.query{end}": queries for end in ("", "_norm", "_rope")},
        **{f"attention.key{end}": keys for end in ("", "_norm", "_rope")},
        "attention.value": keys,
        WEIGHTS: (sizes.heads,),
        "attention.context": (sizes.heads * sizes.head_width,),
        **{f"mlp.{name}": (sizes.units,) for name in ("gate", "up", "activation")},
    }
    for part, labels in PARTS.items():
        paired = kind == "llama" and part.startswith(("attention.query", "attention.key"))
        names = tuple(label.format(layer) for label in labels)
        if kind == "qwen3" or part not in ("attention.query_norm", "attention.key_norm"):
            yield InnerStage(f"llm.layers.{layer}.{part}", names, rows.get(part, (sizes.hidden,)), paired)


def label(library: Library, pointer: int, tensor: TensorStruct, name: str) -> tuple[str, str]:
    """Returns a tensor's label in `PARTS`, and its operation.

    The label is its name. Names of several tensors are followed by the operation. The output projection has no name,
    and is known by its weights.
    """
    operation = library.op_desc(pointer).decode()
    if name.startswith(_SEVERAL):
        return f"{name} {operation}", operation
    if name.startswith("node_"):
        for source in filter(None, tensor.src[:2]):
            found = _PROJECTION.fullmatch(TensorStruct.from_address(source).name.decode("utf-8", "replace"))
            if found:
                return f"attn_out-{found[1]}", operation
    return name, operation
