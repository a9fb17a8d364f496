"""Every demo model on every runtime and in every type against PyTorch in float32: writes `benchmarks/PARITY.md`.

    python -m benchmarks.parity_table           prints the page
    python -m benchmarks.parity_table --write   writes it; --models or --runtimes write their rows only

Each model's sessions stay open for all inputs; engines of vLLM run one at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby
from pathlib import Path

from benchmarks.parity_page import (
    BEYOND,
    COLUMNS,
    GROUPED,
    NOTHING,
    REFERENCE,
    WITHIN,
    Page,
    Row,
    error,
    group_of,
    read,
    render,
)
from workbench import __version__
from workbench.compare.comparison import Comparison
from workbench.compare.noise.report import NoiseReport, StageNoise
from workbench.compare.tokens.answers import FOLLOWING
from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.core.sides import read_side
from workbench.families import FAMILIES
from workbench.formats.quantization import TYPES
from workbench.parity_lab import Outcome, run_parity
from workbench.registry.registry import Registry
from workbench.registry.sources import assets
from workbench.session.values import CONVERSATION
from workbench.system.versions import versions

PAGE = Path(__file__).with_name("PARITY.md")
MODELS = (
    "demo/sensevoice",
    "demo/paraformer",
    "demo/funasr-nano",
    "demo/fireredasr",
    "demo/qwen3",
    "demo/speechlm",
    "fsmn-vad",
)
KINDS = {
    "pytorch": ("float32", "bfloat16", "float16", "float64"),
    "gguf": TYPES,
    "vllm": ("float32", "bfloat16", "float16"),
}
"""The types to compute on each runtime; PyTorch's first one is the reference."""
FOR_BEAM_SEARCH = ("telephone_noisy.wav",)  # samples that greedy decoding gets wrong on purpose
PROMPTS = ("Count from two to six.", "Write in figures: three seven one", "Reverse: nine two eight zero four")
CONVERSATIONS = (
    "say three seven one",
    "say zero four nine two five",
    assets() / "samples" / "three_seven_one.wav",
    assets() / "samples" / "six_five_one_three.wav",
)
ANSWER = {"modalities": "text_audio", "temperature": 0.0}
"""The options of the answers to compare."""
ISOLATED = 2  # the number of inputs that are also computed stage by stage
SETTINGS = {"threads": 1, "kv_gigabytes": 0.25}


@dataclass(frozen=True)
class Found:
    """The outcomes of a candidate on each input."""

    whole: list[Outcome] = field(default_factory=list)  # end to end, with float64
    alone: list[Outcome] = field(default_factory=list)  # isolated, of the first inputs


def sides(runtimes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Returns runtime, type and side of every candidate; the side of the reference, PyTorch's float32, is empty."""
    return [
        (runtime, kind, "" if (runtime, kind) == ("pytorch", "float32") else f"{runtime}:{kind}")
        for runtime in runtimes
        for kind in KINDS[runtime]
    ]


def answers(registry: Registry, model: str) -> bool:
    """Returns whether a model answers conversations."""
    return FAMILIES[registry.card(model).family].input == CONVERSATION


def sample_recordings() -> list[Path]:
    """Returns the sample recordings that models are compared on."""
    return sorted(path for path in (assets() / "samples").glob("*.wav") if path.name not in FOR_BEAM_SEARCH)


def inputs(registry: Registry, model: str, count: int | None = None) -> Sequence[Path | str]:
    """Returns texts and recordings to answer, the prompts of a language model, or the sample recordings; at most
    `count` of them.
    """
    if answers(registry, model):
        return CONVERSATIONS[:count]
    if FAMILIES[registry.card(model).family].reads_text:
        return PROMPTS[:count]
    return sorted(sample_recordings(), key=lambda path: path.stat().st_size)[:count]


def outcomes(
    registry: Registry, model: str, candidates: Sequence[str], sources: Sequence[Path | str]
) -> dict[str, Found]:
    """Returns the outcomes of each candidate, against the reference in float32 and in float64."""
    by_name = {name: Found() for name in candidates}
    for name in candidates:
        state = registry.availability(registry.card(model), name.partition(":")[0])
        if state.reason and not state.fetches:
            by_name[name].whole.append(Outcome(name, "unavailable", state.reason))
    options = ANSWER if answers(registry, model) else None
    available = [name for name in candidates if not by_name[name].whole]
    in_process = [name for name in available if not name.startswith("vllm")]
    for names in ([in_process] if in_process else []) + [[name] for name in available if name not in in_process]:
        with contextlib.ExitStack() as stack:
            usable = [name for name in names if opens_session(stack, registry, model, name)]
            for name in ("pytorch:float32", "pytorch:float64") if usable else ():
                opens_session(stack, registry, model, name)
            for number, source in enumerate(sources if usable else sources[:1]):
                started = time.perf_counter()
                with run_parity(
                    registry,
                    model,
                    source,
                    candidates=names,
                    options=options,
                    settings=SETTINGS,
                    same_precision=False,
                ) as run:
                    for outcome in run.outcomes:
                        by_name[outcome.name].whole.append(outcome)
                if number < ISOLATED and usable:
                    with run_parity(
                        registry,
                        model,
                        source,
                        candidates=usable,
                        options=options,
                        settings=SETTINGS,
                        exact=False,
                        isolated=True,
                    ) as run:
                        for outcome in run.outcomes:
                            by_name[outcome.name].alone.append(outcome)
                seconds = time.perf_counter() - started
                line = f"{model}, {names[0]} to {names[-1]}, {getattr(source, 'name', source)}: {seconds:.0f} s"
                print(line, file=sys.stderr, flush=True)
    return by_name


def opens_session(stack: contextlib.ExitStack, registry: Registry, model: str, name: str) -> bool:
    """Opens the side's session until the end of the stack; returns whether that worked."""
    side = read_side(name, registry.options_class(model), model).with_default(**SETTINGS)
    try:
        stack.enter_context(registry.open(model, runtime=side.runtime, **side.settings))
    except (BadInput, Unavailable):
        return False  # a run reports the reason
    return True


def row(model: str, runtime: str, kind: str, results: Found) -> Row:
    """Returns the row of a candidate: the worst of its outcomes on all inputs."""
    compared = [each.comparison for each in results.whole if each.comparison]
    if not compared:
        return Row(runtime, kind, phrase(model, runtime, results.whole[0].reason), *[NOTHING] * (len(COLUMNS) - 3))
    largest: dict[str, float] = {}
    for stage, value in errors(compared):
        group = group_of(stage)
        largest[group] = max(largest.get(group, 0.0), value)
    groups = [error(largest.get(name)) for name in GROUPED]
    top1, equal = agreement(compared), same_tokens(compared)
    return Row(
        runtime, kind, verdict(results.whole), worst(compared), *groups, top1, equal, *noise(results.whole),
        isolated(model, runtime, results.alone),
    )  # fmt: skip


def isolated(model: str, runtime: str, results: Sequence[Outcome]) -> str:
    """Returns the worst of the isolated stages, marked if it is beyond its limits; or why there is none."""
    compared = [each.comparison for each in results if each.comparison]
    if not compared:
        return phrase(model, runtime, results[0].reason) if results else NOTHING
    return worst(compared) + ("" if all(each.status == "within" for each in results) else f", {BEYOND}")


def worst(compared: Sequence[Comparison]) -> str:
    """Returns the largest relative L2 and its stage."""
    value, stage = max(((value, stage) for stage, value in errors(compared)), default=(0.0, ""))
    return f"{error(value)} {stage}" if value else "0"


def errors(compared: Sequence[Comparison]) -> Iterator[tuple[str, float]]:
    """Yields stages and their relative L2, infinite if undefined; without ids and texts, except those of prompts.

    The codec's stages of two answers with different ids are left out, as they are no errors of the codec.
    """
    for comparison in compared:
        for each in comparison.stages:
            if each.sequence and each.stage.startswith("prompt."):
                yield each.stage, float("inf") if each.differs else 0.0
            elif each.stage in FOLLOWING and comparison.first_id:
                continue
            elif not (each.sequence or each.streams or each.logprobs):
                finite = each.numbers and not each.numbers.nonfinite_differences
                yield each.stage, each.numbers.relative_l2 if each.numbers and finite else float("inf")


def verdict(results: Sequence[Outcome]) -> str:
    """Returns whether it is within its preset, else on how many inputs it is beyond, and at which stages first."""
    preset = next(each.comparison.tolerances.preset.name for each in results if each.comparison)
    bad = [each for each in results if each.status != "within"]
    if not bad:
        return f"{WITHIN} {preset}"
    return f"{BEYOND} {preset} in {len(bad)} of {len(results)}: {', '.join(dict.fromkeys(map(first, bad)))}"


def first(outcome: Outcome) -> str:
    """Returns the first faulty stage of a candidate that is beyond, and the kind of fault if no limit was exceeded."""
    stage = outcome.verdict.faulty_stage if outcome.verdict else None
    if stage is None or outcome.comparison is None:
        return outcome.sentence.partition("; ")[0]
    stage_comparison = outcome.comparison[stage]
    if stage_comparison.mismatch:
        one, other = ("×".join(map(str, shape)) for shape in stage_comparison.shapes)
        return f"{stage} ({one} against {other})"
    return f"{stage} (against float64)" if stage_comparison.passes else stage


def phrase(model: str, runtime: str, reason: str) -> str:
    """Returns why a combination does not exist, without its names and without advice."""
    reason = reason.removeprefix(f"{model} cannot run on {runtime}: ").partition("; ")[0]
    return re.sub(rf"^(dtype is \w+, and )?{re.escape(model)} has ", "", reason)


def agreement(compared: Sequence[Comparison]) -> str:
    """Returns the share of rows of logits with the same best candidate."""
    logits = [each.logits for comparison in compared for each in comparison.stages if each.logits]
    rows = sum(each.rows for each in logits)
    return f"{1 - sum(each.flips for each in logits) / rows:.2%}" if rows else NOTHING


def same_tokens(compared: Sequence[Comparison]) -> str:
    """Returns in how many traces the ids are equal, and how many of the others begin with a near tie."""
    with_tokens = [comparison for comparison in compared if comparison.tokens_agree is not None]
    if not with_tokens:
        return NOTHING
    ties = sum(1 for each in with_tokens if (first := each.first_id or each.first_token) and first.near_tie)
    equal = sum(1 for each in with_tokens if each.tokens_agree and each.first_id is None)
    return f"{equal} of {len(with_tokens)}" + (f" ({ties} near tie{'s' * (ties > 1)})" if ties else "")


def noise(results: Sequence[Outcome]) -> tuple[str, str]:
    """Returns noise or the first bug; and the distance from float64 at the end, with its ratio to the reference's."""
    reports = [each.noise for each in results if each.noise]
    if not reports:
        return NOTHING, NOTHING
    bugs = dict.fromkeys(report.first_bug.stage for report in reports if report.first_bug)
    candidate_distance, reference_distance = (
        max(getattr(end(report), side) for report in reports) for side in ("candidate", "reference")
    )
    times = candidate_distance / reference_distance if reference_distance else float("inf")
    ratio = f"{times:,.0f}" if times >= 10 else f"{times:.1f}"
    return f"bug at {', '.join(bugs)}" if bugs else "noise", f"{error(candidate_distance)} ({ratio}×)"


def end(report: NoiseReport) -> StageNoise:
    """Returns the logits, or the last stage at which the reference differs from float64."""
    rounded = [each for each in report.stages if each.reference] or list(report.stages)
    return next((each for each in rounded if each.stage == "logits"), rounded[-1])


def reference_row(results: Sequence[Found]) -> Row:
    """Returns the row of the reference, which has only its own distance from float64."""
    reports = [each.noise for result in results for each in result.whole if each.noise]
    distance = f"{error(max(end(report).reference for report in reports))} (1.0×)" if reports else NOTHING
    return Row("pytorch", "float32", REFERENCE, *[NOTHING] * (len(COLUMNS) - 5), distance, NOTHING)


def table(registry: Registry, model: str, runtimes: Sequence[str], count: int | None = None) -> list[Row]:
    """Returns the rows of a model."""
    every = sides(runtimes)
    results = outcomes(registry, model, [side for _, _, side in every if side], inputs(registry, model, count))
    rows = [
        row(model, runtime, kind, results[side]) if side else reference_row(list(results.values()))
        for runtime, kind, side in every
    ]
    return list(joined(rows))


def joined(rows: Sequence[Row]) -> Iterator[Row]:
    """Yields the rows; neighbours that do not exist for the same reason become one row with all their types."""
    for (runtime, reason), group in groupby(rows, key=lambda row: (row.runtime, row.preset or row.verdict)):
        several = list(group)
        if several[0].preset or several[0].verdict == REFERENCE:
            yield from several
        else:
            yield Row(runtime, ", ".join(row.type for row in several), reason, *[NOTHING] * (len(COLUMNS) - 3))


def merged(
    old_rows: Mapping[str, Sequence[Row]], new_rows: Mapping[str, Sequence[Row]], runtimes: Sequence[str]
) -> dict[str, list[Row]]:
    """Returns the rows of a page, with new rows replacing those of the same models and runtimes."""
    rows_by_model = {}
    for model in dict.fromkeys([*MODELS, *old_rows, *new_rows]):
        old = [row for row in old_rows.get(model, ()) if model not in new_rows or row.runtime not in runtimes]
        if rows := [*old, *new_rows.get(model, ())]:
            rows_by_model[model] = sorted(rows, key=lambda row: list(KINDS).index(row.runtime))
    return rows_by_model


def facts() -> dict[str, str]:
    """Returns the facts of the run: command, date and machine."""
    listed = {"speech-workbench": __version__, "python": platform.python_version(), **versions()}
    return {
        "Command": "`python -m benchmarks.parity_table --write`, at once or in parts (`--models`, `--runtimes`)",
        "Date": date.today().isoformat(),
        "Machine": f"{platform.machine()}, {processor()}, one thread",
        "Versions": ", ".join(f"{name} {number}" for name, number in listed.items()),
        "Recordings": ", ".join(path.name for path in sample_recordings()),
        "Prompts": "; ".join(PROMPTS),
        "Conversations": "; ".join(getattr(each, "name", each) for each in CONVERSATIONS),
    }


def processor() -> str:
    """Returns the processor's name, if the system knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "processor not said"


def main() -> None:
    """Prints or writes the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity_table", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="ids (default: %(default)s)")
    parser.add_argument("--runtimes", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--inputs", type=int, help="number of recordings or prompts, the shortest ones")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, or the chosen rows of it")
    options = parser.parse_args()
    if options.write and options.inputs:
        parser.error("--write is for all inputs; leave --inputs out")
    try:
        with Registry() as registry:
            tables = {model: table(registry, model, options.runtimes, options.inputs) for model in options.models}
    except WorkbenchError as problem:
        sys.exit(f"parity_table: {problem}")
    if options.write:
        saved = read(PAGE.read_text(encoding="utf-8")) if PAGE.is_file() else Page({}, {})
        page = Page(facts(), merged(saved.tables, tables, options.runtimes), saved.planted)
        PAGE.write_text(render(page), encoding="utf-8")
    else:
        print(render(Page(facts(), tables)), end="")


if __name__ == "__main__":
    main()
