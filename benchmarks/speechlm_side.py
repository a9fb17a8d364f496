"""One side of `benchmarks.speechlm_gguf` in a separate process: generates audio rows, once for each line of stdin.

Arguments: JSON with the runtime, the place of the model (a checkpoint directory, `random` or a GGUF file), its layout,
and the threads. A line is `CFG ROWS`; the answer is JSON with rows per second and the largest resident memory. The side
of GGUF imports no torch.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from workbench.core.settings import Settings
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.speechlm_network import SpeechLmNetwork
from workbench.speech.generate import AnswerPlan, answer_steps
from workbench.speech.layout import SpeechLayout
from workbench.speech.phases import Kind
from workbench.system.memory import peak_resident_bytes

PROMPT = 60  # positions


def network_of(settings: dict[str, Any]) -> Any:
    """Returns the network of a side."""
    if settings["runtime"] == "gguf":
        file = read_gguf(settings["place"])
        layout = SpeechLayout(**settings["layout"])
        return SpeechLmNetwork(file, language_config(file), layout, None, settings["threads"])
    import torch

    torch.set_num_threads(settings["threads"])
    if settings["place"] != "random":
        from workbench.runtimes.pytorch.speechlm import open_speechlm

        return open_speechlm(Path(settings["place"]), Settings(threads=settings["threads"]))[1]
    from benchmarks.speechlm_gguf import random_model
    from workbench.runtimes.pytorch.language_models.language import LanguageModel
    from workbench.runtimes.pytorch.language_models.speechlm_network import SpeechLmNetwork as OnPyTorch

    model, network, streams = random_model()
    language = LanguageModel(network.eval().requires_grad_(False), model.language, torch.device("cpu"))
    return OnPyTorch(language, model.layout, streams, None)


def prompt_of(layout: SpeechLayout) -> np.ndarray:
    """Returns positions of text, with the marker of the answer at the end."""
    ids = layout.text_first + np.arange(PROMPT) % (layout.text_end - layout.text_first)
    return np.array([layout.row(int(number)) for number in (*ids, layout.assistant)])


def rows_per_second(network: Any, rows: int, cfg: float) -> float:
    """Returns the rows per second of an answer of audio, from its second row on."""
    plan = AnswerPlan("audio", min_audio_rows=rows, max_audio_rows=rows, cfg=cfg, audio_temperature=0.8, audio_top_k=20)
    started = 0.0
    for step in answer_steps(network, [prompt_of(network.layout)], plan):
        if step.phase is Kind.AUDIO and not started:
            started = time.perf_counter()
    return (rows - 1) / (time.perf_counter() - started)


def main() -> None:
    """Runs a measurement for each line of stdin."""
    network = network_of(json.loads(sys.argv[1]))
    for line in sys.stdin:
        cfg, rows = line.split()
        rate = rows_per_second(network, int(rows), float(cfg))
        print(json.dumps({"rows": rate, "peak": peak_resident_bytes()}), flush=True)


if __name__ == "__main__":
    main()
