"""The network addresses of visitors, and the names and paths by which requests address a server. It serves nothing."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable

from starlette.types import Scope

from workbench.core.errors import BadInput
from workbench.serving.admission.mode import is_loopback

NETWORK_BITS = 64  # of an IPv6 address: one household has as many addresses as it likes behind them
FORWARDED = "FORWARDED_ALLOW_IPS"  # of the environment: the proxies whose X-Forwarded-For the web server believes

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[\w.~%-]*)(:\d{0,5})?", re.ASCII | re.IGNORECASE)
# What the parser of URLs takes for an IPv4 address; the page's own addresses are made from the name of the server.
_LIKE_IPV4 = re.compile(r"\d+.\d+.\d+.\d+", re.ASCII)


def address_of(host: str) -> str:
    """Returns a client's address as limits count it: IPv4 whole, of IPv6 the network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host[:64]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, NETWORK_BITS), strict=False).network_address)
    return str(address)


def trust_proxies(proxies: Iterable[str] = ()) -> None:
    """Makes the web server trust forwarded addresses from these proxies only.

    Raises `BadInput` for one that is not an address or a network.
    """
    networks = []
    for proxy in proxies:
        try:
            networks.append(ipaddress.ip_network(proxy, strict=False))
        except ValueError as error:
            raise BadInput(
                f"the trusted proxy is {proxy!r:.60}; expected an address, or a network such as 10.0.0.0/8"
            ) from error
    single = [str(each.network_address) if each.num_addresses == 1 else str(each) for each in networks]
    os.environ[FORWARDED] = ",".join(single)  # the web server knows a network by its first address alone


def host_name(header: str) -> str:
    """Returns the name in a Host header, without its port, in lower case."""
    name = header.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0].removeprefix("[")
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def is_host(header: str) -> bool:
    """Returns whether a header is a name or an address of a server, which may have a port (RFC 9110, 7.2)."""
    match = _HOST.fullmatch(header)
    if match is None:
        return False
    name = match[1]
    if not name.startswith("[") and not _LIKE_IPV4.fullmatch(name):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def forwarded_host(header: str) -> str:
    """Returns the name by which a visitor asked the first of the proxies that an X-Forwarded-Host header lists."""
    return header.partition(",")[0].strip()


def names_this_machine(header: str, allowed: Iterable[str]) -> bool:
    """Returns whether a Host header names the server by a name that its owner knows.

    An address always counts as such a name, because DNS rebinding needs a name. So does the name of loopback, and no
    name at all: every browser sends one, and probes with HTTP/1.0 may not.
    """
    name = host_name(header)
    if not name or name in allowed or is_loopback(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def route_path(scope: Scope) -> str:
    """Returns the path of the route, without the path of a proxy (`--root-path`) before it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    route = path.removeprefix(root)
    return route if root and route[:1] in ("", "/") else path
