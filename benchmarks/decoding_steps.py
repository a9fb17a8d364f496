"""The cost of a trace of decoding steps: seconds and bytes for one step, several and all, beside the prompt's pass.

    python -m benchmarks.decoding_steps --runtimes pytorch,gguf,vllm
    python -m benchmarks.decoding_steps --model demo/fireredasr --audio FILE --beams 3 --runtimes pytorch,gguf

Each trace is computed in a session that is open, and written to a file. `caches` adds the keys and values of all layers
after each step. With `--beams` over 1, the steps are those of all hypotheses of a beam search.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from workbench.registry.registry import Registry

CASES = (
    ("prompt alone", "", "*"),
    ("first", "first", "*"),
    ("10 steps", ",".join(map(str, range(1, 11))), "*"),
    ("all", "all", "*"),
    ("all, caches", "all", "*,llm.layers.*.cache.*"),
)
PROMPT = "Count from one to twenty."
TIMES = 3


def rows(model: str, source: str, runtime: str, tokens: int, beams: int = 1) -> Iterator[tuple[str, ...]]:
    """Yields (runtime, steps, best seconds of some traces, megabytes, stages), a row for each case."""
    options: dict[str, int] = {"max_new_tokens": tokens, "min_new_tokens": tokens}
    options |= {"beam_size": beams} if beams > 1 else {}
    settings = {"vllm": {"dtype": "float32", "kv_gigabytes": 0.1}, "gguf": {"quantization": "f32"}}
    with (
        Registry() as registry,
        registry.open(model, runtime=runtime, threads=1, **settings.get(runtime, {})) as session,
        tempfile.TemporaryDirectory() as folder,
    ):
        place = Path(folder) / "trace.safetensors"
        for name, steps, stages in CASES:
            seconds = []
            for _ in range(TIMES):
                started = time.perf_counter()
                trace = session.trace(source, stages, steps=steps, out=place, **options)
                seconds.append(time.perf_counter() - started)
            size = place.stat().st_size / 1e6
            yield runtime, name, f"{min(seconds):.3f}", f"{size:.2f}", str(len(trace))


def main() -> None:
    """Prints a Markdown table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="demo/qwen3")
    parser.add_argument("--runtimes", default="pytorch,gguf,vllm")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--audio", help="a recording, for a model that hears")
    parser.add_argument("--beams", type=int, default=1)
    options = parser.parse_args()
    print("| runtime | steps | s | MB | stages |\n| --- | --- | --- | --- | --- |")
    for runtime in options.runtimes.split(","):
        for row in rows(options.model, options.audio or PROMPT, runtime, options.tokens, options.beams):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
