"""A model and a model runner with the interfaces of vLLM's that captures use."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WIDTH = 4
WORDS = 9


class Layer(nn.Module):
    """Adds to the residual stream in place, as vLLM's fused norm does, and returns the next summand."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        residual = hidden_states if residual is None else residual.add_(hidden_states)
        return torch.tanh(self.linear(residual)), residual


class WholeLayer(Layer):
    """Returns the residual stream itself."""

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:  # type: ignore[override]
        return hidden_states + torch.tanh(self.linear(hidden_states))


class Norm(nn.Module):
    """Adds the residual in place, and normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(WIDTH) + 0.5)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        if residual is not None:
            x = residual.add_(x)
        normalised = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight
        return normalised if residual is None else (normalised, residual)


class FormalNorm(Norm):
    """Returns the second of a pair without adding it."""

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Any:
        return super().forward(x), residual


class Body(nn.Module):
    """Layers and a last norm."""

    def __init__(self, layer: type[Layer], norm: type[Norm]):
        super().__init__()
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(layer() for _ in range(3))
        self.norm = norm()

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        hidden, residual = self.embed_tokens(input_ids) + 0, None
        for layer in self.layers:
            if isinstance(layer, WholeLayer):
                hidden = layer(positions, hidden)
            else:
                hidden, residual = layer(positions, hidden, residual)
        output = self.norm(hidden) if residual is None else self.norm(hidden, residual)
        return output[0] if isinstance(output, tuple) else output


class Model(nn.Module):
    """A language model for `Runner`; every row is computed by itself."""

    def __init__(self, layer: type[Layer] = Layer, norm: type[Norm] = Norm):
        super().__init__()
        self.model = Body(layer, norm)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.pieces: list[int] = []  # rows of each call of `compute_logits`

    def forward(self, input_ids: Tensor, positions: Tensor) -> Tensor:
        output: Tensor = self.model(input_ids, positions)
        return output

    def compute_logits(self, hidden: Tensor) -> Tensor:
        self.pieces.append(len(hidden))
        output: Tensor = self.head(hidden)
        return output


def config(**changes: Any) -> SimpleNamespace:
    """The fields of a `VllmConfig` that captures read."""
    parallel = {
        f"{kind}_parallel_size": 1 for kind in ("tensor", "pipeline", "data", "prefill_context", "decode_context")
    }
    eager = changes.pop("enforce_eager", True)
    return SimpleNamespace(
        model_config=SimpleNamespace(enforce_eager=eager),
        parallel_config=SimpleNamespace(**{**parallel, "use_ubatching": False, **changes}),
    )


class Runner:
    """Runs steps of requests given as ids of a prompt and those generated after it."""

    def __init__(self, model: nn.Module | None = None):
        self.model = model or Model()
        self.requests: dict[str, Any] = {}
        self.input_batch = SimpleNamespace(req_ids=[], num_computed_tokens_cpu=np.zeros(16, dtype=np.int32))
        self.query_start_loc = SimpleNamespace(np=np.zeros(17, dtype=np.int32))
        self._ids: dict[str, list[int]] = {}

    def get_model(self) -> nn.Module:
        return self.model

    def add(self, name: str, prompt: Sequence[int], generated: Sequence[int] = (), capture: int = 0) -> None:
        extra = {"workbench_capture": capture} if capture else None
        self.requests[name] = SimpleNamespace(
            sampling_params=SimpleNamespace(extra_args=extra), num_prompt_tokens=len(prompt)
        )
        self._ids[name] = [*prompt, *generated]

    @torch.inference_mode()
    def step(self, *rows: tuple[str, int, int]) -> Tensor:
        """Compute positions `start` to `stop` of requests; returns the model's output."""
        batch = self.input_batch
        batch.req_ids = [name for name, _, _ in rows]
        batch.num_computed_tokens_cpu[: len(rows)] = [start for _, start, _ in rows]
        self.query_start_loc.np[1 : len(rows) + 1] = np.cumsum([stop - start for _, start, stop in rows])
        ids = [self._ids[name][position] for name, start, stop in rows for position in range(start, stop)]
        padded = [*ids, 0, 0]  # vLLM may compute padding rows
        return self._model_forward(input_ids=torch.tensor(padded), positions=torch.zeros(len(padded)))

    @torch.inference_mode()
    def dummy(self) -> None:
        """A run that no request belongs to, as for profiling."""
        self.model(torch.zeros(5, dtype=torch.long), torch.zeros(5))

    def _model_forward(self, **inputs: Any) -> Tensor:
        output: Tensor = self.model(**inputs)
        return output
