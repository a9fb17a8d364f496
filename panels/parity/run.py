"""Runs a comparison in a thread and reports its progress; stores the last run of each user.

This file knows neither Gradio nor HTML.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panels.parity.several import check_several
from panels.parity.sides import find_card, read_sides
from panels.running.choices import options_for
from panels.running.last_results import MOST_KEPT, LastResults
from panels.running.progress import changes
from workbench.compare import find_preset, read_mapping, read_rules
from workbench.compare.precision import AUTO
from workbench.core.caller import Caller, here
from workbench.core.errors import BadInput, Cancelled
from workbench.core.progress import listening
from workbench.core.visitors import check_work
from workbench.embeddings import Embedding, read_embedding
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.parity_lab import Input, ParityOptions, ParityRun, ParityRuns, Side, run_parity, run_parity_on_inputs
from workbench.parity_lab.clean import FROM_FILE, check_precision
from workbench.registry.registry import Registry
from workbench.serving.guard import Guard
from workbench.session.conversation import Messages
from workbench.session.values import CONVERSATION, PROMPT, RECORDING, AudioSource, Prompt
from workbench.trace.steps import read_steps
from workbench.trace.trace import StageFilter

PARITY = "parity"  # in the queue of the server
NO_INPUT = "traces only"
NOT_KEPT = "that comparison is not kept any more; run it again"
MISSING = {
    RECORDING: ("recording", "add a file, record one, or click a sample"),
    PROMPT: ("prompt", "write one"),
    CONVERSATION: ("text and no recording", "add one of them, or both"),
}


@dataclass(frozen=True)
class Request:
    """A comparison to run, checked as far as possible without reading a recording or loading a model."""

    model: str
    source: AudioSource | Prompt | Messages
    reference: Side
    candidates: tuple[Side, ...]
    how: ParityOptions
    inputs: tuple[Input, ...] = ()  # several in place of the source, for one verdict over all of them


def source_of(family: Family, recording: str | None, prompt: str | None) -> AudioSource | Prompt | Messages | None:
    """Returns what a model of the family is asked; None, or an empty text, without any.

    A model that answers text and speech gets one message of the user, with the recording, the text, or both. So a text
    stays a text there, even if a file of this machine has such a name.
    """
    text = (prompt or "").strip()
    if family.input != CONVERSATION:
        return text if family.reads_text else recording
    parts: list[dict[str, Any]] = [{"type": "audio", "audio": recording}] if recording else []
    parts += [{"type": "text", "text": text}] if text else []
    return [{"role": "user", "content": parts}] if parts else None


def request_of(
    registry: Registry,
    model: str,
    source: AudioSource | Prompt | Messages | None,
    reference: str,
    candidates: Sequence[str],
    traces: Mapping[str, str],
    *,
    stages: str = "*",
    options: Mapping[str, Any] | None = None,
    exact: bool = True,
    preset: str | None = None,
    rules: Sequence[str] = (),
    mapping: str | None = None,
    force: bool = False,
    isolated: bool = False,
    embeddings: Sequence[str] = (),
    steps: str = "",
    precision: str = AUTO,
    inputs: Sequence[Input] = (),
) -> Request:
    """Returns the request that a user described.

    Args:
        source: a recording, a prompt, or messages; None or an empty text for a comparison of traces alone.
        reference: a side as text, or the name of a trace.
        traces: the paths of uploaded traces, by name.
        mapping: the path of a mapping file.
        embeddings: paths of embeddings for the placeholders in a prompt; models that take a recording have none.
        steps: decoding steps, in the notation of `workbench.trace.steps.read_steps`.
        precision: of the candidates that are traces: a type, or `auto`.
        inputs: several recordings or prompts in place of the source.

    Raises `BadInput` that says what is wrong.
    """
    card = find_card(registry, model)
    source = inputs[0].source if inputs else source
    if not reference.strip():
        raise BadInput("no reference is named; choose one, such as pytorch:f32")
    [first] = read_sides(registry, card, [reference.strip()], traces, "the reference")
    others = read_sides(registry, card, candidates, traces, "the candidate")
    if not others:
        raise BadInput("no candidate is chosen; press at least one, or upload a trace")
    runs = [side for side in (first, *others) if side.path is None]
    if inputs:
        check_several(card, len(runs) < 1 + len(others), bool(embeddings))
    if not source:
        if runs:
            missing, remedy = MISSING[FAMILIES[card.family].input]
            raise BadInput(f"there is no {missing} for {runs[0].name}; {remedy}")
        source, exact = NO_INPUT, False
    if preset:
        find_preset(preset)
    read_rules(rules)
    StageFilter(stages)
    read_steps(steps)
    return Request(
        card.id,
        source,
        first,
        others,
        ParityOptions(
            stages=stages,
            steps=steps,
            options=options_for(registry, card.id, _known(registry, card.id, options or {})),
            embeddings=_read(embeddings) if FAMILIES[card.family].input == PROMPT else (),
            exact=exact,
            isolated=isolated,
            narrow=not isolated and not inputs,
            preset=preset,
            rules=tuple(rules),
            mapping=read_mapping(mapping) if mapping else None,
            force=force,
            precision=_type(precision),
        ),
        tuple(inputs),
    )


def _type(precision: str) -> str:
    """Returns a checked precision; a public page opens no file that a user names."""
    if precision.lower().endswith(FROM_FILE):
        raise BadInput(f"precision is {precision!r:.80}; expected a type such as bfloat16 or q8_0, or auto")
    return check_precision(precision)


def _read(paths: Sequence[str]) -> tuple[Embedding, ...]:
    return tuple(read_embedding(Path(path), name=Path(path).name) for path in paths)


def _known(registry: Registry, model: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    names = registry.options_class(model).__dataclass_fields__
    for name in options:
        if name not in names:
            raise BadInput(f"{model} has no option {name!r:.40}; it has {', '.join(names)}")
    return options


def compute(
    registry: Registry,
    request: Request,
    on_progress: Callable[[float, str], None] | None = None,
    call: Caller = here,
) -> ParityRun:
    """Computes the run of a request; `on_progress` and `call` as in `workbench.parity_lab.run_parity`."""
    return run_parity(
        registry,
        request.model,
        request.source,
        request.reference,
        request.candidates,
        request.how,
        on_progress=on_progress,
        call=call,
    )


def compute_several(
    registry: Registry,
    request: Request,
    on_progress: Callable[[float, str], None] | None = None,
    call: Caller = here,
) -> ParityRuns:
    """Computes a request on its several inputs; gives one verdict over all."""
    return run_parity_on_inputs(
        registry,
        request.model,
        request.inputs,
        request.reference,
        request.candidates,
        request.how,
        on_progress=on_progress,
        call=call,
    )


@dataclass(frozen=True)
class Step:
    """The progress of a run."""

    share: float = 0.0  # 0 to 1
    activity: str = "starting"
    seconds: float = 0.0  # since the start
    stopping: bool = False
    stopped: bool = False
    run: ParityRun | ParityRuns | None = None  # set when it is finished


def follow(registry: Registry, request: Request, stop: threading.Event, guard: Guard | None = None) -> Iterator[Step]:
    """Computes a request in a thread; yields its progress several times a second, and last the result.

    With a guard, the run waits in the queue of the server, is judged in a process of its own
    (`workbench.serving.separate_process`), and ends at its deadline. Setting `stop` ends the run at its next check, and
    the last step then says that it was stopped. Closing the iterator ends it too, without a last step. Raises the same
    errors as `workbench.parity_lab.run_parity`.
    """
    begun = time.perf_counter()
    latest: list[Any] = [(0.0, "starting")]
    unattended = threading.Event()

    def work(report: Callable[[Any], None]) -> None:
        def on_progress(share: float, activity: str) -> None:
            if stop.is_set():
                raise Cancelled("the comparison was stopped")
            check_work()
            report((share, activity))

        try:
            turn = guard.turn(PARITY, alone=False) if guard else nullcontext()
            with listening(on_progress), turn, guard.separate_process() if guard else nullcontext(here) as call:
                report((compute_several if request.inputs else compute)(registry, request, on_progress, call))
        except BaseException as error:  # raised again in the thread that follows the run
            report(error)

    def take(found: Any) -> None:
        latest[0] = found

    def step() -> Step:
        found = latest[0]
        share, activity = found if isinstance(found, tuple) else (1.0, "done")
        return Step(share, activity, time.perf_counter() - begun, stop.is_set())

    try:
        yield step()
        for _ in changes(work, take, unattended):
            yield step()
    finally:
        unattended.set()
        ended = stop.is_set()
        stop.set()  # a closed iterator ends the work
    found = latest[0]
    if isinstance(found, ParityRun | ParityRuns):
        yield Step(1.0, "done", time.perf_counter() - begun, run=found)
    elif isinstance(found, Cancelled) and ended:
        yield Step(0.0, "stopped", time.perf_counter() - begun, stopped=True)
    else:
        raise found


class LastRuns(LastResults[ParityRun | ParityRuns]):
    """The last run of each user. The traces of a run on one input are in files until it is removed."""

    def __init__(self, most: int = MOST_KEPT):
        super().__init__(NOT_KEPT, most, _close)

    def of(self, user: str) -> ParityRun | ParityRuns:
        """Returns the user's run; raises `BadInput` if it, or its traces, are not kept any more."""
        run = super().of(user)
        if isinstance(run, ParityRun) and not run.folder.is_dir():
            raise BadInput(NOT_KEPT)
        return run


def _close(run: ParityRun | ParityRuns) -> None:
    if isinstance(run, ParityRun):
        run.close()
