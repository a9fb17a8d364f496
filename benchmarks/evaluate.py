"""The gain of two workers over one, and the overhead of an evaluation over a plain loop.

    python -m benchmarks.evaluate [--recordings 600] [--turns 5] [--model M]

The loop opens the same model with one thread in a separate process and gives it the same recordings in the same
batches; it scores and writes nothing. The times exclude loading: an evaluation is measured from its first tenth on. All
three alternate. Times on the clock need two otherwise idle cores, so the quickest turn of each is compared. Processor
times hardly depend on other load: they are those of the session's processes (the work) and of the process that drives
them (the driver). They give the largest gain of two idle cores: twice the work of one worker, divided by the work of
two workers and their driver.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.evaluate_kills import make_corpus
from workbench import Registry, evaluation
from workbench.evaluation.models import choose_models
from workbench.evaluation.schedule import usual_batch

WARM = 0.1  # of the recordings: every worker has loaded by then
MAX_OVERHEAD, MIN_GAIN = 0.10, 1.7


@dataclass(frozen=True)
class Cost:
    """Milliseconds for each recording."""

    clock: float
    work: float  # processor time
    driver: float  # processor time

    @property
    def processor(self) -> float:
        """All processor time."""
        return self.work + self.driver


def _spent(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def loop_cost(recordings: Sequence[str], model: str) -> Cost:
    """Returns the cost of a plain loop for each recording."""
    name, _, rest = model.partition("|")
    runtime, _, quantization = rest.partition("|")
    with Registry() as registry:
        size = usual_batch(choose_models(registry, [model], {}, {})[0])
        settings: dict[str, Any] = {"quantization": quantization} if quantization else {}
        with registry.open(name, runtime or None, threads=1, **settings) as session:
            warm = int(WARM * len(recordings))
            session.transcribe_batch(recordings[:warm])
            children = [each for each in psutil.Process().children() if _spent(each) > 0]
            started, own, work = time.perf_counter(), time.process_time(), sum(map(_spent, children))
            for first in range(warm, len(recordings), size):
                session.transcribe_batch(recordings[first : first + size])
            clock, driver = time.perf_counter() - started, time.process_time() - own
            count = (len(recordings) - warm) / 1000
            return Cost(clock / count, (sum(map(_spent, children)) - work) / count, driver / count)


def run_cost(corpus: Path, out: Path, model: str, workers: int, count: int) -> Cost:
    """Returns what an evaluation costs for each recording."""
    progress: list[tuple[float, float, float]] = []

    def on_progress(share: float, _: str) -> None:
        progress.append((share, time.perf_counter(), time.process_time()))

    evaluation.run(corpus, [model], out, workers=workers, on_progress=on_progress)
    first, last = next(each for each in progress if each[0] > WARM), progress[-1]
    seconds_of_audio = (last[0] - first[0]) * count / 1000
    [key] = [each.key for each in evaluation.read(out).run.models]
    spent = [each.measured["cpu_seconds"] for each in evaluation.read(out).results(key)][int(WARM * count) :]
    return Cost(
        (last[1] - first[1]) / seconds_of_audio, 1000 * statistics.mean(spent), (last[2] - first[2]) / seconds_of_audio
    )


def _met(ok: bool) -> str:
    return "met" if ok else "missed"


def main() -> None:
    """Measures in turns, and prints the results beside the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=int, default=600)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--model", default="demo/sensevoice")
    options = parser.parse_args()
    costs: dict[str, list[Cost]] = {"loop": [], "1 worker": [], "2 workers": []}
    with tempfile.TemporaryDirectory() as folder:
        corpus = make_corpus(Path(folder) / "corpus", options.recordings)
        recordings = sorted(str(path) for path in corpus.parent.glob("*.wav"))
        for turn in range(options.turns):
            costs["loop"].append(loop_cost(recordings, options.model))
            for workers, name in ((1, "1 worker"), (2, "2 workers")):
                out = Path(folder) / f"{turn}-{workers}"
                costs[name].append(run_cost(corpus, out, options.model, workers, options.recordings))
    print(f"{options.model}, {options.recordings} recordings, {options.turns} turns; milliseconds for each recording")
    print(f"{'':10}{'clock, quickest':>17}{'clock, median':>15}{'work':>8}{'driver':>8}   (processor time, medians)")
    best, middle = {}, {}
    for name, samples in costs.items():
        best[name] = min(each.clock for each in samples)
        middle[name] = Cost(
            *(statistics.median(getattr(each, field) for each in samples) for field in Cost.__annotations__)
        )
        each = middle[name]
        print(f"{name:10}{best[name]:17.2f}{each.clock:15.2f}{each.work:8.2f}{each.driver:8.2f}")
    loop, one, two = middle["loop"], middle["1 worker"], middle["2 workers"]
    clock_overhead, processor_overhead = best["1 worker"] / best["loop"] - 1, one.processor / loop.processor - 1
    gain, processor_gain = best["1 worker"] / best["2 workers"], 2 * one.work / two.processor
    print(f"overhead beside the loop, goal {MAX_OVERHEAD:.0%}:")
    print(f"  {clock_overhead:+.1%} on the clock ({_met(clock_overhead < MAX_OVERHEAD)})")
    print(f"  {processor_overhead:+.1%} in processor time ({_met(processor_overhead < MAX_OVERHEAD)})")
    print(f"two workers beside one, goal {MIN_GAIN}:")
    print(f"  {gain:.2f} on the clock ({_met(gain >= MIN_GAIN)})")
    print(f"  {processor_gain:.2f} by processor time ({_met(processor_gain >= MIN_GAIN)})")


if __name__ == "__main__":
    main()
