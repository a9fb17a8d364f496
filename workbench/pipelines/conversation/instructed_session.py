"""A recogniser that answers about one recording: the user's text replaces the recogniser's own instruction.

It is for speech models whose prompt has room for an instruction. They were trained to transcribe and know no dialogue.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

import numpy as np

from workbench.core.errors import BadInput, Unavailable
from workbench.core.options import build_options, conversation_options_class
from workbench.families.speech_llm.instruction import Instruction
from workbench.pipelines.clock import WorkClock
from workbench.pipelines.conversation.spoken_messages import read_recording
from workbench.pipelines.recognition.recogniser import Recognition, StreamingRecogniser
from workbench.pipelines.recognition.speech_session import SpeechSession
from workbench.pipelines.text.token_table import Table, neighbours_of, rows_of
from workbench.session.conversation import Answer, AnswerStart, ConversationEvent, Messages
from workbench.session.messages import AudioPart, Message, check_messages
from workbench.session.protocols import Converses, FindsNeighbours
from workbench.session.values import Neighbours, Piece
from workbench.system.memory import peak_resident_bytes

MAY_IGNORE = "the model was trained to transcribe; it may not follow other instructions"
EXPECTED = "expected one message of the user with one recording and, where needed, a text; a system message may precede"


@runtime_checkable
class InstructedRecogniser(StreamingRecogniser, Protocol):
    """A recogniser whose prompt has room for the user's own instruction."""

    def instructed(self, instruction: Instruction) -> StreamingRecogniser:
        """Returns the same with the user's own instruction in the prompt; both share the network."""
        ...


class InstructedSession(SpeechSession, Converses, FindsNeighbours):
    """A speech session that also answers about one recording, in text."""

    def converse_stream(self, messages: Messages, **options: Any) -> Generator[ConversationEvent, None, None]:
        """See `Converses.converse_stream`: one message with one recording, a text as its instruction, a system
        message. Without a text, the answer is the transcript.
        """
        recogniser = self.recogniser
        model_options: Any = build_options(conversation_options_class(recogniser.options_class), options, self.model)
        model_options.check_text_alone(self.model)
        instruction, part, where = _question(check_messages(messages), self.model)
        if not isinstance(recogniser, InstructedRecogniser):
            raise BadInput(f"{self.model} takes no instruction; use transcribe")
        clock = WorkClock()
        with clock:
            recording = read_recording(part, *where, model_options.max_segment_seconds)
            writing = recogniser.instructed(instruction).recognise_stream([recording.samples], model_options)
        text, first, recognition = "", None, None
        try:
            yield AnswerStart(asdict(model_options))
            while recognition is None:
                with clock:
                    try:
                        [partial_text] = next(writing)
                    except StopIteration as done:
                        [recognition] = done.value
                        partial_text = recognition.text
                    # What is shown stays: a family may tidy the end of a text that goes on.
                    added = partial_text[len(text) :] if partial_text.startswith(text) else ""
                    text += added
                    first = clock.passed() if added and first is None else first
                yield Piece(added, ())
        finally:
            writing.close()
        yield self._answer(
            recognition, model_options, clock, first, (*recording.notes, *([MAY_IGNORE] if instruction.text else []))
        )

    def neighbours(self, values: np.ndarray, count: int = 5) -> Neighbours:
        """See `FindsNeighbours.neighbours`; of the language model's table."""

        def piece(number: int) -> str:
            return self.token_texts([number])[0]

        return neighbours_of(values, self._table, piece, count, self.model)

    def token_embeddings(self, ids: Sequence[int]) -> np.ndarray:
        """See `FindsNeighbours.token_embeddings`; of the language model's table."""
        return rows_of(self._table, ids, self.model)

    @property
    def _table(self) -> Table:
        table: Table | None = getattr(self.recogniser, "table", None)
        if table is None:
            raise Unavailable(
                f"{self.model} on {self.runtime} does not show the embeddings of its vocabulary; use pytorch or gguf"
            )
        return table

    def _answer(
        self,
        recognition: Recognition,
        model_options: Any,
        clock: WorkClock,
        first: float | None,
        notes: tuple[str, ...],
    ) -> Answer:
        return Answer(
            model=self.model,
            runtime=self.runtime,
            text=recognition.text,
            audio=None,
            sample_rate=None,
            finish="stop" if recognition.ended else "length",
            token_ids=recognition.ids,
            streams=None,
            prompt_rows=recognition.prompt_tokens,
            load_seconds=self.load_seconds,
            compute_seconds=clock.seconds,
            first_text_seconds=first,
            memory_bytes=peak_resident_bytes(),
            settings=asdict(model_options),
            notes=(*self._notes, *notes, *recognition.notes),
        )


def _question(messages: tuple[Message, ...], model: str) -> tuple[Instruction, AudioPart, tuple[int, int]]:
    """Returns the instruction and the recording of a conversation, with its place; raises `BadInput` for any other."""
    system = messages[0].text if messages[0].role == "system" else ""
    *before, question = messages[bool(system) :]
    if before:
        raise BadInput(f"the conversation has {len(messages)} messages, and {model} answers about one; {EXPECTED}")
    parts = [(place, part) for place, part in enumerate(question.parts) if isinstance(part, AudioPart)]
    if len(parts) != 1:
        raise BadInput(f"message {len(messages)} has {len(parts) or 'no'} recordings; {EXPECTED}")
    [(place, part)] = parts
    return Instruction(question.text.strip(), system.strip()), part, (len(messages) - 1, place)
