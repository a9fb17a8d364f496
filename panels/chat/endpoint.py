"""The endpoint `/chat` for `gradio_client` and notebooks. It answers as the Chat tab does."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.data_classes import FileData
from gradio.processing_utils import save_bytes_to_cache
from gradio.utils import get_upload_folder

from panels.chat.request import Column, read_options
from panels.chat.run import answer_columns
from panels.running.choices import ModelOnRuntime, chosen_offers, offers
from panels.running.parameters import (
    FILE_SCHEMA,
    FILES,
    MESSAGES,
    OBJECT_SCHEMA,
    TEXT,
    TEXT_SCHEMA,
    UPLOAD,
    Parameter,
    endpoint,
)
from panels.running.root import Page
from panels.running.sessions import SessionPool
from panels.running.wiring import COMPUTING
from panels.transcribe.endpoint import OPTIONS, RUNTIME_OF_MODELS, first_of
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.visitors import current_stop
from workbench.families.family import CONVERSE
from workbench.session.conversation import Answer

CHAT = {
    "messages": Parameter(
        "messages",
        'A text, or a list of messages such as {"role": "user", "content": "say three"}, or JSON text of one. A '
        'content is a text or a list of parts: {"type": "text", "text": ...}, {"type": "input_audio", "input_audio": '
        '{"data": base64 of a file, "format": "wav"}}, and of an assistant {"type": "audio", "streams": rows of ids}.',
        MESSAGES,
    ),
    "model": Parameter("model", "The id of a model that answers conversations; /models lists them.", TEXT),
    "runtime": RUNTIME_OF_MODELS,
    "modalities": Parameter("modalities", "The modalities of the answer: auto, text, audio, text_audio.", TEXT, "auto"),
    "options": OPTIONS,
    "audio": Parameter(
        "recordings", f"A recording or a list of them, which end the last message, as files: {UPLOAD}.", FILES, []
    ),
}
RESULTS = (("audio", FILE_SCHEMA), ("answer", OBJECT_SCHEMA))  # after the text


def build(page: Page, pool: SessionPool) -> None:
    """Adds the endpoint to the page, in the current context."""

    def chat(
        messages: Any, model: str, runtime: str, modalities: str, options: dict[str, Any], audio: list[str]
    ) -> tuple[str, Any, dict[str, Any]]:
        answer = answered(pool, messages, model, runtime, modalities, options, audio)
        audio_base64 = answer.pop("audio")
        return answer["text"], _file(audio_base64) if audio_base64 else None, answer

    with gr.Column(visible=False):
        endpoint(
            page,
            chat,
            CHAT,
            "text",
            TEXT_SCHEMA,
            "chat",
            "Answers a conversation; gives the text, the audio as a WAV file or nothing, and the answer as an object.",
            {"messages": "count from two to six", "model": first_of(pool.registry, CONVERSE), "runtime": "pytorch"},
            further_results=RESULTS,
            **COMPUTING,
        )


def answered(
    pool: SessionPool,
    messages: Any,
    model: str,
    runtime: str = "pytorch",
    modalities: str = "auto",
    options: Mapping[str, Any] | None = None,
    audio: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns a model's answer, with the fields of `Answer.to_dict`.

    Args:
        messages: a text, or messages without paths of files.
        model: its id; may name its runtime too, as in `demo/qwen3|gguf|q8_0`.
        audio: the paths of recordings that were uploaded.
    """
    cell = model if "|" in model else ModelOnRuntime(model, runtime).value
    [offer] = chosen_offers([cell], offers(pool.registry, CONVERSE))
    fields = {"modalities": modalities, **(options or {})}
    column = Column(offer, with_recordings(messages, audio), read_options(pool.registry, offer, fields))
    found: list[Answer] = []
    failed: list[str] = []

    def on_event(_: int, event: Any) -> None:
        if isinstance(event, dict) and event["type"] == "failed":
            failed.append(event["sentence"])

    answer_columns(pool, [column], [current_stop()], on_event, lambda _, answer: found.append(answer))
    if failed:
        raise WorkbenchError(failed[0])
    return found[0].to_dict()


def with_recordings(messages: Any, audio: Sequence[str] = ()) -> tuple[Mapping[str, Any], ...]:
    """Returns the messages of a script as a session takes them, with recordings at their end.

    Raises `BadInput` where a part names a file of the server.
    """
    found: list[Any] = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
    if audio:
        recordings = [{"type": "audio", "audio": str(Path(path).absolute())} for path in audio]
        last = found.pop() if found and isinstance(found[-1], dict) and found[-1].get("role") == "user" else {}
        content = last.get("content") or []
        if not isinstance(content, (str, list)):
            return (*found, last)  # the check of the messages says what is wrong with it
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        _refuse_paths([{"content": parts}])
        return (*_refuse_paths(found), {"role": "user", "content": [*parts, *recordings]})
    return _refuse_paths(found)


def _refuse_paths(messages: Sequence[Any]) -> tuple[Any, ...]:
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and "audio" in part:
                raise BadInput(
                    "a part of a message names a recording by a path; expected input_audio with its content as base64"
                )
    return tuple(messages)


def _file(audio_base64: str) -> dict[str, Any]:
    path = save_bytes_to_cache(base64.b64decode(audio_base64), "answer.wav", get_upload_folder())
    return dict(json.loads(FileData(path=path, orig_name="answer.wav", mime_type="audio/wav").model_dump_json()))
