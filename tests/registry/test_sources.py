"""Sources of checkpoints: shipped, local, on a server, and a hub that is unreachable, failing, broken or slow."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench.registry.sources
from tests.support.fake_hub import FakeHub, fake_hub
from workbench.core.errors import BadInput, Cancelled, Unavailable
from workbench.registry.cards import SHIPPED, Card, read_cards
from workbench.registry.sources import assets, fetch, local_checkpoint, why_not_here

WEIGHTS = bytes(range(256)) * 20_000  # 5 MB: more than one block of a download
FILES = {
    "model.pt": WEIGHTS,
    "config.yaml": b"model: SenseVoiceSmall\n",
    "am.mvn": b"<Nnet>\n",
    "example/en.mp3": b"not wanted",
    "model.safetensors": b"not wanted either",
}
NEEDED = {"model.pt", "config.yaml", "am.mvn"}


def hub_card(repository: str = "owner/tiny", family: str = "sensevoice") -> Card:
    return Card("tiny", "Tiny", family, {"hub": repository}, megabytes=5)


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Lets the hub's client reach an address of this machine instead of the public hub."""

    def point(url: str) -> None:
        for name, value in {
            "HF_HUB_OFFLINE": False,
            "ENDPOINT": url,
            "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        }.items():
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda _: None)  # between its attempts

    return point


@pytest.fixture
def hub(reach) -> Iterator[FakeHub]:
    with fake_hub("owner/tiny", FILES) as hub:
        reach(hub.url)
        yield hub


# On this machine.


def test_server_model_needs_no_local_checkpoint() -> None:
    card = Card("far", "Far", "funasr_nano", {"server": "http://nowhere.invalid"})
    assert local_checkpoint(card) is None
    assert why_not_here(card) is None, "no server is asked"
    with pytest.raises(
        BadInput, match=r"far runs on the server http://nowhere\.invalid; its checkpoint is not on this"
    ):
        fetch(card)


def test_missing_server_key_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card("far", "Far", "funasr_nano", {"server": "http://nowhere.invalid", "key": "FAR_KEY"})
    monkeypatch.delenv("FAR_KEY", raising=False)
    assert "expected in the environment variable FAR_KEY, which is not set" in str(why_not_here(card))
    monkeypatch.setenv("FAR_KEY", "secret")
    assert why_not_here(card) is None


def test_demo_checkpoints_are_present_and_small() -> None:
    demos = [card for card in read_cards(SHIPPED) if "demo" in card.source]
    assert len(demos) >= 2
    for card in demos:
        assert why_not_here(card) is None
        directory = fetch(card)
        assert directory == assets() / card.source["demo"]
        sizes = [path.stat().st_size for path in directory.rglob("*") if path.is_file()]
        assert max(sizes) < 10e6
        assert sum(sizes) <= (40e6 if card.family == "speechlm" else 12e6)  # a codec is large
        assert (directory / "README.md").is_file()


def test_local_directory_is_used_directly(tmp_path: Path) -> None:
    card = Card("mine", "Mine", "sensevoice", {"directory": str(tmp_path)})
    assert why_not_here(card) is None
    assert fetch(card) == local_checkpoint(card) == tmp_path


def test_gguf_file_is_used_directly_and_a_missing_one_is_named(tmp_path: Path) -> None:
    encoder, language = tmp_path / "encoder.gguf", tmp_path / "llm.gguf"
    card = Card("pair", "Pair", "funasr_nano", {"gguf": str(encoder), "language": str(language)})
    for file in (encoder, language):
        assert local_checkpoint(card) is None and why_not_here(card) == f"its GGUF file {file} is missing"
        with pytest.raises(BadInput, match=rf"^pair: its GGUF file {file} is missing$"):
            fetch(card)
        file.touch()
    assert fetch(card) == local_checkpoint(card) == encoder and why_not_here(card) is None


def test_a_missing_local_directory_is_named(tmp_path: Path) -> None:
    card = Card("mine", "Mine", "sensevoice", {"directory": str(tmp_path / "gone")})
    assert str(tmp_path / "gone") in str(why_not_here(card))
    with pytest.raises(BadInput, match=r"mine: its checkpoint directory .*gone is missing"):
        fetch(card)


def test_missing_assets_folder_raises_unavailable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workbench.registry.sources, "__file__", str(tmp_path / "workbench" / "registry" / "sources.py"))
    with pytest.raises(Unavailable, match="install it again"):
        assets()


# A hub that cannot be reached.


def test_offline_fetch_raises_one_line_error_at_once() -> None:
    """The tests run with HF_HUB_OFFLINE=1."""
    assert "not downloaded yet: opening it fetches owner/tiny (5.0 MB)" in str(why_not_here(hub_card()))
    start = time.monotonic()
    with pytest.raises(
        Unavailable, match=r"tiny is not on this machine, and .* cannot be reached; .* owner/tiny"
    ) as caught:
        fetch(hub_card())
    assert time.monotonic() - start < 5
    assert "\n" not in str(caught.value)


def test_refused_connection_raises_an_error_at_once(reach) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    reach(f"http://127.0.0.1:{port}")  # no program listens there any more
    start = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached; connect to the network once"):
        fetch(hub_card())
    assert time.monotonic() - start < 5


def test_silent_server_times_out(reach, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a firewall that drops packets: the connection opens and no data comes."""
    monkeypatch.setattr(workbench.registry.sources, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        reach(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Unavailable, match="cannot be reached"):
            fetch(hub_card())


# A hub that answers.


def test_download_fetches_the_needed_files_and_reports_progress(hub: FakeHub) -> None:
    reports: list[tuple[float, str]] = []
    directory = fetch(hub_card(), lambda share, activity: reports.append((share, activity)))
    assert {path.name for path in directory.rglob("*") if path.is_file()} == NEEDED
    assert (directory / "model.pt").read_bytes() == WEIGHTS
    assert reports
    assert all(0 < share <= 1 for share, _ in reports)
    assert reports[-1] == (1.0, "downloading owner/tiny: 5 of 5 MB")


def test_downloaded_checkpoint_is_found_without_a_network(hub: FakeHub) -> None:
    directory = fetch(hub_card())
    hub.status = 503
    downloads = len(hub.downloads)
    assert why_not_here(hub_card()) is None
    assert fetch(hub_card()) == directory
    assert len(hub.downloads) == downloads


@pytest.mark.parametrize("repository", ["owner/absent", "not a repository name"])
def test_missing_repository_is_named_in_the_error(hub: FakeHub, repository: str) -> None:
    with pytest.raises(Unavailable, match=f"tiny: the Hugging Face hub has no public repository {repository}"):
        fetch(hub_card(repository))


def test_hub_server_error_is_distinguished_from_no_network(hub: FakeHub) -> None:
    hub.status = 500
    with pytest.raises(Unavailable, match="the Hugging Face hub answers with error 500"):
        fetch(hub_card())


def test_interrupted_download_is_not_used_as_complete(hub: FakeHub) -> None:
    hub.breaks_off = "model.pt"
    with pytest.raises(Unavailable, match="the download of owner/tiny broke off; open it again"):
        fetch(hub_card())
    assert "not downloaded yet" in str(why_not_here(hub_card()))
    hub.breaks_off = None
    assert (fetch(hub_card()) / "model.pt").read_bytes() == WEIGHTS


def test_missing_small_file_makes_a_download_incomplete(hub: FakeHub) -> None:
    hub.breaks_off = "config.yaml"
    with pytest.raises(Unavailable, match="broke off"):
        fetch(hub_card())
    assert local_checkpoint(hub_card()) is None


def test_download_can_be_cancelled_from_its_progress_callback(hub: FakeHub) -> None:
    def stop(share: float, activity: str) -> None:
        raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        fetch(hub_card(), stop)
    assert local_checkpoint(hub_card()) is None


def test_storage_error_of_a_download_is_not_reported_as_network_error(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where the folder should be")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(blocker / "hub"))
    with pytest.raises(Unavailable, match="tiny cannot be stored on this machine: Not a directory"):
        fetch(hub_card())


# Files of the families.


INDEX = b'{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}'
REPOSITORIES: dict[str, tuple[str, dict[str, bytes], set[str]]] = {
    "Fun-ASR-Nano": (
        "funasr_nano",
        {
            "model.pt": WEIGHTS,
            "config.yaml": b"model: FunASRNano\n",
            "multilingual.tiktoken": b"IQ== 0\n",
            "Qwen3-0.6B/config.json": b"{}",
            "Qwen3-0.6B/merges.txt": b"#version: 0.2\n",
            "Qwen3-0.6B/vocab.json": b"{}",
        },
        {"example/zh.mp3", "images/logo.png"},
    ),
    "FireRedASR": (
        "fireredasr",
        {"model.pth.tar": WEIGHTS, "asr_encoder.pth.tar": b"encoder", "cmvn.ark": b"cmvn", "config.yaml": b"{}\n"},
        {"model.pt", "speech.wav"},
    ),
    "a language model": (
        "causal_lm",
        {
            "config.json": b"{}",
            "model.safetensors": WEIGHTS,
            "tokenizer.json": b"{}",
            "chat_template.jinja": b"{}",
            "tokenizer.model": b"pieces",
            "merges.txt": b"#version: 0.2\n",
        },
        {"pytorch_model.bin", "consolidated.safetensors", "original/model.pth"},
    ),
    "a language model in shards": (
        "causal_lm",
        {
            "config.json": b"{}",
            "model.safetensors.index.json": INDEX,
            "model-00001-of-00002.safetensors": WEIGHTS,
            "model-00002-of-00002.safetensors": WEIGHTS[:-1],
        },
        set(),
    ),
}


@pytest.mark.parametrize("name", REPOSITORIES)
def test_download_fetches_the_files_of_the_family_and_is_found_again(reach, name: str) -> None:
    family, needed, unneeded = REPOSITORIES[name]
    with fake_hub("owner/tiny", {**needed, **dict.fromkeys(unneeded, b"not wanted")}) as hub:
        reach(hub.url)
        directory = fetch(hub_card(family=family))
        names = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
        assert names == needed.keys()
        hub.status = 503
        assert fetch(hub_card(family=family)) == directory


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("a language model", "model.safetensors"),
        ("a language model in shards", "model-00002-of-00002.safetensors"),
        ("a language model in shards", "model.safetensors.index.json"),
        ("FireRedASR", "model.pth.tar"),
        ("FireRedASR", "cmvn.ark"),
    ],
)
def test_incomplete_weights_are_not_used_as_downloaded(reach, name: str, file: str) -> None:
    family, needed, _ = REPOSITORIES[name]
    with fake_hub("owner/tiny", needed) as hub:
        reach(hub.url)
        directory = fetch(hub_card(family=family))
        # As after an interrupted download: the snapshot is known, and a file of it is missing or cut off.
        (directory / file).unlink()
        if file.endswith("index.json"):
            (directory / file).write_text("[" * 100_000)  # which no reader of JSON takes
        assert local_checkpoint(hub_card(family=family)) is None
        assert "not downloaded yet" in str(why_not_here(hub_card(family=family)))
