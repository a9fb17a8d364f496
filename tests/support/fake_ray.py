"""The few calls of Ray that an evaluation makes, on nodes that exist in name only; actors compute in this process.

A task runs when somebody waits for it. `fate` is asked before each, and may name a node that is lost then: what its
actors hold ends in `RayActorError`, and its processors are gone.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

DRIVER = "driver"
Fate = Callable[[str, str], str | None]
"""Takes a node and the name of a method; returns the node that is lost now, or None."""


class RayError(Exception):
    """As in `ray.exceptions`."""


class RayActorError(RayError):
    """An actor is gone."""

    actor_init_failed = False


class RayTaskError(RayError):
    """The code of an actor raised an error."""


@dataclass(eq=False)
class Task:
    """What `remote` returns."""

    actor: FakeActor
    method: str
    arguments: tuple[Any, ...]
    value: Any = None
    error: RayError | None = None
    done: bool = False


@dataclass(eq=False)
class FakeActor:
    """A handle of an actor; `node` is None as long as no node has room for it."""

    ray: FakeRay
    make: Callable[[], Any]
    asked: dict[str, Any]
    node: str | None = None
    made: Any = None
    gone: bool = False
    tasks: list[Task] = field(default_factory=list)

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_"):
            raise AttributeError(method)

        def remote(*arguments: Any) -> Task:
            task = Task(self, method, arguments)
            self.tasks.append(task)
            if self.gone:
                self.ray.end(self)
            return task

        return SimpleNamespace(remote=remote)


class FakeRay:
    """Stands in `sys.modules` for Ray.

    Args:
        cpus: of each node, by its name.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, cpus: dict[str, int], fate: Fate = lambda node, method: None):
        self.free = dict(cpus)
        self.fate = fate
        self.actors: list[FakeActor] = []
        self.asked: list[dict[str, Any]] = []  # the options of every actor
        self.computed_by: list[str] = []  # the node of each task
        self.connected = False
        self.machine = DRIVER  # whose code runs now
        self._turn = itertools.count()

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, **how: Any) -> None:
        self.connected = True

    def shutdown(self) -> None:
        self.connected = False

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(sum(self.free.values()))}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(cpus), "memory": 8e9}} for cpus in self.free.values()]

    def remote(self, kind: type) -> Any:
        def options(**asked: Any) -> Any:
            return SimpleNamespace(remote=lambda *words: self._born(lambda: kind(*words), asked))

        return SimpleNamespace(options=options)

    def _born(self, make: Callable[[], Any], asked: dict[str, Any]) -> FakeActor:
        actor = FakeActor(self, make, asked)
        self.actors.append(actor)
        self.asked.append(asked)
        return actor

    def _place(self) -> None:
        for actor in self.actors:
            node = max(self.free, key=lambda each: self.free[each], default=None)
            if actor.node is None and not actor.gone and node and self.free[node] >= actor.asked["num_cpus"]:
                self.free[node] -= actor.asked["num_cpus"]
                actor.node = node
                with self._on(node):
                    actor.made = actor.make()

    @contextlib.contextmanager
    def _on(self, node: str) -> Iterator[None]:
        self.machine = node
        yield
        self.machine = DRIVER

    def wait(self, tasks: Sequence[Task], num_returns: int, timeout: float) -> tuple[list[Task], list[Task]]:
        """Runs one more task, in turns, where none is done."""
        assert num_returns <= len(tasks)
        if not self.connected:
            raise RayError("the client is not connected")
        self._place()
        if not any(each.done for each in tasks):
            ready = [each for each in tasks if each.actor.node and each is each.actor.tasks[0]]
            if not ready:
                raise AssertionError("nobody could ever answer: no node has room for what is waited for")
            self._run(ready[next(self._turn) % len(ready)])
        done = [each for each in tasks if each.done][:num_returns]
        return done, [each for each in tasks if each not in done]

    def _run(self, task: Task) -> None:
        actor = task.actor
        assert actor.node is not None
        lost = self.fate(actor.node, task.method)
        if lost is not None:
            self.free.pop(lost, None)
            for each in [each for each in self.actors if each.node == lost]:
                self.end(each)
        if not actor.gone:
            self.computed_by.append(actor.node)
            with self._on(actor.node):
                try:
                    task.value = getattr(actor.made, task.method)(*task.arguments)
                except RayError as error:
                    task.error = error
            task.done = True
            actor.tasks.remove(task)

    def end(self, actor: FakeActor) -> None:
        """Ends an actor, and all that waits for it in an error."""
        if not actor.gone and actor.node in self.free:
            self.free[actor.node] += actor.asked["num_cpus"]
        actor.gone = True
        for task in actor.tasks:
            task.error, task.done = RayActorError("the actor died"), True
        actor.tasks.clear()

    def get(self, task: Task) -> Any:
        assert task.done
        if task.error is not None:
            raise task.error
        return task.value

    def kill(self, actor: FakeActor, no_restart: bool) -> None:
        assert self.connected, "Ray would start a cluster here"
        assert no_restart
        self.end(actor)
