"""The source of a view: an open session, its input, and the results that were computed so far.

A scene keeps the stages, the transcript and the texts of tokens that views ask for, so that a second view of the same
recording computes only what is new. This file knows no view.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from workbench.audio.read import Recording, read
from workbench.core.errors import BadInput, NotFinite, Unavailable
from workbench.core.finite import nan_logits_error
from workbench.core.phrases import counted, numbers_below
from workbench.families import FAMILIES
from workbench.families.family import Family
from workbench.families.sanm.sensevoice import is_tag
from workbench.pipelines.conversation.spoken_messages import read_recording
from workbench.pipelines.tracing import NO_STAGE
from workbench.plots.layers import Axis
from workbench.registry.cards import Card
from workbench.registry.handle import OpenSession
from workbench.registry.registry import Registry
from workbench.session.messages import AudioPart, check_messages
from workbench.session.values import CONVERSATION, RECORDING, Token, Transcript
from workbench.text.prompts import messages_of
from workbench.trace.times import RowTimes, row_times
from workbench.trace.trace import StageFilter, Trace
from workbench.visualise.picture import side_name

WHOLE_RECORDING = {"vad": "none"}  # a trace covers the whole recording, so its transcript must, too


class Scene:
    """An open session and one input of it.

    Args:
        card: of the session's model.
        source: a recording; for a language model a prompt; for a model that answers speech, any of its inputs.
        options: of the model, by name.
        registry: opens the same model with other types of weights, for the view that compares them.
        settings: those with which the session was opened, by name, without the quantisation.
        changes: settings and options that tell this side from another one, such as `dtype=bfloat16`.
        written: the source as the code of a picture writes it; by default the source itself.
    """

    def __init__(
        self,
        session: OpenSession,
        card: Card,
        source: Any,
        options: Mapping[str, Any] | None = None,
        registry: Registry | None = None,
        settings: Mapping[str, Any] | None = None,
        changes: Sequence[str] = (),
        written: Any = None,
    ):
        self.session = session
        self.card = card
        self.source = source
        self.options = dict(options or {})
        self.registry = registry
        self.settings = dict(settings or {})
        self.changes = tuple(changes)
        self.written = source if written is None else written
        self.family: Family = FAMILIES[card.family]
        self.meta: dict[str, Any] = {}  # of the last trace
        self._stages: dict[str, np.ndarray] = {}
        self._traced_globs: set[str] = set()
        self._transcript: Transcript | None = None
        self.overflow = ""  # why the model writes nothing, if values overflow in it

    @cached_property
    def recording(self) -> Recording | None:
        """The recording that the model hears; None for a text, and for a conversation without one."""
        if self.family.input == RECORDING:
            return read(self.source)
        if self.family.input != CONVERSATION:
            return None
        parts = [part for message in check_messages(messages_of(self.source)) for part in message.parts]
        recordings = [part for part in parts if isinstance(part, AudioPart) and part.source is not None]
        return read_recording(recordings[-1], 0, 0, None) if recordings else None

    @property
    def side(self) -> str:
        """The model and how it is computed, such as `demo/paraformer on gguf q8_0`."""
        session = self.session
        return side_name(session.model, session.runtime, session.quantization, self.changes)

    @property
    def seconds(self) -> float | None:
        """The length of the recording."""
        return self.recording.seconds if self.recording else None

    def stages(self, *globs: str) -> dict[str, np.ndarray]:
        """Returns the stages that match the globs, in the order of the computation; traces missing stages.

        The result leaves out stages that the model does not have.
        """
        missing_globs = [glob for glob in globs if glob not in self._traced_globs and glob not in self._stages]
        if missing_globs:
            self._trace(missing_globs)
        requested = StageFilter(",".join(globs))
        return {stage: array for stage, array in self._stages.items() if requested(stage)}

    def stage(self, name: str, description: str = "") -> np.ndarray:
        """Returns a stage; if the model does not have it, raises `BadInput` with the `description` of what it lacks.

        A model in which values overflow has no tokens: `NotFinite` says so.
        """
        array = self.stages(name).get(name)
        if array is None:
            if name == "logits":
                self.stage("tokens")
                self.check_written()
            if name == "tokens":
                if self.transcribes:
                    self._transcribe()
                raise nan_logits_error()
            raise self.lacks(description or "that", name)
        return array

    def check_written(self) -> None:
        """Raises `BadInput` if the decoder of a CIF model had nothing to do, because the predictor fired no token."""
        if "cif" in self.family.parts and not len(self.stages("tokens").get("tokens", "there is something")):
            raise self._unwritten()

    def _unwritten(self) -> BadInput:
        return BadInput(f"{self.session.model} wrote no token; expected a recording of speech")

    def lacks(self, description: str, stage: str) -> BadInput:
        """Returns the error for something that the model does not show on this runtime."""
        session = self.session
        return BadInput(f"{session.model} on {session.runtime} does not show {description} (the stage {stage})")

    def stages_resumed_from(self, substituted: Mapping[str, np.ndarray], glob: str) -> dict[str, np.ndarray]:
        """Returns stages of a pass that continues with the values of `substituted` at some stages.

        Raises `Unavailable` if the runtime cannot do that.
        """
        trace = self.session.trace(self.source, glob, given=Trace(substituted, {}), **self.options)
        return {stage: np.asarray(array) for stage, array in trace.items()}

    def trace_to_file(self, glob: str, place: Path, substituted: Mapping[str, np.ndarray] | None = None) -> Trace:
        """Returns stages in a file at `place`, which are read one at a time.

        `substituted` means the same as in `stages_resumed_from`.
        """
        substituted_trace = Trace(substituted, {}) if substituted else None
        trace = self.session.trace(self.source, glob, given=substituted_trace, out=place, **self.options)
        self.meta.update(trace.meta)
        return trace

    def _trace(self, globs: Sequence[str]) -> None:
        """Traces and stores the stages that match the globs. A glob that matches nothing does not affect the others."""
        try:
            self._store(self.session.trace(self.source, ",".join(globs), **self.options))
        except BadInput as error:
            if not str(error).startswith(NO_STAGE):
                raise
            for glob in globs if len(globs) > 1 else ():
                self._trace([glob])
        self._traced_globs.update(globs)

    def _store(self, trace: Trace) -> None:
        self.meta.update(trace.meta)
        self._stages.update({stage: np.asarray(array) for stage, array in trace.items()})

    def times(self, stage: str) -> RowTimes | None:
        """Returns the times of a stage's rows, once the stage has been traced."""
        return row_times(self.meta, stage)

    def rows(self, stage: str, label: str = "") -> Axis:
        """Returns the axis along a stage's rows: in seconds if the model says when they were spoken."""
        times = self.times(stage)
        return Axis(label or "row", "rows") if times is None else Axis("seconds", "seconds", *times)

    @property
    def transcript(self) -> Transcript:
        """The transcript of the whole recording."""
        return self._transcribe()

    def _transcribe(self) -> Transcript:
        if self._transcript is None:
            self._transcript = self.session.transcribe(self.source, **{**WHOLE_RECORDING, **self.options})
        return self._transcript

    @property
    def transcribes(self) -> bool:
        """Whether the model transcribes speech."""
        return self.family.input == RECORDING and "transcribe" in self.family.tasks

    def tokens(self) -> tuple[Token, ...]:
        """Returns the written tokens, with the times that the model knows.

        The result is empty for models that do not transcribe, and if values overflow; `overflow` says so then.
        """
        if not self.transcribes or self.overflow:
            return ()
        try:
            return tuple(token for segment in self.transcript.segments for token in segment.tokens)
        except NotFinite as error:
            self.overflow = str(error)
            return ()

    def word(self, words: Sequence[str], number: int) -> str:
        """Returns the text of one token among those of the output; raises `BadInput` if there is no such token."""
        if not words:
            raise self._unwritten()
        if number >= len(words):
            raise BadInput(
                f"the output has {counted(len(words), 'token')}, but token {number} is requested; expected "
                f"{numbers_below(len(words))}"
            )
        return repr(words[number].strip() or words[number])

    def texts(self, ids: Iterable[int] | np.ndarray) -> tuple[str, ...]:
        """Returns the text of each token, or its id if the runtime does not show texts."""
        numbers: Sequence[int] = [int(number) for number in ids]
        try:
            return tuple(self.session.token_texts(numbers)) if numbers else ()
        except (BadInput, Unavailable):
            return tuple(f"#{number}" for number in numbers)


def token_number(requested: int | None, words: Sequence[str]) -> int:
    """Returns the number of the token to look at: `requested`, or else the first that is not a tag such as `<|en|>`."""
    if requested is not None:
        return requested
    return next((number for number, word in enumerate(words) if not is_tag(word)), 0)
