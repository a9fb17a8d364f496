"""Speech models in an engine with an instruction of the user: another prompt for that call only."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workbench.core.errors import BadInput
from workbench.core.options import ListeningOptions
from workbench.decoding.generation import Decoding
from workbench.families.speech_llm.instruction import Instruction
from workbench.pipelines.conversation.instructed_session import InstructedSession
from workbench.runtimes.vllm.recogniser import EngineRecogniser

SOUND_ID, STOP = 99, 0


class Prompts:
    """The prompt is the letters of the instruction, followed by the speech."""

    options_class = ListeningOptions
    placeholder = -1
    tokenizer = SimpleNamespace(
        id_of=lambda token: SOUND_ID, decode=lambda ids: "".join(map(chr, ids)), piece=lambda number: chr(number)
    )
    asks = "own"
    language = SimpleNamespace(vocabulary=100)

    def instructed(self, instruction: Instruction) -> Prompts:
        changed = copy.copy(self)
        changed.asks = instruction.text or self.asks
        return changed

    def count(self, samples: int) -> int:
        return samples // 1000

    def prompt_ids(self, options: Any) -> np.ndarray:
        return np.array([*map(ord, self.asks), self.placeholder])

    def decoding(self, options: Any, counts: np.ndarray) -> Decoding:
        return Decoding((STOP,))

    def text(self, generated: str) -> str:
        return generated


class Engine:
    """An engine that generates the ids of the prompt."""

    dtype = "float32"
    requests_at_once = 1

    def stream(self, requests: Sequence[Any], decodings: Any, watch: Any) -> Iterator[tuple[int, list[int]]]:
        [request] = requests
        for number in [*request.ids[:-1], STOP]:
            yield 0, [number]


def test_instruction_changes_the_prompt_of_its_own_call_only() -> None:
    prompts: Any = Prompts()
    engine: Any = Engine()
    features: Any = None
    session = InstructedSession("m", "vllm", EngineRecogniser(prompts, features, engine, ()))
    sound = {"type": "audio", "audio": (np.ones(16000, np.float32), 16000)}
    messages = [{"role": "user", "content": [sound, {"type": "text", "text": "shout"}]}]
    assert session.converse(messages).text == "shout"
    assert session.converse([{"role": "user", "content": [sound]}]).text == "own"
    assert session.transcribe((np.ones(16000, np.float32), 16000), vad="none").text == "own"


def test_texts_of_ids_outside_the_vocabulary_are_refused() -> None:
    prompts: Any = Prompts()
    unused: Any = None
    session = InstructedSession("m", "vllm", EngineRecogniser(prompts, unused, unused, ()))
    assert session.token_texts([97]) == ("a",)
    with pytest.raises(BadInput, match="the language model has no token 100; expected ids from 0 to 99"):
        session.token_texts([100])
