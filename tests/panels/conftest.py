"""The page over a registry without models, served in this process on a free port; and Chromium to look at it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from panels.running import error_boundary
from panels.running.sessions import SessionPool
from tests.support.browser import PATIENCE
from tests.support.fake_panels import FakeGgufRegistry, FakeLanguageRegistry, FakeRegistry
from tests.support.fake_parity import FakeParityRegistry
from workbench.registry.registry import Registry

DEMOS = tuple(f"demo/{name}" for name in ("sensevoice", "paraformer", "funasr-nano", "fireredasr", "qwen3"))


@dataclass(frozen=True)
class Served:
    """A running page."""

    url: str
    pool: SessionPool
    registry: Any


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def serve(pool: SessionPool, tabs: str | None = None, origins: Sequence[str] = ()) -> Iterator[Served]:
    """Serves the page with those tabs over that pool until the test ends; the pages of `origins` may use it."""
    from gradio.routes import App

    from panels.page import build_page, chosen_tabs
    from panels.serving import Opening, launch

    with pool:
        # Gradio makes the application three times, and serves the last one. The first two take a third of a start.
        with patch.object(App, "create_app"):
            page = build_page(pool, chosen_tabs(tabs))
        opening = Opening(page.guard, origins=tuple(origins))
        settings = {"server_name": "127.0.0.1", "server_port": free_port(), "prevent_thread_lock": True, "quiet": True}
        _, url, _ = launch(page, opening, **settings)
        try:
            yield Served(url, pool, pool.registry)
        finally:
            page.close()


@pytest.fixture
def pool() -> Iterator[SessionPool]:
    with SessionPool(FakeRegistry()) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def language_pool() -> Iterator[SessionPool]:
    with SessionPool(FakeLanguageRegistry()) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def tabs(request: pytest.FixtureRequest) -> str | None:
    """The tabs that the test's page shows, as the mark of the test or its file says; all of them without a mark.

    A browser takes 4 s of processor time to open all tabs, and less than half for one.
    """
    mark = request.node.get_closest_marker("tabs")
    return mark.args[0] if mark else None


@pytest.fixture
def served_language(tabs: str | None) -> Iterator[Served]:
    """The page over fake models, one of which writes token by token."""
    yield from serve(SessionPool(FakeLanguageRegistry()), tabs)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def uploads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page's uploads, which all tests of a file share, as they share the page."""
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture
def gguf_pool() -> Iterator[SessionPool]:
    with SessionPool(FakeGgufRegistry()) as pool:  # type: ignore[arg-type]
        yield pool


@pytest.fixture
def served_gguf(tabs: str | None) -> Iterator[Served]:
    """The page over fake models, one of which runs on gguf too."""
    yield from serve(SessionPool(FakeGgufRegistry()), tabs)  # type: ignore[arg-type]


@pytest.fixture
def served(tabs: str | None) -> Iterator[Served]:
    """The page over fake models."""
    yield from serve(SessionPool(FakeRegistry()), tabs)  # type: ignore[arg-type]


@pytest.fixture
def tempdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which runs create the folders of their traces."""
    folder = tmp_path / "tempdir"
    folder.mkdir()
    numbers = iter(range(1000))

    def make() -> Path:
        path = folder / f"run-{next(numbers)}"
        path.mkdir()
        return path

    monkeypatch.setattr("workbench.parity_lab.tracer.make_tempdir", make)
    return folder


@pytest.fixture
def lab(tempdir: Path, tabs: str | None) -> Iterator[Served]:
    """The page over models that compute a small network."""
    yield from serve(SessionPool(FakeParityRegistry()), tabs)  # type: ignore[arg-type]


@pytest.fixture
def demos(shared_cache: None, tabs: str | None) -> Iterator[Served]:
    """The page over the shipped models; skips where they do not run on PyTorch."""
    registry = Registry()
    try:
        needs(registry, "pytorch", *DEMOS)
    except pytest.skip.Exception:
        registry.close()
        raise
    yield from serve(SessionPool(registry), tabs)


def needs(registry: Any, runtime: str, *models: str) -> None:
    """Skips the test where one of the models does not run on that runtime."""
    for model in models:
        state = registry.availability(registry.card(model), runtime)
        if not state.ready:
            pytest.skip(f"needs {model} on {runtime}: {state.reason}")


def live_in(home: Path, patch: pytest.MonkeyPatch) -> None:
    """Puts the user's folders of a page, which store runs, into `home`."""
    patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
    patch.setenv("GRADIO_TEMP_DIR", str(home / "uploads"))


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[[int], Any]]:
    """Opens a page of this width for a new visitor without stored data; fails the test if a script failed."""
    contexts, faults = [], list[str]()

    def enter(width: int) -> Any:
        contexts.append(chromium.new_context(viewport={"width": width, "height": 844}, accept_downloads=True))
        contexts[-1].set_default_timeout(PATIENCE)
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        return page

    yield enter
    for context in contexts:
        context.close()
    assert not faults, "a script of the page failed"


@pytest.fixture
def page(chromium: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """A page of the browser at desktop size.

    It fails the test if the page asked another machine, a script failed, or an event raised an unexpected error.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    foreign_urls: list[str] = []
    faults: list[str] = []
    local = ("http://127.0.0.1:", "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(local) else foreign_urls.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    context.close()
    assert not foreign_urls, "the page asked other machines"
    assert not faults, "a script of the page failed"
    unexpected_errors = [record for record in caplog.get_records("call") if record.name == error_boundary.__name__]
    assert not unexpected_errors, "an event of the page failed"
