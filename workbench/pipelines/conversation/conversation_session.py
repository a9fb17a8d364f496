"""A conversation in text and speech: prompt, generation step by step, text and audio as they come, times, stages.

The sessions of all runtimes have this class; each runtime brings its network and its codec. This file knows no
network and no masks.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.core.errors import BadInput, NotFinite
from workbench.core.options import build_options
from workbench.core.phrases import counted
from workbench.core.resources import close
from workbench.families.speechlm.model import SpeechLmModel, SpeechLmOptions, answer_plan
from workbench.pipelines.clock import WorkClock
from workbench.pipelines.conversation.speechlm_frontend import tower_times
from workbench.pipelines.conversation.spoken_messages import read_recording
from workbench.pipelines.substitution import starts_after_audio
from workbench.pipelines.text.text_session import IncrementalDetokenizer
from workbench.pipelines.text.token_table import check_ids
from workbench.pipelines.tracing import make_trace, output_path, substituted_stages, substitution_meta
from workbench.session.conversation import (
    Answer,
    AnswerSoFar,
    AnswerStart,
    AudioPiece,
    ConversationEvent,
    Messages,
    last_answer,
)
from workbench.session.messages import AudioPart, Message, TextPart, check_messages, where_of
from workbench.session.protocols import Converses, NamesTokens, Session, Traces
from workbench.session.values import Piece
from workbench.speech.delay import aligned, delayed
from workbench.speech.dialogue import PromptPart, Recording, Turn, prompt_parts
from workbench.speech.evidence import stages_of
from workbench.speech.generate import Step, answer_steps
from workbench.speech.network import Codec, SpeechModel
from workbench.speech.phases import Kind
from workbench.speech.plan import AnswerPlan
from workbench.speech.streaming import AudioChunks
from workbench.system.memory import peak_resident_bytes
from workbench.trace.recorder import Recorder
from workbench.trace.times import RowTimes, times_meta
from workbench.trace.trace import OutputPath, StageFilter, StageSource, Trace

TRAINED_SECONDS = 30.0  # the longest recordings that the published models were trained with
MAX_ENCODED_SECONDS = 30.0  # seconds of the assistant's samples; the codec's encoder attends to all of them at once
CODEC = ("codec.codes", "codec.latents", "codec.audio")
CHOICES = tuple(
    f"answer.{name}" for name in ("logprobs", "alternatives", "temperatures", "candidates", "rooms")
)  # see `workbench.speech.evidence`
PASSES = {"llm.embeddings": "answer.embeddings", "llm.norm": "answer.norm"}
"""Stages of a pass over prompt and answer, and the stage names of the rows that belong to the answer."""
ANSWER_STAGES = (*PASSES.values(), *CHOICES, "codec.rows", *CODEC, "tokens", "text")

Steps = Callable[..., Generator[Step, None, str]]


class ConversationSession(Session, Converses, Traces, NamesTokens):
    """A language model over text and codec streams as a session (see `workbench.session.protocols`).

    Args:
        checkpoint: the checkpoint without its weights.
        codec: None if the checkpoint does not speak.
        audio_notes: sentences on how the model hears recordings. Answers to conversations with recordings have them.
        steps: generates an answer with the network; takes and returns the same as `answer_steps`.
    """

    def __init__(
        self,
        model: str,
        runtime: str,
        checkpoint: SpeechLmModel,
        network: SpeechModel,
        codec: Codec | None,
        audio_notes: tuple[str, ...] = (),
        steps: Steps = answer_steps,
    ):
        self.model = model
        self.runtime = runtime
        self.load_seconds = 0.0  # set by the code that opens the session
        self.checkpoint = checkpoint
        self._network: SpeechModel | None = network
        self._codec = codec
        self._audio_notes = audio_notes
        self._steps = steps

    @property
    def network(self) -> SpeechModel:
        """The loaded model; reading it after `close` raises `BadInput`."""
        if self._network is None:
            raise BadInput(f"the session of {self.model} is closed; open it again")
        return self._network

    @property
    def row_times(self) -> Mapping[str, RowTimes]:
        """See `workbench.trace.times.TimesRows`; the codec's frames are at seconds of the answer's audio."""
        tower, codec = self.checkpoint.tower, self._codec
        tower_rows = tower_times(tower) if tower else {}
        frame = codec.hop / codec.sample_rate if codec else 0.0
        return {**tower_rows, **{name: RowTimes(0.0, frame) for name in ("codec.codes", "codec.latents") if codec}}

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`. Each position of the answer yields an event with its ids."""
        network = self.network
        model_options = build_options(SpeechLmOptions, options, self.model)
        plan = answer_plan(self.checkpoint, model_options)
        clock = WorkClock()
        settings = _settings(model_options, plan)
        partial_answer = AnswerSoFar(self.model, self.runtime, settings, clock.passed)
        with clock:
            prompt = self._prompt(check_messages(messages))
        yield AnswerStart(settings, prompt.rows, asdict(network.layout), self.load_seconds, notes=prompt.notes)
        with clock:
            parts = [self._embed(part) for part in prompt.parts]
        steps = self._steps(network, parts, plan, model_options.probabilities)
        yield from self._generate_answer(steps, prompt, plan, partial_answer, clock)

    def _generate_answer(
        self,
        steps: Generator[Step, None, str],
        prompt: _Prompt,
        plan: AnswerPlan,
        partial_answer: AnswerSoFar,
        clock: WorkClock,
        positions: list[Step] | None = None,
    ) -> Generator[ConversationEvent, None, None]:
        """Generates the answer to a prompt; yields the events of `converse_stream` after `AnswerStart`, and adds them
        to `partial_answer`.

        Args:
            positions: gets every position of the answer, if given. The answer then has no samples: a trace decodes
                its rows only where a stage of the codec is requested.
        """
        network = self.network
        answer_stream = _AnswerStream(self.checkpoint, self._codec, network, has_samples=positions is None)
        probabilities: list[np.ndarray] = []
        finish = ""
        try:
            while not finish:
                with clock:
                    try:
                        step = next(steps)
                        events = answer_stream.events(step)
                        if step.probabilities is not None:
                            probabilities.append(step.probabilities)
                        if positions is not None:
                            positions.append(step)
                    except StopIteration as done:
                        finish, events = done.value, answer_stream.rest()
                    for event in events:
                        partial_answer.add(event)
                yield from events
        finally:
            steps.close()
        answer = partial_answer.answer(finish)
        yield replace(
            answer,
            prompt_rows=prompt.rows,
            load_seconds=self.load_seconds,
            memory_bytes=peak_resident_bytes(),
            probabilities=np.array(probabilities) if probabilities else None,
            layout=asdict(network.layout),
            notes=(*prompt.notes, *_missing_audio_notes(plan, answer)),
        )

    def trace(
        self,
        source: Messages | str,
        stages: str = "*",
        given: StageSource = None,
        out: OutputPath = None,
        **options: Any,
    ) -> Trace:
        """Returns the stages that match the glob: of one pass over the prompt of a conversation, and of the answer.

        The answer is generated. Its stages are its ids, how each was chosen (`answer.*`), and what the codec makes of
        them. One more pass, over prompt and answer at once, gives `answer.embeddings` and `answer.norm`.

        If several recordings are in the conversation, the stages of the audio encoder are those of the last one. If
        `given` substitutes stages, nothing is generated, as an answer takes several passes of the whole model; the
        codec decodes the substituted codes.
        """
        network = self.network
        if options.get("steps") or options.get("follow") is not None:
            raise BadInput(
                f"{self.model} shows no decoding steps; each position of its answer is a row of answer.embeddings, "
                "answer.norm and answer.logprobs, which every trace has"
            )
        model_options = build_options(SpeechLmOptions, options, self.model)
        plan = answer_plan(self.checkpoint, model_options)
        requested_stages, place = StageFilter(stages), output_path(out)
        prompt = self._prompt(check_messages(source))
        substituted = substituted_stages(given, prompt.digest)
        recorder = Recorder(requested_stages, substituted)
        last_recording = max((n for n, part in enumerate(prompt.parts) if isinstance(part, Recording)), default=-1)
        if starts_after_audio(requested_stages, substituted):
            parts = [self._padding_for(part) for part in prompt.parts]
        else:
            parts = [
                self._embed(part, recorder if n == last_recording else None) for n, part in enumerate(prompt.parts)
            ]
        network.trace(parts, recorder)
        meta: dict[str, Any] = {"input_digest": prompt.digest, "layout": asdict(network.layout)}
        if substituted is not None:
            self._decode_given(substituted, recorder)
        elif any(map(requested_stages, ANSWER_STAGES)):
            meta["answer"] = _settings(model_options, plan)
            with contextlib.suppress(NotFinite):  # then there is no answer, and the stages of the prompt show why
                self._record_answer(parts, prompt, plan, recorder)
        meta |= {**substitution_meta(substituted), **times_meta(self)}
        return make_trace(self, recorder.stages, stages, network.dtype, options, place, **meta)

    def _record_answer(self, parts: Sequence[Any], prompt: _Prompt, plan: AnswerPlan, recorder: Recorder) -> None:
        """Generates an answer and records its stages, in the order of the computation."""
        requested = recorder.wanted
        positions: list[Step] = []
        steps = self._steps(self.network, parts, plan, evidence=any(map(requested, CHOICES)))
        partial_answer = AnswerSoFar(self.model, self.runtime)
        answer = last_answer(self._generate_answer(steps, prompt, plan, partial_answer, WorkClock(), positions))
        if any(map(requested, PASSES.values())):
            free_positions = self.network.context - 1 - prompt.rows
            pass_recorder = Recorder(lambda stage: stage in PASSES and requested(PASSES[stage]))
            self.network.trace([*parts, np.array([step.ids for step in positions[:free_positions]])], pass_recorder)
            for stage, array in pass_recorder.stages.items():
                recorder.put(PASSES[stage], array[prompt.rows :])
        for stage, array in stages_of([step.evidence for step in positions if step.evidence is not None]).items():
            recorder.put(stage, array)
        if answer.streams is not None and self._codec is not None:
            recorder.put("codec.rows", answer.streams)
            codes = aligned(answer.streams, self.network.layout)
            if len(codes) and any(map(requested, CODEC)):
                self._codec.decode(codes, recorder)
        recorder.put("tokens", np.array(answer.token_ids, dtype=np.int64))
        recorder.put("text", np.array(answer.text))

    def _decode_given(self, substituted: Mapping[str, np.ndarray], recorder: Recorder) -> None:
        """Records what the codec makes of substituted codes; raises `BadInput` for codes that it does not have."""
        if self._codec is None or CODEC[0] not in substituted or not any(map(recorder.wanted, CODEC)):
            return
        codes = np.array(substituted[CODEC[0]])
        if codes.dtype.kind not in "iu":
            raise BadInput(f"{CODEC[0]} of the trace to compute from are {codes.dtype}; expected whole numbers")
        delayed(codes, self.network.layout)  # checks them
        if len(codes):
            self._codec.decode(codes.astype(np.int64), recorder)

    def token_texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """See `NamesTokens.token_texts`; codec tokens are written as `stream:code`."""
        check_ids(ids, self.network.layout.vocabulary, self.model)
        return tuple(map(self.checkpoint.tokenizer.piece, ids))

    def close(self) -> None:
        """Drops the model and frees it."""
        network, codec = self._network, self._codec
        self._network = self._codec = None
        close(network, codec)

    def _embed(self, part: PromptPart, recorder: Recorder | None = None) -> Any:
        """Returns a part of a prompt as the network takes it; raises `BadInput` for a recording that it cannot hear."""
        if not isinstance(part, Recording):
            return part
        try:
            return self.network.embed_audio(part.samples, recorder)
        except BadInput as error:
            raise BadInput(f"{part.where}: {error}") from error

    def _padding_for(self, part: PromptPart) -> np.ndarray:
        """Returns a part of a prompt with rows of padding in place of a recording, which is not computed."""
        layout = self.network.layout
        return np.full((part.rows, layout.streams), layout.pad) if isinstance(part, Recording) else part

    def _prompt(self, messages: Sequence[Message]) -> _Prompt:
        """Reads the recordings of a conversation and returns its prompt."""
        turns: list[Turn] = []
        notes: list[str] = []
        digest = hashlib.sha256()
        for number, message in enumerate(messages):
            for place, part in enumerate(message.parts):
                where = where_of(number, place)
                digest.update(f"{message.role} {type(part).__name__} ".encode())
                if isinstance(part, TextPart):
                    turn = Turn(message.role, text=part.text, where=where)
                    digest.update(part.text.encode("utf-8", "surrogatepass"))
                else:
                    turn = self._audio_turn(part, message.role, number, place, notes)
                    sound: Any = turn.samples if turn.rows is None else turn.rows
                    digest.update(np.ascontiguousarray(sound).tobytes())
                turns.append(turn)
        checkpoint, codec = self.checkpoint, self._codec
        parts = prompt_parts(
            turns,
            self.network.layout,
            checkpoint.tokenizer.encode,
            self.network.context,
            checkpoint.tower.rows if checkpoint.tower else None,
            codec.encode if codec else None,
        )
        if any(isinstance(part, Recording) for part in parts):
            notes = [*self._audio_notes, *notes]
        return _Prompt(parts, digest.hexdigest()[:16], tuple(notes))

    def _audio_turn(self, part: AudioPart, role: str, number: int, place: int, notes: list[str]) -> Turn:
        where = where_of(number, place)
        if part.streams is not None:
            return Turn(role, rows=part.streams, where=where)
        longest = MAX_ENCODED_SECONDS if role == "assistant" else None  # the audio tower takes windows
        recording = read_recording(part, number, place, longest, "the codec encodes a recording")
        notes += [f"{where}: {note}" for note in recording.notes]
        if recording.seconds > TRAINED_SECONDS:
            notes.append(
                f"{where}: the recording is {recording.seconds:.1f} s long; the published models were trained with at "
                f"most {TRAINED_SECONDS:g} s"
            )
        rate = self._codec.sample_rate if self._codec else SAMPLE_RATE
        if role == "assistant" and rate != SAMPLE_RATE:
            raise BadInput(
                f"{where}: the codec of {self.model} has {rate} Hz, and samples come at {SAMPLE_RATE} Hz; give the "
                "streams of the earlier answer instead"
            )
        return Turn(role, samples=recording.samples, where=where)


class _Prompt:
    """A conversation as the parts of a prompt."""

    def __init__(self, parts: Sequence[PromptPart], digest: str, notes: tuple[str, ...]):
        self.parts, self.digest, self.notes = parts, digest, notes
        self.rows = sum(part.rows if isinstance(part, Recording) else len(part) for part in parts)


class _AnswerStream:
    """Turns the positions of an answer into events; text never splits a character, samples come in chunks."""

    def __init__(self, checkpoint: SpeechLmModel, codec: Codec | None, network: SpeechModel, has_samples: bool = True):
        self._text = IncrementalDetokenizer(checkpoint.tokenizer.decode)
        self._chunks = AudioChunks(codec, network.layout) if codec and has_samples else None
        self._has_streams = codec is not None
        self._rate = codec.sample_rate if codec else 0
        self._rows = 0
        self._open: Kind | None = None  # the segment whose end may still be held back

    def events(self, step: Step) -> list[ConversationEvent]:
        """Returns the events of one position; the last event has its ids."""
        if step.phase is Kind.TEXT:
            self._open = Kind.TEXT
            return [Piece(self._text.add(step.id), (step.id,))]
        if step.phase is Kind.AUDIO and self._has_streams:
            self._open = Kind.AUDIO
            self._rows += 1
            samples = self._chunks.add(step.ids) if self._chunks else None
            return [AudioPiece(_samples(samples), self._rate, self._rows, step.ids[None])]
        return [*self.rest(), Piece("", (step.id,))]

    def rest(self) -> list[ConversationEvent]:
        """Returns the text or samples that a segment held back until its end."""
        ended_kind, self._open = self._open, None
        if ended_kind is Kind.TEXT and (text := self._text.finish()):
            return [Piece(text, ())]
        if ended_kind is Kind.AUDIO and self._chunks and len(samples := self._chunks.finish()):
            return [AudioPiece(samples, self._rate, self._rows)]
        return []


def _settings(options: SpeechLmOptions, plan: AnswerPlan) -> dict[str, Any]:
    """Returns the options with all values of the plan, so that they give the same plan on any checkpoint."""
    names = [field.name for field in fields(options) if field.name != "temperature"]
    return {name: getattr(plan, name, getattr(options, name)) for name in names}


def _samples(chunk: np.ndarray | None) -> np.ndarray:
    return np.empty(0, np.float32) if chunk is None else chunk


def _missing_audio_notes(plan: AnswerPlan, answer: Answer) -> Iterator[str]:
    """Yields a note if audio was asked for and there is none."""
    if plan.modalities in ("audio", "text_audio") and answer.audio is None:
        rows = 0 if answer.streams is None else len(answer.streams)
        if rows:
            reason = f"it has {counted(rows, 'row')}, too few for one frame"
        elif answer.finish != "length":
            reason = "the model ended it before its first row"
        elif plan.max_tokens is not None and len(answer.token_ids) >= plan.max_tokens:
            reason = f"max_tokens, {plan.max_tokens}, ended the answer before it began"
        else:
            reason = "the context was full before it began"
        yield f"the answer has no audio: {reason}"
