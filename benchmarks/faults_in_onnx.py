"""Plants faults in an ONNX export of funasr's SenseVoice, and writes the dumps of faulty and of correct ports.

    python -m benchmarks.faults_in_onnx FOLDER

This file is independent of the comparison; see `benchmarks.faults_in_transformers`. A fault edits initialisers,
attributes or connections of the graph. The correct ports differ in what ONNX Runtime optimises, in threads and in the
order of sums. It needs the packages funasr, onnx and onnxruntime, which this project does not depend on.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.funasr_sensevoice import MODEL, STAGES, Port, inputs_of, network, recordings
from benchmarks.planting import Field

INPUTS, FAULTY_INPUTS, TYPE = 5, 2, "float32"
HEADS = 4
Edit = Callable[["Graph", int, np.random.Generator], str]
"""Changes a graph at a layer; returns the first stage that it changes."""


class Graph:
    """An ONNX graph whose values have the names of stages.

    Args:
        model: changed in place.
        names: value -> stage; by default read off the graph, which must be unchanged.
    """

    def __init__(self, model: Any, names: dict[str, str] | None = None):
        self.model = model
        self.nodes = {each.name: each for each in model.graph.node}
        self.initial = {each.name: each for each in model.graph.initializer}
        self.count = sum(name.endswith("/norm2/LayerNormalization") for name in self.nodes)
        self.names = names or self._stages()

    def copy(self) -> Graph:
        """Returns a graph to change."""
        return Graph(copy.deepcopy(self.model), self.names)

    def scope(self, n: int) -> str:
        """Returns the beginning of the names of a layer's nodes."""
        blocks = sum("/encoder/encoders." in name and name.endswith("/norm2/LayerNormalization") for name in self.nodes)
        if n == 0:
            return "/encoder/encoders0.0"
        return f"/encoder/encoders.{n - 1}" if n <= blocks else f"/encoder/tp_encoders.{n - 1 - blocks}"

    def weight(self, n: int, name: str) -> str:
        """Returns the name of a layer's initialiser."""
        return f"{self.scope(n)[1:].replace('/', '.')}.{name}"

    def value(self, name: str) -> np.ndarray:
        """Returns an initialiser."""
        from onnx import numpy_helper

        return np.array(numpy_helper.to_array(self.initial[name]))

    def set(self, name: str, value: np.ndarray) -> None:
        """Replaces an initialiser."""
        from onnx import numpy_helper

        self.initial[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name))

    def insert(self, kind: str, value: str, users: list[Any], **attributes: Any) -> None:
        """Puts a node of one input between a value and the nodes that use it."""
        from onnx import helper

        new = f"{value}/planted"
        for user in users:
            user.input[:] = [new if each == value else each for each in user.input]
        node = helper.make_node(kind, [value], [new], name=new, **attributes)
        place = next(n for n, each in enumerate(self.model.graph.node) if value in each.output) + 1
        self.model.graph.node.insert(place, node)

    def constant(self, name: str, value: float) -> str:
        """Adds a number; returns its name."""
        from onnx import numpy_helper

        self.model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def _input_of_norm(self, norm: str) -> str:
        entering = self.nodes[f"{norm}/LayerNormalization"].input[0]
        maker = next((each for each in self.model.graph.node if entering in each.output), None)
        return str(maker.input[0]) if maker is not None and maker.op_type == "Cast" else str(entering)

    def _stages(self) -> dict[str, str]:
        names = {}
        for n in range(self.count):
            scope, x = self.scope(n), f"encoder.layers.{n}"
            attention, feed = f"{scope}/self_attn", f"{scope}/feed_forward"
            names[self.nodes[f"{scope}/norm1/LayerNormalization"].output[0]] = f"{x}.input_norm"
            for name, value in zip(("query", "key", "value"), self.nodes[f"{attention}/Split"].output):
                names[value] = f"{x}.attention.{name}"
            output = self.nodes[f"{attention}/linear_out/Add"].output[0]
            both = next(each for each in self.model.graph.node if output in each.input)
            names[next(each for each in both.input if each != output)] = f"{x}.fsmn"
            names[self.nodes[f"{attention}/linear_out/MatMul"].input[0]] = f"{x}.attention.context"
            names[output] = f"{x}.attention.output"
            names[self._input_of_norm(f"{scope}/norm2")] = f"{x}.attention.residual"
            names[self.nodes[f"{scope}/norm2/LayerNormalization"].output[0]] = f"{x}.mlp_norm"
            names[self.nodes[f"{feed}/w_1/Add"].output[0]] = f"{x}.mlp.up"
            names[self.nodes[f"{feed}/w_2/MatMul"].input[0]] = f"{x}.mlp.activation"
            names[self.nodes[f"{feed}/w_2/Add"].output[0]] = f"{x}.mlp.down"
            before = "encoder.input" if n == 0 else f"encoder.layers.{n - 1}"
            if scope != "/encoder/tp_encoders.0":
                names[self._input_of_norm(f"{scope}/norm1")] = before
            else:
                names[self._input_of_norm("/encoder/after_norm")] = before
                names[self.nodes["/encoder/after_norm/LayerNormalization"].output[0]] = "encoder.after_norm"
        names[self._input_of_norm("/encoder/tp_norm")] = f"encoder.layers.{self.count - 1}"
        names[self.nodes["/encoder/tp_norm/LayerNormalization"].output[0]] = "encoder.output"
        return {**names, "logits": "logits"}

    def run(
        self, features: np.ndarray, queries: tuple[int, ...], optimise: str = "DISABLE_ALL", threads: int = 1
    ) -> dict[str, np.ndarray]:
        """Returns the stages of a recording, as ONNX Runtime computes them."""
        import onnxruntime
        from onnx import ValueInfoProto

        model = copy.deepcopy(self.model)
        available = {value for node in model.graph.node for value in node.output}
        model.graph.output.extend(
            ValueInfoProto(name=each) for each in self.names if each != "logits" and each in available
        )
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{optimise}")
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        inputs = {
            "speech": features[None],
            "lengths": np.array([len(features)]),
            "queries": np.array([queries], np.int64),
        }
        outputs = [each.name for each in session.get_outputs()]
        stages = {self.names[name]: value[0] for name, value in zip(outputs, session.run(outputs, inputs))}
        for stage, array in stages.items():
            if stage.endswith((".query", ".key", ".value")):
                stages[stage] = array.reshape(len(array), HEADS, -1)
        return {"frontend.features": features, **stages}


def exported(path: Path) -> Graph:
    """Returns the graph of funasr's network."""
    import onnx

    features, lengths, queries = torch.randn(1, 31, 560), torch.tensor([31]), torch.tensor([[0, 1, 2, 15]])
    names = ["speech", "lengths", "queries"]
    torch.onnx.export(
        Port(network()), (features, lengths, queries), path, input_names=names, output_names=["logits"],
        dynamic_axes={"speech": {1: "frames"}}, dynamo=False, opset_version=20, do_constant_folding=False,
    )  # fmt: skip
    return Graph(onnx.load(path))


# The faults.


def _weight(name: str, stage: str, change: Callable[[np.ndarray, np.random.Generator], np.ndarray]) -> Edit:
    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        full = graph.weight(n, name)
        graph.set(full, change(graph.value(full), draw))
        return f"encoder.layers.{n}.{stage}"

    return edit


def _initialiser(name: str, stage: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        graph.set(name, change(graph.value(name)))
        return stage

    return edit


def _attribute(node: str, stage: str, name: str, value: Any) -> Edit:
    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        target = graph.nodes[node.format(scope=graph.scope(n))]
        next(each for each in target.attribute if each.name == name).__setattr__(*value)
        return stage.format(x=f"encoder.layers.{n}")

    return edit


def _epsilon(norm: str, stage: str, value: float) -> Edit:
    return _attribute(f"{norm}/LayerNormalization", stage, "epsilon", ("f", value))


def _thirds(order: tuple[int, ...]) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    return lambda w, draw: np.concatenate([np.split(w, 3)[each] for each in order])


def _heads(third: int) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def change(w: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        parts = np.split(w, 3)
        heads = np.split(parts[third], HEADS)
        parts[third] = np.concatenate([heads[each] for each in (0, 3, 2, 1)])
        return np.concatenate(parts)

    return change


def _one_scaled(times: float, axis: int = 0) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    def change(w: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        view = np.moveaxis(w, axis, 0)
        view[int(draw.integers(len(view)))] *= times
        return w

    return change


def _bfloat16(w: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return np.asarray(torch.from_numpy(w).bfloat16().float().numpy())


def _int8(w: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    scale = np.abs(w).max() / 127
    return np.asarray(np.round(w / scale) * scale)


def _activation(kind: str, **attributes: Any) -> Edit:
    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        node = graph.nodes[f"{graph.scope(n)}/feed_forward/activation/Relu"]
        node.op_type = kind
        from onnx import helper

        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        return f"encoder.layers.{n}.mlp.activation"

    return edit


def _times(kind: str, stage: str, times: float) -> Edit:
    """Multiplies a value: `scores`, or `features` before positions are added."""

    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        number = graph.constant(f"planted-{kind}", times)
        if kind == "scores":
            node = graph.nodes[f"{graph.scope(n)}/self_attn/MatMul"]
            _scale(graph, node, number)
        else:
            embed = next(each for name, each in graph.nodes.items() if name.startswith("/encoder/embed/Add"))
            maker = next(each for each in graph.model.graph.node if embed.input[0] in each.output)
            source = maker if maker.op_type == "Mul" else graph.nodes["/encoder/Mul"]
            _scale(graph, source, number)
        return stage.format(x=f"encoder.layers.{n}")

    return edit


def _scale(graph: Graph, node: Any, number: str) -> None:
    """Multiplies a node's output by a number before anything uses it."""
    from onnx import helper

    value = node.output[0]
    node.output[0] = f"{value}/unscaled"
    place = next(n for n, each in enumerate(graph.model.graph.node) if each.name == node.name) + 1
    graph.model.graph.node.insert(place, helper.make_node("Mul", [node.output[0], number], [value], name=f"{value}/x"))


def _softmax_over_queries(graph: Graph, n: int, draw: np.random.Generator) -> str:
    node = graph.nodes[f"{graph.scope(n)}/self_attn/Softmax"]
    next(each for each in node.attribute if each.name == "axis").i = 2
    return f"encoder.layers.{n}.attention.context"


def _reconnected(node: str, place: int, value: str, stage: str, least: int = 0) -> Edit:
    """Connects a node's input to another value."""

    def edit(graph: Graph, n: int, draw: np.random.Generator) -> str:
        n = max(n, least)
        x = f"encoder.layers.{n}"
        by_stage = {stage: name for name, stage in graph.names.items()}
        target = graph.nodes[node.format(scope=graph.scope(n))]
        target.input[place] = by_stage[value.format(x=x, below=f"encoder.layers.{n - 1}")]
        return stage.format(x=x)

    return edit


def _residual(graph: Graph, n: int, draw: np.random.Generator) -> str:
    """Removes the residual input of attention."""
    n = max(n, 1)
    residual = next(name for name, stage in graph.names.items() if stage == f"encoder.layers.{n}.attention.residual")
    node = next(each for each in graph.model.graph.node if residual in each.output)
    other = next(p for p, each in enumerate(node.input) if "self_attn" not in each and "/Mul" not in each)
    node.input[other] = graph.constant("planted-zero", 0.0)
    return f"encoder.layers.{n}.attention.residual"


_QKV, _OUT = "self_attn.linear_q_k_v", "self_attn.linear_out"
_W1, _W2 = "feed_forward.w_1", "feed_forward.w_2"
EDITS: dict[str, Edit] = {
    "first norm's epsilon 1e-3": _epsilon("{scope}/norm1", "{x}.input_norm", 1e-3),
    "second norm's epsilon 1e-2": _epsilon("{scope}/norm2", "{x}.mlp_norm", 1e-2),
    "last norm's epsilon 1e-3": _epsilon("/encoder/tp_norm", "encoder.output", 1e-3),
    "norm between the stacks: weight left out": _initialiser(
        "encoder.after_norm.weight", "encoder.after_norm", np.ones_like
    ),
    "first norm without its bias": _weight("norm1.bias", "input_norm", lambda w, draw: 0 * w),
    "second norm's weight plus one": _weight("norm2.weight", "mlp_norm", lambda w, draw: w + 1),
    "features scaled twice": _times("features", "encoder.input", 12.0),
    "features 1 % too large": _times("features", "encoder.input", 1.01),
    "queries and values exchanged": _weight(f"{_QKV}.weight", "attention.query", _thirds((2, 1, 0))),
    "keys and values exchanged": _weight(f"{_QKV}.weight", "attention.key", _thirds((0, 2, 1))),
    "two query heads exchanged": _weight(f"{_QKV}.weight", "attention.query", _heads(0)),
    "two key heads exchanged": _weight(f"{_QKV}.weight", "attention.key", _heads(1)),
    "no bias of the projections": _weight(f"{_QKV}.bias", "attention.query", lambda w, draw: 0 * w),
    "projections in bfloat16": _weight(f"{_QKV}.weight", "attention.query", _bfloat16),
    "a row of the projections zero": _weight(
        f"{_QKV}.weight", "attention.query", lambda w, draw: np.concatenate([_one_scaled(0.0)(w[:144], draw), w[144:]])
    ),
    "output transposed": _weight(f"{_OUT}.weight", "attention.output", lambda w, draw: w.T.copy()),
    "output without bias": _weight(f"{_OUT}.bias", "attention.output", lambda w, draw: 0 * w),
    "output in 8 bits": _weight(f"{_OUT}.weight", "attention.output", _int8),
    "scores scaled twice": _times("scores", "{x}.attention.context", 1 / 6),
    "scores 2 % too large": _times("scores", "{x}.attention.context", 1.02),
    "softmax over the queries": _softmax_over_queries,
    "a tap of the memory zero": _weight("self_attn.fsmn_block.weight", "fsmn", _one_scaled(0.0, axis=2)),
    "memory's kernel reversed": _weight("self_attn.fsmn_block.weight", "fsmn", lambda w, draw: w[:, :, ::-1]),
    "memory one frame off": _weight("self_attn.fsmn_block.weight", "fsmn", lambda w, draw: np.roll(w, 1, axis=2)),
    "Gelu for Relu": _activation("Gelu"),
    "LeakyRelu for Relu": _activation("LeakyRelu", alpha=0.01),
    "Elu for Relu": _activation("Elu"),
    "first feed-forward product without bias": _weight(f"{_W1}.bias", "mlp.up", lambda w, draw: 0 * w),
    "a row of the first feed-forward product halved": _weight(f"{_W1}.weight", "mlp.up", _one_scaled(0.5)),
    "second feed-forward product in 8 bits": _weight(f"{_W2}.weight", "mlp.down", _int8),
    "a column of the second feed-forward product zero": _weight(f"{_W2}.weight", "mlp.down", _one_scaled(0.0, axis=1)),
    "feed-forward reads before the norm": _reconnected(
        "{scope}/feed_forward/w_1/MatMul", 0, "{x}.attention.residual", "{x}.mlp.up"
    ),
    "feed-forward of the layer below's norm": _reconnected(
        "{scope}/feed_forward/w_1/MatMul", 0, "{below}.mlp_norm", "{x}.mlp.up", least=1
    ),
    "no residual around attention": _residual,
    "query rows one off": _initialiser("embed.weight", "encoder.input", lambda w: np.roll(w, 1, axis=0)),
    "head without bias": _initialiser("head.bias", "logits", lambda w: 0 * w),
    "head's rows one off": _initialiser("head.weight", "logits", lambda w: np.roll(w, 1, axis=0)),
}
"""The faults by name; where they lie is drawn."""


def main() -> None:
    """Plants and writes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    graph = exported(options.folder / "model.onnx")
    field, digests, inputs = Field(options.folder, options.seed), {}, {}
    for path, (features, queries, digest) in inputs_of(recordings(INPUTS)).items():
        group = path.stem
        digests[group], inputs[group] = digest, (features, queries)
        field.group(group, MODEL, str(path), STAGES)
        for optimise, threads in (("DISABLE_ALL", 1), ("ENABLE_ALL", 1), ("ENABLE_BASIC", 2), ("ENABLE_ALL", 2)):
            description = f"{optimise.lower()}, {threads} threads"
            field.correct(group, TYPE, description, graph.run(features, queries, optimise, threads))
    groups = list(inputs)[:FAULTY_INPUTS]
    draw = np.random.default_rng(options.seed)
    for name, edit in EDITS.items():
        group = groups[int(draw.integers(len(groups)))]
        faulty = graph.copy()
        stage = edit(faulty, int(draw.integers(graph.count)), draw)
        field.faulty(group, TYPE, name, stage, faulty.run(*inputs[group]))
    field.seal(digests)


if __name__ == "__main__":
    main()
