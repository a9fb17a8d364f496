"""A session's process whose model does on demand what models should not; started as `workbench.isolation.worker` is.

The option `do`, or the name of the recording, says what. Nothing heavy is imported, so that it starts in a moment.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from workbench.compare import read_trace
from workbench.core.errors import BadInput, WorkbenchError
from workbench.core.progress import report
from workbench.core.settings import SessionSpec
from workbench.isolation import worker
from workbench.session.values import Event, Generation, Piece, Progress, Segment, Transcript
from workbench.system.forks import SET_DEATH_SIGNAL
from workbench.system.tempdirs import PREFIX
from workbench.trace.trace import Trace

PARTIES = 32  # calls that meet, where they are to
MANY = 20_000  # events; far more than fit between two processes
LARGE = 25_000_000  # float32 values: 100 MB
SCATTERED, SMALL = 64_000_000, 32_000  # bytes


class Unspeakable(WorkbenchError):
    """Cannot be pickled, nor made again from its arguments."""

    def __init__(self, sentence: str, handle: Any):
        super().__init__(sentence)
        self.handle = handle


class FakeSession:
    model = runtime = "fake"
    load_seconds = 0.0

    def __init__(self) -> None:
        self.given = 0  # events of the call `many`
        self.meeting = threading.Barrier(PARTIES)
        self.started: list[int] = []  # processes
        self.log: str | None = None

    def stream(self, audio: Any, do: str = "", **options: Any) -> Generator[Event, None, None]:
        yield Progress(0.0, 1.0, "listening")
        do = do or Path(str(audio)).stem
        self.misbehave(do)
        if do == "many":
            for self.given in range(1, MANY + 1):
                yield Progress(float(self.given), MANY, "counting")
        if do == "large":
            yield Progress(1.0, 1.0, "x" * LARGE)
        text = str(self.given) if do == "report" else str(audio)
        notes = ("this is a note",) if do == "noted" else ()
        yield Transcript("fake", "fake", text, None, (Segment(0.0, 1.0, text),), (), 1.0, 0.0, 0.0, notes=notes)

    def stream_batch(self, audios: Any, **options: Any) -> Generator[tuple[int, Event | BadInput], None, None]:
        for number, audio in enumerate(audios):
            try:
                for event in self.stream(audio, **options):
                    yield number, event
            except BadInput as error:
                yield number, error

    def generate_stream(self, prompt: Any, do: str = "", **options: Any) -> Generator[Piece | Generation, None, None]:
        self.misbehave(do)
        for self.given in range(1, MANY + 1 if do == "many" else 4):
            yield Piece(f"{self.given} ", (self.given,))
        notes = ("this is a note",) if prompt == "noted" else ()
        yield Generation("fake", "fake", str(prompt), (1, 2, 3), 5, "stop", 0.0, 0.0, 0.0, notes=notes)

    def trace(
        self, audio: Any, stages: str = "*", given: Any = None, out: Any = None, do: str = "", **options: Any
    ) -> Trace:
        self.misbehave(do)
        if do == "spawn":
            self.spawn()
        if do == "restart":
            report(0.25, "starting again")
        size = LARGE if do == "large" else 4
        if do == "half":
            Path(f"{out}.partial").write_text("as far as it came")
            os.abort()
        trace = Trace(
            {"encoder.output": np.arange(size, dtype=np.float32)},
            {"audio": str(audio), "pid": os.getpid(), **self.left(), **self.seen(do)},
        )
        return read_trace(trace.save(out)) if out else trace

    def spawn(self) -> None:
        """Starts two processes that never end: a program, and a copy of this process, which has its socket too.

        Leaves shared memory and, where it has a folder of its own for that, a temporary file.
        """
        wait = "import signal; print(flush=True); signal.pause()"
        program = subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE)
        assert program.stdout
        program.stdout.readline()
        ready, done = os.pipe()
        copy = os.fork()
        if copy == 0:
            ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, 0)  # else it ends with this call's thread, which forked it
            os.write(done, b"-")
            signal.pause()
        os.read(ready, 1)
        os.close(ready)
        os.close(done)
        if Path(tempfile.gettempdir()).name.startswith(PREFIX):
            _, named = tempfile.mkstemp()
            Path("/dev/shm", f"{Path(named).name}-more").write_text("shared memory without Python's care")
        self.shared = SharedMemory(create=True, size=1 << 20)  # a file that outlives who made it, if nobody removes it
        self.started += [program.pid, copy]

    def seen(self, do: str) -> dict[str, Any]:
        """What this process finds, if it is asked for that."""
        if do == "print":
            sys.stdout.write("printed to stdout\n")
            sys.stderr.write("printed to stderr\n")
            sys.stdout.flush()
        if do == "random":
            return {"drawn": float(np.random.random())}  # noqa: NPY002 (the numbers that all of the process share)
        return {"cwd": str(Path.cwd()), "environment": dict(os.environ)} if do == "environment" else {}

    def hold(self) -> None:
        """Starts a process with 200 MB."""
        code = "import signal; held = b'x' * (200 << 20); print(flush=True); signal.pause()"
        program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert program.stdout
        program.stdout.readline()
        self.started.append(program.pid)

    def left(self) -> dict[str, Any]:
        """What `spawn` has started and left."""
        shared = getattr(self, "shared", None)
        return {"started": self.started, "folder": tempfile.gettempdir(), "shared": shared.name if shared else None}

    def close(self) -> None:
        """Nothing to free; leaves a file that says that it was called."""
        if self.log:
            Path(self.log).write_text("closed")

    def misbehave(self, do: str) -> None:
        if do == "abort":
            os.abort()
        if do == "exit":
            sys.exit(3)
        if do == "block":
            threading.Event().wait()
        if do == "meet":
            self.meeting.wait()
        if do == "refuse":
            raise BadInput("the fake refuses")
        if do == "unspeakable":
            raise Unspeakable("the fake holds a lock", threading.Lock())
        if do == "fault":
            raise ValueError("first line\nsecond line")
        if do == "memory":
            raise MemoryError
        if do == "hog":
            np.ones(40 * LARGE, np.float32)
        if do == "scatter":
            scatter()
        if do == "unpicklable":
            raise TypeError(lambda: None)


def scatter() -> None:
    """Frees `SCATTERED` bytes in small blocks below a block that stays, so that the C library keeps them."""
    malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    blocks = [malloc(SMALL) for _ in range(SCATTERED // SMALL)]
    for block in blocks:
        ctypes.memset(block, 1, SMALL)
    for block in blocks[:-1]:
        free(block)


class FakeWithLambda(FakeSession):
    def trace(
        self, audio: Any, stages: str = "*", given: Any = None, out: Any = None, do: str = "", **options: Any
    ) -> Any:
        return (lambda: None) if do == "lambda" else super().trace(audio, stages, given, out, do, **options)


def open_fake(spec: SessionSpec) -> FakeSession:
    """Instead of `workbench.isolation.loader.open_alone`; the name of the model may ask for a load that ends badly."""
    name = spec.name.split("-")[0]
    if name == "never":
        threading.Event().wait()
    if name == "abort":
        os.abort()
    if name == "refuse":
        raise BadInput("the fake does not load")
    if name == "stuck":
        report(0.5, "half way")
        threading.Event().wait()
    session = FakeWithLambda()
    if name == "steps":
        for step in range(1, 4):
            report(step / 4, f"step {step}")
    if name == "spawning":
        session.spawn()
    if name.startswith("holding"):
        session.hold()
    if name == "logging":
        session.log = os.environ["FAKE_LOG"]
    return session


if __name__ == "__main__":
    worker.open_alone = open_fake  # type: ignore[assignment]
    worker.CANCEL_SECONDS = 1.0
    worker.IDLE_SECONDS = 0.2
    worker.main()
