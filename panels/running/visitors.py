"""The visitor of an event of the page: the network address, and the open page at that address."""

from __future__ import annotations

from gradio.context import LocalContext

from workbench.core.visitors import NOBODY, Visitor
from workbench.serving.admission.addresses import address_of


def visitor_of_event() -> Visitor:
    """Returns the visitor of the event that this thread handles; `NOBODY` outside of events."""
    request = LocalContext.request.get(None)
    if request is None:
        return NOBODY
    client = getattr(request, "client", None)
    return Visitor(address_of(getattr(client, "host", "") or ""), str(getattr(request, "session_hash", "") or ""))
