"""SenseVoice as the package funasr computes it, with the demo's weights, and its values by stage.

The package must be importable (`pip install funasr`); this project does not depend on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

DIRECTORY = Path(__file__).parents[1] / "assets" / "demo-sensevoice"
SAMPLES = Path(__file__).parents[1] / "assets" / "samples"
STAGES = "frontend.features,encoder.*,encoder.layers.*.*,logits"
MODEL = "demo/sensevoice"
_EVENTS = (1, 2)  # the queries between language and text normalisation


def network() -> Any:
    """Returns funasr's SenseVoice with the demo's weights, ready to compute."""
    from funasr.models.sense_voice.model import SenseVoiceSmall

    config = yaml.safe_load((DIRECTORY / "config.yaml").read_text(encoding="utf-8"))
    weights = torch.load(DIRECTORY / "model.pt", map_location="cpu", weights_only=True)
    model = SenseVoiceSmall(
        encoder=config["encoder"],
        encoder_conf=config["encoder_conf"],
        input_size=weights["embed.weight"].shape[1],
        vocab_size=len(weights["ctc.ctc_lo.bias"]),
    )
    model.load_state_dict(weights)
    return model.eval()


class Port(nn.Module):
    """The network from features to logits, as funasr's export for inference composes it."""

    def __init__(self, model: Any):
        super().__init__()
        self.embed, self.encoder, self.head = model.embed, model.encoder, model.ctc.ctc_lo

    def forward(self, speech: torch.Tensor, lengths: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
        """Returns logits [batch, 4 + frames, vocabulary]."""
        query_embeddings = self.embed(queries)
        encoded, _ = self.encoder(torch.cat([query_embeddings, speech], dim=1), lengths + query_embeddings.shape[1])
        logits: torch.Tensor = self.head(encoded)
        return logits

    @property
    def layers(self) -> list[Any]:
        """The layers of both stacks."""
        return [*self.encoder.encoders0, *self.encoder.encoders, *self.encoder.tp_encoders]


class Dump:
    """Records the values of a port's modules by stage name.

    Args:
        row: of the batch.
        frames: of that row, queries included.
    """

    def __init__(self, port: Port, row: int = 0, frames: int | None = None):
        self.arrays: dict[str, np.ndarray] = {}
        self._row, self._frames = row, frames
        heads = port.layers[0].self_attn.h
        self._out(port.encoder.embed, "encoder.input")
        for n, layer in enumerate(port.layers):
            x, attention = f"encoder.layers.{n}", layer.self_attn
            self._out(layer.norm1, f"{x}.input_norm")
            attention.linear_q_k_v.register_forward_hook(
                lambda module, inputs, out, x=x: (
                    [
                        self._record(f"{x}.attention.{name}", part.unflatten(-1, (heads, -1)))
                        for name, part in zip(("query", "key", "value"), out.chunk(3, dim=-1))
                    ]
                    and None
                )
            )
            memory = attention.forward_fsmn
            attention.forward_fsmn = lambda *inputs, memory=memory, x=x: self._recorded(f"{x}.fsmn", memory(*inputs))
            self._in(attention.linear_out, f"{x}.attention.context")
            self._out(attention.linear_out, f"{x}.attention.output")
            self._in(layer.norm2, f"{x}.attention.residual")
            self._out(layer.norm2, f"{x}.mlp_norm")
            self._out(layer.feed_forward.w_1, f"{x}.mlp.up")
            self._in(layer.feed_forward.w_2, f"{x}.mlp.activation")
            self._out(layer.feed_forward.w_2, f"{x}.mlp.down")
            self._out(layer, x)
        self._out(port.encoder.after_norm, "encoder.after_norm")
        self._out(port.encoder.tp_norm, "encoder.output")
        self._out(port.head, "logits")

    def _out(self, module: nn.Module, stage: str) -> None:
        module.register_forward_hook(
            lambda module, inputs, out: self._record(stage, out[0] if isinstance(out, tuple) else out)
        )

    def _in(self, module: nn.Module, stage: str) -> None:
        module.register_forward_pre_hook(lambda module, inputs: self._record(stage, inputs[0]))

    def _recorded(self, stage: str, value: torch.Tensor) -> torch.Tensor:
        self._record(stage, value)
        return value

    def _record(self, stage: str, value: torch.Tensor) -> None:
        self.arrays[stage] = value[self._row, : self._frames].detach().float().numpy().copy()


def inputs_of(recordings: list[Path]) -> dict[Path, tuple[np.ndarray, tuple[int, ...], str]]:
    """Returns features, query ids and digest of recordings, from the reference's front end, which all ports use."""
    from workbench.families.sanm.sensevoice import SenseVoiceOptions, query_ids
    from workbench.registry.registry import Registry

    inputs = {}
    with Registry(isolate=False) as registry, registry.open(MODEL, runtime="pytorch", threads=1) as session:
        for path in recordings:
            trace = session.trace(path, stages="frontend.features")
            features = np.array(trace["frontend.features"])
            inputs[path] = features, query_ids(SenseVoiceOptions()), str(trace.meta["input_digest"])
    return inputs


def recordings(count: int) -> list[Path]:
    """Returns the shortest sample recordings."""
    return sorted(SAMPLES.glob("*.wav"), key=lambda path: path.stat().st_size)[:count]
