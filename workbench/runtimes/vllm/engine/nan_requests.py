"""Ends requests of vLLM's engine whose logits are NaN.

vLLM chooses a token from NaN as it does from numbers. If $VLLM_COMPUTE_NANS_IN_LOGITS is set, its engine counts them
and gives the front end the count with each token. The front end uses it for statistics only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.core.finite import nan_logits_error

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


def refuse_nan_logits(llm: AsyncLLM) -> None:
    """Makes every later request of this front end raise `NotFinite` as soon as its logits are NaN.

    vLLM wraps that error in its own one, as its `__cause__`.
    """
    processor = llm.output_processor
    process = processor.process_outputs

    def process_checked(outputs: list[Any], *arguments: Any, **keywords: Any) -> Any:
        for output in outputs:
            state = processor.request_states.get(output.request_id) if output.num_nans_in_logits else None
            if state is not None and state.queue is not None:
                state.queue.put(nan_logits_error())
        return process(outputs, *arguments, **keywords)

    processor.process_outputs = process_checked
