"""One side of `benchmarks.forward` in a separate process: loads a model, then times a forward pass per line of stdin.

It prints one JSON object per line. `workbench` needs this project, `funasr` only the original package and torch, so
that the two may be in different environments.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SAMPLE_RATE = 16000


def workbench_forward(directory: Path, features: np.ndarray, device: str, dtype: str) -> Callable[[], list[int]]:
    """Returns a function that runs this project's network on features [frames, 560] and returns the decoded ids.

    Args:
        device: cpu or cuda.
        dtype: what the network multiplies in.
    """
    import torch

    from workbench.core.settings import Settings
    from workbench.families.sanm.sensevoice import is_sensevoice
    from workbench.runtimes.pytorch.numerics.device import prepare
    from workbench.runtimes.pytorch.numerics.products import arithmetic_of

    settings = Settings(device=device, dtype=dtype)
    target = prepare(settings)
    tensor = torch.from_numpy(features)[None].to(target)
    arithmetic = arithmetic_of(settings, target)
    if is_sensevoice(directory):
        from workbench.decoding.ctc import collapse, greedy
        from workbench.families.sanm.sensevoice import SenseVoiceOptions, query_ids, read_sensevoice
        from workbench.runtimes.pytorch.sensevoice import SenseVoiceOnDevice, SenseVoiceRunner

        queries = query_ids(SenseVoiceOptions())
        if target.type != "cpu":
            on_device = SenseVoiceOnDevice(read_sensevoice(directory), target, arithmetic)
            return lambda: [token.id for token in collapse(on_device.best_paths([features], queries, 0, None)[0].ids)]
        sensevoice = SenseVoiceRunner(read_sensevoice(directory), target, arithmetic)
        rows = torch.tensor([queries])
        return lambda: [token.id for token in greedy(sensevoice.network(tensor, rows)[0].float().numpy())]
    from workbench.families.sanm.paraformer import read_paraformer
    from workbench.runtimes.pytorch.paraformer import ParaformerRunner

    paraformer = ParaformerRunner(read_paraformer(directory), target, arithmetic)
    return lambda: paraformer.network(tensor).logits[0].argmax(-1).tolist()  # type: ignore[index]


def funasr_forward(directory: Path, features: np.ndarray, device: str, dtype: str) -> Callable[[], list[int]]:
    """Returns a function that runs the original package's model from features to ids, in float32."""
    import torch
    from funasr import AutoModel

    threads = torch.get_num_threads()
    loaded = AutoModel(model=str(directory), device=device, ncpu=threads, disable_update=True, disable_pbar=True)
    model = loaded.model.eval()
    tensor = torch.from_numpy(features)[None].to(device)
    lengths = torch.tensor([len(features)], device=device)

    def sensevoice() -> list[int]:
        queries = model.embed(torch.tensor([[0, 1, 2, 15]], device=device))
        encoded, counts = model.encoder(torch.cat([queries, tensor], dim=1), lengths + 4)
        path = torch.unique_consecutive(model.ctc.log_softmax(encoded)[0, : counts[0]].argmax(dim=-1))
        return [number for number in path.tolist() if number != 0]

    def paraformer() -> list[int]:
        encoded, counts = model.encode(tensor, lengths)
        embeddings, tokens, *_ = model.calc_predictor(encoded, counts)
        tokens = tokens.round().long()
        scores, _ = model.cal_decoder_with_predictor(encoded, counts, embeddings, tokens)[:2]
        return scores[0, : tokens[0]].argmax(dim=-1).tolist()

    return sensevoice if hasattr(model, "embed") else paraformer


def resident_megabytes() -> float:
    """Returns the largest resident memory of this process (Linux)."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 1024


def main() -> None:
    """Runs the side; arguments: side, checkpoint directory, features (.npy), threads, device, dtype of the products."""
    side, directory, features, threads, device, dtype = sys.argv[1:]
    answers = sys.stdout
    sys.stdout = sys.stderr  # the original package prints while it loads
    import torch

    torch.set_num_threads(int(threads))

    def answer(values: dict[str, Any]) -> None:
        print(json.dumps(values), file=answers, flush=True)

    started = time.perf_counter()
    forward = {"workbench": workbench_forward, "funasr": funasr_forward}[side](
        Path(directory), np.load(features, allow_pickle=False), device, dtype
    )
    torch.set_num_threads(int(threads))
    answer({"load_seconds": time.perf_counter() - started, "loaded_megabytes": resident_megabytes()})
    with torch.inference_mode():
        for _ in sys.stdin:
            started = time.perf_counter()
            ids = forward()
            answer({"seconds": time.perf_counter() - started, "ids": ids, "peak_megabytes": resident_megabytes()})


if __name__ == "__main__":
    main()
