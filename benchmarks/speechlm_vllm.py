"""Conversations with a SpeechLM on vLLM, all at once against one after another: rows of audio per second.

    python -m benchmarks.speechlm_vllm [--model M] [--conversations N] [--rows N] [--runs N] [--threads N]

One engine does both, in turns. Each conversation asks for exactly as many rows of audio, drawn at temperature 0.8 with
top-k 20, without decoding them to sound, which is the codec's work and the same for both. The streams must be equal
both ways. Medians of the runs; exit status 1 if all at once is below four times the rows per second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.core.settings import Settings
from workbench.pipelines.conversation_session import ConversationSession
from workbench.runtimes.vllm.speechlm import open_session
from workbench.runtimes.vllm.streams.network import engine_steps
from workbench.speech.dialogue import Turn, prompt_parts
from workbench.speech.phases import Kind
from workbench.speech.plan import AnswerPlan

GOAL = 4.0
SAID = ("three", "seven", "one", "nine", "two")
DEMO = Path(__file__).parents[1] / "assets" / "demo-speechlm"


def answer(session: ConversationSession, rows: int, number: int) -> np.ndarray:
    """Returns the rows of one answer [rows, streams]."""
    network: Any = session.network
    turns = [Turn("user", text=f"say {' '.join(SAID[: 1 + number % len(SAID)])}")]
    prompt = prompt_parts(turns, network.layout, session.described.tokenizer.ids, network.context)
    plan = AnswerPlan(
        "audio",
        min_audio_rows=rows,
        max_audio_rows=rows,
        audio_temperature=0.8,
        audio_top_k=20,
        seed=number,
    )
    steps = engine_steps(network, prompt, plan)
    return np.array([step.ids for step in steps if step.phase is Kind.AUDIO])


def timed(work: Callable[[], list[np.ndarray]]) -> tuple[float, list[np.ndarray]]:
    """Returns (rows per second, what was answered)."""
    begun = time.perf_counter()
    found = work()
    return sum(map(len, found)) / (time.perf_counter() - begun), found


def measure(session: ConversationSession, conversations: int, rows: int, runs: int) -> float:
    """Prints the rows per second of both ways; returns how many times faster all at once is."""
    numbers = range(conversations)
    answer(session, 5, 0)  # the first one compiles
    speeds: dict[str, list[float]] = {"one after another": [], "all at once": []}
    with ThreadPoolExecutor(conversations) as pool:
        for _ in range(runs):
            alone, one = timed(lambda: [answer(session, rows, number) for number in numbers])
            together, all_of = timed(lambda: list(pool.map(lambda number: answer(session, rows, number), numbers)))
            if not all(map(np.array_equal, one, all_of)):
                raise SystemExit("the answers differ")
            speeds["one after another"].append(alone)
            speeds["all at once"].append(together)
    middle = {name: statistics.median(each) for name, each in speeds.items()}
    for name, each in speeds.items():
        print(f"{name}: {middle[name]:.0f} rows/s (runs: {', '.join(f'{speed:.0f}' for speed in each)})")
    return middle["all at once"] / middle["one after another"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint directory (default: the demo)")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--rows", type=int, default=100, help="of each answer")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of the engine's computation")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "served"
        write_directory(plan_of(given.model.resolve(), "speechlm"), served)
        session = open_session(served, given.model.name, Settings(threads=given.threads, kv_gigabytes=0.25))
        try:
            ratio = measure(session, given.conversations, given.rows, given.runs)
        finally:
            session.close()
    print(f"{given.conversations} at once: {ratio:.1f} times the rows per second (goal {GOAL:g})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
