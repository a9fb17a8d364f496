"""Installs the locked packages into a virtual environment and compiles llama.cpp meanwhile; shows how far it is.

    python .ci/install.py VENV [--torch-index URL] [--llama-index URL]

The environment must exist. An index that cannot be reached is left out: PyPI then has a PyTorch for GPUs, which needs
further packages, and of llama-cpp-python the source only. uv installs the packages, in a quarter of pip's time. Where
it cannot, pip does. This file uses the standard library alone. Exit status 1 where a step fails, with the end of what
it printed; the whole of it is in VENV/log.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BUILD = ROOT / "workbench" / "runtimes" / "gguf" / "graphs"
FLAGS = (BUILD / "llama_cpp.cmake", BUILD / "amx_tile_config.h")  # how llama.cpp is compiled
COMPILED = "llama-cpp-python"
TORCH = "torch"
INSTALLER = "# installer: "  # before it and its version in the lock
# pip's settings of where packages are, and the arguments with which uv is told the same.
SETTINGS = {
    "index-url": "--index-url",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
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
    """One run of an installer: what it is for, its process, its log.

    Args:
        otherwise: what runs instead if the command fails.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        progress: Callable[[str], str],
        otherwise: list[str] | None = None,
        **variables: str,
    ):
        self.name = name
        self.log = log
        self._progress = progress
        self._otherwise = otherwise
        self._environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1", **variables}
        self._start(command)

    def _start(self, command: list[str]) -> None:
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=self._environment)

    def try_otherwise(self) -> str:
        """Starts the other command if the first has failed; returns the last line of the first, else an empty text."""
        if self._otherwise is None or not self.process.poll():
            return ""
        failed = self.log.read_text(encoding="utf-8", errors="replace").strip() or "no output"
        self._start(self._otherwise)
        self._otherwise = None
        return failed.splitlines()[-1]

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
    """Packages found while uv or pip downloads, packages there while it installs."""
    if "Installing collected packages" in text or re.search(r"^Prepared ", text, flags=re.MULTILINE):
        return f"{min(len(list(site.glob('*.dist-info'))), packages)} of {packages} installed"
    if found := len(re.findall(r"^Collecting |^Processing ", text, flags=re.MULTILINE)):
        return f"{found} of {packages} downloaded"
    # uv names the large ones only.
    large, there = (len(re.findall(rf"^ *{word} ", text, flags=re.MULTILINE)) for word in ("Downloading", "Downloaded"))
    return f"{there} of {large} large ones downloaded" if large else ""


def uv_settings(listed: str) -> tuple[list[str], dict[str, str]]:
    """Returns where uv looks for packages: where pip is set to look.

    Args:
        listed: what `pip config list` prints.

    Returns:
        Arguments and environment variables for uv, because uv does not read pip's settings.
    """
    places = ["global.", "install.", ":env:."]  # the last one wins
    values: dict[str, str] = {}
    for place in places:
        for line in listed.splitlines():
            name, _, value = line.partition("=")
            if name.startswith(place):
                values[name.removeprefix(place)] = str(ast.literal_eval(value))
    arguments = [
        argument
        for name, option in SETTINGS.items()
        for each in values.get(name, "").split()
        for argument in (option, each)
    ]
    # Otherwise uv looks for a package only in the first index that has any version of it.
    arguments += ["--index-strategy", "unsafe-best-match"]
    if values.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        arguments.append("--no-index")
    named = {"SSL_CERT_FILE": "cert", "UV_HTTP_TIMEOUT": "default-timeout", "ALL_PROXY": "proxy"}
    return arguments, {variable: values[name] for variable, name in named.items() if values.get(name)}


def uv_command(python: str, logs: Path, installer: str) -> tuple[list[str], dict[str, str]] | None:
    """Installs uv; returns how its command to install begins and its environment variables, or None without uv."""
    log = logs / "uv.log"
    with log.open("wb") as output:
        done = subprocess.run(
            [python, "-m", "pip", "install", "--no-deps", installer], stdout=output, stderr=output, check=False
        )
    if done.returncode:
        print(f"{installer} could not be installed, so pip installs the packages; see {log}", file=sys.stderr)
        return None
    told = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    arguments, variables = uv_settings(told)
    program = str(Path(python).with_name("uv"))
    return [program, "pip", "install", "--python", python, *arguments], variables


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


def loads(python: str, module: str) -> bool:
    """Whether that Python can import the module."""
    return not subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode


def follow(steps: list[Step]) -> None:
    """Shows the state of all steps until they have ended. Raises `SystemExit` where one fails."""
    terminal = sys.stderr.isatty()
    begun = shown = time.monotonic()
    failed = None
    try:
        while failed is None and not all(step.done for step in steps):
            time.sleep(0.5)
            for step in steps:
                if reason := step.try_otherwise():
                    print(f"{step.name}: {reason}\nTrying it with pip instead.", file=sys.stderr)
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

    lock = LOCK.read_text(encoding="utf-8").splitlines()
    lines = [line.split("#")[0].strip() for line in lock]
    [compiled] = [line for line in lines if line.startswith(COMPILED)]
    rest = [line for line in lines if line and line != compiled]
    listed = logs / "packages.txt"
    listed.write_text("\n".join(rest) + "\n", encoding="utf-8")
    [installer] = [line.removeprefix(INSTALLER) for line in lock if line.startswith(INSTALLER)]

    # Not all compiled to bytecode: `IMPORTS` does that for the modules that are imported, a small part of these.
    pip = [python, "-m", "pip"]
    install = [*pip, "install", "--no-compile", "--progress-bar=off"]
    settings = ["-DLLAVA_BUILD=OFF", f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={FLAGS[0]}"]
    wanted = [*reachable(given.torch_index, TORCH), "-r", str(listed)]
    uv, variables = uv_command(python, logs, installer) or (None, {})
    cache = given.venv / "uv"  # beside the packages, so that their files are linked and not copied

    def packages(name: str, log: str, progress: Callable[[str], str], *arguments: str) -> Step:
        """Begins to install packages by uv, or by pip where there is no uv or it fails."""
        by_pip = [*install, *arguments]
        if uv is None:
            return Step(name, by_pip, logs / log, progress)
        by_uv = [*uv, "--cache-dir", str(cache), *arguments]
        return Step(name, by_uv, logs / log, progress, otherwise=by_pip, **variables)

    follow(
        [
            packages(
                "packages", "packages.log", lambda text: packages_progress(text, len(rest), site), "--no-deps", *wanted
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
    if not list(site.glob("torch-*+cpu.dist-info")) and not loads(python, TORCH):
        # PyPI's build. The lock leaves out the packages with its libraries, without which it does not load.
        print("This build of PyTorch is for GPUs. It needs further packages, which take 3 GB.", file=sys.stderr)
        [torch] = [line for line in rest if line.startswith(f"{TORCH}==")]
        follow([packages("PyTorch's packages", "torch.log", lambda _: "downloading", torch)])
    shutil.rmtree(cache, ignore_errors=True)
    [wheel] = wheels.glob("llama_cpp_python-*.whl")
    last = [*install, "--no-deps", "--no-build-isolation", str(wheel), "-e", str(ROOT)]
    follow([Step("the rest", last, logs / "last.log", lambda _: "")])
    told = {"PYTHONDONTWRITEBYTECODE": ""}  # an empty one is as good as none
    follow(
        [
            Step(f"bytecode of {name}", [python, "-c", code], logs / f"{name}.log", importing, **told)
            for name, code in IMPORTS.items()
        ]
    )


if __name__ == "__main__":
    main()
