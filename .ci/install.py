"""Installs the locked packages into a virtual environment and compiles llama.cpp meanwhile; shows how far it is.

    python .ci/install.py VENV [--torch-index URL] [--llama-index URL]

The environment must exist. An index that cannot be reached is left out: PyPI then has a PyTorch for GPUs, and of
llama-cpp-python the source only. It uses the standard library alone. Exit status 1 where a step fails, with the end of
what pip printed; the whole of it is in VENV/log.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BUILD = ROOT / "workbench" / "runtimes" / "gguf"
FLAGS = (BUILD / "llama_cpp.cmake", BUILD / "amx_tile_config.h")  # how llama.cpp is compiled
COMPILED = "llama-cpp-python"
# What the page and the sessions import, so that Python stores its bytecode: without it a first start takes twice as
# long, and every start does where Python is told to store none.
SESSIONS = """
from workbench.prepared.kinds import Kind
from workbench.prepared.process import import_all
print(import_all(Kind({runtime!r}, language=True, parallel={parallel})) or "all imported")
"""
IMPORTS = {
    "page": "import panels.page, panels.serving, workbench.cli.commands",
    "pytorch": SESSIONS.format(runtime="pytorch", parallel=False),
    "gguf": SESSIONS.format(runtime="gguf", parallel=False),
    "vllm": SESSIONS.format(runtime="vllm", parallel=True),
}
SHOW_SECONDS = 15.0  # between two lines where the output is no terminal
FAILURE_LINES = 25


class Step:
    """One run of pip: what it is for, its process, its log."""

    def __init__(self, name: str, command: list[str], log: Path, progress: Callable[[str], str], **variables: str):
        self.name = name
        self.log = log
        self._progress = progress
        with log.open("wb") as output:
            environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1", **variables}
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)

    @property
    def done(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def state(self) -> str:
        """How far it is, in a few words."""
        if self.done:
            return f"{self.name}: {'failed' if self.process.returncode else 'done'}"
        return f"{self.name}: {self._progress(self.log.read_text(encoding='utf-8', errors='replace')) or 'starting'}"


def packages_progress(text: str, packages: int, site: Path) -> str:
    """Packages found while pip downloads, packages there while it installs."""
    if "Installing collected packages" in text:
        return f"{min(len(list(site.glob('*.dist-info'))), packages)} of {packages} installed"
    found = len(re.findall(r"^Collecting |^Processing ", text, flags=re.MULTILINE))
    return f"{found} of {packages} downloaded" if found else ""


def compile_progress(text: str) -> str:
    """Files that ninja has compiled, of how many."""
    steps = re.findall(r"^\s*\[(\d+)/(\d+)\]", text, flags=re.MULTILINE)
    return f"{steps[-1][0]} of {steps[-1][1]} files compiled" if steps else ""


def importing(_: str) -> str:
    """The state of a step that imports modules, which prints nothing meanwhile."""
    return "importing"


def reachable(index: str, package: str) -> list[str]:
    """The arguments for pip that add the index; none where it does not answer, or has no such package."""
    with contextlib.suppress(OSError, ValueError):
        urllib.request.urlopen(f"{index}/{package}/", timeout=5).close()
        return ["--extra-index-url", index]
    return []


def follow(steps: list[Step]) -> None:
    """Shows the state of all steps until they have ended. Raises `SystemExit` where one fails."""
    terminal = sys.stderr.isatty()
    begun = shown = time.monotonic()
    failed = None
    try:
        while failed is None and not all(step.done for step in steps):
            time.sleep(0.5)
            failed = next((step for step in steps if step.done and step.process.returncode), None)
            now = time.monotonic()
            if terminal or now - shown >= SHOW_SECONDS:
                line = f"  {now - begun:3.0f} s  " + "; ".join(step.state() for step in steps)
                print(
                    f"\r\x1b[K{line[:110]}" if terminal else line,
                    end="" if terminal else "\n",
                    file=sys.stderr,
                    flush=True,
                )
                shown = now
        failed = failed or next((step for step in steps if step.process.returncode), None)
    finally:
        for step in steps:
            if not step.done:
                step.process.terminate()
            step.process.wait()
        if terminal:
            print(file=sys.stderr)
    if failed:
        lines = failed.log.read_text(encoding="utf-8", errors="replace").splitlines()
        print(*lines[-FAILURE_LINES:], sep="\n", file=sys.stderr)
        raise SystemExit(f"{failed.name} failed; the whole log is {failed.log}")


def build_cache() -> Path:
    """A folder of pip's own for what is compiled with today's flags: pip would take a wheel of others for the same."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in FLAGS))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "speech-workbench" / "pip" / digest.hexdigest()[:12]


def main() -> None:
    """Installs everything, or ends with the reason."""
    parser = argparse.ArgumentParser(description="Install the locked packages into a virtual environment.")
    parser.add_argument("venv", type=Path)
    parser.add_argument("--torch-index", default="", help="where PyTorch's builds for CPUs are")
    parser.add_argument("--llama-index", default="", help="where compiled llama-cpp-python is")
    given = parser.parse_args()
    python = str(given.venv / "bin" / "python")
    logs = given.venv / "log"
    logs.mkdir(exist_ok=True)
    wheels = given.venv / "wheels"
    [site] = (given.venv / "lib").glob("python3*/site-packages")

    lines = [line.split("#")[0].strip() for line in LOCK.read_text(encoding="utf-8").splitlines()]
    [compiled] = [line for line in lines if line.startswith(COMPILED)]
    rest = [line for line in lines if line and line != compiled]
    listed = logs / "packages.txt"
    listed.write_text("\n".join(rest) + "\n", encoding="utf-8")

    # Not all compiled to bytecode: `IMPORTS` does that for the modules that are imported, a small part of these.
    pip = [python, "-m", "pip"]
    install = [*pip, "install", "--no-deps", "--no-compile", "--progress-bar=off"]
    settings = ["-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={FLAGS[0]}"]
    follow(
        [
            Step(
                "packages",
                [*install, *reachable(given.torch_index, "torch"), "-r", str(listed)],
                logs / "packages.log",
                lambda text: packages_progress(text, len(rest), site),
            ),
            Step(
                "llama.cpp",
                [*pip, "wheel", "-v", "--no-deps", "--cache-dir", str(build_cache()), "--wheel-dir", str(wheels)]
                + [*reachable(given.llama_index, COMPILED), compiled],
                logs / "llama.log",
                compile_progress,
                CMAKE_ARGS=" ".join([os.environ.get("CMAKE_ARGS", ""), *map(shlex.quote, settings)]).strip(),
            ),
        ]
    )
    [wheel] = wheels.glob("llama_cpp_python-*.whl")
    last = logs / "last.log"
    follow([Step("the rest", [*install, "--no-build-isolation", str(wheel), "-e", str(ROOT)], last, lambda _: "")])
    told = {"PYTHONDONTWRITEBYTECODE": ""}  # an empty one is as good as none
    follow(
        [
            Step(f"bytecode of {name}", [python, "-c", code], logs / f"{name}.log", importing, **told)
            for name, code in IMPORTS.items()
        ]
    )


if __name__ == "__main__":
    main()
