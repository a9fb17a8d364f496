"""Writes vLLM's answers to requests of a speech model: `python -m ... JOB OUT`, both JSON files.

The engine runs in this process. The job has the `directory` to load, `files` with mono samples at 16 kHz, the `ids` of
the usual prompt, the `stops`, and in `mixed` the file of a prompt of ids and embeddings.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    import soundfile
    import torch
    from vllm import LLM, SamplingParams
    from vllm.config.speech_to_text import SpeechToTextParams
    from vllm.model_executor.model_loader import get_model_cls

    from workbench.runtimes.vllm.engine.forking import inspecting_here

    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with inspecting_here():
        engine = LLM(
            job["directory"],
            dtype="float32",
            enforce_eager=True,
            max_model_len=512,
            max_num_seqs=8,
            enable_prompt_embeds=True,
            generation_config="vllm",
            limit_mm_per_prompt={"audio": 1},
        )
    decoding = SamplingParams(
        temperature=0, max_tokens=60, stop_token_ids=job["stops"], ignore_eos=True, detokenize=False
    )

    def answers(*prompts: Any) -> list[list[int]]:
        outputs = engine.generate(list(prompts), decoding, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    sounds = [soundfile.read(file, dtype="float32")[0] for file in job["files"]]
    prompts = [{"prompt_token_ids": job["ids"], "multi_modal_data": {"audio": sound}} for sound in sounds]
    out: dict[str, Any] = {
        "alone": [answers(single_prompt)[0] for single_prompt in prompts],
        "together": answers(*prompts),
    }

    # Prompts of the transcription route, and conversations.
    model_class: Any = get_model_cls(engine.model_config)
    config = model_class.get_speech_to_text_config(engine.model_config, "transcribe")

    def prompt_of(sound: np.ndarray, **fields: Any) -> Any:
        parameters = {"audio": sound, "stt_config": config, "model_config": engine.model_config, **fields}
        return model_class.get_generation_prompt(SpeechToTextParams(**parameters))

    out["asked"] = answers(*[prompt_of(sound) for sound in sounds])
    request_options = {"language": "en", "hotwords": "one, two", "request_prompt": '{"itn": false}'}
    out["options"] = prompt_of(sounds[0], **request_options)["prompt_token_ids"]
    out["languages"] = {}
    for language in (None, "auto", "ga", "xx"):
        try:
            out["languages"][str(language)] = model_class.validate_language(language)
        except ValueError as error:
            out["languages"][str(language)] = str(error)
    seconds = len(sounds[0]) / 16000
    out["counted"] = model_class.get_num_audio_tokens(seconds, config, engine.model_config)
    data = base64.b64encode(Path(job["files"][0]).read_bytes()).decode()
    part = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    [completion] = engine.chat([{"role": "user", "content": [part]}], decoding, use_tqdm=False)
    out["chat"] = list(completion.outputs[0].token_ids)
    out["chat_prompt"] = list(completion.prompt_token_ids)
    [completion] = engine.chat([{"role": "user", "content": "hello"}], decoding, use_tqdm=False)
    out["text"] = list(completion.prompt_token_ids)

    # Embeddings among ids, the placeholder without sound, and an unknown option.
    mixed = np.load(job["mixed"], allow_pickle=False)
    out["mixed"] = answers(
        {
            "prompt_embeds": torch.from_numpy(mixed["embeddings"]),
            "prompt_token_ids": mixed["ids"].tolist(),
            "prompt_is_token_ids": (~mixed["is_embedding"]).tolist(),
        },
        prompts[0],
    )
    placeholder = job["placeholder"]
    out["stray"] = answers({"prompt_token_ids": [5, placeholder, 7]}, {"prompt_token_ids": [5, 0, 7]})
    try:
        answers({**prompts[0], "mm_processor_kwargs": {"dihter": 1.0}})
    except ValueError as error:
        out["refused"] = str(error)
    out["after"] = answers(prompts[0])[0]
    Path(sys.argv[2]).write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main()
