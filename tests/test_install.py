"""The installer of the environment: package indexes, progress, fallbacks, failures and missing programs."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / ".ci" / "install.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def index() -> Iterator[str]:
    """An index of packages on this machine that has one package."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/whl/torch/" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/whl"
    server.shutdown()
    server.server_close()
    thread.join()


def test_package_index_is_used_only_for_packages_that_it_has(install: ModuleType, index: str) -> None:
    assert install.reachable(index, "torch") == ["--extra-index-url", index]
    assert install.reachable(index, "llama-cpp-python") == []


def test_unreachable_package_index_is_not_used(install: ModuleType, index: str) -> None:
    assert install.reachable("", "torch") == [] and install.reachable("no address", "torch") == []
    assert install.reachable("http://127.0.0.1:1", "torch") == []


def test_progress_is_read_from_the_output_of_pip_and_ninja(install: ModuleType, tmp_path: Path) -> None:
    assert install.packages_progress("", 3, tmp_path) == "" and install.compile_progress("Preparing metadata") == ""
    text = "Collecting a\n  Downloading a.whl\nCollecting b\n"
    assert install.packages_progress(text, 3, tmp_path) == "2 of 3 downloaded"
    (tmp_path / "a-1.dist-info").mkdir()
    text += "Installing collected packages: a, b\n"
    assert install.packages_progress(text, 3, tmp_path) == "1 of 3 installed"
    assert install.compile_progress("  [1/83] one\n  [12/83] two\n") == "12 of 83 files compiled"


def test_progress_is_read_from_the_output_of_uv(install: ModuleType, tmp_path: Path) -> None:
    text = "Resolved 3 packages in 5ms\nDownloading torch (180.1MiB)\nDownloading vllm (90.0MiB)\n"
    assert install.packages_progress(text, 3, tmp_path) == "0 of 2 large ones downloaded"
    text += " Downloaded vllm\n"
    assert install.packages_progress(text, 3, tmp_path) == "1 of 2 large ones downloaded"
    assert install.packages_progress(text + "Prepared 3 packages in 9s\n", 3, tmp_path) == "0 of 3 installed"


def test_pip_settings_are_translated_for_uv(install: ModuleType) -> None:
    """In the order of pip: a variable of the environment wins over what is set for all commands."""
    listed = "\n".join(
        [
            ":env:.index-url='https://mirror/simple'",
            ":env:.default-timeout='180'",
            "global.index-url='https://other/simple'",
            "global.cert='/certificates.crt'",
            "global.extra-index-url='file:///a file:///b'",
            "global.find-links='\\n/wheels'",
            "global.no-index='false'",
        ]
    )
    arguments, variables = install.uv_settings(listed)
    assert arguments == [
        *("--index-url", "https://mirror/simple"),
        *("--extra-index-url", "file:///a", "--extra-index-url", "file:///b"),
        *("--find-links", "/wheels"),
        *("--index-strategy", "unsafe-best-match"),
    ]
    assert variables == {"SSL_CERT_FILE": "/certificates.crt", "UV_HTTP_TIMEOUT": "180"}
    assert install.uv_settings("") == (["--index-strategy", "unsafe-best-match"], {})
    assert install.uv_settings("install.no-index='1'")[0][-1] == "--no-index"


def test_pip_is_used_when_uv_cannot_be_installed(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install.uv_command(sys.executable, tmp_path, f"{tmp_path}/no-such-uv") is None
    assert "could not be installed, so pip installs" in capsys.readouterr().err
    assert (tmp_path / "uv.log").read_text()


def test_failed_step_runs_its_alternative_command(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fails, works = ("raise SystemExit('no way')", f"open({str(tmp_path / 'done')!r}, 'w')")
    step = install.Step(
        "it",
        [sys.executable, "-c", fails],
        tmp_path / "it.log",
        lambda text: "",
        otherwise=[sys.executable, "-c", works],
    )
    install.follow([step])
    assert "it: no way\nTrying it with pip instead." in capsys.readouterr().err and (tmp_path / "done").exists()


def run(install: ModuleType, tmp_path: Path, code: str) -> object:
    return install.Step("it", [sys.executable, "-c", code], tmp_path / "it.log", lambda text: "")


def test_failed_step_prints_the_end_of_its_log_and_stops_other_steps(
    install: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = install.Step(
        "other",
        [sys.executable, "-c", "import time; time.sleep(600)"],
        tmp_path / "other.log",
        lambda text: "",
        PYTHONDEVMODE="0",
    )
    failing = run(install, tmp_path, "print(*range(100), sep='\\n'); raise SystemExit('no compiler')")
    with pytest.raises(SystemExit, match=r"it failed; the whole log is .*it\.log"):
        install.follow([failing, other])
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "no compiler" and len(lines) <= install.FAILURE_LINES + 1
    assert other.process.returncode is not None


def test_build_cache_depends_on_the_compiler_flags(
    install: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = install.build_cache()
    changed = tmp_path / "llama_cpp.cmake"
    changed.write_text("# other flags\n")
    monkeypatch.setattr(install, "FLAGS", (changed, install.FLAGS[1]))
    assert install.build_cache() != before and install.build_cache().is_relative_to(tmp_path)


@pytest.mark.parametrize(("there", "missing"), [("chromium", "flite"), ("", "chromium-headless-shell flite")])
def test_installed_chromium_replaces_the_headless_shell_for_non_root_users(
    tmp_path: Path, there: str, missing: str
) -> None:
    for name in ("ffmpeg", "espeak-ng", *there.split()):
        (tmp_path / name).symlink_to("/bin/true")
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    make = shutil.which("make")
    if make is None:
        pytest.skip("needs make")
    words = [make, "--silent", "programs", "PYTHON=none", "VENV=none"]
    said = subprocess.run(
        words, cwd=ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60, check=True
    ).stderr
    assert f"Missing for the tests: {missing}. " in said, said


def test_modules_that_load_are_told_from_those_that_do_not(install: ModuleType) -> None:
    assert install.loads(sys.executable, "json")
    assert not install.loads(sys.executable, "no_such_module")
