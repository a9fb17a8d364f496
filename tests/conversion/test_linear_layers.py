"""Weights of linear layers that are found by stages: they give the stages of PyTorch's networks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tests.support.faults_judged import SAMPLE
from workbench.compare.guesses.guess import Scene, relative_l2, table
from workbench.compare.guesses.products import PRODUCTS, input_of
from workbench.conversion.linear_layers import OUTSIDE, linear_layers
from workbench.registry.registry import Registry
from workbench.registry.sources import assets


@pytest.mark.parametrize(
    "model, family, some",
    [
        (
            "sensevoice",
            "sensevoice",
            ("encoder.layers.2.attention.value", "encoder.layers.0.attention.query", "logits"),
        ),
        ("paraformer", "paraformer", ("decoder.layers.1.cross_attention.query", "decoder.layers.1.mlp.down", "logits")),
        ("funasr-nano", "funasr_nano", ("adaptor.layers.0.attention.key", "llm.layers.1.mlp.gate", "logits")),
        ("fireredasr", "fireredasr", ("encoder.layers.2.ffn1.down", "encoder.layers.2.conv.up", "llm.layers.1.mlp.up")),
    ],
)
def test_weights_give_the_stages_of_the_network(model: str, family: str, some: tuple[str, ...]) -> None:
    layers = {f"{'.'.join(each.split('.')[:3])}.*" for each in some if each != "logits"}
    globs = ",".join(("encoder.output", "decoder.output", "llm.norm", "logits", *layers))
    with Registry(isolate=False) as registry, registry.open(f"demo/{model}", runtime="pytorch", threads=1) as session:
        trace = session.trace(SAMPLE, globs)
    stages = [each for each in trace if each.rpartition(".")[2] in PRODUCTS]
    memories = [each for each in trace if each.endswith(".fsmn")]
    found = linear_layers(assets() / f"demo-{model}", family, stages)
    assert set(some) <= found.keys() <= set(stages)
    checked = set()
    for stage, (weight, *bias) in found.items():
        if entering := input_of(Scene(stage, trace[stage], trace[stage], 1e-5, trace, trace)):
            product = entering[1] @ weight.T.astype(np.float64) + (bias[0] if bias else 0)
            assert relative_l2(product, table(trace[stage])) < 1e-5, stage
            checked.add(stage)
    assert set(some) <= checked
    for stage, (kernel,) in linear_layers(assets() / f"demo-{model}", family, memories).items():
        entering = table(trace[stage.replace(".fsmn", ".attention.value" if "encoder" in stage else ".fsmn_norm")])
        reach = kernel.shape[1] // 2
        padded = np.pad(entering, ((reach, reach), (0, 0)))
        memory = sum(padded[tap : tap + len(entering)] * kernel[:, tap] for tap in range(kernel.shape[1])) + entering
        assert relative_l2(np.asarray(memory), table(trace[stage])) < 1e-5, stage
    assert linear_layers(assets() / f"demo-{model}", family, ["encoder.layers.99.mlp.up", "frontend.fbank"]) == {}


@pytest.mark.parametrize(
    "model, family, shapes",
    [
        ("sensevoice", "sensevoice", {"encoder.queries": (16, 560), "encoder.layers.5.norm2": (144,)}),
        (
            "paraformer",
            "paraformer",
            {"predictor.convolution": (144, 144, 3), "predictor.output": (1, 144), "decoder.layers.1.norm3": (144,)},
        ),
        ("funasr-nano", "funasr_nano", {"adaptor.linear1": (192, 1152), "adaptor.layers.0.norm1": (128,)}),
        (
            "fireredasr",
            "fireredasr",
            {
                "adaptor.linear2": (128, 128),
                "encoder.subsampling.1": (32, 32, 3, 3),
                "encoder.layers.1.attention.content_bias": (4, 28),
                "encoder.layers.1.attention.positions": (112, 112),
                "encoder.layers.1.conv.depthwise": (224, 15),
                "encoder.layers.1.norm": (112,),
            },
        ),
    ],
)
def test_other_parameters_are_found_by_name(model: str, family: str, shapes: dict[str, tuple[int, ...]]) -> None:
    found = linear_layers(assets() / f"demo-{model}", family, [*shapes, *OUTSIDE])
    assert {name: found[name][0].shape for name in shapes} == shapes
    assert len(found["logits"][0].shape) == 2
