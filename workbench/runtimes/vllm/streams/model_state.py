"""Connects answers of several streams with vLLM's model runner V2, which vLLM uses on a GPU.

The class of the model offers `SpeechModelState` to vLLM. This runner removes a request that leaves the batch, and it
may add the request again later. So the answers are parked in between.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from vllm.logger import init_logger
from vllm.v1.worker.gpu.model_states.default import DefaultModelState

from workbench.runtimes.vllm.streams.answers import Answers
from workbench.runtimes.vllm.streams.batch import put_rows, write_choices
from workbench.runtimes.vllm.streams.scheduler import can_schedule_pairs

logger = init_logger("vllm.speech_workbench")
PARKED = 4  # parked answers for each request of a full batch, as other requests may end while one waits


class SpeechModelState(DefaultModelState):
    """The model's part of a model runner, as the interface of vLLM 0.32 defines it."""

    def __init__(self, vllm_config: Any, *arguments: Any, **options: Any):
        super().__init__(vllm_config, *arguments, **options)
        speech: Any = self.model
        self.speech = speech
        self.answers = Answers(speech.layout, PARKED * self.max_num_reqs, can_schedule_pairs(vllm_config))

    def add_request(self, req_index: int, new_req_data: Any) -> None:
        """Starts a request, or continues it."""
        super().add_request(req_index, new_req_data)
        params = new_req_data.sampling_params
        prompt = len(new_req_data.prompt_token_ids or ())
        positions = len(new_req_data.prefill_token_ids or ()) or prompt
        name = new_req_data.req_id
        if problem := self.answers.begin(name, params.extra_args if params else None, prompt, positions):
            logger.warning("request %s ends: %s", name, problem)

    def remove_request(self, req_id: str) -> None:
        """Parks a request. It has ended, or the runner will add it again."""
        super().remove_request(req_id)
        self.answers.park(req_id)

    def prepare_inputs_embeds(self, scheduled_encoder_inputs: Any, input_batch: Any, req_states: Any) -> Tensor:
        """Returns the embeddings of a step, with rows of several streams in them."""
        embeddings: Tensor = super().prepare_inputs_embeds(scheduled_encoder_inputs, input_batch, req_states)
        starts, stops = _positions(input_batch)
        put_rows(self.speech, embeddings, *self.answers.rows(input_batch.req_ids, starts, stops))
        return embeddings

    def custom_sampler(self, sampler: Any) -> tuple[Any, Any]:
        """Returns a sampler that also chooses the positions of answers with several streams."""
        return SpeechSampler(sampler, self), None


class SpeechSampler:
    """Replaces the choices of vLLM's sampler for requests that ask for several streams."""

    def __init__(self, sampler: Any, state: SpeechModelState):
        self._sampler, self._state = sampler, state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)

    def __call__(self, logits: Tensor, input_batch: Any) -> Any:
        """Returns the next position of each request."""
        sampled = self._sampler(logits, input_batch)
        state = self._state
        names = list(input_batch.req_ids)
        if any(name in state.answers for name in names):
            heads = state.speech.heads.logits_of(state.speech.hidden, logits)
            _, stops = _positions(input_batch)
            for row in write_choices(sampled, state.answers.choose(names, stops, heads), state.speech.layout):
                sampled.num_sampled[row], sampled.num_rejected[row] = 0, 1
        return sampled


def _positions(input_batch: Any) -> tuple[list[int], list[int]]:
    """Returns (starts, stops) of the positions of each request that a step computes, as in `Batch`."""
    count = input_batch.num_reqs
    starts = [int(number) for number in input_batch.num_computed_tokens_np[:count]]
    return starts, [start + int(n) for start, n in zip(starts, input_batch.num_scheduled_tokens[:count])]
