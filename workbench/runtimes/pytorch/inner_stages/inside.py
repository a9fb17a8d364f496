"""Shows the stages inside the layers of a network by hooks; the network's own code does not name them.

While `looking_inside` is on, hooks read the values at the places of `layer_maps`, and calls of attention are observed
for what no module shows (`attention_calls`). Only requested stages are read. Values that nobody substitutes go on
unchanged, so a pass gives the same bits with and without these stages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from workbench.runtimes.pytorch.inner_stages.attention_calls import AttentionCalls
from workbench.runtimes.pytorch.inner_stages.calls import CallWatch, Function, Observer
from workbench.runtimes.pytorch.inner_stages.layer_maps import FunctionPlace, LayerMap, Place, stacks_of
from workbench.runtimes.pytorch.tap import tap_into
from workbench.trace.recorder import Recorder


@contextlib.contextmanager
def looking_inside(network: nn.Module, recorder: Recorder | None) -> Iterator[None]:
    """Records the wanted stages inside the layers of a network of this project, for the block."""
    with contextlib.ExitStack() as hooks:
        for name, layers, places in stacks_of(network):
            hooks.enter_context(looking_inside_stack(name, layers, places, recorder))
        yield


@contextlib.contextmanager
def looking_inside_stack(
    stack: str, layers: Sequence[nn.Module], places: LayerMap, recorder: Recorder | None
) -> Iterator[None]:
    """Records the wanted stages inside some layers, for the block.

    Args:
        stack: their name, such as `llm.layers`.
    """
    if recorder is None:
        yield
        return
    with contextlib.ExitStack() as hooks:
        watch = CallWatch()
        watches_calls = [
            _Layer(f"{stack}.{number}", layer, places, recorder).look(hooks, watch)
            for number, layer in enumerate(layers)
        ]
        if any(watches_calls):
            hooks.enter_context(watch)
        yield


class _Layer:
    """One layer whose inner stages are recorded."""

    def __init__(self, stage: str, layer: nn.Module, places: LayerMap, recorder: Recorder):
        self._stage, self._layer, self._map, self._recorder = stage, layer, places, recorder
        self._tap = tap_into(recorder)

    def look(self, hooks: contextlib.ExitStack, watch: CallWatch) -> bool:
        """Reads the wanted stages until `hooks` ends; returns whether functions are watched for them."""
        for part, place in self._map.places.items():
            module = self._module(place.module)
            if module is not None and self._needs(part):
                hooks.callback(self._read(module, part, place).remove)
        scopes: dict[str, dict[Function, Observer]] = {}
        for each in self._map.functions:
            if self._needs(each.argument) or self._needs(each.result):
                scopes.setdefault(each.module, {})[each.function] = self._read_function(each)
        for part, name in self._map.attention.items():
            if self._module(name) is not None and (calls := self._attention(part, hooks)):
                scopes.setdefault(name, {}).update(calls.observers())
        for name, observers in scopes.items():
            hooks.enter_context(watch.observing(self._layer.get_submodule(name), observers))
        return bool(scopes)

    def _needs(self, part: str) -> bool:
        return bool(part) and self._recorder.needs(f"{self._stage}.{part}")

    def _module(self, name: str) -> nn.Module | None:
        """Returns a module of the layer; None if it does not have it."""
        module: Any = self._layer
        for word in name.split("."):
            module = getattr(module, word, None) if not word.isdigit() else module[int(word)]
        return module if isinstance(module, nn.Module) else None

    def _read(self, module: nn.Module, part: str, place: Place) -> Any:
        """Returns the hook that reads a value at its place; the pass continues with the substituted value, if any."""
        width = self._head_width(part) if place.heads else None

        def view(value: Tensor) -> Tensor:
            index, count = place.share
            part = value if self._map.batched else value[None]
            part = part.chunk(count, dim=-1)[index]
            return part if width is None else part.unflatten(-1, (-1, width))

        def substituted(value: Tensor) -> Tensor | None:
            original = view(value)
            tap_value = self._tap(f"{self._stage}.{part}", original)
            if tap_value is original:
                return None
            substitute = value.clone()
            view(substitute).copy_(tap_value)
            return substitute

        def hook_input(_: nn.Module, inputs: tuple[Any, ...]) -> Any:
            substitute = substituted(inputs[0])
            return None if substitute is None else (substitute, *inputs[1:])

        def hook_output(_module: nn.Module, _inputs: Any, output: Tensor) -> Any:
            return substituted(output)

        return (
            module.register_forward_pre_hook(hook_input)
            if place.is_input
            else module.register_forward_hook(hook_output)
        )

    def _read_function(self, place: FunctionPlace) -> Observer:
        def tap_value(part: str, value: Tensor) -> Tensor:
            return self._tap(f"{self._stage}.{part}", value) if part else value

        def observe(func: Function, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return tap_value(place.result, func(tap_value(place.argument, args[0]), *args[1:], **kwargs))

        return observe

    def _attention(self, part: str, hooks: contextlib.ExitStack) -> AttentionCalls | None:
        """Returns the calls of an attention whose stages are wanted; else None."""
        key = self._projection(f"{part}.key")
        heads = self._columns(f"{part}.key") // self._head_width(part)
        calls = AttentionCalls(f"{self._stage}.{part}", self._recorder, heads, self._map.rotary, self._map.rounded)
        if not calls.is_needed:
            return None
        for axis, module in enumerate((self._projection(f"{part}.query"), key)):

            def count(_module: nn.Module, _inputs: Any, output: Tensor, axis: int = axis) -> None:
                calls.set_rows(axis, output.shape[-2])

            hooks.callback(module.register_forward_hook(count).remove)
        return calls

    def _projection(self, part: str) -> nn.Module:
        module = self._module(self._map.places[part].module)
        assert module is not None
        return module

    def _columns(self, part: str) -> int:
        """Returns the number of channels of a projection for one part."""
        features: Any = self._projection(part).out_features
        return int(features) // self._map.places[part].share[1]

    def _head_width(self, part: str) -> int:
        """Returns the channels of one head of the attention that a part belongs to."""
        attention: Any = self._module(self._map.attention[part.split(".")[0]])
        width = getattr(attention, "head_dim", None)
        return int(width) if width else self._columns(f"{part.split('.')[0]}.query") // int(attention.heads)
