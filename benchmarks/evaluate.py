"""How much more two workers compute than one, and what an evaluation costs beside a plain loop.

    python -m benchmarks.evaluate [--recordings 2000] [--model M]

The loop opens the same model with one thread in a process of its own and gives it the same recordings in the same
batches; it scores and writes nothing. Loading is left out: times are between the first and the last result. Run it on
an idle machine with two cores or more.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.evaluate_kills import make_corpus
from workbench import Registry, evaluation
from workbench.evaluation.models import choose_models
from workbench.evaluation.schedule import usual_batch


def loop_seconds(recordings: Sequence[str], model: str) -> float:
    """How long a plain loop takes."""
    name, _, rest = model.partition("|")
    runtime, _, quantization = rest.partition("|")
    with Registry() as registry:
        size = usual_batch(choose_models(registry, [model], {}, {})[0])
        how = {"quantization": quantization} if quantization else {}
        with registry.open(name, runtime or None, threads=1, **how) as session:
            session.transcribe(recordings[0])
            begun = time.perf_counter()
            for first in range(0, len(recordings), size):
                session.transcribe_batch(recordings[first : first + size])
            return time.perf_counter() - begun


def run_seconds(corpus: Path, out: Path, model: str, workers: int) -> float:
    """How long an evaluation takes for all recordings but those that come while workers load."""
    seen: list[tuple[float, float]] = []
    evaluation.run(
        corpus, [model], out, workers=workers, on_progress=lambda share, _: seen.append((time.perf_counter(), share))
    )
    begun = next(each for each in seen if each[1] > 0.1)  # every worker has loaded by then
    ended = seen[-1]
    return (ended[0] - begun[0]) / (ended[1] - begun[1])


def main() -> None:
    """Measures and prints one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=2000)
    parser.add_argument("--model", default="demo/sensevoice")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder) / "corpus", parsed.recordings)
        recordings = sorted(str(path) for path in corpus.parent.glob("*.wav"))
        loop = loop_seconds(recordings, parsed.model)
        one = run_seconds(corpus, Path(folder) / "one", parsed.model, 1)
        two = run_seconds(corpus, Path(folder) / "two", parsed.model, 2)
    print(
        f"{parsed.recordings} recordings, {parsed.model}: plain loop {loop:.1f} s; 1 worker {one:.1f} s "
        f"({one / loop - 1:+.1%}); 2 workers {two:.1f} s ({one / two:.2f} times as fast as one)"
    )


if __name__ == "__main__":
    main()
