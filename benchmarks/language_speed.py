"""This project's decoding loop on llama.cpp against llama-cpp-python's own `Llama`: tokens per second on the same GGUF
file.

    python -m benchmarks.language_speed [--file F | --size small|0.6b] [--type f16 --type q8_0] [--runs N]

Both sides load the file in one process and alternate with greedy decoding on the same prompt, with the same number of
threads and an f16 KV cache; no token ends a text. It prints the medians and the median of the ratios of consecutive
runs. Exit status 1 if that is below the goal of 0.95, or if the ids differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from workbench.decoding.generation import Decoding
from workbench.formats.gguf_file import read_gguf
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language

GOAL = 0.95
SIZES = {  # hidden, layers, units, heads, key heads, width, vocabulary; the second as published for Qwen3-0.6B
    "small": (768, 12, 3072, 12, 4, 64, 32_000),
    "0.6b": (1024, 28, 3072, 16, 8, 128, 151_936),
}


def write_random(size: str, kind: str, path: Path) -> None:
    """Writes a Qwen3 file with random weights, with matrices of the type `kind`, and an invented vocabulary."""
    import gguf

    hidden, layers, units, heads, key_heads, width, vocabulary = SIZES[size]
    stored = gguf.GGMLQuantizationType[kind.upper()]
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(4096)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(units)
    writer.add_head_count(heads)
    writer.add_head_count_kv(key_heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"t{number}" for number in range(vocabulary)])
    writer.add_token_types([gguf.TokenType.NORMAL] * vocabulary)
    writer.add_token_merges(["t 1"])  # an empty list would be refused
    writer.add_eos_token_id(vocabulary - 1)
    draw = np.random.default_rng(1)

    def matrix(name: str, rows: int, columns: int) -> None:
        values = draw.standard_normal((rows, columns), dtype=np.float32) * np.float32(columns**-0.5)
        writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)

    def ones(name: str, count: int) -> None:
        writer.add_tensor(name, np.ones(count, dtype=np.float32))

    matrix("token_embd.weight", vocabulary, hidden)
    ones("output_norm.weight", hidden)
    for layer in range(layers):
        at = f"blk.{layer}."
        ones(f"{at}attn_norm.weight", hidden)
        matrix(f"{at}attn_q.weight", heads * width, hidden)
        matrix(f"{at}attn_k.weight", key_heads * width, hidden)
        matrix(f"{at}attn_v.weight", key_heads * width, hidden)
        ones(f"{at}attn_q_norm.weight", width)
        ones(f"{at}attn_k_norm.weight", width)
        matrix(f"{at}attn_output.weight", hidden, heads * width)
        ones(f"{at}ffn_norm.weight", hidden)
        matrix(f"{at}ffn_gate.weight", units, hidden)
        matrix(f"{at}ffn_up.weight", units, hidden)
        matrix(f"{at}ffn_down.weight", hidden, units)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run_workbench(language: LanguageModel, prompt: list[int], tokens: int) -> tuple[float, float, list[int]]:
    """Returns seconds until the first token, seconds in all, and the ids."""
    started, first, ids = time.perf_counter(), 0.0, list[int]()
    for step in language.generate(language.prompt([prompt]), Decoding((), max_new_tokens=tokens)):
        first = first or time.perf_counter() - started
        ids.append(int(step[0]))
    return first, time.perf_counter() - started, ids


def run_llama(llama: Any, prompt: list[int], tokens: int) -> tuple[float, float, list[int]]:
    """Returns the same as `run_workbench`, with llama-cpp-python's `generate`."""
    started, first, ids = time.perf_counter(), 0.0, list[int]()
    for token in llama.generate(prompt, temp=0.0, repeat_penalty=1.0, reset=True):
        first = first or time.perf_counter() - started
        ids.append(int(token))
        if len(ids) == tokens:
            break
    seconds = time.perf_counter() - started
    llama.reset()  # makes the next run read its prompt again
    return first, seconds, ids


@contextmanager
def both(path: Path, options: argparse.Namespace) -> Iterator[tuple[LanguageModel, Any]]:
    """Yields the file's model in each side's program."""
    from llama_cpp import Llama

    llama = Llama(
        str(path),
        n_ctx=options.prompt + options.tokens + 8,
        n_batch=512,
        n_threads=options.threads,
        n_threads_batch=options.threads,
        flash_attn=True,
        verbose=False,
    )
    file = read_gguf(path)
    language = open_language(file, language_config(file), options.threads, "f16")
    try:
        yield language, llama
    finally:
        language.close()
        llama.close()


def measure(path: Path, options: argparse.Namespace) -> bool:
    """Runs both sides alternately and prints the results; returns whether the goal is met."""
    with both(path, options) as (language, llama):
        draw = np.random.default_rng(1)
        rates: dict[str, list[float]] = {"workbench": [], "Llama": []}
        firsts: dict[str, list[float]] = {"workbench": [], "Llama": []}
        same = True
        for turn in range(options.runs + 1):
            prompt = draw.integers(0, language.config.vocabulary, options.prompt).tolist()
            ids: dict[str, list[int]] = {}
            for side in ("workbench", "Llama") if turn % 2 else ("Llama", "workbench"):
                run, model = (run_workbench, language) if side == "workbench" else (run_llama, llama)
                first, seconds, ids[side] = run(model, prompt, options.tokens)
                if turn:  # the first warms up
                    rates[side].append(options.tokens / seconds)
                    firsts[side].append(first)
            same = same and ids["workbench"] == ids["Llama"]
    print(
        f"## {path.name}, {path.stat().st_size / 1e6:.0f} MB, prompts of {options.prompt} tokens, {options.tokens} new "
        f"tokens, {options.threads} threads, {options.runs} runs"
    )
    for side, speeds in rates.items():
        print(
            f"{side:13}{statistics.median(speeds):8.1f} tokens/s ({min(speeds):.1f} to {max(speeds):.1f}), first token "
            f"after {statistics.median(firsts[side]):.3f} s"
        )
    ratio = statistics.median(a / b for a, b in zip(rates["workbench"], rates["Llama"], strict=True))
    print(f"ratio        {ratio:8.2f} (median of {options.runs} pairs; goal: at least {GOAL})")
    print(f"ids equal    {'yes' if same else 'no':>8}", flush=True)
    return ratio >= GOAL and same


def main() -> int:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a language model's GGUF file (default: random weights)")
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="of the random weights")
    parser.add_argument("--type", action="append", help="of the random weights, several times; f16 and q8_0 if none")
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--tokens", type=int, default=128, help="to generate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    if options.file:
        return 0 if measure(options.file, options) else 1
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as folder:
        met = []
        for kind in options.type or ("f16", "q8_0"):
            path = Path(folder) / f"{options.size}-{kind}.gguf"
            write_random(options.size, kind, path)
            met.append(measure(path, options))
            path.unlink()
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
