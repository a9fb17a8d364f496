"""Converts a request to the format of vLLM's front end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.audio.constants import SAMPLE_RATE
from workbench.runtimes.vllm.requests.request import Request

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM


async def rendered(llm: AsyncLLM, request: Request) -> Any:
    """Returns the request in vLLM's format, with audio turned into features."""
    from vllm.renderers.inputs.preprocess import parse_model_prompt

    prompt: dict[str, Any] = {"prompt_token_ids": list(request.ids)}
    if recordings := request.recordings:
        audio = [(samples, SAMPLE_RATE) for samples in recordings]
        prompt["multi_modal_data"] = {"audio": audio if len(audio) > 1 else audio[0]}
        options = dict(request.audio_options)
        if request.capture:
            options["capture"] = request.capture
            prompt["multi_modal_uuids"] = {"audio": [f"{_unique(request)}-{n}" for n in range(len(recordings))]}
        prompt["mm_processor_kwargs"] = options
    if request.embeddings is not None:
        import torch

        prompt["prompt_embeds"] = torch.from_numpy(np.ascontiguousarray(request.embeddings, dtype=np.float32))
        where = request.is_embedding
        prompt["prompt_is_token_ids"] = [False] * len(request.ids) if where is None else (~where).tolist()
    if salt := _unique(request) if request.capture else request.salt:
        prompt["cache_salt"] = salt
    renderer = llm.renderer
    parsed = parse_model_prompt(llm.model_config, prompt)
    [engine_input] = await renderer.render_cmpl_async([parsed], renderer.default_cmpl_tok_params)
    return engine_input


def _unique(request: Request) -> str:
    """Returns a unique cache key for a captured request, as vLLM does not compute cached positions."""
    return f"workbench-capture-{request.capture}"
