"""Runs a model on several runtimes, one after another, and compares each with the reference.

Traces are written to files at once and read one stage at a time, and a session is closed before the next is opened, so
the run needs the memory of one session and one trace. `plan` has read and checked what is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from workbench.compare.noise.report import FLOAT64
from workbench.compare.precision import precision_of
from workbench.compare.presets import check_rules
from workbench.core.caller import Caller, call_directly
from workbench.core.errors import Cancelled, Unavailable, WorkbenchError
from workbench.core.progress import OnProgress
from workbench.core.sides import Side
from workbench.core.visitors import told
from workbench.parity_lab.found import result_or_reason
from workbench.parity_lab.judgement.clean_spread import CleanRuns, gguf_file_of, named_precision, needs_clean
from workbench.parity_lab.judgement.dumps import DumpJudge, substitutes
from workbench.parity_lab.judgement.narrow import LayerInspection
from workbench.parity_lab.judgement.sources import Sources, TraceOrReason
from workbench.parity_lab.models import float64_side
from workbench.parity_lab.options import USUAL, ParityOptions
from workbench.parity_lab.outcome import Computed, Outcome, ParityRun
from workbench.parity_lab.plan import Plan, plan_run
from workbench.parity_lab.tracer import Tracer, folder_for
from workbench.parity_lab.weights import WeightChecks
from workbench.prepared.pool import prepared_processes
from workbench.registry.registry import Registry
from workbench.session.values import AudioSource, Prompt
from workbench.trace.trace import StageFilter


@prepared_processes(early=False)
def run_parity(
    registry: Registry,
    model: str | Path,
    source: AudioSource | Prompt,
    reference: str | Side = "pytorch",
    candidates: str | Iterable[str | Side] = ("gguf",),
    how: ParityOptions = USUAL,
    *,
    on_progress: OnProgress | None = None,
    keep: str | Path | None = None,
    call: Caller = call_directly,
    **changes: Any,
) -> ParityRun:
    """Traces the reference and each candidate on one input, compares them, and tells noise from bugs.

    Args:
        source: a recording; for a language model, a prompt; for a model that answers text and speech, a text, a
            recording or messages (`workbench.session.messages`).
        reference: a side in the notation of `workbench.core.sides`; in float32, unless it says otherwise.
        candidates: sides; if one is not available or fails, its outcome says so, and the others continue.
        how: what is traced, and how it is judged.
        on_progress: called several times a second with a fraction 0..1 and the current activity; an exception from it
            stops the run, and no file stays.
        keep: a folder for the traces; without it, they are removed when the run is closed.
        call: calls the functions that read and judge traces; by default in this process. A server has a separate
            process for them (`workbench.serving.child_processes.separate_process`).
        changes: fields of `how` by name, such as `exact=False`.

    Raises `BadInput` for a model, a side or an input that cannot be used, and any error of the reference's computation.
    """
    plan = plan_run(registry, model, source, reference, candidates, replace(how, **changes))
    count = plan.traces(call)
    tracer = Tracer(registry, plan.request, folder_for(keep), on_progress, count, call)
    try:
        results = _compared(plan, tracer, gguf_file_of(registry, model, on_progress))
    except BaseException:
        tracer.discard()
        raise
    tracer.report_progress(1.0, "done")
    exact, no_exact = results.exact
    return ParityRun(
        plan.card.id,
        plan.source_name,
        results.reference,
        exact,
        no_exact,
        results.outcomes,
        tracer.folder,
        keep is not None,
        isolated=plan.how.isolated,
        peers=results.peers,
    )


@dataclass(frozen=True)
class _Results:
    """The traces and outcomes that a run has computed."""

    reference: Computed
    exact: TraceOrReason
    outcomes: Sequence[Outcome]
    peers: Sequence[Computed]  # the reference's model in the precisions of candidates


def _compared(plan: Plan, tracer: Tracer, file_of: Callable[[str], Path]) -> _Results:
    """Computes the reference, what tells noise from bugs, and then the candidates.

    Args:
        file_of: returns the GGUF file of the model in a type.
    """
    options = plan.how
    reference = _reference(plan, tracer)
    exact: TraceOrReason = (None, "")
    if options.exact and plan.has_runs:
        exact = result_or_reason(partial(tracer.compute, float64_side(plan.reference), FLOAT64))
    clean = None
    if plan.has_clean:
        precision = tracer.reading(precision_of)
        clean = CleanRuns(tracer.compute, tracer.compute_several, plan.reference, file_of, precision, options.several)
    from_dumps = DumpJudge(
        tracer.compute,
        tracer.save,
        tracer.reading(substitutes),
        tracer.reading(plan.judge.of_own_sources),
        plan.reference,
        reference.trace,
        float64_side(plan.reference) if options.exact else None,
        clean,
    )
    weights = WeightChecks(plan.card, plan.precision, tracer.say, options.several)
    candidates = _Candidates(plan, tracer, Sources(reference, exact), clean, from_dumps, weights)
    outcomes = [candidates.outcome(side, f"candidate-{number}") for number, side in enumerate(plan.candidates, 1)]
    if not plan.has_runs:
        exact = from_dumps.exact
    if options.narrow:
        inside = tracer.reading(plan.judge.inside)
        float64 = float64_side(plan.reference) if exact[0] else None
        inspection = LayerInspection(tracer.compute, inside, plan.reference, float64, clean)
        pairs = enumerate(zip(plan.candidates, outcomes), 1)
        outcomes = [inspection.narrowed(side, each, number) for number, (side, each) in pairs]
    return _Results(reference, exact, outcomes, [run.computed[0] for run in clean.end_to_end] if clean else ())


def _reference(plan: Plan, tracer: Tracer) -> Computed:
    """Returns the trace of the reference, which later computations follow; checks the rules by its stages."""
    options = plan.how
    reference = tracer.compute(
        plan.reference, "reference", ("*.*", "logits", options.stages) if options.isolated else ()
    )
    check_rules(plan.judge.changes, filter(StageFilter(options.stages, is_recorded=True), reference.trace))
    tracer.follow(reference)
    if options.isolated:
        tracer.isolate(reference, plan.reference)
    return reference


@dataclass(frozen=True)
class _Candidates:
    """Computes and judges candidates."""

    plan: Plan
    tracer: Tracer
    sources: Sources
    clean: CleanRuns | None  # computes the clean spread of a candidate's precision
    from_dumps: DumpJudge  # of the dumps from whose stages the reference is computed
    weights: WeightChecks

    def outcome(self, side: Side, file: str) -> Outcome:
        """Returns the outcome of a candidate, whose traces have names that begin with `file`."""
        try:
            judged = self._outcome(side, file)
            weights, no_weights = self.weights.of(side)
            return replace(judged, weights=weights, no_weights=no_weights)
        except Cancelled:
            raise
        except Unavailable as error:
            return Outcome(side.name, "unavailable", told(error))
        except WorkbenchError as error:
            return Outcome(side.name, "unusable", told(error))

    def _outcome(self, side: Side, file: str) -> Outcome:
        candidate, precision = self.tracer.compute(side, file), ""
        if side.path is not None:
            trace, precision = self.tracer.reading(named_precision)(candidate.trace, self.plan.precision)
            candidate = replace(candidate, trace=trace)
        if side in self.plan.dumps:
            return replace(self.from_dumps.judged(candidate, file), precision=precision)
        self.tracer.check_inputs(candidate)
        sources = self.sources
        if self.clean and needs_clean(side):
            sources = replace(sources, clean=self.clean.of(candidate.trace))
        return replace(self.tracer.reading(self.plan.judge.outcome)(sources, candidate), precision=precision)
