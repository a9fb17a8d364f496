"""This project's decoding loop against `transformers.generate`: tokens per second on the same weights, type and
machine.

    python -m benchmarks.generate [--directory D | --size small|0.6b] [--dtype T] [--batch B] [--runs N]

Both sides use one loaded network and alternate with greedy decoding on the same prompts; no token ends a text. It
prints the medians, their ratio (goal: at least 0.9) and the time until the first token. Exit status 1 below the goal,
or if the ids differ.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from workbench.decoding.generation import Decoding
from workbench.embeddings.merge import Merged
from workbench.families.language.directory import read_language_config
from workbench.runtimes.pytorch.language_models.language import TORCH_DTYPES, LanguageModel, open_language

GOAL = 0.9
SIZES = {  # random weights; the second has the published dimensions of Qwen3-0.6B
    "small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 8, "vocab_size": 32_000},
    "0.6b": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "vocab_size": 151_936},
}
HEADS = {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True}


def write_random(size: str, directory: Path, dtype: str) -> None:
    """Writes a Qwen3 directory without tokenizer."""
    import transformers

    config = transformers.AutoConfig.for_model(
        "qwen3", **{**HEADS, "max_position_embeddings": 40_960, "rope_parameters": None, **SIZES[size]}
    )
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_config(config, dtype=TORCH_DTYPES[dtype])
    network.save_pretrained(directory)


def run_workbench(
    language: LanguageModel, prompt: Merged[torch.Tensor], tokens: int
) -> tuple[float, float, np.ndarray]:
    """Returns seconds to the first token, total seconds, and the ids [batch, tokens]."""
    started = time.perf_counter()
    steps, first = [], 0.0
    for step in language.generate(prompt, Decoding((), max_new_tokens=tokens)):
        first = first or time.perf_counter() - started
        steps.append(step)
    return first, time.perf_counter() - started, np.stack(steps, axis=1)


def run_transformers(language: LanguageModel, prompt: Merged[torch.Tensor], tokens: int) -> tuple[float, np.ndarray]:
    """Returns total seconds, and the ids [batch, tokens]."""
    mask = torch.from_numpy(prompt.attention_mask.astype(np.int64)).to(language.device)
    inputs: dict[str, Any] = {"inputs_embeds": prompt.embeddings, "attention_mask": mask}
    started = time.perf_counter()
    output = language.network.generate(
        **inputs, max_new_tokens=tokens, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return time.perf_counter() - started, output.cpu().numpy()


def measure(directory: Path, options: argparse.Namespace) -> bool:
    """Runs both sides alternately and prints the results; returns whether the goal is met."""
    config = read_language_config(directory)
    language = open_language(config, torch.device(options.device), options.dtype)
    draw = np.random.default_rng(1)
    lengths = (
        draw.integers(options.prompt // 2, options.prompt + 1, options.batch) if options.batch > 1 else [options.prompt]
    )
    prompt = language.prompt([draw.integers(0, config.vocabulary, length).tolist() for length in lengths])
    rates: dict[str, list[float]] = {"workbench": [], "transformers": []}
    firsts: dict[str, list[float]] = {"workbench": [], "transformers": []}
    same = True
    for turn in range(options.runs + 1):
        ids: dict[str, np.ndarray] = {}
        for side in ("workbench", "transformers") if turn % 2 else ("transformers", "workbench"):
            if side == "workbench":
                first, seconds, ids[side] = run_workbench(language, prompt, options.tokens)
            else:
                first, _ = run_transformers(language, prompt, 1)
                seconds, ids[side] = run_transformers(language, prompt, options.tokens)
            if turn:  # the first warms up
                rates[side].append(options.tokens * options.batch / seconds)
                firsts[side].append(first)
        same = same and np.array_equal(ids["workbench"], ids["transformers"])
    parameters = sum(parameter.numel() for parameter in language.network.parameters())
    print(
        f"## {parameters / 1e6:.0f} M parameters, {options.dtype}, batch {options.batch}, prompts of at most "
        f"{options.prompt} tokens, {options.tokens} new tokens, {options.threads} threads, {options.runs} runs"
    )
    for side, speeds in rates.items():
        first = statistics.median(firsts[side])
        median = statistics.median(speeds)
        print(
            f"{side:13}{median:8.1f} tokens/s ({min(speeds):.1f} to {max(speeds):.1f}), first token after {first:.3f} s"
        )
    # Ratios of consecutive runs, as other work on the machine varies.
    pairs = [a / b for a, b in zip(rates["workbench"], rates["transformers"], strict=True)]
    ratio = statistics.median(pairs)
    print(f"ratio        {ratio:8.2f} (median of {options.runs} pairs; goal: at least {GOAL})")
    print(f"ids equal    {'yes' if same else 'no':>8}")
    return ratio >= GOAL and same


def main() -> int:
    """Parses the arguments and measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="a language model's directory (default: random weights)")
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="of the random weights")
    parser.add_argument("--dtype", choices=tuple(TORCH_DTYPES), default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--tokens", type=int, default=128, help="to generate")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.directory:
        return 0 if measure(options.directory, options) else 1
    with tempfile.TemporaryDirectory(prefix="workbench-benchmark-") as folder:
        write_random(options.size, Path(folder), options.dtype)
        return 0 if measure(Path(folder), options) else 1


if __name__ == "__main__":
    sys.exit(main())
