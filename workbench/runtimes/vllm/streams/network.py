"""A SpeechLM in an engine, for the session of a conversation: takes prompts and returns positions of answers.

The engine chooses every position (see `workbench.runtimes.vllm.streams.answers`), and this file reads them. Each call
reads one answer. Several threads may call at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.core.finite import nan_logits_error
from workbench.families.speechlm.model import SpeechLmModel
from workbench.pipelines.conversation.speechlm_frontend import TowerFrontend, required
from workbench.runtimes.vllm.capture.tracing import check_not_substituted, prompt_stages
from workbench.runtimes.vllm.engine.engine import Engine
from workbench.runtimes.vllm.engine.running_requests import Finished
from workbench.runtimes.vllm.requests.request import Request
from workbench.runtimes.vllm.serving.engine import ServedEngine
from workbench.runtimes.vllm.streams.stream_request import (
    ARGUMENT,
    BROKEN,
    Span,
    StreamRequest,
    position,
    spans_of,
    width,
)
from workbench.speech.choosing import Step, forced
from workbench.speech.dialogue import Recording
from workbench.speech.generate import LENGTH
from workbench.speech.layout import SpeechLayout
from workbench.speech.phases import Cursor, Kind, Phase
from workbench.speech.plan import AnswerPlan
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

if TYPE_CHECKING:
    from vllm import SamplingParams

MAX_MARKERS = 8  # the most positions of an answer that are neither tokens of text nor rows of audio


class EngineNetwork:
    """A language model in an engine; implements `workbench.speech.network.SpeechModel`."""

    def __init__(self, model: SpeechLmModel, engine: Engine | ServedEngine):
        self.model, self.engine, self.layout = model, engine, model.layout
        self._frontend = TowerFrontend(model.tower) if model.tower else None

    @property
    def dtype(self) -> str:
        """The name of the language model's type. The audio tower computes in float32."""
        return self.engine.dtype

    @property
    def context(self) -> int:
        """The most positions of a sequence. vLLM also counts the last id of an answer, which is not among them."""
        return min(self.model.context, self.engine.limits.max_length - 1)

    def embed_audio(self, samples: np.ndarray, recorder: Recorder | None = None) -> Recording:
        """Returns a recording for the engine, where the audio tower is.

        Raises `BadInput` if the checkpoint has no audio tower, for a recording that is silent, too short or broken, or
        for one that fills the context. `trace` records the tower's stages.
        """
        frontend = required(self._frontend)
        frontend.check(samples)
        return Recording(samples, frontend.check_room(samples, self.context))

    def request(self, prompt: Sequence[Any]) -> tuple[Request, list[Span]]:
        """Returns the request for a prompt, and the prompt's rows of several streams for the request's parameters."""
        ids: list[int] = []
        spans: list[Span] = []
        recordings: list[np.ndarray] = []
        position_count = audio_rows = 0
        for part in prompt:
            if isinstance(part, Recording):
                ids.append(self.layout.pad)
                recordings.append(np.ascontiguousarray(part.samples, dtype=np.float32))
                audio_rows += part.rows
                position_count += part.rows
            else:
                ids += part[:, 0].tolist()
                spans += spans_of(part, position_count, self.layout)
                position_count += len(part)
        return Request(ids, tuple(recordings) or None, audio_rows), spans

    def trace(self, prompt: Sequence[Any], recorder: Recorder) -> None:
        """Records the audio tower's stages and those of one pass over a prompt; see `SpeechModel.trace`."""
        check_not_substituted({} if recorder.isolated else None)
        request, spans = self.request(prompt)
        if not isinstance(self.engine, Engine):
            raise Unavailable("a server shows no stages; open the model on this machine")
        requested_stages = recorder.wanted if isinstance(recorder.wanted, StageFilter) else StageFilter()
        extra = {ARGUMENT: StreamRequest(AnswerPlan("text"), spans).extra_entry()}
        for stage, value in prompt_stages(self.engine, request, requested_stages, extra).items():
            recorder.put(stage, value)

    def room(self, request: Request, plan: AnswerPlan) -> int:
        """Returns the most positions of a sequence with guidance, which the engine computes together with another one.

        Raises `BadInput` if a prompt fills it.
        """
        capacity = self.engine.room(2)
        if request.positions >= capacity:
            raise BadInput(
                f"cfg is {plan.cfg:g}, which needs keys and values of two sequences, and the conversation has "
                f"{request.positions} positions where the engine has room for {capacity} of each; set cfg to 1, or "
                "open the model with a larger kv_gigabytes"
            )
        return min(self.context, capacity)

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()


def engine_steps(
    network: EngineNetwork,
    prompt: Sequence[Any],
    plan: AnswerPlan,
    probabilities: bool = False,
    evidence: bool = False,
) -> Generator[Step, None, str]:
    """Yields the positions of an answer as the engine chooses them; returns why the answer ended: stop or length.

    With guidance, two more requests compute the audio and what follows it. The request of the model has all positions
    so far in its prompt, and the request of the null branch has the same length. Closing the generator aborts the
    requests. `workbench.speech.generate.answer_steps` has the same arguments and yields the same positions.

    Raises `BadInput` for a conversation with guidance that does not fit into the engine twice, and the errors of
    `Engine.stream`.
    """
    layout, guided = network.layout, plan.guided and plan.modalities != "text"
    request, spans = network.request(prompt)
    request = replace(request, salt=_salt(plan, spans))
    stream_request = StreamRequest(replace(plan, cfg=1.0), spans, probabilities, evidence)
    answer = _Answer(stream_request, layout)
    room = network.room(request, plan) if guided else network.context
    if not guided or plan.modalities != "audio":
        params = _params(stream_request, layout, stops=(layout.audio,) if guided else ())
        yield from _read_steps(network, [(request, params)], answer)
    yield from answer.without_choice()  # before audio, or at the end of the context
    if guided and answer.phase.kind is Kind.AUDIO and request.positions + len(answer.ids) <= room:
        pair = _pair(request, replace(stream_request, plan=plan, prefix_ids=answer.ids[:]), layout, room)
        yield from _read_steps(network, pair, answer)
        yield from answer.without_choice()
    return answer.phase.finish or LENGTH


class _Answer:
    """An answer in progress."""

    def __init__(self, stream_request: StreamRequest, layout: SpeechLayout):
        self.stream_request, self.layout = stream_request, layout
        self.ids: list[int] = []  # of stream 0
        self._cursor = Cursor(stream_request.plan, layout)

    @property
    def phase(self) -> Phase:
        """What comes next."""
        return self._cursor.phase

    def take(self, token: int) -> None:
        """Takes the next id of stream 0; raises `ValueError` for one that cannot come next."""
        self._cursor.advance(token)
        self.ids.append(token)

    def without_choice(self) -> Iterator[Step]:
        """Yields the positions up to the next one that the model chooses."""
        while (phase := self.phase).forced is not None:
            self.take(phase.forced)
            yield forced(phase, self.layout, self.stream_request.probabilities, self.stream_request.evidence)


def _pair(
    request: Request, stream_request: StreamRequest, layout: SpeechLayout, room: int
) -> list[tuple[Request, SamplingParams]]:
    """Returns the two requests for the audio of an answer with guidance: the model's and the null branch's.

    Args:
        request: for the prompt before the answer.
        room: the most positions of each.
    """
    stream_request = replace(stream_request, pair=uuid4().hex)
    model = replace(request, ids=[*request.ids, *stream_request.prefix_ids])
    null = Request([layout.pad] * (model.positions - 1) + [layout.audio], salt=uuid4().hex)
    max_positions = room + 1 - model.positions  # what follows the last position is not computed
    return [
        (model, _params(stream_request, layout, max_positions=max_positions)),
        (
            null,
            _params(
                StreamRequest(
                    stream_request.plan, prefix_ids=stream_request.prefix_ids, pair=stream_request.pair, null=True
                ),
                layout,
                max_positions=max_positions,
            ),
        ),
    ]


def _read_steps(
    network: EngineNetwork, requests: Sequence[tuple[Request, SamplingParams]], answer: _Answer
) -> Iterator[Step]:
    """Yields the positions of an answer that the first of some requests generates.

    Raises `NotFinite` for logits that are NaN, as `answer_steps` does.
    """
    layout, stream_request = answer.layout, answer.stream_request
    broken = f"the engine broke an answer off ({network.engine.where})"
    ends: list[Finished] = []
    with closing(_with_ends(network.engine.follow(*zip(*requests)), ends)) as stream:
        for number, ids, logprobs in stream:
            if number:
                continue
            for token, start, end in zip(ids, logprobs.start_indices, logprobs.end_indices, strict=True):
                phase = answer.phase
                if phase.kind is Kind.END:
                    continue  # a stop token of our own
                kind = Kind.CLOSE if phase.closes and token in (layout.eos, layout.eot) else phase.kind
                columns = np.array(logprobs.token_ids[start:end]), np.array(logprobs.logprobs[start:end])
                if token == layout.pad and columns[1][0] == BROKEN:
                    raise nan_logits_error()
                try:
                    answer.take(token)
                except ValueError as error:
                    raise WorkbenchError(broken) from error
                yield position(*columns, kind, stream_request, layout)
    if any(each.reason == "error" for each in ends):
        raise WorkbenchError(broken)


Outputs = Generator[tuple[int, list[int], Any], None, list[Finished]]


def _with_ends(stream: Outputs, ends: list[Finished]) -> Generator[tuple[int, list[int], Any], None, None]:
    """Yields the items of a stream, and adds its return value to `ends`."""
    ends += yield from stream


def _salt(plan: AnswerPlan, spans: Sequence[Span]) -> str:
    """Returns the cache salt of a request. Requests share cached positions only if their salts are equal.

    vLLM compares the ids of stream 0 alone, so requests with other streams must have other salts.
    """
    if plan.modalities != "text":
        return uuid4().hex
    digest = hashlib.sha256()
    for start, rows in spans:
        digest.update(f"{start} {len(rows)} ".encode() + rows.tobytes())
    return digest.hexdigest() if spans else ""


def _params(
    stream_request: StreamRequest, layout: SpeechLayout, stops: Sequence[int] = (), max_positions: int | None = None
) -> SamplingParams:
    """Returns vLLM's parameters of a request.

    Args:
        stops: more ids that end it.
        max_positions: the most positions.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    plan = stream_request.plan
    # The pad follows the end of an answer and stops the request. In some modalities the closing id stops it already.
    closing_ids = layout.eos, layout.eot
    last = (
        closing_ids
        if stream_request.null
        else {"auto": (layout.eos,), "text_audio": ()}.get(plan.modalities, closing_ids)
    )
    limit = plan.max_tokens or plan.max_text_tokens + plan.max_audio_rows + MAX_MARKERS
    return SamplingParams(
        max_tokens=limit if max_positions is None else min(limit, max_positions),
        stop_token_ids=[layout.pad, *last, *stops],
        ignore_eos=True,
        temperature=0.0,  # the plan has its own
        logprobs=None if stream_request.null else width(layout, stream_request.evidence) - 1,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY if stream_request.null else RequestOutputKind.DELTA,
        extra_args={ARGUMENT: stream_request.extra_entry()},
    )
