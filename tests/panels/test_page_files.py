"""The files that a browser loads first: the page's HTML, and the scripts, styles and fonts that it names."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from gradio.routes import BUILD_PATH_LIB

from panels.page import build_page
from panels.running.sessions import SessionPool
from tests.panels.conftest import Served
from tests.support.fake_panels import FakeRegistry
from workbench.registry.sources import assets

FILES = Path(BUILD_PATH_LIB)
pytestmark = pytest.mark.tabs("models")
BROWSER = "gzip, deflate, br, zstd"


def get(url: str, encodings: str = BROWSER) -> tuple[httpx.Response, int]:
    """Returns the decoded answer and the number of bytes that the server sent."""
    with httpx.Client(headers={"Accept-Encoding": encodings}) as client, client.stream("GET", url) as answer:
        answer.read()
        return answer, answer.num_bytes_downloaded


def test_static_files_are_compressed_and_cached_by_browsers(served: Served) -> None:
    html = get(served.url)[0].text
    names = set(re.findall(r"(?:src|href)=\"[./]*assets/([\w.-]+\.(?:js|css))\"", html))
    assert len(names) > 1
    for name in [*names, next(FILES.glob("*.woff2")).name]:
        answer, nbytes = get(f"{served.url}assets/{name}")
        assert answer.content == (FILES / name).read_bytes()
        assert "immutable" in answer.headers["cache-control"] and "content-security-policy" in answer.headers
        if len(answer.content) > 2000 and not name.endswith("woff2"):
            assert answer.headers["content-encoding"] == "br" and nbytes < 0.6 * len(answer.content)
        kind = {"js": "javascript", "css": "text/css", "woff2": "font/woff2"}[name.rpartition(".")[2]]
        assert kind in answer.headers["content-type"]


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_browsers_without_brotli_have_the_same_files(served: Served, encoding: str) -> None:
    largest = max(FILES.glob("*.css"), key=lambda path: path.stat().st_size)
    answer, nbytes = get(f"{served.url}assets/{largest.name}", encoding)
    assert answer.content == largest.read_bytes()
    assert answer.headers.get("content-encoding", "identity") == encoding and (nbytes < len(answer.content)) == (
        encoding == "gzip"
    )


@pytest.mark.parametrize("name", ["none.js", "../index.html", "%2e%2e%2findex.html", "..%5cindex.html"])
def test_unknown_or_outside_asset_paths_are_refused(served: Served, name: str) -> None:
    assert httpx.get(f"{served.url}assets/{name}").status_code in (403, 404)


def test_compressed_html_contains_the_nonce_of_its_header(served: Served) -> None:
    """The header and the HTML of an answer have the same nonce, so compression must follow its insertion."""
    answer, nbytes = get(served.url)
    assert answer.headers["content-encoding"] == "gzip" and nbytes < len(answer.content) / 3
    [nonce] = re.findall(r"'nonce-([^']+)'", answer.headers["content-security-policy"])
    assert f'nonce="{nonce}"' in answer.text
    uncompressed, _ = get(served.url, "identity")
    [other_nonce] = re.findall(r"'nonce-([^']+)'", uncompressed.headers["content-security-policy"])
    assert "content-encoding" not in uncompressed.headers
    length = len(uncompressed.text.replace(other_nonce, nonce))
    assert length == pytest.approx(len(answer.text), abs=200)  # the visitor's cookies differ


def test_progress_is_sent_only_to_outputs_that_show_it() -> None:
    with SessionPool(FakeRegistry()) as pool:  # type: ignore[arg-type]
        events = build_page(pool).get_config_file()["dependencies"]
    assert {each["show_progress"] for each in events} == {"hidden", "full"}
    for each in events:
        assert (each["show_progress_on"] == []) == (each["show_progress"] == "hidden")


@pytest.mark.parametrize("path", sorted(assets().rglob("*.css")), ids=lambda path: path.name)
def test_style_sheets_say_what_safari_understands(path: Path) -> None:
    """Safari ignores a `text-decoration` of several values, and `user-select` without its prefix."""
    rules = re.findall(r"{([^{}]*)}", re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL))
    declarations = [dict(each.split(":", 1) for each in rule.split(";") if ":" in each) for rule in rules]
    for rule in ({name.strip(): value.strip() for name, value in each.items()} for each in declarations):
        assert " " not in rule.get("text-decoration", ""), rule
        assert rule.get("user-select") == rule.get("-webkit-user-select"), rule
