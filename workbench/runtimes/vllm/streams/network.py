"""A SpeechLM in an engine, as the session of a conversation sees it: prompts in, positions of answers out.

The engine chooses every position (see `workbench.runtimes.vllm.streams.answers`); here they are read, one answer for
each call. Several threads may call at the same time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from workbench.core.errors import BadInput, WorkbenchError
from workbench.families.speechlm import SpeechLmModel
from workbench.pipelines.speechlm_hearing import Hearing, required
from workbench.runtimes.vllm.engine import Engine
from workbench.runtimes.vllm.request import Request
from workbench.runtimes.vllm.streams.asked import ARGUMENT, Asked, Span, position, spans_of, width
from workbench.runtimes.vllm.tracing import check_not_substituted, prompt_stages
from workbench.speech.choosing import Step, forced
from workbench.speech.dialogue import Recording
from workbench.speech.generate import LENGTH
from workbench.speech.layout import SpeechLayout
from workbench.speech.phases import Cursor, Kind
from workbench.speech.plan import AnswerPlan
from workbench.trace.recorder import Recorder
from workbench.trace.trace import StageFilter

if TYPE_CHECKING:
    from vllm import SamplingParams

OTHERS = 8  # positions of an answer that are neither tokens of text nor rows of audio, at most


class EngineNetwork:
    """A language model in an engine; implements `workbench.speech.network.SpeechModel`."""

    def __init__(self, model: SpeechLmModel, engine: Engine):
        self.model, self.engine, self.layout = model, engine, model.layout
        self._hearing = Hearing(model.tower) if model.tower else None

    @property
    def dtype(self) -> str:
        """The name of the type that the language model computes in; the audio tower computes in float32."""
        return self.engine.dtype

    @property
    def context(self) -> int:
        """The most positions of a sequence, without the last id of an answer, which vLLM counts as well."""
        return min(self.model.context, self.engine.limits.max_length - 1)

    def hear(self, samples: np.ndarray, recorder: Recorder | None = None) -> Recording:
        """Returns a recording for the engine, where the audio tower is.

        Raises `BadInput` if the checkpoint has no audio tower, for a recording that is silent, too short or broken, or
        for one that fills the context. `trace` records the tower's stages.
        """
        hearing = required(self._hearing)
        hearing.check(samples)
        return Recording(samples, hearing.check_room(samples, self.context))

    def request(self, prompt: Sequence[Any]) -> tuple[Request, list[Span]]:
        """Returns a prompt's request, and its rows of several streams, which go with the request's parameters."""
        ids: list[int] = []
        spans: list[Span] = []
        recordings: list[np.ndarray] = []
        at = heard = 0
        for part in prompt:
            if isinstance(part, Recording):
                ids.append(self.layout.pad)
                recordings.append(np.ascontiguousarray(part.samples, dtype=np.float32))
                heard += part.rows
                at += part.rows
            else:
                ids += part[:, 0].tolist()
                spans += spans_of(part, at, self.layout)
                at += len(part)
        return Request(ids, tuple(recordings) or None, heard), spans

    def trace(self, prompt: Sequence[Any], recorder: Recorder) -> None:
        """Records the stages of one pass over a prompt in the engine: the audio tower's, `llm.*` and `logits`."""
        check_not_substituted({} if recorder.isolated else None)
        request, spans = self.request(prompt)
        wanted = recorder.wanted if isinstance(recorder.wanted, StageFilter) else StageFilter()
        extra = {ARGUMENT: Asked(AnswerPlan("text"), spans).written()}
        for stage, value in prompt_stages(self.engine, request, wanted, extra).items():
            recorder.put(stage, value)

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
    """Yields the positions of an answer as the engine chooses them, and returns why it has ended: stop or length.

    Closing the generator aborts the request. See `workbench.speech.generate.answer_steps`, which gives the same.

    Raises `BadInput` for guidance of audio, and the errors of `Engine.stream`.
    """
    if plan.guided and plan.modalities != "text":
        raise BadInput(
            f"cfg is {plan.cfg:g}, and vLLM runs each conversation as one request, without the second one that "
            "guidance compares it with; set cfg to 1, or open the model on pytorch"
        )
    plan = replace(plan, cfg=1.0)
    layout = network.layout
    request, spans = network.request(prompt)
    request = replace(request, salt=_salt(plan, spans))
    cursor = Cursor(plan, layout)
    asked = Asked(plan, spans, probabilities, evidence)
    stream = network.engine.follow([request], [_params(asked, layout)])
    try:
        for _, ids, told in stream:
            for token, start, end in zip(ids, told.start_indices, told.end_indices, strict=True):
                phase = cursor.phase
                if phase.kind is Kind.END:
                    continue  # a stop token of our own
                kind = Kind.CLOSE if phase.closes and token in (layout.eos, layout.eot) else phase.kind
                columns = np.array(told.token_ids[start:end]), np.array(told.logprobs[start:end])
                try:
                    cursor.advance(token)
                except ValueError as error:
                    raise WorkbenchError(f"the engine broke an answer off (its log: {network.engine.log})") from error
                yield position(*columns, kind, asked, layout)
    finally:
        stream.close()
    while (phase := cursor.phase).forced is not None:  # at the end of the context
        step = forced(phase, layout, probabilities, evidence)
        yield step
        cursor.advance(step.id)
    return phase.finish or LENGTH


def _salt(plan: AnswerPlan, spans: Sequence[Span]) -> str:
    """Returns with whom a request shares what is cached: vLLM knows its ids of stream 0 alone."""
    if plan.modalities != "text":
        return uuid4().hex
    digest = hashlib.sha256()
    for start, rows in spans:
        digest.update(f"{start} {len(rows)} ".encode() + rows.tobytes())
    return digest.hexdigest() if spans else ""


def _params(asked: Asked, layout: SpeechLayout) -> SamplingParams:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    plan = asked.plan
    # After the end of an answer the pad comes. Where an id alone says that the answer ends, it stops the request.
    last = {"auto": (layout.eos,), "text_audio": ()}.get(plan.modalities, (layout.eos, layout.eot))
    return SamplingParams(
        max_tokens=plan.max_text_tokens + plan.max_audio_rows + OTHERS,
        stop_token_ids=[layout.pad, *last],
        ignore_eos=True,
        temperature=0.0,  # the plan has its own
        logprobs=width(layout, asked.evidence) - 1,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args={ARGUMENT: asked.written()},
    )
