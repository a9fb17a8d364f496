"""Gradients with respect to a network's input, one chosen output at a time, in bounded memory.

Only the input of each layer is kept; the backward pass computes the inside of a layer again (Chen et al., "Training
Deep Nets with Sublinear Memory Cost", 2016). So a pass needs the memory of one layer, and a row of values for each. The
weights get no gradients. This file knows no network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from workbench.pipelines.gradients import Choose
from workbench.runtimes.pytorch.numerics.arithmetic import array_of

Arithmetic = Callable[[], AbstractContextManager[object]]
"""Returns the context in which a network computes, such as `attention_in_steps` of `numerics.arithmetic`."""


class _RecomputedLayer(torch.autograd.Function):
    """A layer that keeps only its inputs, like `torch.utils.checkpoint`, whose import takes seconds."""

    @staticmethod
    def forward(ctx: Any, layer: Callable[..., Tensor], *inputs: Any) -> Tensor:
        ctx.layer = layer
        ctx.constants = [None if isinstance(each, Tensor) else each for each in inputs]
        ctx.tensor_places = [place for place, each in enumerate(inputs) if isinstance(each, Tensor)]
        ctx.save_for_backward(*(inputs[place] for place in ctx.tensor_places))
        return layer(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = list(ctx.constants)
        for place, saved in zip(ctx.tensor_places, ctx.saved_tensors, strict=True):
            inputs[place] = saved.detach().requires_grad_(ctx.needs_input_grad[1 + place])
        differentiable = [place for place in ctx.tensor_places if inputs[place].requires_grad]
        with torch.enable_grad():
            output = ctx.layer(*inputs)
        result: list[Tensor | None] = [None] * (1 + len(inputs))
        input_gradients = torch.autograd.grad(
            output, [inputs[place] for place in differentiable], gradients, allow_unused=True
        )
        for place, gradient in zip(differentiable, input_gradients, strict=True):
            result[1 + place] = gradient
        return tuple(result)


@contextlib.contextmanager
def keeping_inputs(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Makes each layer keep only its inputs for the backward pass, in passes inside the block.

    Gradients flow through the positional arguments of a layer, not through its keyword arguments.
    """

    def run_recomputed(forward: Callable[..., Tensor], *inputs: Any, **keywords: Any) -> Tensor:
        output: Tensor = _RecomputedLayer.apply(partial(forward, **keywords), *inputs)
        return output

    for layer in layers:
        layer.forward = partial(run_recomputed, layer.forward)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def choice_gradients(
    inputs: Tensor,
    logits_of: Callable[[Tensor], Tensor],
    choose: Choose,
    layers: Sequence[nn.Module],
    arithmetic: Arithmetic,
) -> Iterator[Tensor]:
    """Yields the gradient of ln P of each choice with respect to the inputs, in their shape.

    Args:
        inputs: the inputs of the network.
        logits_of: the network, from inputs to logits [rows, vocabulary].
        layers: the layers whose insides the backward pass computes again.
    """
    inputs = inputs.detach().clone().requires_grad_()
    with arithmetic(), keeping_inputs(layers):
        logits = logits_of(inputs)
    for row, column in choose(array_of(logits.detach())):
        with arithmetic():
            # In float64, as 1 - P of a certain token is nothing but rounding in float32.
            scores = logits[row].cpu().double().log_softmax(dim=-1)
            [gradient] = torch.autograd.grad(scores[column], inputs, retain_graph=True)
        yield gradient


def input_gradient(
    inputs: Tensor,
    outputs_of: Callable[[Tensor], Tensor],
    gradient: Tensor,
    layers: Sequence[nn.Module],
    arithmetic: Arithmetic,
) -> Tensor:
    """Returns the gradient with respect to a network's inputs, from the gradient with respect to its outputs.

    Args:
        gradient: in the shape of the outputs.
    """
    inputs = inputs.detach().clone().requires_grad_()
    with arithmetic(), keeping_inputs(layers):
        outputs = outputs_of(inputs)
    with arithmetic():
        [result] = torch.autograd.grad(outputs, inputs, gradient.to(outputs.device, outputs.dtype))
    return result
