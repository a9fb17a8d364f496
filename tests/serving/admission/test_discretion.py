"""What visitors of a public server read in errors: no folder of the server, and no address of a model."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from workbench.artifacts.process import ERRORS
from workbench.core.errors import Busy, DiskFull, NoRoom, Unavailable
from workbench.core.visitors import told
from workbench.evaluation.child import portable
from workbench.openai_api.errors import error_answer
from workbench.parity_lab.found import result_or_reason
from workbench.registry.catalogue import read_catalogue
from workbench.registry.registry import Registry
from workbench.serving.admission.discretion import FULL, discreet, without_folders
from workbench.serving.admission.guard import Guard
from workbench.serving.offers import neural_choices, offers, vad_choices
from workbench.serving.sessions import SessionPool

CARDS = """
[[model]]
id = "mine"
name = "Mine"
family = "sensevoice"
source = { directory = "/srv/private/mine" }

[[model]]
id = "remote"
name = "Remote"
family = "funasr_nano"
source = { server = "http://10.1.2.3:8000" }

[[model]]
id = "lost"
name = "Lost"
family = "sensevoice"
source = { directory = 5 }
"""


@pytest.mark.parametrize(
    "text, expected",
    [
        ("/home/anna/x.gguf is damaged", "x.gguf is damaged"),
        ("it is missing (/home/anna)", "it is missing (anna)"),
        ("'/home/anna/a/b.wav', /home/anna/c/: 2 files", "'b.wav', c: 2 files"),
        ("/home/anna/a /home/anna/b", "a b"),
        ("/home/annabel/x is another's", "/home/annabel/x is another's"),
        ("/srv/home/anna/x is elsewhere", "/srv/home/anna/x is elsewhere"),
        ("POST /v1/audio/transcriptions, and/or https://a.example/home/anna", None),
    ],
)
def test_paths_in_folders_are_cut_to_their_last_name(text: str, expected: str | None) -> None:
    assert without_folders(text, ["/home/anna", "/"]) == (expected or text)


def test_visitors_read_neither_folders_nor_addresses_of_models() -> None:
    text = f"{tempfile.gettempdir()}/workbench-x/run.json and {Path.home()}/.cache/m are missing"
    assert discreet(text) == "run.json and m are missing"
    places = ["/srv/private/mine", "http://10.1.2.3:8000"]
    assert (
        discreet("the server http://10.1.2.3:8000 ended; see /srv/private/mine", places) == "the server ended; see mine"
    )


def test_errors_in_a_turn_are_told_to_visitors_without_places() -> None:
    place = f"{tempfile.gettempdir()}/workbench-x/a.safetensors"
    public, local = Guard("public"), Guard()
    with pytest.raises(NoRoom, match=f"^{FULL}$"), public.turn("parity"):
        raise DiskFull(f"{place} could not be written")
    with pytest.raises(Busy, match=r"^a\.safetensors is in use$") as caught, public.turn("parity"):
        raise Busy(f"{place} is in use", 7.0)
    assert caught.value.retry_seconds == 7.0
    with pytest.raises(DiskFull, match=place), local.turn("parity"):
        raise DiskFull(f"{place} could not be written")


def test_sentences_within_results_are_told_without_places() -> None:
    error = DiskFull(f"{tempfile.gettempdir()}/workbench-x could not be written")

    def fail() -> None:
        raise error

    assert told(error) == str(error)
    with Guard("public").turn("parity"):
        assert told(error) == FULL and result_or_reason(fail) == (None, FULL)


def test_full_disk_stays_one_across_processes_and_routes() -> None:
    assert ERRORS["DiskFull"] is DiskFull and portable(DiskFull("x"))[0] is DiskFull
    assert error_answer(DiskFull("x"))[0] == error_answer(NoRoom("x"))[0] == 507
    assert error_answer(Unavailable("x"))[0] == 503


def test_public_page_lists_open_models_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "models.toml"
    listed.write_text(CARDS)
    monkeypatch.setenv("WORKBENCH_MODELS", str(listed))
    with SessionPool(Registry(), guard=Guard("public")) as pool:
        registry = pool.registry
        assert {card.kind for card in registry.cards()} == {"demo", "directory", "server"}
        assert vad_choices(registry) == ("auto", "silero", "none") and neural_choices(registry) == ("demo/qwen3",)
        assert not any(offer.fetches for offer in offers(registry))
        assert not registry.bad_cards()
        reasons = {(offer.cell.model, offer.cell.runtime): offer.reason for offer in offers(registry)}
        assert reasons["mine", "pytorch"] == "its checkpoint directory mine is missing"
        assert reasons["remote", "pytorch"].startswith("it runs on the server, so")
    with SessionPool(Registry()) as pool:
        assert pool.registry.cards() == list(read_catalogue().cards) and len(pool.registry.bad_cards()) == 1
        assert any(offer.fetches for offer in offers(pool.registry))
