"""The guard's checks in public and local mode: owner-only actions, option limits, rates, and the limits file."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.core.errors import BadInput, Busy, Refused
from workbench.core.options import option_specs
from workbench.core.visitors import Visitor
from workbench.registry.cards import Card
from workbench.serving.admission.addresses import FORWARDED, address_of, names_this_machine, trust_proxies
from workbench.serving.admission.flags import read_users
from workbench.serving.admission.guard import Guard, Rate, extent
from workbench.serving.admission.limits import LOCAL, PUBLIC, Limits, read_limits
from workbench.serving.admission.mode import mode_for

HUB = Card("x/hub", "Hub", "sensevoice", {"hub": "a/b"})
HERE = Card("x/here", "Here", "sensevoice", {"directory": "/models/here"})


@pytest.mark.parametrize(
    "host, environment, mode",
    [
        ("127.0.0.1", {}, "local"),
        ("localhost", {}, "local"),
        ("[::1]", {}, "local"),
        ("0.0.0.0", {}, "public"),
        ("192.168.1.5", {}, "public"),
        ("::", {}, "public"),
        ("127.0.0.1", {"SPACE_ID": "me/space"}, "public"),
    ],
)
def test_server_is_public_when_it_listens_beyond_localhost(host: str, environment: dict[str, str], mode: str) -> None:
    assert mode_for(host, None, environment) == mode
    assert mode_for(host, "local", environment) == "local"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(BadInput, match="expected local or public"):
        mode_for("127.0.0.1", "private")


def test_owner_only_actions_are_refused_for_visitors() -> None:
    owner, strangers = Guard(), Guard("public")
    owner.owners("unloading a model")
    owner.check_card(HUB)
    owner.check_settings({"threads": 2})
    strangers.check_card(HERE)
    strangers.check_card(replace(HUB, visitors=True))
    for action in (
        lambda: strangers.owners("unloading a model"),
        lambda: strangers.check_card(HUB),
        lambda: strangers.check_settings({"kv_gigabytes": 2}),
    ):
        with pytest.raises(Refused):
            action()


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"max_new_tokens": 10**9}, "option max_new_tokens is 1000000000; expected at most 2048"),
        ({"min_new_tokens": 10**9}, "option min_new_tokens"),
        ({"beam_size": 100_000}, "option beam_size is 100000; expected at most 32"),
        ({"hotwords": ["x" * 1000] * 1000}, "option hotwords has 976 kB of text; expected at most 64 kB"),
    ],
)
def test_expensive_option_values_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        Guard("public").check_options(options)


def test_deeply_nested_values_are_refused_without_recursion() -> None:
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    assert extent(deep, 32) == (0, 33)
    assert extent({"a": ["bc", {"d": "é"}]}, 32) == (6, 3)
    recording = {"type": "input_audio", "input_audio": {"data": "A" * 10**6, "format": "wav"}}
    assert extent([recording], 32) == (4 + 11 + 11 + 6 + 3, 3)  # audio data does not count as text
    with pytest.raises(BadInput, match="nested too deeply"):
        Guard("public").check_values(deep, "options")
    while deep:  # otherwise the garbage collector would need a stack of this depth
        [deep] = deep  # type: ignore[misc]


def test_rate_limit_per_visitor_and_a_multiple_of_it_per_address() -> None:
    guard = Guard("public", replace(PUBLIC, requests_per_minute=2, per_address=2))
    first, second, third = (Visitor("1.2.3.4", name) for name in "abc")
    for visitor in (first, first, second):
        guard.arrived(visitor)
    with pytest.raises(Busy, match="takes 2 requests of one visitor in 60 s"):
        guard.arrived(first)
    guard.arrived(second)
    with pytest.raises(Busy, match="takes 4 requests of one address in 60 s"):
        guard.arrived(third)
    guard.arrived(Visitor("5.6.7.8"))
    guard.arrived(third, upload=True)


def test_client_that_waits_the_retry_time_is_accepted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused requests do not count, and an accepted request counts for 60 s only."""
    now = 1000.0
    monkeypatch.setattr("workbench.serving.admission.guard.time", SimpleNamespace(monotonic=lambda: now))
    rate = Rate(1, 60.0, "requests", 2)
    for name in "ab":
        rate.count(Visitor("1.2.3.4", name))
    now = 1010.0
    for name in "ac":
        with pytest.raises(Busy) as caught:
            rate.count(Visitor("1.2.3.4", name))
        assert caught.value.retry_seconds == 50.0
    now = 1060.0
    for name in "ac":
        rate.count(Visitor("1.2.3.4", name))


def test_invented_sessions_of_one_address_are_not_remembered() -> None:
    rate = Rate(1, 60.0, "requests", 2)
    for name in range(50):
        with contextlib.suppress(Busy):
            rate.count(Visitor("1.2.3.4", str(name)))
    assert len(rate._times) == 3, "the address and its two accepted visitors"


def test_limits_are_read_from_a_toml_file(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text("audio_minutes = 5\n")
    assert read_limits(PUBLIC, file) == replace(PUBLIC, audio_minutes=5.0)
    file.write_bytes(b"\xef\xbb\xbfaudio_minutes = 5\r\n")  # as an editor of Windows writes it
    assert read_limits(PUBLIC, file) == replace(PUBLIC, audio_minutes=5.0)
    file.write_text("audio_minutes = -5\n")
    with pytest.raises(BadInput, match="audio_minutes"):
        read_limits(PUBLIC, file)
    file.write_text("audio_minuts = 5\n")
    with pytest.raises(BadInput, match="did you mean audio_minutes"):
        read_limits(PUBLIC, file)
    file.write_text("[")
    with pytest.raises(BadInput, match="not TOML"):
        read_limits(PUBLIC, file)
    fifo = tmp_path / "fifo.toml"
    os.mkfifo(fifo)
    with pytest.raises(BadInput, match="cannot be read: it is a pipe or a device"):
        read_limits(PUBLIC, fifo)


def test_users_are_read_from_a_file_of_any_system(tmp_path: Path) -> None:
    file = tmp_path / "users.txt"
    file.write_bytes(b"\xef\xbb\xbfada:secret\r\n# a comment\r\n\r\nbob:a:b c\r\n")
    assert read_users(file) == (("ada", "secret"), ("bob", "a:b c")) and read_users(None) == ()
    with pytest.raises(BadInput, match=r"^the users in \S+nobody cannot be read: No such file or directory$"):
        read_users(tmp_path / "nobody")
    file.write_text("ada\n")
    with pytest.raises(BadInput, match="are not all NAME:PASSWORD"):
        read_users(file)


def test_every_limit_is_documented_and_public_limits_are_not_looser() -> None:
    for spec in option_specs(Limits):
        name = spec.name
        assert spec.help and spec.maximum is not None, name
        local, public = getattr(LOCAL, name), getattr(PUBLIC, name)
        assert public <= local or (name == "process_gb" and local == 0), name
    assert Limits() == LOCAL


def test_documented_limits_equal_the_values_of_the_code() -> None:
    page = Path(__file__).parents[3] / "docs" / "security.md"
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {name: (float(local), float(public)) for name, local, public in rows}
    names = [each.name for each in fields(Limits)]
    assert documented == {name: (getattr(LOCAL, name), getattr(PUBLIC, name)) for name in names}


@pytest.mark.parametrize(
    "host, address",
    [
        ("1.2.3.4", "1.2.3.4"),
        ("2001:db8::1:2", "2001:db8::"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("testclient", "testclient"),
    ],
)
def test_an_ipv6_network_is_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


@pytest.mark.parametrize(
    "header, known",
    [
        ("localhost:7860", True),
        ("127.0.0.1:7860", True),
        ("[::1]:7860", True),
        ("192.168.1.7", True),
        ("page.localhost:1", True),
        ("evil.example", False),
        ("evil.example:7860", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", True),  # a probe with HTTP/1.0; no browser leaves the name out
        ("mine.example", True),
    ],
)
def test_only_local_or_configured_host_names_are_accepted(header: str, known: bool) -> None:
    assert names_this_machine(header, ("mine.example",)) is known


@pytest.mark.parametrize(
    ("proxy", "inside", "outside"),
    [
        ("127.0.0.5/8", "127.1.2.3", "128.0.0.1"),
        ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
        ("fd00::1/16", "fd00::9", "fe00::9"),
    ],
)
def test_a_proxy_is_trusted_by_its_network(
    proxy: str, inside: str, outside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uvicorn.middleware.proxy_headers import _TrustedHosts

    monkeypatch.setenv(FORWARDED, "")
    trust_proxies([proxy])
    trusted = _TrustedHosts(os.environ[FORWARDED])
    assert inside in trusted and outside not in trusted
