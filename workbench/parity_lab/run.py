"""Runs a model on several runtimes, one after another, and compares each with the reference.

Traces are written to files at once and read one stage at a time, and a session is closed before the next is opened, so
the run needs the memory of one session and one trace.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from workbench.compare.compare import AS_ASKED, compare
from workbench.compare.noise import NoiseReport, noise_or_bug
from workbench.compare.presets import Tolerances, check_rules, find_preset, half_of, preset_of, read_rules
from workbench.compare.verdict import judge
from workbench.core.errors import BadInput, Cancelled, Unavailable, WorkbenchError
from workbench.core.options import build_options
from workbench.core.progress import OnProgress, listening
from workbench.core.runtimes import RUNTIMES
from workbench.core.sides import Side, read_side, read_sides
from workbench.embeddings.prompt import embeddings_given
from workbench.families import FAMILIES
from workbench.parity_lab.dumps import DumpJudge, Sources, is_dump
from workbench.parity_lab.narrow import Narrowing
from workbench.parity_lab.outcome import Computed, Outcome, ParityRun
from workbench.parity_lab.peers import peer_side, peers_for
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.values import CONVERSATION, AudioSource, Prompt
from workbench.system.tempdirs import make_scratch
from workbench.text.prompts import check_prompt, messages_of
from workbench.text.scripts import clipped
from workbench.trace.cuts import cut_like
from workbench.trace.mapping import StageMapping
from workbench.trace.read import read_trace
from workbench.trace.trace import StageFilter, Trace

EXACT = "float64"
BEAT_SECONDS = 0.25  # the caller gets progress at least this often, and can stop the trace then
GRACE_SECONDS = 5.0  # after a cancel, a trace has this long before its process is ended
_LOADED, _TRACED = 0.4, 0.7  # progress of a side after loading and after tracing


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
        same_precision: for a candidate in bfloat16 or float16, also compute the reference's model in that type on
            PyTorch, and compare the candidate's rounding with it. It requires float64.
        narrow: if the first stage in error of a candidate is of a layer, trace that layer again with what is inside it,
            on all sides, and name the first stage in error there (see `workbench.parity_lab.narrow`). Not for isolated
            runs.

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
    wanted = StageFilter(stages, held=True)
    changes, chosen = read_rules(rules), find_preset(preset) if preset else None
    first = read_side(reference, options_class, card.id).with_default(**dict(settings or {}))
    first = first.with_default(dtype="float32", **({} if card.kind == "gguf" else {"quantization": "f32"}))
    others = [each.with_default(**dict(settings or {})) for each in read_sides(candidates, options_class, card.id)]
    dumps = [side for side in others if isolated and first.path is None and is_dump(side, mapping)]
    runs = [side for side in others if side not in dumps]
    halves, their_halves = (peers_for(each, mapping) if exact and same_precision else [] for each in (runs, dumps))
    steps = 1 + exact * bool(runs) + len(halves) + len(others) + len(dumps) * (1 + exact) + len(their_halves)
    steps *= 1 + narrow
    tracer = _Tracer(registry, model, source, stages, shared, mapping, _place(keep), on_progress, steps)
    try:
        computed = tracer.compute(first, "reference", ("*.*", "logits", stages) if isolated else ())
        check_rules(changes, filter(wanted, computed.trace))  # before the candidates are computed
        if isolated:
            tracer.isolate(computed, first)
        truth, no_truth = (None, "")
        if exact and runs:
            truth, no_truth = _float64(tracer, first)
        peers = {half: _or_why(tracer, peer_side(first, half), "peer") for half in halves}
        judged = partial(_judged, computed, truth, no_truth, peers, stages, chosen, changes, force)
        judge = partial(_judged_from, tracer, stages, chosen, changes, force)
        from_dumps = DumpJudge(
            tracer.compute,
            tracer.save,
            judge,
            first,
            computed.trace,
            _in_float64(first) if exact else None,
            {half: peer_side(first, half) for half in their_halves},
        )
        outcomes = [
            _outcome(tracer, side, f"candidate-{number}", judged, from_dumps if side in dumps else None)
            for number, side in enumerate(others, 1)
        ]
        if not runs:
            truth, no_truth = from_dumps.exact
        if narrow:
            inside = partial(_judged_inside, tracer, chosen, changes, force)
            precisions = {half: peer_side(first, half) for half in halves}
            looking = Narrowing(tracer.compute, inside, first, _in_float64(first) if truth else None, precisions)
            outcomes = [looking.narrowed(side, each, n) for n, (side, each) in enumerate(zip(others, outcomes), 1)]
    except BaseException:
        tracer.discard()
        raise
    tracer.tell(1.0, "done")
    kept = keep is not None
    return ParityRun(
        card.id,
        _described(source, reads_text),
        computed,
        truth,
        no_truth,
        outcomes,
        tracer.folder,
        kept,
        isolated=isolated,
        peers=[peer for peer, _ in peers.values() if peer],
    )


def _place(keep: str | Path | None) -> Path | None:
    """Returns the folder to keep traces in, and creates it if needed."""
    if keep is None:
        return None
    folder = Path(keep).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"{folder} is no folder to keep traces in: {error.strerror or error}") from error
    return folder


def _float64(tracer: _Tracer, reference: Side) -> tuple[Computed | None, str]:
    """Returns the reference in float64 on PyTorch, or why it cannot be computed."""
    return _or_why(tracer, _in_float64(reference), EXACT)


def _in_float64(reference: Side) -> Side:
    kept = {name: value for name, value in reference.settings.items() if name in ("threads", "device")}
    return Side(f"pytorch:{EXACT}", "pytorch", {**kept, "dtype": EXACT}, dict(reference.options))


def _or_why(tracer: _Tracer, side: Side, file: str) -> tuple[Computed | None, str]:
    """Returns the trace of a side, or why it cannot be computed."""
    try:
        return tracer.compute(side, file), ""
    except Cancelled:
        raise
    except WorkbenchError as error:
        return None, str(error)


def _outcome(
    tracer: _Tracer,
    side: Side,
    file: str,
    judged: Callable[[Computed, Callable[[int, int, str], None]], Outcome],
    from_dumps: DumpJudge | None,
) -> Outcome:
    """Returns the outcome of a candidate.

    Args:
        from_dumps: for a dump, whose stages the reference is computed from.
    """
    try:
        candidate = tracer.compute(side, file)
        if from_dumps is not None:
            return from_dumps.judged(candidate, file)
        tracer.check_inputs(candidate)
        return judged(candidate, tracer.comparing(side.name))
    except Cancelled:
        raise
    except Unavailable as error:
        return Outcome(side.name, "unavailable", str(error))
    except WorkbenchError as error:
        return Outcome(side.name, "unusable", str(error))


def _judged(
    reference: Computed,
    truth: Computed | None,
    no_truth: str,
    peers: Mapping[str, tuple[Computed | None, str]],
    stages: str,
    chosen: Any,
    changes: tuple[tuple[str, Mapping[str, float]], ...],
    force: bool,
    candidate: Computed,
    on_stage: Callable[[int, int, str], None],
) -> Outcome:
    found, reason = (chosen, AS_ASKED) if chosen else preset_of(reference.trace.meta, candidate.trace.meta)
    ours, theirs = reference.trace, candidate.trace
    comparison = compare(ours, theirs, Tolerances(found, changes), stages, force, on_stage, reason)
    noise: NoiseReport | None = None
    peer, no_peer = peers.get(half_of(theirs.meta) or "", (None, ""))
    if truth:
        try:
            noise = noise_or_bug(ours, theirs, truth.trace, stages, peer.trace if peer else None)
        except BadInput as error:
            no_truth = str(error)
    verdict = judge(comparison, noise)
    status = "within" if verdict.within else "beyond"
    cut = cut_like(ours, theirs)
    against = None if cut is ours else replace(reference, trace=cut)
    return Outcome(candidate.name, status, "", candidate, comparison, verdict, noise, no_truth, no_peer, against)  # type: ignore[arg-type]


def _judged_from(
    tracer: _Tracer,
    stages: str,
    chosen: Any,
    changes: tuple[tuple[str, Mapping[str, float]], ...],
    force: bool,
    sources: Sources,
    candidate: Computed,
) -> Outcome:
    """Returns the outcome of a candidate compared with traces of its own."""
    exact, no_exact = sources.exact
    on_stage = tracer.comparing(candidate.name)
    found = _judged(
        sources.reference, exact, no_exact, sources.peers, stages, chosen, changes, force, candidate, on_stage
    )
    return replace(found, against=found.against or sources.reference)


def _judged_inside(
    tracer: _Tracer,
    chosen: Any,
    changes: tuple[tuple[str, Mapping[str, float]], ...],
    force: bool,
    sources: Sources,
    candidate: Computed,
) -> Outcome:
    """Returns the outcome of the stages inside a layer; limits for other stages do not matter there."""
    held = list(sources.reference.trace)
    own = tuple(each for each in changes if any(fnmatchcase(stage, each[0]) for stage in held))
    return _judged_from(tracer, "*", chosen, own, force, sources, candidate)


class _Tracer:
    """Computes traces into a folder, one after another, and reports progress."""

    def __init__(
        self,
        registry: Registry,
        model: str | Path,
        source: Any,
        stages: str,
        options: Mapping[str, Any],
        mapping: StageMapping | None,
        folder: Path | None,
        on_progress: OnProgress | None,
        steps: int,
    ):
        self._registry, self._model, self._source = registry, model, source
        self._stages, self._options, self._mapping = stages, options, mapping
        self._on_progress, self._steps, self._step = on_progress, steps, -1
        self._own = folder is None
        self._written: list[Path] = []
        self._given: Path | None = None  # the trace whose stages are substituted
        self.folder = folder or make_scratch()

    def tell(self, share: float, activity: str) -> None:
        """Reports progress to the caller of the run; an exception from it ends the run."""
        if self._on_progress:
            self._on_progress(min(share, 1.0), activity)

    def comparing(self, name: str) -> Callable[[int, int, str], None]:
        """Returns the progress callback for a comparison."""

        def on_stage(done: int, count: int, stage: str) -> None:
            self._within(_TRACED + (1 - _TRACED) * done / max(count, 1), f"comparing {name}: {stage}")

        return on_stage

    def isolate(self, reference: Computed, side: Side) -> None:
        """Substitutes the stages of the reference in all later computations."""
        if side.path is None:
            self._given = self._written[-1]
            return
        path = self.folder / "reference-stages.safetensors"  # with our names, which may come from a mapping
        self._written.append(path)
        self._given = reference.trace.save(path)

    def save(self, trace: Trace, name: str) -> Path:
        """Writes a trace to a file of the folder, and returns its path."""
        path = self.folder / f"{name}.safetensors"
        self._written.append(path)
        trace.save(path)
        return path

    def check_inputs(self, candidate: Computed) -> None:
        """Raises `BadInput` for an end to end trace in an isolated run."""
        if self._given is not None and not candidate.trace.meta.get("isolated"):
            raise BadInput(
                f"{candidate.name} was computed end to end, and the reference is a trace, which cannot be computed "
                "from its stages; expected a runtime as the reference, or a run end to end"
            )

    def compute(self, side: Side, file: str, stages: Sequence[str] = (), given: Path | None = None) -> Computed:
        """Returns the trace of a side, in a file of the folder; for a side that is a trace, that trace.

        Args:
            stages: globs that replace those of the run.
            given: the trace whose stages are substituted; by default the reference's in an isolated run.
        """
        self._step += 1
        given = given or self._given
        if side.runtime is not None and given is not None and (why := RUNTIMES[side.runtime].no_given):
            raise Unavailable(why)  # before the load, which may take long
        if side.path is not None:
            self._within(0.0, f"reading {side.name}")
            return Computed(side.name, read_trace(side.path, self._mapping))
        begun = time.perf_counter()
        path = self.folder / f"{file}-{_file_name(side.name)}.safetensors"
        self._written.append(path)
        self._within(0.0, f"loading {side.name}")
        session = self._registry.open(
            self._model,
            runtime=side.runtime,
            on_progress=lambda share, activity: self._within(_LOADED * share, f"{side.name}: {activity}"),
            **side.settings,
        )
        with session:
            loaded = time.perf_counter()
            trace = self._traced(session, side, path, given, ",".join(stages) or self._stages)
            traced = time.perf_counter()
        return Computed(side.name, trace, loaded - begun, traced - loaded)

    def _traced(self, session: OpenSession, side: Side, path: Path, given: Path | None, stages: str) -> Trace:
        """Returns the trace that the session writes to the file."""
        options = {**self._options, **side.options}
        trace = partial(session.trace, self._source, stages, given, out=path, **options)
        activity = f"tracing {side.name}"
        if self._on_progress is None:
            return trace()
        self._within(_LOADED, activity)
        found: list[Trace | BaseException] = []
        told = (0.0, activity)  # time and text of the last report

        def hear(_: float, said: str) -> None:
            nonlocal told
            told = time.monotonic(), f"{side.name}: {said}"

        def work() -> None:
            try:
                with listening(hear):  # the call reports what it waits for
                    found.append(trace())
            except BaseException as error:  # raised again in the caller's thread
                found.append(error)

        worker = threading.Thread(target=work, name=activity, daemon=True)
        worker.start()
        try:
            begun = time.monotonic()
            while worker.is_alive():
                worker.join(BEAT_SECONDS)
                waited = time.monotonic() - begun
                share = _LOADED + (_TRACED - _LOADED) * waited / (waited + 10)  # the duration is unknown
                doing = told[1] if time.monotonic() - told[0] < 2 * BEAT_SECONDS else activity
                self._within(share, f"{doing}, {waited:.0f} s")
        except BaseException:
            session.cancel()
            worker.join(GRACE_SECONDS)
            raise
        if isinstance(found[0], BaseException):
            raise found[0]
        return found[0]

    def _within(self, share: float, activity: str) -> None:
        self.tell((self._step + share) / self._steps, activity)

    def discard(self) -> None:
        """Removes the files that were written."""
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for path in self._written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.=-]+", "-", name).strip("-.")[:80] or "side"


def _described(source: Any, reads_text: bool) -> str:
    """Returns a recording's file name, or the beginning of a prompt; the model decides which of them a text is."""
    if isinstance(source, (str, Path)) and not reads_text:
        return Path(source).name
    if isinstance(source, str):
        return clipped(source, 100)
    if isinstance(source, Sequence) and source and isinstance(source[-1], Mapping):
        return clipped(_last_words(source[-1].get("content", "")), 100)
    return "samples"


def _last_words(content: Any) -> str:
    """Returns the content of a message as text: its texts, and the file names of its recordings."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return str(content)
    return ", ".join(_part(part) for part in content if isinstance(part, Mapping))


def _part(part: Mapping[str, Any]) -> str:
    if "text" in part:
        return str(part["text"])
    audio = part.get("audio")
    return Path(audio).name if isinstance(audio, (str, Path)) else "a recording"
