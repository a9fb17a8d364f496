"""Conversations with a SpeechLM on vLLM, all at once against one after another: rows of audio per second.

    python -m benchmarks.speechlm_vllm [--model M] [--conversations N] [--rows N] [--cfg N] [--runs N] [--threads N]

One engine does both, in turns. Each conversation asks for exactly as many rows of audio, drawn at temperature 0.8 with
top-k 20, without the codec, whose work is the same for both. The streams must be equal both ways. With --cfg the
measurement is repeated with guidance, and compared with the one without. It prints medians; exit status 1 if all at
once is below four times the rows per second.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from workbench.conversion.vllm_checkpoint.checkpoint import plan_of
from workbench.conversion.vllm_checkpoint.directory import write_directory
from workbench.core.settings import Settings
from workbench.pipelines.conversation.conversation_session import ConversationSession
from workbench.runtimes.vllm.speechlm import open_session
from workbench.runtimes.vllm.streams.network import engine_steps
from workbench.speech.dialogue import Turn, prompt_parts
from workbench.speech.phases import Kind
from workbench.speech.plan import AnswerPlan

GOAL = 4.0
ALONE, TOGETHER = "one after another", "all at once"
DIGIT_WORDS = ("three", "seven", "one", "nine", "two")
DEMO = Path(__file__).parents[1] / "assets" / "demo-speechlm"


def answer(session: ConversationSession, rows: int, number: int, cfg: float) -> np.ndarray:
    """Returns the rows of one answer [rows, streams]."""
    network: Any = session.network
    turns = [Turn("user", text=f"say {' '.join(DIGIT_WORDS[: 1 + number % len(DIGIT_WORDS)])}")]
    prompt = prompt_parts(turns, network.layout, session.checkpoint.tokenizer.encode, network.context)
    plan = AnswerPlan(
        "audio",
        min_audio_rows=rows,
        max_audio_rows=rows,
        audio_temperature=0.8,
        audio_top_k=20,
        cfg=cfg,
        seed=number,
    )
    steps = engine_steps(network, prompt, plan)
    return np.array([step.ids for step in steps if step.phase is Kind.AUDIO])


def timed(work: Callable[[], list[np.ndarray]]) -> tuple[float, list[np.ndarray]]:
    """Returns (rows per second, the answers)."""
    started = time.perf_counter()
    answers = work()
    return sum(map(len, answers)) / (time.perf_counter() - started), answers


def measure(
    session: ConversationSession, conversations: int, rows: int, runs: int, guidance: Sequence[float]
) -> dict[tuple[str, float], float]:
    """Prints and returns the rows per second of both ways, with each `cfg`."""
    numbers = range(conversations)
    speeds: dict[tuple[str, float], list[float]] = defaultdict(list)
    with ThreadPoolExecutor(conversations) as pool:
        for run in range(runs + 1):
            for cfg in guidance:
                one_answer = partial(answer, session, rows if run else 5, cfg=cfg)
                rate_alone, answers_alone = timed(lambda converse=one_answer: list(map(converse, numbers)))
                rate_together, answers_together = timed(lambda converse=one_answer: list(pool.map(converse, numbers)))
                if not all(map(np.array_equal, answers_alone, answers_together)):
                    raise SystemExit("the answers differ")
                if run:  # the first one compiles
                    speeds[ALONE, cfg].append(rate_alone)
                    speeds[TOGETHER, cfg].append(rate_together)
    for (way, cfg), each in speeds.items():
        runs_of_it = ", ".join(f"{speed:.0f}" for speed in each)
        print(f"{way}, cfg {cfg:g}: {statistics.median(each):.0f} rows/s (runs: {runs_of_it})")
    return {name: statistics.median(each) for name, each in speeds.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=DEMO, help="a checkpoint directory (default: the demo)")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--rows", type=int, default=100, help="of each answer")
    parser.add_argument("--cfg", type=float, default=1.0, help="guidance that is measured as well")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of the engine's computation")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        served = Path(folder) / "served"
        write_directory(plan_of(options.model.resolve(), "speechlm"), served)
        session = open_session(served, options.model.name, Settings(threads=options.threads, kv_gigabytes=0.25))
        try:
            speeds = measure(session, options.conversations, options.rows, options.runs, sorted({1.0, options.cfg}))
        finally:
            session.close()
    ratio = speeds[TOGETHER, 1.0] / speeds[ALONE, 1.0]
    if options.cfg != 1:
        shares = [f"{way} {speeds[way, options.cfg] / speeds[way, 1.0]:.2f}" for way in (ALONE, TOGETHER)]
        print(f"cfg {options.cfg:g}: of the rows per second with cfg 1: {', '.join(shares)}")
    print(f"{options.conversations} at once: {ratio:.1f} times the rows per second (goal {GOAL:g})")
    return 0 if ratio >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
