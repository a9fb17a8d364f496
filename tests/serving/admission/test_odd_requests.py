"""Requests with malformed names of the server, with long or odd addresses, and links of other sites that sign out."""

from __future__ import annotations

import pytest

from tests.serving.admission.test_access_middleware import client_behind
from workbench.serving.admission.guard import Guard


@pytest.mark.parametrize("header", ["host", "x-forwarded-host"])
@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("[::1]:7860", 200),
        ("localhost:", 200),
        ("127.0.0.1", 200),
        ("my_host.example", 200),
        ("[::1", 400),
        ("[v1.x]", 400),
        ("::1", 400),
        ("a:b", 400),
        ("a b", 400),
        ("1.2.3.999", 400),
        ("1-2-3-4", 400),  # a name for which the page could make no address
        (b"\xe4", 400),
        ('"><script>', 400),
    ],
)
def test_malformed_name_of_the_server_is_refused(header: str, name: str | bytes, status: int) -> None:
    with client_behind(Guard("public")) as client:
        answer = client.get("/x", headers={header: name})
        assert answer.status_code == status
        assert status == 200 or "expected the name of a server" in answer.json()["error"]


def test_first_name_of_several_proxies_counts() -> None:
    headers = {"x-forwarded-host": "page.example, inner.example"}
    with client_behind(Guard()) as client:
        for name, status in (("page.example", 200), ("inner.example", 403)):
            answer = client.post("/chat/open", headers={**headers, "origin": f"https://{name}"})
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/" + "a" * 4096, 414),
        ("/x?" + "a" * 60_000, 431),
        ("/gradio_api/heartbeat/%00", 404),
        ("/x%0D", 404),
        ("/x%7F", 404),
        ("/gradio_api/token", 404),
        ("/pwa_icon/9", 404),
    ],
)
def test_long_odd_and_unused_addresses_are_refused(path: str, status: int) -> None:
    with client_behind(Guard("public")) as client:
        answer = client.get(path, headers={"x-long": "a" * 10_000})
        assert answer.status_code == status and len(answer.text) < 300


def test_page_of_another_site_signs_nobody_out() -> None:
    with client_behind(Guard("public")) as client:
        for path in ("/logout", "/logout/"):
            for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
                assert client.get(path, headers={"sec-fetch-site": site}).status_code == status
            assert client.get(path).status_code == 200  # a program
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to the page
