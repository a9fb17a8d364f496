"""Workers on a Ray cluster: after a node is lost during a run, the results equal those of an undisturbed run.

The driver runs against a fake of the few Ray calls it makes (`tests.support.fake_ray`), and once on a real cluster of
two nodes on this machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.evaluate_kills import check, make_corpus
from tests.support.driven_evaluations import KEYS, all_rows, chosen, computed, drive, emptied
from tests.support.fake_ray import FakeRay, RayTaskError
from workbench import evaluation
from workbench.core.errors import BadInput, Unavailable, WorkbenchError
from workbench.evaluation import on_ray
from workbench.evaluation.on_ray import RayWorkers
from workbench.evaluation.rows import Result, Utterance
from workbench.evaluation.worker import Job

MODELS = [chosen(key) for key in KEYS]


class AtOnce:
    """A worker that returns its results at once."""

    def __init__(self, job: Job, name: str, elsewhere: bool):
        self.job = job

    def results(self, utterances: Sequence[Utterance]) -> Iterator[Result]:
        yield from (computed(self.job.key, each) for each in utterances)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a function that puts a fake in Ray's place."""
    monkeypatch.setattr(on_ray, "Worker", AtOnce)
    monkeypatch.setattr(on_ray, "estimated_bytes", lambda spec: 10**9)

    def install(ray: FakeRay) -> FakeRay:
        monkeypatch.setitem(sys.modules, "ray", ray)
        return ray

    return install


@pytest.mark.parametrize(("first", "sample"), [("a.wav", "a.wav"), ("missing.wav", "")])
def test_machines_need_only_a_recording_that_the_driver_has(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch, first: str, sample: str
) -> None:
    samples: list[str] = []

    class Noting(AtOnce):
        def __init__(self, job: Job, name: str, elsewhere: bool):
            samples.append(job.sample)
            super().__init__(job, name, elsewhere)

    fake(FakeRay({"one": 1}, lambda node, method: None))
    monkeypatch.setattr(on_ray, "Worker", Noting)
    (tmp_path / "a.wav").touch()
    (tmp_path / "list.csv").write_text(f"id,audio,text\n1,{first},one\n2,a.wav,one\n")
    evaluation.run(tmp_path / "list.csv", ["demo/sensevoice"], tmp_path / "out", address="auto")
    assert samples == [sample]


@pytest.fixture
def machines(fake: Any, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """Returns a fake cluster of two machines, neither of which is the driver's."""
    ray = fake(FakeRay({"near": 1, "far": 1}))
    monkeypatch.setattr(on_ray, "this_machine", lambda: ray.machine)
    monkeypatch.setattr(on_ray.socket, "gethostname", lambda: ray.machine)
    return ray


def test_only_a_recording_that_the_driver_has_and_a_machine_lacks_stops_the_run(
    tmp_path: Path, machines: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def here(root: str, audio: str) -> bool:
        return audio != "nowhere.wav" and (audio, machines.machine) != ("b.wav", "far")

    class Reading(AtOnce):
        def results(self, utterances: Sequence[Utterance]) -> Iterator[Result]:
            for each in utterances:
                found = computed(self.job.key, each)
                yield found if here("", each.audio) else Result(each.id, found.model, "", "there is no file")

    monkeypatch.setattr(on_ray, "Worker", Reading)
    monkeypatch.setattr(on_ray, "is_here", here)
    listing = tmp_path / "list.csv"
    listing.write_text("id,audio,text\n" + "".join(f"{each},{each}.wav,one\n" for each in ("nowhere", "a", "c")))
    arguments: Any = {"address": "auto", "batch_size": 1}
    assert evaluation.run(listing, ["demo/sensevoice"], tmp_path / "out", **arguments).models[0].failed == 1
    listing.write_text("id,audio,text\n" + "".join(f"{each},b.wav,one\n" for each in range(6)))
    with pytest.raises(Unavailable, match=rf"@far has no {tmp_path}/b\.wav; put the recordings at the same path on"):
        evaluation.run(listing, ["demo/sensevoice"], tmp_path / "other", **arguments)
    assert all(each.gone for each in machines.actors) and not machines.connected


def test_error_on_another_machine_names_the_machine(
    tmp_path: Path, machines: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: Job, name: str, elsewhere: bool) -> None:
        raise Unavailable("the package is missing")

    monkeypatch.setattr(on_ray, "Worker", fail)
    unfinished, _ = emptied(tmp_path / "out")
    with pytest.raises(Unavailable, match=r"^ray-1@(near|far): the package is missing$"):
        drive(unfinished, RayWorkers("auto", MODELS))


def test_full_disk_of_ray_is_named_where_ray_only_waits(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wait_in_vain(**arguments: Any) -> None:
        raise TimeoutError("timed out waiting for file gcs_server_port")

    ray = fake(FakeRay({"one": 1}))
    monkeypatch.setattr(ray, "init", wait_in_vain)
    monkeypatch.setenv("RAY_TMPDIR", "/ray")
    for free, reason in (
        (10**9, "timed out waiting for file gcs"),
        (4096, "the disk of /ray, where Ray writes, is full; "),
    ):
        monkeypatch.setattr(on_ray.shutil, "disk_usage", lambda folder, free=free: SimpleNamespace(free=free))
        with pytest.raises(Unavailable, match=f"^the Ray cluster local cannot be reached: {reason}"):
            RayWorkers("local", MODELS)


def test_lost_worker_beside_a_full_disk_of_ray_names_the_disk(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(FakeRay({str(number): 1 for number in range(30)}, lambda node, method: node))
    monkeypatch.setenv("RAY_TMPDIR", "/ray")
    monkeypatch.setattr(on_ray.shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))
    unfinished, _ = emptied(tmp_path / "out")
    with pytest.raises(WorkbenchError, match=r"was lost \(\w+; the disk of /ray, where Ray writes, is full; make room"):
        drive(unfinished, RayWorkers("auto", MODELS))


def test_containers_of_one_machine_that_have_one_name_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {on_ray.this_machine(), on_ray.this_machine()}
    for number in (1, 2):
        mounts = tmp_path / f"mnt-{number}"
        mounts.symlink_to(f"mnt:[{number}]")  # as /proc has it: a link to nothing
        monkeypatch.setattr(on_ray, "MOUNTS", mounts)
        texts.add(on_ray.this_machine())
    monkeypatch.setattr(on_ray, "MOUNTS", tmp_path / "none")
    assert len(texts) == 3 and on_ray.this_machine() not in texts


@pytest.mark.parametrize("sudden", [True, False])
def test_lost_connection_to_the_cluster_ends_the_run_in_one_sentence(
    tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch, sudden: bool
) -> None:
    def lose(node: str, method: str) -> None:
        if len(ray.computed_by) == 4:
            ray.connected = False
            if sudden:
                raise ConnectionError("the client is shutting down")

    ray = fake(FakeRay({"one": 2}, lose))
    unfinished, _ = emptied(tmp_path / "out")
    with pytest.raises(
        Unavailable, match=r"the Ray cluster auto cannot be reached any more: the .*; when it runs again,"
    ):
        drive(unfinished, RayWorkers("auto", MODELS))
    assert 0 < sum(unfinished.done().values()) < 60 and not ray.connected


def test_actor_whose_own_code_fails_says_where_and_why(
    tmp_path: Path, machines: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(actor: Any, job: Job, version: str) -> None:
        raise RayTaskError("ray::Actor.open() (pid=7, ip=10.0.0.2)\nModuleNotFoundError: No module named 'workbench'")

    monkeypatch.setattr(on_ray.Actor, "open", fail)
    unfinished, _ = emptied(tmp_path / "out")
    sentence = r"a worker on the machine 10\.0\.0\.2 does not start: ModuleNotFoundError: No module named 'workbench'; "
    with pytest.raises(Unavailable, match=sentence):
        drive(unfinished, RayWorkers("auto", MODELS))


@pytest.mark.parametrize("seed", range(12))
def test_lost_ray_node_loses_no_recording(tmp_path: Path, fake: Any, seed: int) -> None:
    unfinished, expected = emptied(tmp_path / "out")
    generator = random.Random(seed)
    threshold, node_name = generator.randint(1, 12), generator.choice(["one", "two"])
    lost_nodes: list[str] = []

    def fate(node: str, method: str) -> str | None:
        if len(ray.computed_by) < threshold or lost_nodes:
            return None
        lost_nodes.append(node_name)
        return node_name

    ray = fake(FakeRay({"one": 1, "two": 2}, fate))
    workers = RayWorkers("auto", MODELS)
    assert (workers.usual_count, workers.place) == (3, "a Ray cluster of 2 nodes")
    schedule = drive(unfinished, workers, workers.usual_count)
    assert all_rows(unfinished) == expected and schedule.computed == 60 and lost_nodes == [node_name]
    assert node_name not in ray.computed_by[threshold:], "the other node computed the rest"
    assert not ray.connected and all(each.gone for each in ray.actors), "nothing is left behind"
    assert {(each["num_cpus"], each["max_restarts"], each["max_task_retries"]) for each in ray.asked} == {(1, 0, 0)}


def test_invalid_address_full_cluster_and_missing_ray_raise_an_error(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(FakeRay({"one": 2}))
    with pytest.raises(BadInput, match=r"'cluster7' is not a Ray cluster's address; expected auto, local or ray://"):
        RayWorkers("cluster7", MODELS)
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "ray://127.0.0.1:99999"):  # no server listens there
        with pytest.raises(Unavailable, match=f"the Ray cluster {address} cannot be reached: "):
            RayWorkers(address, MODELS)
    with socket.create_server(("127.0.0.1", 0)) as server:
        RayWorkers(f"ray://127.0.0.1:{server.getsockname()[1]}", MODELS).close()
    fake(FakeRay({"one": 0}))
    with pytest.raises(
        Unavailable, match=r"no node of the Ray cluster has room for demo/a\|pytorch, which needs 1 "
    ) as caught:
        RayWorkers("auto", MODELS)
    assert str(caught.value).endswith("; a Ray cluster of 1 node has 0 processors, 8.0 GB of memory")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(Unavailable, match=r'needs Ray; run: pip install "speech-workbench\[ray\]"'):
        RayWorkers("auto", MODELS)


def end_all_of(folder: str) -> None:
    """Ends the processes of Ray whose files are in a folder: workers of a killed node outlive it for a while."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get("RAY_TMPDIR") == folder:
                processes.append(process)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, 10)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (speech-workbench[ray])")
def test_killing_a_real_ray_node_does_not_change_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "0")
    import ray
    from ray.cluster_utils import Cluster

    corpus, model = make_corpus(tmp_path / "corpus", 120), "demo/sensevoice|gguf|q8_0"  # it loads in a moment
    evaluation.run(corpus, [model], tmp_path / "quiet", workers=1)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:  # names of sockets must be short
        monkeypatch.setenv("RAY_TMPDIR", folder)
        small: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 10**8, "include_log_monitor": False}
        head = {**small, "include_dashboard": False, "no_monitor": True}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        killed: list[float] = []
        try:
            node = cluster.add_node(**small)
            ray.init(address=cluster.address, log_to_driver=False)

            def kill_node(share: float, words: str) -> None:
                if share > 0.2 and not killed:
                    killed.append(share)
                    cluster.remove_node(node, allow_graceful=False)

            outcome = evaluation.run(
                corpus, [model], tmp_path / "out", workers=2, address="auto", on_progress=kill_node
            )
        finally:
            ray.shutdown()
            cluster.shutdown()
            end_all_of(folder)
    assert killed and killed[0] < 0.9 and outcome.place == "a Ray cluster of 2 nodes"
    check(corpus, tmp_path / "quiet", tmp_path / "out", 1)
