"""Complete ports in half precision against the spread of our own model: correct ports are noise, faults are named.

`tests.support.ports` makes correct ports of PyTorch; their attention kernels also differ from the yardstick's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("torch")

from torch import nn

from tests.support.faults import Parts, fsmn_tap, positions_from_zero, queries_swapped, transposed
from tests.support.faults_elsewhere import decoder_attention, exchanged_heads, position_biases
from tests.support.faults_judged import SAMPLE, STAGES, Model
from tests.support.ports import Port
from workbench.compare import compare, judge, noise_or_bug
from workbench.compare.noise.spread import ORDERS, Clean, noise_by_spread
from workbench.compare.verdict import Verdict
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.runtimes.pytorch.checkpoints.finalise_weights import without_packing
from workbench.runtimes.pytorch.numerics import arithmetic
from workbench.trace.trace import Trace

FAMILIES = ("causal_lm", "sensevoice", "paraformer", "fireredasr", "funasr_nano")
PROMPT = "Write in figures and in words: three seven one, nine two eight, zero four, six five one three."
SEEDS = 10  # of each family, in bfloat16


class Half(Model):
    """A demo model with its traces, its clean spread in half precision, and a session to make ports of."""

    def __init__(self, family: str, dtype: str = "bfloat16"):
        self.family, self.dtype = family, dtype
        self.source = PROMPT if family == "causal_lm" else SAMPLE
        self.directory = Model.directory_of(family)
        traces = []
        for kind in ("float32", "float64"):
            with contextlib.closing(self.opened_in(kind, False)) as session:
                traces.append(self.traced(session))
        self.reference, self.exact = traces
        spec = SessionSpec(
            "demo", family, "pytorch", self.directory, Settings(threads=1, dtype=dtype, stepwise=True, summation=1)
        )
        with contextlib.closing(open_here(spec)) as session:
            self.clean = Clean([self.traced(session) for _ in range(ORDERS)], self.exact, dtype)
        with (
            without_packing()
        ):  # so that ports and faults can alter its linear layers, where a processor packs them too
            self.session = self.opened_in(dtype, True)
        language = getattr(self.session.recogniser, "language", None) if hasattr(self.session, "recogniser") else None
        language = self.session.writer.language if hasattr(self.session, "writer") else language
        if language is not None:
            language.network.set_attn_implementation("sdpa")

    def opened_in(self, dtype: str, stepwise: bool) -> Any:
        return self.module.open_session(self.directory, "demo", Settings(threads=1, dtype=dtype, stepwise=stepwise))

    def traced(self, session: Any, given: Trace | None = None) -> Trace:
        trace: Trace = session.trace(self.source, stages=STAGES, given=given)
        return trace

    def ported(self) -> Trace:
        """Returns the session's trace with torch's own attention."""
        with mock.patch.object(arithmetic, "_Stepwise", contextlib.nullcontext):
            return self.traced(self.session)

    def judged(self, port: Trace, with_spread: bool = True) -> Verdict:
        if with_spread:
            noise = noise_by_spread(self.reference, port, self.clean)
        else:
            noise = noise_or_bug(self.reference, port, self.exact)
        return judge(compare(self.reference, port), noise)


@pytest.fixture(scope="module")
def models() -> Iterator[Mapping[str, Half]]:
    models = {family: Half(family) for family in FAMILIES}
    yield models
    for model in models.values():
        model.session.close()


Models = Mapping[str, Half]


@pytest.mark.parametrize("family", FAMILIES)
def test_correct_half_precision_ports_are_judged_as_noise(models: Models, family: str) -> None:
    """Fifty ports, and PyTorch's own kernels for each family."""
    model, traces = models[family], []
    for seed in range(SEEDS):
        with Port(seed) as port:
            traces.append(model.ported())
        verdict = model.judged(traces[-1])
        assert verdict.within and verdict.faulty_stage is None, (port.changes, verdict.sentence)
        assert "Arithmetic noise: at logits the candidate's distance from float64 is " in verdict.sentence
    assert len({trace["logits"].tobytes() for trace in traces}) > SEEDS / 2, "they are the same port"
    assert model.judged(model.ported()).within


def test_correct_float16_ports_are_judged_as_noise() -> None:
    model = Half("causal_lm", "float16")
    with contextlib.closing(model.session):
        for seed in range(4):
            with Port(seed):
                verdict = model.judged(model.ported())
            assert (
                verdict.within
                and "; that of this model in float16 in 5 orders of summation is at most " in verdict.sentence
            ), verdict.sentence


def wrong_activation(parts: Parts) -> str:
    """A layer's feed-forward has GELU in place of SiLU."""
    layers = parts.language.model.layers  # type: ignore[union-attr]
    number = parts.one_of(len(layers))
    parts.set(layers[number].mlp, "act_fn", nn.GELU())
    return f"llm.layers.{number}"


def swapped_rows(parts: Parts) -> str:
    """Two rows of the output matrix have changed places, of tokens whose logits differ by a twentieth of their size."""
    head = parts.language.lm_head  # type: ignore[union-attr]
    weight, logits = head.weight.detach().clone(), parts.reference["logits"]
    other = None
    while other is None:  # tokens without training text have equal logits
        first = parts.one_of(len(weight))
        apart = np.median(np.abs(logits - logits[:, first : first + 1]), axis=0) / np.sqrt(np.mean(logits**2))
        nearest = int(np.abs(apart - 0.05).argmin())
        other = nearest if abs(apart[nearest] - 0.05) < 0.01 else None
    weight[[first, other]] = weight[[other, first]]
    parts.set(head, "weight", weight)
    return "logits"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("plant", [wrong_activation, swapped_rows])
@pytest.mark.parametrize("family", ["causal_lm", "fireredasr"])
def test_fault_within_the_dtype_tolerance_is_named(models: Models, family: str, plant: Any, seed: int) -> None:
    model = models[family]
    with Parts(model.session, model.reference, seed) as parts:
        stage = plant(parts)
        port = model.ported()
    verdict = model.judged(port)
    assert verdict.faulty_stage == stage and not verdict.within, verdict.sentence
    assert f"A bug, not noise: at {stage} the candidate's distance from " in verdict.sentence
    if family == "causal_lm" and seed == 0:
        without = model.judged(port, with_spread=False)
        assert without.within and "Arithmetic noise" in without.sentence, "the spread is needed for it"


@pytest.mark.parametrize(
    ("family", "plant"),
    [
        ("sensevoice", fsmn_tap),
        ("sensevoice", positions_from_zero),
        ("sensevoice", queries_swapped),
        ("paraformer", decoder_attention),
        ("fireredasr", position_biases),
        ("funasr_nano", transposed),
        ("causal_lm", exchanged_heads),
    ],
)
def test_other_faults_in_half_precision_ports_are_named(models: Models, family: str, plant: Any) -> None:
    model = models[family]
    with Parts(model.session, model.reference, 1) as parts:
        planted = plant(parts)
        verdict = model.judged(model.ported())
    assert verdict.faulty_stage == planted.stage and not verdict.within, verdict.sentence
