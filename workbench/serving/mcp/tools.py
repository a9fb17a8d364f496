"""The tools of MCP: transcribe, compare, inject, chat and models, as an assistant reads and calls them.

Each tool computes what its route, its tab or its command computes. An error is one sentence.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import threading
from collections.abc import Generator, Mapping
from typing import Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import AudioContent, CallToolResult, TextContent, ToolAnnotations
from pydantic import Field

from workbench.audio.check import check_sound
from workbench.compare.presets import PRESETS
from workbench.core.errors import BadInput, Cancelled, WorkbenchError
from workbench.core.visitors import stoppable
from workbench.embeddings import read_embedding
from workbench.families.family import CONVERSE
from workbench.families.language.directory import PLACEHOLDER
from workbench.openai_api.chat_answer import ChatAnswer
from workbench.openai_api.transcription_answer import verbose
from workbench.openai_api.transcription_request import VERBOSE
from workbench.serving.comparison import compare_in_separate_process
from workbench.serving.kept_files import KeptFiles
from workbench.serving.mcp.arguments import SentEmbedding, SentFile, Tools
from workbench.serving.mcp.calls import ProgressSender, counted, worked
from workbench.serving.mcp.files import CallFiles
from workbench.serving.offers import check_options_known, options_for
from workbench.serving.routes import chats
from workbench.serving.routes.health import listed
from workbench.serving.service import Service
from workbench.serving.transcription_options import checked_request
from workbench.serving.work import opened
from workbench.session.conversation import Answer, ConversationEvent
from workbench.session.values import Event, Generation, Partial, Piece, Progress, Segment, Transcript

READS = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
MIME_TYPES = {"mp3": "audio/mpeg"}  # where it is not the format's name
MAX_STAGES = 20  # in the answer of a comparison, unless all are asked for


def _model_for(task: str, example: str) -> Any:
    return Field(
        description=f"a model that can {task}, by its id as `models` lists it; it may go on with a runtime and a "
        f"quantisation: {example}"
    )


OPTIONS = Field(description="options of the model by name, such as those of `workbench options`")
Ctx = Context[Any, Any]


def build(service: Service, stored_files: KeptFiles) -> MCPServer:
    """Returns the server with its tools.

    Args:
        stored_files: where uploads lie.
    """
    server = Tools(service)
    call_files = CallFiles(stored_files, service.gate.largest_body)
    _add_models(server, service)
    _add_transcribe(server, service, call_files)
    _add_compare(server, service, call_files)
    _add_inject(server, service, call_files)
    _add_chat(server, service, call_files)
    return server


def _add_models(server: MCPServer, service: Service) -> None:
    @server.tool(title="List the models", annotations=READS, structured_output=False)
    async def models(
        ctx: Ctx,
        task: Annotated[str, Field(description="transcribe, converse or generate; empty for all")] = "",
    ) -> CallToolResult:
        """Lists the models of this server: names for the other tools, tasks, languages, and whether each is ready."""
        async with counted(service, ctx, "models"):
            found = list((await asyncio.to_thread(listed, service)).values())
            tasks = sorted({each for model in found for each in model["tasks"]})
            if task and task not in tasks:
                raise BadInput(f"task is {task!r:.60}; expected one of {', '.join(tasks)}")
            keys = ("id", "tasks", "languages", "runtime", "ready")
            descriptions = [{key: model[key] for key in keys} for model in found if not task or task in model["tasks"]]
            lines = (f"{each['id']}: {', '.join(each['tasks'])}" for each in descriptions)
            return _result("\n".join(lines), {"models": descriptions})


def _add_transcribe(server: MCPServer, service: Service, call_files: CallFiles) -> None:
    @server.tool(title="Transcribe a recording", annotations=READS, structured_output=False)
    async def transcribe(
        ctx: Ctx,
        model: Annotated[str, _model_for("transcribe", "demo/sensevoice|gguf|q8_0")],
        audio: Annotated[SentFile, Field(description="the recording, in any format that libsndfile or ffmpeg reads")],
        language: Annotated[str, Field(description="the language as a code, such as en; empty to detect it")] = "",
        words: Annotated[bool, Field(description="whether to return the time of each word")] = False,
        options: Annotated[dict[str, Any], OPTIONS] = {},  # noqa: B006 (a schema has a default, and nobody changes it)
    ) -> CallToolResult:
        """Transcribes a recording, with the times of its segments."""
        async with counted(service, ctx, "transcribe") as call:
            offer = await call.choose(model, "transcribe")
            registry = service.pool.registry
            fields = [("response_format", VERBOSE), *([("language", language)] if language else [])]
            fields += [("timestamp_granularities[]", each) for each in ("segment", *(["word"] if words else []))]
            check_options_known(registry, [offer.card.id], options)
            request = checked_request(registry, offer.card, fields, options)
            call.begin()

            def work(stop: threading.Event, progress: ProgressSender) -> Generator[Transcript, None, None]:
                with call_files.path(audio.data, audio.upload, audio.name, "audio") as path:
                    check_sound(path)  # before a model is loaded
                    session = opened(service.pool, offer.cell, stop, progress.say)
                    with contextlib.closing(session.stream(str(path), **request.options)) as events:
                        for event in events:
                            if stop.is_set():
                                raise Cancelled("the client went away")
                            _report(progress, event)
                            if isinstance(event, Transcript):
                                yield event

            found = _last(await worked(ctx, work), "transcript")
            call.seconds = found.audio_seconds
            return _result(found.text, {"model": call.model, **verbose(found, request)})


def _add_compare(server: MCPServer, service: Service, call_files: CallFiles) -> None:
    @server.tool(title="Compare two traces", annotations=READS, structured_output=False)
    async def compare(
        ctx: Ctx,
        reference: Annotated[
            SentFile, Field(description="the trace to compare with: .safetensors, .npz, or a .zip of .npy files")
        ],
        candidate: Annotated[SentFile, Field(description="the trace to judge")],
        preset: Annotated[str, Field(description=f"what to expect: {', '.join(PRESETS)}; empty for automatic")] = "",
        rules: Annotated[list[str], Field(description="your own limits, such as relative_l2=1e-3")] = [],  # noqa: B006
        stages: Annotated[str, Field(description="a pattern of the stages to compare, such as encoder.*")] = "*",
        exact: Annotated[
            SentFile | None, Field(description="a trace of the reference in float64, to tell noise from a bug")
        ] = None,
        mapping: Annotated[
            SentFile | None, Field(description="a file that maps the candidate's names and layouts")
        ] = None,
        force: Annotated[bool, Field(description="compare traces of different inputs too")] = False,
        all_stages: Annotated[
            bool, Field(description=f"return every stage; otherwise at most {MAX_STAGES} that are beyond tolerance")
        ] = False,
    ) -> CallToolResult:
        """Compares two traces of a model stage by stage: the first stage where they diverge, and a verdict."""
        async with counted(service, ctx, "compare") as call:
            call.begin()
            files = {"reference": reference, "candidate": candidate, "exact": exact, "mapping": mapping}

            def work(stop: threading.Event, progress: ProgressSender) -> Generator[dict[str, Any], None, None]:
                with contextlib.ExitStack() as stack:
                    stack.enter_context(stoppable(stop))
                    paths = {
                        name: stack.enter_context(call_files.path(each.data, each.upload, each.name, name))
                        for name, each in files.items()
                        if each is not None
                    }
                    service.pool.guard.check_arrays(paths.values())
                    progress.say("comparing", 0.0)
                    yield compare_in_separate_process(
                        service.pool.guard,
                        paths["reference"],
                        paths["candidate"],
                        preset=preset,
                        rules=rules,
                        mapping=paths.get("mapping"),
                        stages=stages or "*",
                        exact=paths.get("exact"),
                        force=force,
                    )

            found = _last(await worked(ctx, work), "verdict")
            found["stages_compared"] = len(found["stages"])
            if not all_stages:
                found["stages"] = [each for each in found["stages"] if not each["within"]][:MAX_STAGES]
            return _result(found["verdict"]["sentence"], found)


def _add_inject(server: MCPServer, service: Service, call_files: CallFiles) -> None:
    @server.tool(title="Give a language model embeddings", annotations=READS, structured_output=False)
    async def inject(
        ctx: Ctx,
        model: Annotated[str, _model_for("generate", "demo/qwen3|gguf|q8_0")],
        prompt: Annotated[str, Field(description=f"the text, with {PLACEHOLDER} where each embedding goes")],
        embeddings: Annotated[
            list[SentEmbedding],
            Field(description="files with arrays [tokens, width], in order: .npy, .npz, .pt or .safetensors"),
        ],
        options: Annotated[dict[str, Any], OPTIONS] = {},  # noqa: B006
    ) -> CallToolResult:
        """Puts embeddings in the places of a prompt, and returns what a language model writes after it."""
        async with counted(service, ctx, "inject") as call:
            offer = await call.choose(model, "generate")
            registry = service.pool.registry
            check_options_known(registry, [offer.card.id], options)
            chosen = options_for(registry, offer.card.id, options)
            if not embeddings:
                raise BadInput(f"embeddings is empty; expected a file for each {PLACEHOLDER} of the prompt")
            call.begin()

            def work(stop: threading.Event, progress: ProgressSender) -> Generator[Generation, None, None]:
                with contextlib.ExitStack() as stack:
                    names = [f"embeddings[{number}]" for number in range(len(embeddings))]
                    paths = [
                        stack.enter_context(call_files.path(each.data, each.upload, each.name, name))
                        for name, each in zip(names, embeddings)
                    ]
                    service.pool.guard.check_arrays(paths)
                    arrays = [
                        read_embedding(path, tensor=each.tensor or None, name=each.name or name)
                        for path, each, name in zip(paths, embeddings, names)
                    ]
                session, text = opened(service.pool, offer.cell, stop, progress.say), ""
                with contextlib.closing(session.generate_stream(prompt, embeddings=arrays, **chosen)) as events:
                    for event in events:
                        if stop.is_set():
                            raise Cancelled("the client went away")
                        if isinstance(event, Piece):
                            text += event.text
                            progress.say(text[-80:])
                        elif isinstance(event, Generation):
                            yield event

            found = _last(await worked(ctx, work), "text")
            return _result(found.text, {**json.loads(found.to_json()), "model": call.model})


def _add_chat(server: MCPServer, service: Service, call_files: CallFiles) -> None:
    @server.tool(title="Chat with a model", annotations=READS, structured_output=False)
    async def chat(
        ctx: Ctx,
        model: Annotated[str, _model_for("converse", "demo/qwen3|gguf")],
        message: Annotated[str, Field(description="what to say to the model; may be empty where audio is given")] = "",
        audio: Annotated[SentFile | None, Field(description="a recording for the model to hear")] = None,
        history: Annotated[
            list[dict[str, Any]],
            Field(description='the earlier messages: objects {"role": "system", "user" or "assistant", "content"}'),
        ] = [],  # noqa: B006
        speak: Annotated[bool, Field(description="answer with speech, and its transcript")] = False,
        options: Annotated[
            dict[str, Any], Field(description="fields of a chat completion, and options of the model, by name")
        ] = {},  # noqa: B006
    ) -> CallToolResult:
        """Asks a model that converses: text and a recording in, text out, and speech where the model speaks."""
        async with counted(service, ctx, "chat") as call:
            offer = await call.choose(model, CONVERSE)
            for name in ("model", "messages", "stream", "modalities"):
                if name in options:
                    raise BadInput(f"options has {name}, which the tool sets itself; leave it out")
            if not message and audio is None:
                raise BadInput("message is empty; expected a text, or audio")
            content: Any = message
            if audio is not None:
                content = [{"type": "text", "text": message}] if message else []
                content.append(await asyncio.to_thread(_audio_part, call_files, audio))
            messages = [*history, {"role": "user", "content": content}]
            output_options = {"modalities": ["text", "audio"]} if speak else {}
            body = {**options, **output_options, "model": model, "messages": messages}
            request, embeddings = await asyncio.to_thread(chats.read_request, call, offer, body)
            writing = ChatAnswer(request, service.kept_answers)
            call.begin()

            def work(stop: threading.Event, progress: ProgressSender) -> Generator[ConversationEvent, None, None]:
                text = ""
                stops = request.extensions.get(chats.STOP, ())
                events = chats.stopped_at(
                    stops, chats.conversation(call, offer, request, embeddings, stop, progress.say)
                )
                with contextlib.closing(events):
                    for event in events:
                        if isinstance(event, Piece):
                            text += event.text
                            progress.say(text[-80:] or "writing")
                        if isinstance(event, (Piece, Answer)):
                            yield event

            events = await worked(ctx, work)
            answer = events[-1] if events else None
            if not isinstance(answer, Answer):
                raise WorkbenchError("the conversation ended without an answer")
            call.seconds = answer.audio_seconds
            pieces = [event for event in events if isinstance(event, Piece)]
            completion = await asyncio.to_thread(writing.whole, answer, pieces)
            return _chat_result(answer, completion, request.format)


def _audio_part(call_files: CallFiles, audio: SentFile) -> dict[str, Any]:
    """Returns a recording as a part of a chat's message."""
    with call_files.path(audio.data, audio.upload, audio.name, "audio") as path:
        content = base64.b64encode(path.read_bytes()).decode()
        ending = path.suffix[1:].lower() or "wav"
    return {"type": "input_audio", "input_audio": {"data": content, "format": ending}}


def _report(progress: ProgressSender, event: Event) -> None:
    if isinstance(event, Progress):
        progress.say(
            f"{event.activity}, {event.done:.0f} of {event.total:.0f} s", event.done / event.total if event.total else 0
        )
    elif isinstance(event, (Partial, Segment)):
        progress.say(event.text)


def _last(events: list[Any], result_name: str) -> Any:
    if not events:
        raise WorkbenchError(f"the work ended without a {result_name}")
    return events[-1]


def _result(text: str, found: Mapping[str, Any]) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], structured_content=dict(found))


def _chat_result(answer: Answer, completion: Mapping[str, Any], sound: str) -> CallToolResult:
    """Returns the answer of a chat: text, and the speech once, as content that clients can play."""
    content: list[Any] = [TextContent(text=answer.text)]
    found: dict[str, Any] = {"text": answer.text, "finish": answer.finish, "usage": completion["usage"]}
    audio = completion["choices"][0]["message"]["audio"]
    if audio is not None:
        found["audio_id"] = audio["id"]
        content.append(AudioContent(data=audio["data"], mime_type=MIME_TYPES.get(sound, f"audio/{sound}")))
    found |= {name: completion[name] for name in ("notes",) if name in completion}
    return CallToolResult(content=content, structured_content=found)
