"""Connects answers of several streams with vLLM's model runner V1, which vLLM uses on a processor.

vLLM gets `SpeechWorker` as `worker_cls`. It is the worker of the platform with a changed model runner: the runner adds
the streams to the embeddings of a step, and it replaces vLLM's sampler for these answers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.outputs import LogprobsTensors, SamplerOutput

from workbench.runtimes.vllm.streams.answers import Answers
from workbench.runtimes.vllm.streams.batch import Batch, put_rows, write_choices
from workbench.runtimes.vllm.streams.scheduler import can_schedule_pairs

logger = init_logger("vllm.speech_workbench")

PlatformWorker: Any
if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker

    PlatformWorker = CPUWorker
else:
    from vllm.v1.worker.gpu_worker import Worker

    PlatformWorker = Worker


class SpeechWorker(PlatformWorker):
    """The worker of the platform, with a model runner for several streams."""

    def init_device(self) -> None:
        """Creates the model runner and adds `SpeechRunner` to its class."""
        super().init_device()
        runner = self.model_runner
        if not hasattr(runner, "_preprocess"):
            return  # model runner V2, which `model_state` connects
        runner_class = type(runner)
        runner.__class__ = type(f"Speech{runner_class.__name__}", (SpeechRunner, runner_class), {})


class SpeechRunner:
    """A mixin for vLLM's model runner V1. It uses private methods and attributes of that class in vLLM 0.32."""

    answers: Answers | None = None  # from the first step on
    _step: Batch
    input_batch: Any
    requests: Any
    model: Any
    vllm_config: Any
    discard_request_mask: Any

    def _preprocess(self, scheduler_output: Any, *arguments: Any, **options: Any) -> Any:
        """Returns the inputs of a step, with rows of several streams in the embeddings."""
        inputs = super()._preprocess(scheduler_output, *arguments, **options)  # type: ignore[misc]
        if self.answers is None:
            self.answers = Answers(self.model.layout, allows_pairs=can_schedule_pairs(self.vllm_config))
        batch = self.input_batch
        names = list(batch.req_ids)
        starts = [int(number) for number in batch.num_computed_tokens_cpu[: len(names)]]
        stops = [start + scheduler_output.num_scheduled_tokens[name] for start, name in zip(starts, names)]
        for name in names:
            if name not in self.answers:
                request = self.requests[name]
                extra = request.sampling_params.extra_args if request.sampling_params else None
                prompt = request.num_prompt_tokens
                if problem := self.answers.begin(name, extra, prompt, prompt + len(request.output_token_ids)):
                    logger.warning("request %s ends: %s", name, problem)
        self._step = Batch(names, starts, stops)
        embeddings = inputs[1]
        put_rows(self.model, embeddings, *self.answers.rows(names, starts, stops))
        return inputs

    def _sample(self, logits: Tensor | None, spec_decode_metadata: Any) -> Any:
        """Returns the next position of each request. vLLM's sampler chooses it if the request asks for no streams."""
        step = self._step
        if logits is None or self.answers is None or not any(name in self.answers for name in step.names):
            return super()._sample(logits, spec_decode_metadata)  # type: ignore[misc]
        heads = self.model.heads.logits_of(self.model.hidden, logits)
        chosen = self.answers.choose(step.names, step.stops, heads)
        if len(chosen) < len(step.names):
            sampled = super()._sample(logits, spec_decode_metadata)  # type: ignore[misc]
        else:
            sampled = _empty(len(step.names), self.input_batch.max_num_logprobs, logits.device)
        for row in write_choices(sampled, chosen, self.answers.layout):
            self.discard_request_mask.np[row] = True  # as for an unfinished piece of a prompt: no token
        return sampled

    def _on_request_state_removed(self, req_id: str, req_state: Any) -> None:
        """Forgets a request that has ended."""
        super()._on_request_state_removed(req_id, req_state)  # type: ignore[misc]
        if self.answers is not None:
            self.answers.end(req_id)


def _empty(requests: int, alternatives: int | None, device: torch.device) -> SamplerOutput:
    """Returns an empty output of a sampler.

    Args:
        alternatives: the most alternatives of a token that any of the requests asks for.
    """
    ids = torch.zeros(requests, 1 + (alternatives or 0), dtype=torch.int32, device=device)
    logprobs = LogprobsTensors(ids, torch.zeros(ids.shape, device=device), torch.zeros_like(ids[:, 0]))
    return SamplerOutput(torch.zeros_like(ids[:, :1]), logprobs)
