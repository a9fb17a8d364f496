"""Every test has its own user folders and no network; quick tests run first; no process may outlive the run."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import certifi
import hypothesis
import psutil
import pytest
from threadpoolctl import threadpool_limits

from panels.running.gradio_import import import_gradio
from tests.support.browser import chromium
from workbench.prepared.kinds import Kind
from workbench.prepared.pool import PREPARED, SWITCH, PreparedProcesses
from workbench.registry.registry import Registry

__all__ = ["chromium"]  # one browser for all tests that need it

MARK = "WORKBENCH_TEST_RUN"  # an environment variable that every process started by this run inherits
SHARED_CACHE = "WORKBENCH_TEST_CACHE"  # an environment variable with the folder of what tests share
LATE = ("slow", "reference", "browser")
GRACE_SECONDS = 5.0  # a process that was told to end has this long
SURVIVORS = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported that reads these variables once."""
    os.environ[MARK] = uuid.uuid4().hex
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "True"  # as Gradio says it
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    # PyTorch's products in bfloat16 (of oneDNN and MKL) would take the matrix units from ggml's, which one process of
    # tests runs too.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX512")
    # As the first use of ggml sets it: prepared processes of another environment would have to import anew.
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")
    os.environ[SWITCH] = "0"  # programs that tests start open one session or none
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell that put the tests into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # programs that they start inherit what is ignored
    if "PYTEST_XDIST_WORKER" not in os.environ:  # processes that start later inherit it
        _share_caches(config)
    _take_one_core()
    if "PYTEST_XDIST_WORKER" in os.environ:  # it runs tests of the page
        import_gradio()
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # files run in the order that this file gives them
    PREPARED.use()
    # On a busy machine a deadline would fail whichever example is unlucky; pytest-timeout guards against hanging.
    hypothesis.settings.register_profile("workbench", deadline=None)
    hypothesis.settings.load_profile("workbench")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The command says `--dist loadfile`; files with the same heavy import stay together as well."""
    if config.getvalue("dist") != "loadfile":
        return None
    from tests.support.scheduling import ByFileAndImport

    return ByFileAndImport(config, log)


def _share_caches(config: pytest.Config) -> None:
    """Creates one folder for the caches that all tests share; the end of the run removes it.

    It holds matplotlib's list of fonts and vLLM's notes of each model class. Without these notes each engine imports
    vLLM in one more process. Fixtures of whole modules store their converted models there too.
    """
    folder = tempfile.mkdtemp(prefix="workbench-tests-")
    config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
    os.environ["MPLCONFIGDIR"] = f"{folder}/matplotlib"
    os.environ["VLLM_CACHE_ROOT"] = f"{folder}/vllm"
    os.environ["VLLM_RPC_BASE_PATH"] = folder  # an engine that is killed leaves its sockets there
    os.environ["SSL_CERT_FILE"] = _one_authority(folder)
    os.environ[SHARED_CACHE] = os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"


def _one_authority(folder: str) -> str:
    """Writes the first of certifi's certificate authorities into the folder; returns the file.

    Each client of httpx reads all authorities, which takes 0.03 s. Tests need none: they
    reach no other machine.
    """
    end = "-----END CERTIFICATE-----\n"
    first, _, _ = Path(certifi.where()).read_text(encoding="utf-8").partition(end)
    authority = Path(folder) / "authority.pem"
    authority.write_text(first + end, encoding="utf-8")
    return str(authority)


def _take_one_core() -> None:
    """Binds this process and those that it starts to one core, if several processes run tests.

    Otherwise each process computes with one thread per core, and these threads wait for each other: two vLLM engines
    that started side by side took 150 s; one alone takes 25 s. NumPy has counted the cores before, at its import.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    if worker and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(worker) % len(cores)]})
        threadpool_limits(1, "blas")


def pytest_collection_finish() -> None:
    """The collector leaves alone what the imports have made: to look through it takes a second each time.

    Where several processes run tests, each prepares the process that forks most sessions and conversions.
    """
    gc.collect()
    gc.freeze()
    if "PYTEST_XDIST_WORKER" in os.environ:
        PREPARED.start([Kind("pytorch", language=True)])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Quick tests first, then the slow ones, the comparisons and the browser.

    Where several processes run tests, the files with the most slow tests come first, as a file is never divided: a long
    one at the end would keep one process waiting for the other.
    """

    def lateness(item: pytest.Item) -> int:
        return max((n for n, mark in enumerate(LATE, 1) if item.get_closest_marker(mark)), default=0)

    items.sort(key=lateness)
    if "PYTEST_XDIST_WORKER" in os.environ:
        slow = Counter(item.path for item in items if lateness(item))
        items.sort(key=lambda item: (-slow[item.path], item.path))  # the tests of a file stay together


@pytest.fixture(autouse=True)
def user_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The configuration, cache and download folders of a user who has none yet."""
    home = tmp_path_factory.getbasetemp() / f"user-{uuid.uuid4().hex[:12]}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))  # one for all would be emptied by whoever ends first
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))  # of converted models
        patch.setenv("HF_HUB_CACHE", str(home / "hub"))  # for child processes
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))  # read once, at import
        for name in ("WORKBENCH_MODELS", "WORKBENCH_MEMORY_GB"):
            patch.delenv(name, raising=False)
        PREPARED.use()  # a test may have turned them off
        # They serve the whole run. A test whose memory is short would end them, and others would import again.
        patch.setattr("workbench.registry.budget.PREPARED", PreparedProcesses())
        yield home


@pytest.fixture
def shared_cache(user_folders: Path) -> Iterator[None]:
    """The test shares its converted models with the other tests of the run.

    It is for tests of whole demo models that do not check whether or where a model is converted.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", os.environ[SHARED_CACHE])
        yield


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry of the shipped cards whose sessions end with the test."""
    with Registry() as registry:
        yield registry


def _left_behind() -> list[psutil.Process]:
    """The processes that carry this run's mark, our own aside."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.pid != os.getpid() and process.environ().get(MARK) == os.environ[MARK]
            # Python's own tracker of shared memory ends with us by design.
            if ours and "multiprocessing.resource_tracker" not in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue  # gone, or another user's
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fails the run if a session's process, a page or a browser survived it, and ends what did.

    Where several processes run tests, each looks for its own and tells the one that started it.
    """
    lines = session.config.stash.setdefault(SURVIVORS, [])
    PREPARED.close()
    if not session.config.pluginmanager.has_plugin("dsession"):  # else all tests ran in other processes
        _, alive = psutil.wait_procs(_left_behind(), GRACE_SECONDS)
        for process in alive:
            try:
                lines.append(f"{process.pid}: {' '.join(process.cmdline())[:200]}")
                process.kill()
            except psutil.Error:
                continue
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["survivors"] = lines
    elif lines:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Takes note of what survived a process that ran tests."""
    node.config.stash.setdefault(SURVIVORS, []).extend(getattr(node, "workeroutput", {}).get("survivors", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Says what survived."""
    survivors = config.stash.get(SURVIVORS, [])
    if survivors:
        terminalreporter.section("processes left behind", red=True)
        for line in survivors:
            terminalreporter.line(line)
