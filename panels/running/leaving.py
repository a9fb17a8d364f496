"""Ends the work of an event if its visitor has left, or has cancelled it.

Gradio itself closes a generator in that case. But a function in a thread would go on, because Gradio informs only its
queue. The queue here sets the event that ends the work of the function. This file knows nothing of the work.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from gradio.context import LocalContext
from gradio.queueing import Event, Queue
from gradio.server_messages import EventMessage

from workbench.core.visitors import Work

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
    """Gradio's queue, which also ends the work of events for which nobody waits."""

    def send_message(self, event: Event, event_message: EventMessage) -> None:
        """Sends a message about an event. Gradio keeps the messages of some thousand sessions. The loop that starts
        all visitors' events would end for good, if it had to send one to a session without messages.
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
