"""A plain `transformers` port of Qwen3: checkpoints for it, correct ways to compute it, and its stages.

This file is independent of the comparison.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

PROMPTS = ("Count from two to six.", "Write in figures: three seven one", "Reverse: nine two eight zero four, please")
STAGES = "llm.*,llm.layers.*.*,logits"
DEMO = Path(__file__).parents[1] / "assets" / "demo-funasr-nano"


def checkpoint(folder: Path, seed: int | None) -> Path:
    """Writes a checkpoint directory: the demo's language model, or random weights of the same shape."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    place = folder / ("demo" if seed is None else f"random-{seed}")
    config = Qwen3Config.from_pretrained(DEMO / "Qwen3-demo")
    model = Qwen3ForCausalLM(config)
    if seed is None:
        tensors = torch.load(DEMO / "model.pt", map_location="cpu", weights_only=True)
        model.load_state_dict(
            {k.removeprefix("llm."): v for k, v in tensors.items() if k.startswith("llm.")}, strict=False
        )
    else:
        torch.manual_seed(seed)
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                nn.init.normal_(weight, 1.0, 0.2)
            else:
                nn.init.normal_(weight, 0.0, 1.0 if "embed" in name else weight.shape[1] ** -0.5)
    model.tie_weights()
    model.float().save_pretrained(place)
    for file in (DEMO / "Qwen3-demo").glob("*"):
        if file.name not in ("config.json", "generation_config.json"):
            shutil.copy(file, place / file.name)
    return place


def opened(place: Path, dtype: str, kernel: str = "eager") -> Any:
    """Returns the port, as its author would load it."""
    from transformers import Qwen3ForCausalLM

    model = Qwen3ForCausalLM.from_pretrained(place, dtype=getattr(torch, dtype), attn_implementation=kernel)
    return model.eval()


class Dump:
    """Records the outputs of a port's modules by stage name."""

    def __init__(self, model: Any):
        self.arrays: dict[str, list[np.ndarray]] = {}
        self.row = 0  # of the batch
        self._hooks = []
        config = model.config
        head = config.head_dim
        self._watch(model.model.embed_tokens, "llm.embeddings")
        for n, layer in enumerate(model.model.layers):
            stage = f"llm.layers.{n}"
            attention, mlp = layer.self_attn, layer.mlp
            self._watch(layer.input_layernorm, f"{stage}.input_norm")
            for name, word in (("q", "query"), ("k", "key"), ("v", "value")):
                self._watch(getattr(attention, f"{name}_proj"), f"{stage}.attention.{word}", head)
            self._watch(attention.q_norm, f"{stage}.attention.query_norm")
            self._watch(attention.k_norm, f"{stage}.attention.key_norm")
            self._enters(attention.o_proj, f"{stage}.attention.context")
            self._watch(attention.o_proj, f"{stage}.attention.output")
            self._enters(layer.post_attention_layernorm, f"{stage}.attention.residual")
            self._watch(layer.post_attention_layernorm, f"{stage}.mlp_norm")
            self._watch(mlp.gate_proj, f"{stage}.mlp.gate")
            self._watch(mlp.up_proj, f"{stage}.mlp.up")
            self._enters(mlp.down_proj, f"{stage}.mlp.activation")
            self._watch(mlp.down_proj, f"{stage}.mlp.down")
            self._watch(layer, stage)
        self._watch(model.model.norm, "llm.norm")
        self._watch(model.lm_head, "logits")

    def _watch(self, module: nn.Module, stage: str, head: int = 0) -> None:
        def keep(module: nn.Module, inputs: Any, out: Any) -> None:
            out = out[0] if isinstance(out, tuple) else out
            rows = out[self.row].detach().float()
            self._record(stage, rows.unflatten(-1, (-1, head)) if head else rows)

        module.register_forward_hook(keep)

    def _enters(self, module: nn.Module, stage: str) -> None:
        module.register_forward_pre_hook(
            lambda module, inputs: self._record(stage, inputs[0][self.row].detach().float())
        )

    def _record(self, stage: str, rows: torch.Tensor) -> None:
        self.arrays.setdefault(stage, []).append(rows.numpy().copy())


def run(model: Any, ids: np.ndarray, pieces: int = 1, padded: int = 0, threads: int = 1) -> dict[str, np.ndarray]:
    """Returns the stages of a prompt, computed in pieces with a cache, or as the second of a padded batch."""
    torch.set_num_threads(threads)
    dump = Dump(model)
    tokens = torch.from_numpy(ids)[None]
    with torch.inference_mode():
        if padded:
            batch = F.pad(tokens, (padded, 0)).repeat(2, 1)
            batch[0] = torch.arange(batch.shape[1]) % 200
            mask = torch.ones_like(batch)
            mask[1, :padded] = 0
            dump.row = 1
            model(batch, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0), use_cache=False)
            return {name: each[0][padded:] for name, each in dump.arrays.items()}
        cache = None
        for piece in tokens.tensor_split(pieces, dim=1):
            cache = model(piece, past_key_values=cache, use_cache=pieces > 1).past_key_values
    return {name: np.concatenate(each) for name, each in dump.arrays.items()}


def attending(
    module: Any,
    layout: str = "halves",
    base: float = 1e6,
    share: float = 1.0,
    key_shift: int = 0,
    stuck: int = -1,
    repeat: str = "interleave",
    scale: float | None = None,
    sees: int = 0,
    window: int = 0,
    soft: str = "float32",
    sign: float = 1.0,
    sink: bool = False,
) -> Callable[..., Any]:
    """Returns a forward pass of attention, written out. With the defaults it is the right one."""

    def forward(hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        shape = (*hidden_states.shape[:-1], -1, module.head_dim)
        q = module.q_norm(module.q_proj(hidden_states).view(shape)).transpose(1, 2)
        k = module.k_norm(module.k_proj(hidden_states).view(shape)).transpose(1, 2)
        v = module.v_proj(hidden_states).view(shape).transpose(1, 2)
        places = torch.arange(q.shape[2])
        if stuck >= 0:
            places = torch.where(places > stuck, places - 1, places)
        q, k = turned(q, places), turned(k, places + key_shift)
        groups = module.num_key_value_groups
        if repeat == "interleave":
            k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
        else:
            k, v = (each.repeat(1, groups, 1, 1) for each in (k, v))
        scores = q @ k.transpose(2, 3) * (module.scaling if scale is None else scale)
        count = scores.shape[-1]
        visible = torch.ones(count, count, dtype=torch.bool).tril(sees)
        if window:
            visible &= torch.ones_like(visible).triu(1 - window)
        scores = scores.masked_fill(~visible, -math.inf)
        if sink:
            scores = torch.cat([scores, torch.zeros_like(scores[..., :1])], -1)
        weights = scores.to(getattr(torch, soft)).softmax(-1).to(q.dtype)[..., :count]
        return module.o_proj((weights @ v).transpose(1, 2).flatten(2)), None

    def turned(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        width = int(x.shape[-1] * share)
        rest, x = x[..., width:], x[..., :width]
        half = width // 2
        angles = sign * places[:, None].float() * base ** (-torch.arange(half).float() / half)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if layout == "halves":
            one, other = x[..., :half], x[..., half:]
            x = torch.cat([one * cos - other * sin, other * cos + one * sin], -1)
        else:
            one, other = x[..., 0::2], x[..., 1::2]
            x = torch.stack([one * cos - other * sin, other * cos + one * sin], -1).flatten(-2)
        return torch.cat([x, rest], -1)

    return forward


def reordered(model: Any, draw: np.random.Generator) -> Any:
    """Returns a port that adds each product in another order, in two parts."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            order = torch.from_numpy(draw.permutation(module.in_features))
            module.forward = _in_parts(module, order)
    return model


def _in_parts(module: nn.Linear, order: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = module.weight.detach()

    def forward(x: torch.Tensor) -> torch.Tensor:
        one, other = order.chunk(2)
        wide = x[..., one].float() @ weight[:, one].float().T + x[..., other].float() @ weight[:, other].float().T
        product = wide.to(x.dtype)
        return product if module.bias is None else product + module.bias

    return forward


def prompt_ids(place: Path, number: int) -> np.ndarray:
    """Returns the ids of a prompt, as written beside the checkpoint."""
    return np.array(json.loads((place / "prompts.json").read_text(encoding="utf-8"))[number]["ids"])


def input_of(place: Path) -> list[dict[str, Any]]:
    """Returns text, ids and digest of each prompt, from a trace of the reference, for all ports."""
    from workbench.registry.registry import Registry

    inputs = []
    with Registry() as registry, registry.open(str(place), runtime="pytorch", threads=1) as session:
        for text in PROMPTS:
            trace = session.trace(text, stages="prompt.tokens,llm.embeddings")
            inputs.append({"text": text, "ids": trace["prompt.tokens"].tolist(), "digest": trace.meta["input_digest"]})
    return inputs
