"""vLLM's scheduler, for answers with classifier-free guidance: two requests, which must go on in the same steps.

The two requests of a pair get in line together. The worker chooses their next position in a step that computes the last
position of both. In a step that has only one of them, as the other is still reading its prompt or has been taken out of
the batch, that one gets no token, and its last position is taken back here, as vLLM takes back speculative tokens that
were rejected. So the next step computes it again, and the two always have the same number of tokens.

vLLM takes requests out of the batch from the end of the line, and puts them back in the same order. So at most one pair
is divided at a time, and its missing half is the next to get in. It has room if two sequences of its length have.

vLLM gets the class as `scheduler_cls`. It uses methods and attributes of that class of vLLM 0.32, without asynchronous
scheduling.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs
from vllm.v1.request import Request, RequestStatus

from workbench.runtimes.vllm.streams.stream_request import pair_of


def can_schedule_pairs(config: Any) -> bool:
    """Returns whether an engine of this configuration of vLLM has this scheduler, in the way that it works."""
    scheduling = config.scheduler_config
    is_able = scheduling.max_num_seqs > 1 and not scheduling.async_scheduling
    return is_able and issubclass(scheduling.get_scheduler_cls(), PairScheduler)


class PairScheduler(Scheduler):
    """Schedules requests like vLLM's own scheduler, and lets the two of a pair wait for each other."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._first: dict[str, Request] = {}  # by the name of the pair: requests whose partners have not arrived
        self._partners: dict[str, str] = {}

    def add_request(self, request: Request) -> None:
        """Puts a request in line; one of a pair when its partner has arrived."""
        pair = pair_of(request.sampling_params.extra_args if request.sampling_params else None)
        if not pair:
            super().add_request(request)
            return
        first = self._first.pop(pair, None)
        if first is None:
            self._first[pair] = request
            return
        self._partners = {member: partner for member, partner in self._partners.items() if member in self.requests}
        for member, partner in ((first, request), (request, first)):
            self._partners[member.request_id] = partner.request_id
            super().add_request(member)

    def finish_requests(self, request_ids: str | Iterable[str] | None, finished_status: RequestStatus) -> list[Request]:
        """Ends requests from outside; see vLLM's method."""
        names = [request_ids] if isinstance(request_ids, str) else None if request_ids is None else list(request_ids)
        ended: list[Request] = super().finish_requests(names, finished_status)
        for pair, request in list(self._first.items()):
            if names is None or request.request_id in names:
                del self._first[pair]
                request.status = finished_status
                ended.append(request)
        return ended

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> dict[int, EngineCoreOutputs]:
        """Takes what a step has computed; the last position of a request that waits for its partner is taken back.

        One whose partner has ended without it ends with an error.
        """
        abandoned = []
        sampled, places = model_runner_output.sampled_token_ids, model_runner_output.req_id_to_index
        for name in scheduler_output.num_scheduled_tokens:
            request = self.requests.get(name) if name in self._partners else None
            if request is None or request.is_prefill_chunk or (sampled and sampled[places[name]]):
                continue
            request.num_computed_tokens -= 1
            if self._partners[name] not in self.requests:
                abandoned.append(name)
        outputs: dict[int, EngineCoreOutputs] = super().update_from_output(scheduler_output, model_runner_output)
        for request in self.finish_requests(abandoned, RequestStatus.FINISHED_ERROR):
            client_outputs = outputs.setdefault(request.client_index, EngineCoreOutputs())
            reason = request.get_finished_reason()
            client_outputs.outputs.append(EngineCoreOutput(request.request_id, [], finish_reason=reason))
        return outputs
