"""Two hundred damaged files of each kind are opened and used: each gives a one-line error, or runs.

They run in a separate process, as sessions do. No file may take longer than ten seconds, end the process, or use much
more memory than the undamaged file.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import speechlm_gguf
from tests.support.damaged_gguf import damaged
from tests.support.tiny_checkpoints import tiny_paraformer, tiny_sensevoice
from tests.support.tiny_gguf import tiny_gguf
from tests.support.tiny_speechlm import tiny_speechlm
from workbench.conversion import paraformer, sensevoice, writer
from workbench.system.memory import size

ROOT = Path(__file__).resolve().parents[3]
MAX_SECONDS = 10.0
# Bytes beyond the peak of the intact file. Thousands of files took at most 40 MB more, which includes memory of earlier
# files that the C library does not free.
MAX_EXTRA_BYTES = 64 << 20


class Opener:
    """A process that opens model files; after a file that ends it, the next one starts it again."""

    def __init__(self, family: str):
        self.family = family
        self.process: subprocess.Popen[str] | None = None

    def use(self, path: Path) -> tuple[int, str]:
        """The peak of resident bytes, and the outcome: the process's answer about the file, `ended` or `hung`."""
        process = self.process or self._start()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n"
        timer = threading.Timer(MAX_SECONDS, process.kill)
        timer.start()
        answer = process.stdout.readline()
        hung = not timer.is_alive()
        timer.cancel()
        if answer:
            peak, outcome = answer.strip().split(" ", 1)
            return int(peak), outcome
        self.close()
        return 0, "hung" if hung else "ended"

    def _start(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.opens_damaged", self.family]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        return self.process

    def close(self) -> None:
        """Ends the process."""
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                pipe.close()
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def opener(family: str) -> Iterator[Opener]:
    process = Opener(family)
    try:
        yield process
    finally:
        process.close()


def sensevoice_file(folder: Path) -> Path:
    return writer.write(sensevoice.plans(tiny_sensevoice(folder / "it"), "workbench"), "f16", folder / "it.gguf")[0]


def paraformer_file(folder: Path) -> Path:
    return writer.write(paraformer.plans(tiny_paraformer(folder / "it"), "funasr"), "f32", folder / "it.gguf")[0]


def language_file(folder: Path) -> Path:
    tiny_gguf(folder / "it.gguf")
    return folder / "it.gguf"


def speechlm_file(folder: Path) -> Path:
    return speechlm_gguf.speechlm_file(tiny_speechlm(folder / "it").directory)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "make"),
    [
        ("sensevoice", sensevoice_file),
        ("paraformer", paraformer_file),
        ("causal_lm", language_file),
        ("speechlm", speechlm_file),
    ],
)
def test_damaged_files_are_refused_or_run_without_crash_hang_or_excess_memory(
    family: str, make: Callable[[Path], Path], tmp_path: Path
) -> None:
    intact, damaged_file = make(tmp_path), tmp_path / "damaged.gguf"
    with opener(family) as process:
        usual_peak, outcome = process.use(intact)
        assert outcome == "ran"
        outcomes, peaks = {}, {}
        for name, content in damaged(intact, 200):
            damaged_file.write_bytes(content)
            peaks[name], outcomes[name] = process.use(damaged_file)
    counts = Counter(outcome.split()[0] for outcome in outcomes.values())
    failures = {name: outcome for name, outcome in outcomes.items() if not outcome.startswith(("ran", "refused"))}
    assert not failures, f"{counts}: {failures}"
    assert counts["refused"] > 100
    name = max(peaks, key=lambda each: peaks[each])
    assert peaks[name] < usual_peak + MAX_EXTRA_BYTES, (
        f"{name}: {size(peaks[name])}, and the intact file {size(usual_peak)}"
    )
    sentences = [outcome for outcome in outcomes.values() if outcome.startswith("refused")]
    assert all(len(sentence) < 600 and "Traceback" not in sentence for sentence in sentences)
