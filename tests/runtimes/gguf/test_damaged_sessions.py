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
LONGEST = 10.0  # seconds
# Bytes beyond the peak of the sound file. Thousands of files took at most 40 MB more, which includes what the C library
# keeps of the files before.
MOST_MORE = 64 << 20


class Opener:
    """The process that opens them; made again when a file has ended it."""

    def __init__(self, family: str):
        self.family = family
        self.process: subprocess.Popen[str] | None = None

    def ask(self, path: Path) -> tuple[int, str]:
        """The bytes that were resident at most, and what came of the file: the process's word, `ended` or `hung`."""
        process = self.process or self._started()
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{path}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "begun\n"
        timer = threading.Timer(LONGEST, process.kill)
        timer.start()
        answer = process.stdout.readline()
        hung = not timer.is_alive()
        timer.cancel()
        if answer:
            peak, said = answer.strip().split(" ", 1)
            return int(peak), said
        self.close()
        return 0, "hung" if hung else "ended"

    def _started(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.support.opens_damaged", self.family]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, cwd=ROOT, text=True, **pipes)
        return self.process

    def close(self) -> None:
        """Ends it."""
        if self.process is not None:
            for pipe in (self.process.stdin, self.process.stdout):
                assert pipe is not None
                pipe.close()
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def opener(family: str) -> Iterator[Opener]:
    made = Opener(family)
    try:
        yield made
    finally:
        made.close()


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
    sound, bad = make(tmp_path), tmp_path / "damaged.gguf"
    with opener(family) as asked:
        usual, came = asked.ask(sound)
        assert came == "ran"
        outcomes, peaks = {}, {}
        for name, content in damaged(sound, 200):
            bad.write_bytes(content)
            peaks[name], outcomes[name] = asked.ask(bad)
    counts = Counter(outcome.split()[0] for outcome in outcomes.values())
    wrong = {name: said for name, said in outcomes.items() if not said.startswith(("ran", "refused"))}
    assert not wrong, f"{counts}: {wrong}"
    assert counts["refused"] > 100
    name = max(peaks, key=lambda each: peaks[each])
    assert peaks[name] < usual + MOST_MORE, f"{name}: {size(peaks[name])}, and the sound file {size(usual)}"
    sentences = [said for said in outcomes.values() if said.startswith("refused")]
    assert all(len(said) < 600 and "Traceback" not in said for said in sentences)
