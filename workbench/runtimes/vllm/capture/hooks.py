"""Hooks in vLLM's model that copy the rows of captured requests while captures are on.

They support vLLM's model runner V1, eager execution, and decoder models whose layers return either (output, residual)
that are still to be added, as most of vLLM's do, or the residual stream itself. A model with heads besides that of its
logits names them in `further_heads`, by stage.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from workbench.core.errors import Unavailable, message_of
from workbench.runtimes.vllm.capture.cache_blocks import read_cache
from workbench.runtimes.vllm.capture.inside import hook_inside
from workbench.runtimes.vllm.capture.rows import EXTRA_ARGUMENT, Capture, Captures, RowSpan, spans

INPUT = "hidden_states"  # the argument of vLLM's decoder layers with the hidden states
LOGIT_ROWS = 64  # computed at a time: with a vocabulary of 150 000 that is 40 MB


def why_not_capturing(runner: Any, config: Any) -> str:
    """Returns why stages cannot be captured with this model runner and `VllmConfig`, as a sentence; else empty."""
    parallel = config.parallel_config
    if not config.model_config.enforce_eager:
        return "stages cannot be captured from compiled graphs; open the model with eager execution (eager: true)"
    if not hasattr(runner, "_model_forward"):
        return "stages cannot be captured with vLLM's model runner V2; start with VLLM_USE_V2_MODEL_RUNNER=0 set"
    for parallelism in ("pipeline", "data", "prefill_context", "decode_context"):
        if getattr(parallel, f"{parallelism}_parallel_size") > 1:
            return (
                f"stages cannot be captured from an engine with {parallelism}_parallel_size over 1; "
                "only tensors may be split"
            )
    if parallel.use_ubatching:
        return "stages cannot be captured from an engine that overlaps two halves of a batch; start it without"
    model = runner.get_model()
    if decoder(model) is None:
        return f"stages cannot be captured from {type(model).__name__}: its decoder layers and last norm were not found"
    return ""


def decoder(model: nn.Module) -> tuple[list[nn.Module], nn.Module] | None:
    """Returns the layers of a language model and its last norm; None if there is not exactly one such pair.

    Args:
        model: the model that vLLM loaded; if it has other networks too, it names its language model.
    """
    language: Any = model
    if hasattr(model, "get_language_model"):
        try:
            language = cast(Any, model).get_language_model()
        except NotImplementedError:
            return None
    candidates: list[tuple[list[nn.Module], nn.Module]] = []
    for module in language.modules():
        layers, norm = getattr(module, "layers", None), getattr(module, "norm", None)
        if isinstance(layers, nn.ModuleList) and len(layers) and isinstance(norm, nn.Module):
            candidates.append((list(layers), norm))
    if len(candidates) != 1 or INPUT not in inspect.signature(candidates[0][0][0].forward).parameters:
        return None
    return candidates[0]


class Hooks:
    """The hooks, in place from construction until `remove`. Their failures fail captures, never the engine's step.

    Args:
        stores_arrays: whether this worker stores arrays; if not, it only takes part in computing logits.
    """

    def __init__(self, runner: Any, captures: Captures, stores_arrays: bool):
        self.captures = captures
        self._runner = runner
        self._model: Any = runner.get_model()
        self._stores_arrays = stores_arrays
        self._spans: list[RowSpan] = []
        self._handles: list[Any] = []
        parts = decoder(self._model)
        assert parts is not None  # `why_not_capturing` has checked it
        layers, norm = parts
        self._adds_residual = _adds_residual(norm)
        self._device_count = _device_count(layers[0])
        self._layers = layers
        self._forward, self._sample = runner._model_forward, getattr(runner, "_sample", None)
        runner._model_forward = self._step
        self._forced: dict[int, int] = {}  # ids that requests write in this step, by their place in the batch
        if self._sample is not None:
            runner._sample = self._force_ids
        if not stores_arrays:
            return
        self._model.captures = captures
        record_input = functools.partial(self._record_input, inspect.signature(layers[0].forward))
        self._handles.append(layers[0].register_forward_pre_hook(record_input, with_kwargs=True))
        for number, layer in enumerate(layers):
            stage = f"llm.layers.{number}"
            self._handles += hook_inside(stage, layer, self._record_inner_stage)
            self._handles.append(layer.register_forward_hook(functools.partial(self._record_layer, stage)))
        self._handles.append(norm.register_forward_hook(self._record_norm))

    def remove(self) -> None:
        """Restores the model and its runner."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._model.captures = None
        for name in ("_model_forward", "_sample"):
            vars(self._runner).pop(name, None)  # shows the class's own method again

    def _step(self, *args: Any, **kwargs: Any) -> Any:
        """Replaces the runner's call of the model, which profiling and dummy runs do not use."""
        self._spans = self._find_spans()
        try:
            output = self._forward(*args, **kwargs)
            self._record_logits(_first(output))
            for span in self._spans:
                if (capture := self.captures.get(span.number)) is None:
                    continue
                if span.step:
                    self._store_cache(capture, span)
                    capture.end_decoding(span.step)
                else:
                    capture.end_step(span.position, span.stop - span.start)
            return output
        finally:
            self._spans = []

    def _find_spans(self) -> list[RowSpan]:
        batch, requests = self._runner.input_batch, self._runner.requests
        states = [requests[name] for name in batch.req_ids]
        numbers = [_number(state) for state in states]
        numbers = [number if number in self.captures else 0 for number in numbers]
        self._forced = {}
        if not any(numbers):
            return []
        prompts = [state.num_prompt_tokens for state in states]
        starts = self._runner.query_start_loc.np[: len(states) + 1]
        computed = batch.num_computed_tokens_cpu[: len(states)]
        captures = {number: capture for number in numbers if (capture := self.captures.get(number))}
        remaining = {
            number: sorted(capture.remaining_steps) for number, capture in captures.items() if capture.followed.steps
        }
        found_spans = spans(numbers, starts, computed, prompts, remaining)
        for row, number in enumerate(numbers):
            ids = captures[number].followed.ids if number else ()
            id_count = (
                int(computed[row]) + int(starts[row + 1]) - int(starts[row]) - prompts[row]
            )  # ids after this step
            if 0 <= id_count < len(ids):
                self._forced[row] = ids[id_count]
        for span in found_spans:
            captures[span.number].begin_step(span.prompt)
        return found_spans

    def _force_ids(self, logits: Any, *args: Any, **kwargs: Any) -> Any:
        """Replaces the runner's choice of tokens: if ids are followed, every other id is impossible."""
        for row, number in self._forced.items() if logits is not None else ():
            logits[row] = -math.inf
            logits[row, number] = 0.0
        self._forced = {}
        assert self._sample is not None
        return self._sample(logits, *args, **kwargs)

    def _store_cache(self, capture: Capture, span: RowSpan) -> None:
        """Stores a request's keys and values in the cache after a decoding step."""
        for number, layer in enumerate(self._layers if self._stores_arrays else ()):
            stages = [span.name(f"llm.layers.{number}.cache.{name}") for name in ("key", "value")]
            if not any(map(capture.wants, stages)):
                continue
            if self._device_count > 1:
                capture.fail(f"{stages[0]} cannot be captured: {self._device_count} devices share the layers")
                return
            table = self._runner.input_batch.block_table[0]
            try:
                rows = read_cache(cast(Any, layer).self_attn.attn, table, span.request, span.prompt + span.step)
            except Unavailable as error:
                capture.fail(f"{stages[0]}: {error}; leave out the stages cache.key and cache.value")
                return
            for stage, values in zip(stages, rows, strict=True):
                if capture.wants(stage):
                    self._store(capture, stage, 0, lambda values=values: values)  # type: ignore[misc]

    def _record_input(self, signature: inspect.Signature, _layer: nn.Module, args: Any, kwargs: Any) -> None:
        """Records the input of the first layer."""
        inputs = signature.bind(*args, **kwargs).arguments
        self._record_stage("llm.embeddings", functools.partial(_residual_stream, inputs[INPUT], inputs.get("residual")))

    def _record_layer(self, stage: str, _layer: nn.Module, _inputs: Any, output: Any) -> None:
        """Records the residual stream after a layer. The next layer would add it up in place as its first operation."""
        hidden, residual = (output[0], output[1]) if isinstance(output, tuple) else (output, None)
        if residual is not None and not self._adds_residual:
            for span in self._spans:
                if (capture := self.captures.get(span.number)) and capture.wants(span.name(stage)):
                    capture.fail(
                        f"{stage} cannot be captured: this model's layers return pairs that are not to be added"
                    )
        self._record_stage(stage, functools.partial(_residual_stream, hidden, residual))

    def _record_norm(self, _norm: nn.Module, _inputs: Any, output: Any) -> None:
        hidden = _first(output)
        self._record_stage("llm.norm", lambda rows: hidden[rows])

    def _record_logits(self, hidden: Tensor) -> None:
        heads = {"logits": self._model.compute_logits, **getattr(self._model, "further_heads", {})}
        for span, (stage, head) in itertools.product(self._spans, heads.items()):
            capture = self.captures.get(span.number)
            # Computes for a failed capture too, as all workers must do the same.
            if capture is None or not capture.stage_filter(span.name(stage)):
                continue
            for start in range(span.start, span.stop, LOGIT_ROWS):
                rows = slice(start, min(start + LOGIT_ROWS, span.stop))
                logits = functools.partial(head, hidden[rows])
                if self._stores_arrays:
                    self._store(capture, span.name(stage), span.position + start - span.start, logits)
                else:
                    logits()

    def _record_stage(self, stage: str, read_rows: Callable[[slice], Tensor]) -> None:
        for span in self._spans:
            capture = self.captures.get(span.number)
            if capture is not None and capture.wants(span.name(stage)):
                rows = functools.partial(read_rows, slice(span.start, span.stop))
                self._store(capture, span.name(stage), span.position, rows)

    def _record_inner_stage(self, stage: str, read_rows: Callable[[slice], Tensor]) -> None:
        """Stores a stage inside a layer; fails the capture where a worker computes only a share of the heads."""
        if self._device_count > 1:
            for span in self._spans:
                if (capture := self.captures.get(span.number)) and capture.wants(span.name(stage)):
                    capture.fail(
                        f"{stage} cannot be captured: {self._device_count} devices share the layers; "
                        "stages inside a layer need tensor_parallel 1"
                    )
        self._record_stage(stage, read_rows)

    def _store(self, capture: Capture, stage: str, position: int, read_rows: Callable[[], Tensor]) -> None:
        try:
            capture.put(stage, position, read_rows().detach().float().cpu().numpy())
        except Unavailable as error:
            capture.fail(str(error))
        except (MemoryError, RuntimeError, ValueError) as error:  # a GPU without free memory raises RuntimeError
            capture.fail(f"stage {stage} could not be captured: {message_of(error)}")


def _number(state: Any) -> int:
    extra = getattr(state.sampling_params, "extra_args", None) or {}
    number = extra.get(EXTRA_ARGUMENT, 0)
    return number if isinstance(number, int) else 0


def _residual_stream(hidden: Tensor, residual: Tensor | None, rows: slice) -> Tensor:
    return hidden[rows] if residual is None else hidden[rows] + residual[rows]


def _device_count(layer: nn.Module) -> int:
    """Returns how many devices share a layer."""
    return max((int(getattr(module, "tp_size", 1)) for module in layer.modules()), default=1)


@torch.inference_mode()
def _adds_residual(norm: nn.Module) -> bool:
    """Returns whether the last norm adds the two values that layers return, so that their sum is the residual stream.

    Some models return pairs, although everything is added already.
    """
    weight = next(norm.parameters(), None)
    if weight is None:
        return False
    hidden = torch.linspace(-1, 1, weight.shape[-1], dtype=weight.dtype, device=weight.device)[None]
    residual = hidden.square()
    normed = _first(norm.forward(hidden + residual))
    try:
        separate = _first(norm.forward(hidden.clone(), residual.clone()))
    except TypeError:  # it takes one argument
        return False
    return torch.allclose(separate.float(), normed.float(), rtol=0.02, atol=0.02)


def _first(output: Any) -> Tensor:
    """Returns the main tensor among the outputs of a norm or a model."""
    main: Tensor = output[0] if isinstance(output, tuple) else output
    return main
