"""Runs a model on several runtimes, one after another, and compares each with the reference.

Traces are written to files at once and read one stage at a time, and a session is closed before the next is opened, so
the run needs the memory of one session and one trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.compare.noise import EXACT
from workbench.compare.precision import AUTO, precision_of
from workbench.compare.presets import check_rules, find_preset, read_rules
from workbench.compare.spread import ORDERS
from workbench.core.caller import Caller, here
from workbench.core.errors import BadInput, Cancelled, Unavailable, WorkbenchError
from workbench.core.options import build_options
from workbench.core.progress import OnProgress
from workbench.core.sides import Side, read_side, read_sides
from workbench.embeddings.prompt import embeddings_given
from workbench.families import FAMILIES
from workbench.parity_lab.clean import (
    CleanRuns,
    FoundClean,
    check_precision,
    gguf_file_of,
    named_precision,
    needs_clean,
    precisions_of,
)
from workbench.parity_lab.dumps import DumpJudge, is_dump, substitutes
from workbench.parity_lab.found import found_or_why
from workbench.parity_lab.judging import Judge
from workbench.parity_lab.models import float64_side
from workbench.parity_lab.narrow import LayerInspection
from workbench.parity_lab.outcome import Computed, Outcome, ParityRun
from workbench.parity_lab.source_name import described
from workbench.parity_lab.sources import Sources, TraceOrReason
from workbench.parity_lab.tracer import Tracer, folder_for
from workbench.registry.registry import Registry
from workbench.session.values import CONVERSATION, AudioSource, Prompt
from workbench.text.prompts import check_prompt, messages_of
from workbench.trace.mapping import StageMapping
from workbench.trace.steps import read_steps
from workbench.trace.trace import StageFilter


def run_parity(
    registry: Registry,
    model: str | Path,
    source: AudioSource | Prompt,
    reference: str | Side = "pytorch",
    candidates: str | Iterable[str | Side] = ("gguf",),
    stages: str = "*",
    options: Mapping[str, Any] | None = None,
    exact: bool = True,
    on_progress: OnProgress | None = None,
    preset: str | None = None,
    *,
    isolated: bool = False,
    embeddings: Sequence[Any] = (),
    settings: Mapping[str, Any] | None = None,
    rules: Sequence[str] = (),
    mapping: StageMapping | None = None,
    force: bool = False,
    keep: str | Path | None = None,
    same_precision: bool = True,
    narrow: bool = False,
    precision: str = AUTO,
    steps: str = "",
    several: bool = False,
    call: Caller = here,
) -> ParityRun:
    """Traces the reference and each candidate on one input, compares them, and tells noise from bugs.

    Args:
        source: a recording; for a language model, a prompt; for a model that answers text and speech, a text, a
            recording or messages (`workbench.session.messages`).
        reference: a side in the notation of `workbench.core.sides`; in float32, unless it says otherwise.
        candidates: sides; if one is not available or fails, its outcome says so, and the others continue.
        stages: a glob of the stages to trace and compare.
        options: options of the model, for every side that does not set them itself.
        exact: compute the reference in float64 too, to tell noise from a bug. If that is not possible, the run says so.
        on_progress: called several times a second with a fraction 0..1 and the current activity; an exception from it
            stops the run, and no file stays.
        isolated: compute every stage of the candidates, and of float64, from the reference's input of that stage, so
            that each shows only its own error; otherwise each side continues with its own values, and errors
            accumulate. If a side cannot do that, its outcome says so. For a trace that was computed end to end, such as
            a dump of another program, it is the other way round: the reference and float64 are computed from the
            trace's input of each stage.
        preset: the expected difference (`workbench.compare.PRESETS`); by default that of each candidate's arithmetic.
        settings: settings such as `threads`, for every side whose runtime has them.
        rules: other limits, in the notation of `workbench.compare.read_rules`.
        mapping: names and layouts of the candidates that are trace files.
        force: also compare traces of different inputs.
        keep: a folder for the traces; without it, they are removed when the run is closed.
        embeddings: one for each placeholder in a prompt, in order (see `workbench.embeddings.prompt`).
        same_precision: for a candidate in bfloat16, float16 or with quantised weights, also compute the reference's
            model in that precision on PyTorch, several times with its sums in other orders, and hold the candidate to
            their spread (see `workbench.parity_lab.clean`). It requires float64.
        narrow: if the first stage in error of a candidate is of a layer, trace that layer again with what is inside it,
            on all sides, and name the first stage in error there (see `workbench.parity_lab.narrow`). Not for isolated
            runs.
        precision: of the candidates that are trace files: `float32`, `bfloat16`, `float16`, a type of GGUF files, or
            the GGUF file that the other program has read. `auto` takes what a trace names, or what its values show.
        steps: the decoding steps to trace and compare too, for a model that writes token by token: `first`, `all`, or
            numbers such as `1,5,20`. All sides read the tokens that the reference wrote, one at a time.
        several: this is one of several inputs (`workbench.parity_lab.several`): also measure the clean spread of
            float32, and give each outcome its measurements.
        call: calls what reads the traces and judges; by default here. A server has a process for it
            (`workbench.serving.separate_process`).

    Raises `BadInput` for a model, a side or an input that cannot be used, and any error of the reference's computation.
    """
    options_class = registry.options_class(model)
    card = registry.card(model)
    reads_text = FAMILIES[card.family].reads_text
    if FAMILIES[card.family].input == CONVERSATION:
        source = messages_of(source)
    elif reads_text:
        check_prompt(source, card.id)
    shared = dict(options or {})
    build_options(options_class, registry.resolve_options(shared), card.id)
    if embeddings:
        if not reads_text:
            raise BadInput(f"{card.id} takes a recording; expected a language model and a prompt for the embeddings")
        shared["embeddings"] = embeddings_given(embeddings)
    if narrow and isolated:
        raise BadInput("a layer is looked into end to end; expected narrow or isolated, not both")
    read_steps(steps)
    wanted = StageFilter(stages, held=True)
    changes, chosen = read_rules(rules), find_preset(preset) if preset else None
    first = read_side(reference, options_class, card.id).with_default(**dict(settings or {}))
    first = first.with_default(dtype="float32", **({} if card.kind == "gguf" else {"quantization": "f32"}))
    others = [each.with_default(**dict(settings or {})) for each in read_sides(candidates, options_class, card.id)]
    dumps = [side for side in others if isolated and first.path is None and is_dump(side, mapping)]
    runs = [side for side in others if side not in dumps]
    precision = check_precision(precision)
    spreads = call(precisions_of, others, mapping, precision) if exact and same_precision else set()
    traces = 1 + exact * bool(runs) + (1 + ORDERS) * len(spreads) + len(others) + len(dumps) * (1 + exact)
    traces *= 1 + narrow
    tracer = Tracer(
        registry, model, source, stages, shared, mapping, folder_for(keep), on_progress, traces, steps, call
    )
    try:
        computed = tracer.compute(first, "reference", ("*.*", "logits", stages) if isolated else ())
        check_rules(changes, filter(wanted, computed.trace))  # before the candidates are computed
        tracer.follow(computed)
        if isolated:
            tracer.isolate(computed, first)
        truth, no_truth = (None, "")
        if exact and runs:
            truth, no_truth = found_or_why(partial(tracer.compute, float64_side(first), EXACT))
        clean = None
        if exact and same_precision:
            file_of = gguf_file_of(registry, model, on_progress)
            known = tracer.reading(precision_of)
            clean = CleanRuns(tracer.compute, tracer.compute_several, first, file_of, known)
            clean.in_float32 = several
        judge = Judge(stages, chosen, changes, force, several)

        def judged(spread: FoundClean, candidate: Computed, exact: TraceOrReason = (truth, no_truth)) -> Outcome:
            return tracer.reading(judge.outcome)(Sources(computed, exact, spread), candidate)

        from_dumps = DumpJudge(
            tracer.compute,
            tracer.save,
            tracer.reading(substitutes),
            tracer.reading(judge.of_own_sources),
            first,
            computed.trace,
            float64_side(first) if exact else None,
            clean,
        )
        outcomes = [
            _outcome(
                tracer, side, f"candidate-{number}", judged, from_dumps if side in dumps else None, clean, precision
            )
            for number, side in enumerate(others, 1)
        ]
        if not runs:
            truth, no_truth = from_dumps.exact
        if narrow:
            inside = tracer.reading(judge.inside)
            looking = LayerInspection(tracer.compute, inside, first, float64_side(first) if truth else None, clean)
            outcomes = [looking.narrowed(side, each, n) for n, (side, each) in enumerate(zip(others, outcomes), 1)]
    except BaseException:
        tracer.discard()
        raise
    tracer.report_progress(1.0, "done")
    kept = keep is not None
    return ParityRun(
        card.id,
        described(source, reads_text),
        computed,
        truth,
        no_truth,
        outcomes,
        tracer.folder,
        kept,
        isolated=isolated,
        peers=[run.computed[0] for run in clean.end_to_end] if clean else (),
    )


def _outcome(
    tracer: Tracer,
    side: Side,
    file: str,
    judged: Callable[[FoundClean, Computed], Outcome],
    from_dumps: DumpJudge | None,
    clean: CleanRuns | None,
    precision: str,
) -> Outcome:
    """Returns the outcome of a candidate.

    Args:
        from_dumps: for a dump, whose stages the reference is computed from.
        clean: computes the clean spread of the candidate's precision.
        precision: of a trace file.
    """
    try:
        candidate, said = tracer.compute(side, file), ""
        if side.path is not None:
            trace, said = tracer.reading(named_precision)(candidate.trace, precision)
            candidate = replace(candidate, trace=trace)
        if from_dumps is not None:
            return replace(from_dumps.judged(candidate, file), precision=said)
        tracer.check_inputs(candidate)
        spread = clean.of(candidate.trace) if clean and needs_clean(side) else (None, "")
        return replace(judged(spread, candidate), precision=said)
    except Cancelled:
        raise
    except Unavailable as error:
        return Outcome(side.name, "unavailable", str(error))
    except WorkbenchError as error:
        return Outcome(side.name, "unusable", str(error))
