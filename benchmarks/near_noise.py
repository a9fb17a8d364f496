"""Plants faults near the noise in ports of the demo models, in four precisions, and counts what the verdict names.

Writes `benchmarks/NEAR_NOISE.md`. A port is the PyTorch model with its sums in a separate order, in float32, bfloat16,
float16 or with the weights of a q8_0 file; the clean computations of the comparison have other orders. A fault *above
the spread* changes its stage by more than the clean spread. Run it as `python -m benchmarks.near_noise --write`; it
takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from workbench.artifacts.gguf_files import converted
from workbench.compare.noise.consistency import Measurement, consistency, measurements_of
from workbench.compare.noise.distances import distances
from workbench.compare.noise.noise_or_bug import noise_or_bug
from workbench.compare.noise.report import NoiseReport
from workbench.compare.noise.spread import ORDERS, Clean, noise_by_spread
from workbench.core.settings import SessionSpec, Settings
from workbench.isolation.loader import open_here
from workbench.registry.sources import assets
from workbench.trace.trace import Trace

PAGE = Path(__file__).with_name("NEAR_NOISE.md")
PRECISIONS = ("float32", "bfloat16", "float16", "q8_0")
RECORDINGS = (
    "three_seven_one",
    "nine_two_eight_zero_four",
    "six_five_one_three",
    "seven_digits",
    "librivox_austen_0880",
)
PROMPTS = (
    "Write in figures and in words: three seven one, nine two eight, zero four, six five one three.",
    "Count from two to six, then from six to two, and say each number twice.",
    "Reverse: nine two eight zero four. Then add one to each of the digits of the result.",
    "The quick brown fox jumps over the lazy dog while seven wizards watch from the hill.",
    "What is three plus four, and what is nine minus two? Answer with one word for each.",
)
FAMILIES = ("causal_lm", "sensevoice")
STAGES = "encoder.*,llm.*,logits"
OWN_ORDER = 1000  # sums of ports are drawn from numbers that the clean computations do not use
CLEAN_PORTS = 5  # for each input; with two models, four precisions and five inputs, 200 in all


@dataclass(frozen=True)
class Fault:
    """A fault, and the stage that it changes."""

    name: str
    stage: str
    plant: Callable[[Any], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an object another attribute inside the block."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def language_faults(body: Any) -> list[Fault]:
    """Returns the faults of a language model."""
    faults = []
    for number in (0, len(body.layers) // 2, len(body.layers) - 1):
        layer, stage = body.layers[number], f"llm.layers.{number}"
        faults += [
            Fault(
                f"norm's epsilon 1e-6 to {epsilon:.0e}",
                stage,
                lambda _, one=layer.input_layernorm, value=epsilon: changed(one, "variance_epsilon", value),
            )
            for epsilon in (1e-5, 1e-4, 1e-3)
        ]
        faults.append(Fault("GELU for SiLU", stage, lambda _, one=layer.mlp: changed(one, "act_fn", nn.GELU())))
        faults.append(
            Fault("two heads swapped", stage, lambda _, one=layer.self_attn: swapped_heads(one.o_proj, one.head_dim))
        )
    rotary = body.rotary_emb
    steps = torch.arange(len(rotary.inv_freq)) / len(rotary.inv_freq)
    base = (5e5**-steps).to(rotary.inv_freq.dtype)
    faults.append(Fault("RoPE base 1e6 to 5e5", "llm.layers.0", lambda _: changed(rotary, "inv_freq", base)))
    return faults


def encoder_faults(network: Any) -> list[Fault]:
    """Returns the faults of a SAN-M encoder, which has ReLU, layer norms and no RoPE."""
    blocks = [*network.encoder.encoders0, *network.encoder.encoders]
    faults = []
    for number in (0, len(blocks) // 2, len(blocks) - 1):
        block, stage = blocks[number], f"encoder.layers.{number}"
        faults += [
            Fault(
                f"norm's epsilon 1e-5 to {epsilon:.0e}",
                stage,
                lambda _, one=block.norm2, value=epsilon: changed(one, "eps", value),
            )
            for epsilon in (1e-4, 1e-3, 1e-2)
        ]
        feed = block.feed_forward
        gelu = lambda x, one=feed: one.w_2(nn.functional.gelu(one.w_1(x)))  # noqa: E731
        faults.append(Fault("GELU for ReLU", stage, lambda _, one=feed, act=gelu: changed(one, "forward", act)))
        attention = block.self_attn
        width = attention.linear_out.weight.shape[1] // network.encoder.config.attention_heads
        faults.append(
            Fault(
                "two heads swapped",
                f"{stage}.attention",
                lambda _, one=attention, w=width: swapped_heads(one.linear_out, w),
            )
        )
    return faults


def swapped_heads(linear: Any, width: int) -> contextlib.AbstractContextManager[None]:
    """Swaps the columns of the first two heads of an output projection inside the block."""
    weight = linear.weight
    other = nn.Parameter(weight.detach().clone(), requires_grad=False)
    other[:, :width], other[:, width : 2 * width] = weight[:, width : 2 * width].clone(), weight[:, :width].clone()
    vars(other).update(vars(weight))  # the type in the file
    return changed(linear, "weight", other)


class Model:
    """A demo model in one precision: its reference, float64, and a port."""

    def __init__(self, family: str, precision: str):
        self.family, self.precision = family, precision
        self.directory = assets() / {"causal_lm": "demo-funasr-nano"}.get(family, f"demo-{family}")
        half = precision in ("bfloat16", "float16")
        self.file = None if half or precision == "float32" else converted(self.directory, family, precision)
        weights = {} if self.file is None else {"weights": str(self.file)}
        self.settings: dict[str, Any] = {"dtype": precision, "stepwise": True} if half else weights
        self.opened = {
            "reference": self.session(),
            "float64": self.session(dtype="float64"),
            "exact": self.session(dtype="float64", **weights),
        }
        self.port = self.session(**self.settings, summation=OWN_ORDER)

    def session(self, **settings: Any) -> Any:
        """Returns an open session in this process."""
        return open_here(SessionSpec("demo", self.family, "pytorch", self.directory, Settings(threads=1, **settings)))

    @property
    def sources(self) -> list[Any]:
        """The inputs."""
        if self.family == "causal_lm":
            return list(PROMPTS)
        return [assets() / "samples" / f"{name}.wav" for name in RECORDINGS]

    def faults(self, session: Any) -> list[Fault]:
        """Returns the faults to plant in a session."""
        if self.family == "causal_lm":
            return language_faults(session.writer.language.network.model)
        return encoder_faults(session.recogniser.network.network)

    def close(self) -> None:
        """Closes all sessions."""
        for session in (*self.opened.values(), self.port):
            session.close()


class Judge:
    """The criteria for a port on one input."""

    def __init__(self, model: Model, source: Any):
        self.source, self.precision = source, model.precision
        self.reference, self.float64, exact = (
            session.trace(source, stages=STAGES) for session in model.opened.values()
        )
        session = model.session(**model.settings, summation=1)
        with contextlib.closing(session):
            traces = [session.trace(source, stages=STAGES) for _ in range(ORDERS)]
        self.clean = Clean(traces, exact, model.precision, model.file is not None)

    def judged(self, port: Trace) -> tuple[NoiseReport, tuple[Measurement, ...]]:
        """Returns the verdict on one input, and the measurements for a verdict over several."""
        spread = noise_by_spread(self.reference, port, self.clean)
        by_float64 = noise_or_bug(self.reference, port, self.float64) if self.precision == "float32" else spread
        return by_float64, measurements_of(spread, ORDERS)

    def above(self, wrong: Trace, stage: str) -> bool:
        """Returns whether a fault changes its stage by more than the clean spread at the median position.

        Args:
            wrong: in float64 with the fault, where no rounding hides what the fault changes.
        """
        spread = max(distances(self.clean.exact[stage], each[stage]).typical for each in self.clean.traces)
        return distances(self.clean.exact[stage], wrong[stage]).typical > spread


@dataclass
class Count:
    """Faults of one kind in one precision."""

    planted: int = 0
    above: int = 0  # above the spread
    named: int = 0  # of those, named at the stage on one input
    elsewhere: int = 0  # named at another stage
    all_named: int = 0
    cases: int = 0  # faults that were judged over all inputs
    together: int = 0  # of those, named at the stage by all inputs together


def measure(
    families: Sequence[str] = FAMILIES,
) -> tuple[dict[tuple[str, str], Count], dict[str, tuple[int, int, int, int]]]:
    """Returns the counts by fault and precision, and by precision clean ports, false alarms, sets, alarms over them."""
    counts: dict[tuple[str, str], Count] = {}
    clean: dict[str, tuple[int, int, int, int]] = dict.fromkeys(PRECISIONS, (0, 0, 0, 0))
    for family in families:
        for precision in PRECISIONS:
            started = time.perf_counter()
            model = Model(family, precision)
            judges = [Judge(model, source) for source in model.sources]
            right = [[model.port.trace(each.source, stages=STAGES) for _ in range(CLEAN_PORTS)] for each in judges]
            judgements = [[judge.judged(port) for port in ports] for judge, ports in zip(judges, right)]
            for judge, each in ((judge, one) for judge, ones in zip(judges, judgements) for one, _ in ones):
                if each.first_bug is not None:
                    print(f"  false alarm on {judge.source}: {each.sentence}", flush=True)
            alarms = sum(each.first_bug is not None for ones in judgements for each, _ in ones)
            sets = [consistency([ones[n][1] for ones in judgements]) for n in range(CLEAN_PORTS)]
            for each in sets:
                if each.first_fault:
                    print(f"  false alarm over inputs: {each.sentence}", flush=True)
            old = clean[precision]
            new = (sum(map(len, right)), alarms, len(sets), sum(each.first_fault is not None for each in sets))
            clean[precision] = tuple(a + b for a, b in zip(old, new))  # type: ignore[assignment]
            exact = model.opened["exact"]
            for fault, in_float64 in zip(model.faults(model.port), model.faults(exact)):
                kind = fault.name.replace("for ReLU", "for SiLU or ReLU").replace("for SiLU", "for SiLU or ReLU", 1)
                kind = "GELU for SiLU or ReLU" if kind.startswith("GELU") else kind
                count = counts.setdefault((kind, precision), Count())
                measurements = []
                for judge in judges:
                    with in_float64.plant(None):
                        wrong = exact.trace(judge.source, stages=fault.stage)
                    with fault.plant(None):
                        port = model.port.trace(judge.source, stages=STAGES)
                    report, measured = judge.judged(port)
                    bug = report.first_bug
                    above, named = judge.above(wrong, fault.stage), bug is not None and bug.stage == fault.stage
                    count.planted += 1
                    count.above += above
                    count.named += above and named
                    count.all_named += named
                    count.elsewhere += bug is not None and not named
                    measurements.append(measured)
                together = consistency(measurements).first_fault
                count.cases += 1
                count.together += together is not None and together.stage == fault.stage
            model.close()
            print(f"{family} {precision}: {time.perf_counter() - started:.0f} s", flush=True)
    return counts, clean


def page(counts: Mapping[tuple[str, str], Count], clean: Mapping[str, tuple[int, int, int, int]]) -> str:
    """Returns the page as Markdown."""
    lines = [
        "# Faults near the noise",
        "",
        "Ports of two demo models (a Qwen3 language model, SenseVoice) on five inputs each, with a fault in one layer",
        "or without, in four precisions. The command is `python -m benchmarks.near_noise --write`. *Above the spread*",
        "are faults that change their stage in float64, at the median position, by more than the farthest of five",
        "clean computations in that precision is from float64. *Named*: of these, the verdict on one input names",
        "exactly that stage. *Below, named*: the same for the others. *By five inputs*: the verdict over all five",
        "inputs names exactly that stage, of all faults (layers and models).",
        "",
        "A port is the workbench's PyTorch model with its sums in an order that the clean computations do not have;",
        "with q8_0 it has the weights of the file and rounds the inputs of its linear layers as ggml does.",
        "",
        "| fault | precision | planted | above the spread | named | below, named | at another stage | by five inputs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (fault, precision), each in sorted(counts.items(), key=lambda item: (item[0][0], PRECISIONS.index(item[0][1]))):
        lines.append(
            f"| {fault} | {precision} | {each.planted} | {each.above} | {each.named} of {each.above} | "
            f"{each.all_named - each.named} of {each.planted - each.above} | {each.elsewhere} | "
            f"{each.together} of {each.cases} |"
        )
    lines += [
        "",
        "| precision | clean ports | false alarms | sets of five inputs | false alarms |",
        "| --- | --- | --- | --- | --- |",
    ]
    lines += [f"| {name} | {' | '.join(map(str, numbers))} |" for name, numbers in clean.items()]
    total = [sum(numbers[n] for numbers in clean.values()) for n in range(4)]
    lines += [f"| all | {' | '.join(map(str, total))} |"]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, prints the page, and writes it if requested."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    text = page(*measure())
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
