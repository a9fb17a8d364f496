"""Ends the work of an event if its visitor has left, or has cancelled it.

Gradio itself closes a generator in that case. But a function in a thread would go on, because Gradio informs only its
queue. The queue here sets the event that ends the work of the function. This file knows nothing of the work.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from gradio.context import LocalContext
from gradio.queueing import Event, Queue
from gradio.server_messages import EventMessage

from workbench.core.visitors import Work, current_visitor
from workbench.serving.admission.guard import MAX_KNOWN

at_work: dict[str, threading.Event] = {}  # by the event's id, which nobody can guess


@contextlib.contextmanager
def ends_with_its_event(work: Work) -> Iterator[None]:
    """Stops the work in the block as soon as nobody waits for the event that this thread handles."""
    event = LocalContext.event_id.get(None)
    if event is None:
        yield
        return
    at_work[event] = work.stop
    try:
        yield
    finally:
        at_work.pop(event, None)


def _end(event: str | None) -> None:
    stop = at_work.get(event or "")
    if stop is not None:
        stop.set()


class LeavingQueue(Queue):
    """Gradio's queue, which also ends the work of events for which nobody waits.

    It keeps the unread messages of at most `sessions` sessions of one network address, because a message may hold a
    report of megabytes.
    """

    @functools.cached_property
    def _sessions_by_address(self) -> OrderedDict[str, OrderedDict[str, None]]:
        return OrderedDict()  # the addresses, and the sessions of each, the newest last

    async def push(self, body: Any, request: Any, username: str | None) -> Any:
        """Adds an event, and forgets the oldest unread session if the visitor's address has too many."""
        answer = await super().push(body, request, username)
        if body.session_hash in self.pending_messages_per_session:
            self._forget_unread(current_visitor().address, body.session_hash)
        return answer

    def _forget_unread(self, address: str, newest: str) -> None:
        """Notes the newest session of an address. Forgets the oldest ones that nobody reads, beyond the limit."""
        sessions = self._sessions_by_address.setdefault(address, OrderedDict())
        self._sessions_by_address.move_to_end(address)
        while len(self._sessions_by_address) > MAX_KNOWN:
            self._sessions_by_address.popitem(last=False)
        sessions[newest] = None
        sessions.move_to_end(newest)
        if len(sessions) <= self.blocks.guard.limits.sessions:  # type: ignore[attr-defined]
            return
        for each in list(sessions):
            messages = self.pending_messages_per_session.get(each)
            if each != newest and (messages is None or not messages.empty()):
                self.pending_messages_per_session.pop(each, None)
                self.pending_event_ids_session.pop(each, None)
                del sessions[each]
                return

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Sends a message about an event, unless Gradio has forgotten its session: it keeps a few thousand.

        An error here would end the loop that starts the events of all visitors.
        """
        if event.session_hash in self.pending_messages_per_session:
            super().send_message(event, event_message)

    async def clean_events(self, *, session_hash: str | None = None, event_id: str | None = None) -> None:
        """Ends the work of a session's events. Gradio calls this when a visitor has closed their stream."""
        for job in [job for jobs in self.active_jobs for job in jobs or ()]:
            if job.session_hash == session_hash or job._id == event_id:
                _end(job._id)
        await super().clean_events(session_hash=session_hash, event_id=event_id)

    async def remove_from_queue(self, event_id: str) -> None:
        """Ends the work of an event. Gradio calls this when a visitor cancels it."""
        _end(event_id)
        await super().remove_from_queue(event_id)
