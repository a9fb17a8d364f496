"""The page as a Hugging Face Space runs it: in an environment made of requirements.txt and packages.txt alone.

    python -m benchmarks.space FOLDER [--user NAME] [--python python3.11]

It copies the committed files into FOLDER, makes a virtual environment there, installs requirements.txt, and starts
`python app.py` with the variables that a Space sets. Then a client of the page transcribes a sample and runs a parity
of PyTorch and GGUF, and the page ends with SIGTERM. Each step prints its seconds and the largest memory of all its
processes together. A Space has 2 cores, 16 GB and an account without root: `--user` runs all of it as another user,
which only root can. An environment that is complete already is used again, and the page's figures alone are new.

The indexes that requirements.txt names are left out where they do not answer; llama-cpp-python is compiled then. The
page's start is promised within 20 s; exit status 1 where it takes longer, or where the parity fails.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.served import SAMPLES, free_port
from workbench.system.memory import share_bytes

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 20.0  # promised
SPACE = {"SYSTEM": "spaces", "SPACE_ID": "owner/name", "SPACE_HOST": "owner-name.hf.space", "SPACE_TITLE": "name"}
MODEL, SAMPLE = "demo/sensevoice", SAMPLES / "three_seven_one.wav"
INDEX = "--extra-index-url "
LOOK_SECONDS = 0.5  # between two measurements of the memory


def main() -> int:
    """Prints the figures of each step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the copy and the environment are made")
    parser.add_argument("--user", help="account that installs and runs it; by default this one")
    parser.add_argument("--python", default="python3.11", help="the interpreter that the environment is made with")
    options = parser.parse_args()
    space = Space(options.folder.resolve(), options.user)
    space.check_programs()
    space.copy()
    if not space.complete.exists():
        space.install(options.python)
    return space.use()


class Space:
    """A folder that stands for a Space, and the account that it runs in."""

    def __init__(self, folder: Path, user: str | None):
        self.folder, self.user = folder, user
        self.app, self.environment, self.temporary = folder / "app", folder / "environment", folder / "tmp"
        self.complete = self.environment / "complete"
        self.home = Path(pwd.getpwnam(user).pw_dir) if user else Path.home()
        shutil.rmtree(self.temporary, ignore_errors=True)
        for each in (folder, self.temporary):
            each.mkdir(parents=True, exist_ok=True)
            if user:
                shutil.chown(each, user, user)

    def start(self, command: Sequence[str], log: str, **variables: str) -> subprocess.Popen[bytes]:
        """Starts a command in the account, with an environment of its own and of pip's settings."""
        inherited = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        path = os.pathsep.join((str(self.environment / "bin"), "/usr/local/bin", "/usr/bin", "/bin"))
        with (self.folder / log).open("wb") as output:
            return subprocess.Popen(
                command,
                cwd=self.app,
                env={**inherited, "HOME": str(self.home), "PATH": path, "TMPDIR": str(self.temporary), **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **({"user": self.user, "group": self.user, "extra_groups": []} if self.user else {}),
            )

    def check_programs(self) -> None:
        """Prints which packages of packages.txt this machine lacks; a Space installs them as root."""
        names = (ROOT / "packages.txt").read_text().split()
        lacking = [each for each in names if shutil.which(each) is None]
        print(f"packages.txt: {', '.join(names)}" + (f"; NOT HERE: {', '.join(lacking)}" if lacking else ", all here"))

    def copy(self) -> None:
        """Copies the committed files, as an upload to a Space does."""
        shutil.rmtree(self.app, ignore_errors=True)
        self.app.mkdir()
        packed = subprocess.Popen(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(self.app)], stdin=packed.stdout, check=True)
        if self.user:
            subprocess.run(["chown", "-R", f"{self.user}:", str(self.app)], check=True)

    def install(self, python: str) -> None:
        """Creates the environment; prints the seconds and the largest memory of each step."""
        shutil.rmtree(self.environment, ignore_errors=True)
        requirements = self.folder / "requirements.txt"
        requirements.write_text(
            "".join(_reachable((self.app / "requirements.txt").read_text().splitlines(keepends=True)))
        )
        for step, command in (
            ("an empty environment", [python, "-m", "venv", str(self.environment)]),
            ("requirements.txt", [str(self.environment / "bin/pip"), "install", "-r", str(requirements)]),
        ):
            with _measured(step) as measured:
                measured.process = process = self.start(command, "install.log", PIP_PROGRESS_BAR="off")
                process.wait()
            if process.returncode:
                raise SystemExit(f"{step}: {' '.join(command)} failed; see {self.folder / 'install.log'}")
        subprocess.run(["touch", str(self.complete)], check=True)

    def use(self) -> int:
        """Starts the page, requests a transcript and a parity run, and ends it; returns 1 on failure."""
        port, started = free_port(), time.perf_counter()
        python = str(self.environment / "bin/python")
        with _measured("the page, from its start to its end") as measured:
            measured.process = page = self.start(
                [python, "app.py"],
                "page.log",
                GRADIO_SERVER_NAME="0.0.0.0",
                GRADIO_SERVER_PORT=str(port),
                **SPACE,
            )
            try:
                _wait(f"http://127.0.0.1:{port}/", page, self.folder / "page.log")
                took = time.perf_counter() - started
                print(f"first page after {took:.1f} s (promised: {START_SECONDS:g})", flush=True)
                fine = _ask(f"http://127.0.0.1:{port}/")
                print(f"memory now: {_tree_bytes(page) / 1e9:.2f} GB", flush=True)
            finally:
                page.send_signal(signal.SIGTERM)
                status = page.wait(120)
        remaining = sorted(path.name for path in self.temporary.iterdir())
        print(f"SIGTERM: ended with status {status}; left in the temporary folder: {', '.join(remaining) or 'nothing'}")
        written = (self.folder / "page.log").read_text(errors="replace")
        print(f"the page wrote:\n{written}" if "Traceback" in written else "no traceback in what the page wrote")
        return 0 if fine and took <= START_SECONDS and not status and "Traceback" not in written else 1


class _Measured:
    process: subprocess.Popen[bytes] | None = None


@contextmanager
def _measured(label: str) -> Iterator[_Measured]:
    """Prints at the end of the block its seconds, and the largest memory of the process and its children."""
    measured, finished, peak = _Measured(), threading.Event(), 0

    def look() -> None:
        nonlocal peak
        while not finished.wait(LOOK_SECONDS):
            if measured.process is not None:
                peak = max(peak, _tree_bytes(measured.process))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    started = time.perf_counter()
    try:
        yield measured
    finally:
        seconds = time.perf_counter() - started
        finished.set()
        watcher.join()
        print(f"{label}: {seconds:.0f} s, at most {peak / 1e9:.2f} GB at once", flush=True)


def _tree_bytes(process: subprocess.Popen[bytes]) -> int:
    """Returns the memory of a process and its children."""
    with suppress(psutil.Error):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        return sum(share_bytes(each.pid) for each in family)
    return 0


def _reachable(lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a requirements file without the indexes that do not answer."""
    for line in lines:
        if line.startswith(INDEX):
            address = line.removeprefix(INDEX).strip()
            try:
                urllib.request.urlopen(f"{address}/torch/", timeout=10).close()
            except urllib.error.HTTPError:
                pass  # it answers, though not for this package
            except OSError:
                print(f"omitted, as it does not answer here: {address}")
                continue
        yield line


def _wait(address: str, page: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the page answers."""
    while True:
        try:
            with urllib.request.urlopen(address) as answer:
                answer.read()
                return
        except OSError:
            if page.poll() is not None:
                written = log.read_text(errors="replace")
                raise SystemExit(f"the page ended with status {page.returncode}:\n{written}") from None
            time.sleep(0.02)


def _ask(address: str) -> bool:
    """Prints a transcript and the verdict of a parity run; returns whether that is within its limits."""
    from gradio_client import Client, handle_file

    client = Client(address, verbose=False)
    started = time.perf_counter()
    rows: Sequence[Mapping[str, Any]] = client.predict(handle_file(str(SAMPLE)), [MODEL], api_name="/transcribe")
    print(f"transcript after {time.perf_counter() - started:.1f} s: {rows[0]['text']}", flush=True)
    started = time.perf_counter()
    run: Mapping[str, Any] = client.predict(
        audio=handle_file(str(SAMPLE)), model=MODEL, reference="pytorch", candidates=["gguf"], api_name="/compare"
    )
    [outcome] = run["candidates"]
    print(f"parity after {time.perf_counter() - started:.1f} s: {outcome['sentence']}", flush=True)
    return bool(outcome["status"] == "within")


if __name__ == "__main__":
    sys.exit(main())
