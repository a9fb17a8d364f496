"""Embeddings in chats on a vLLM server of the demo's language model, compared with PyTorch and transformers."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("vllm", reason="needs vLLM")

import httpx  # noqa: E402

from tests.embeddings.files import Trap, archive, npy, npy_header, npz, pt, safetensors  # noqa: E402
from tests.runtimes.vllm.remote.real_server import RealServer  # noqa: E402
from workbench.artifacts.vllm_directories import served_directory  # noqa: E402
from workbench.core.settings import Server  # noqa: E402
from workbench.embeddings import write_embedding  # noqa: E402
from workbench.families.language import LanguageTokenizer  # noqa: E402
from workbench.registry.registry import Registry  # noqa: E402
from workbench.registry.sources import assets  # noqa: E402
from workbench.runtimes.vllm.body import LimitedBody  # noqa: E402
from workbench.runtimes.vllm.chat import ARCHITECTURE  # noqa: E402
from workbench.runtimes.vllm.remote.client import Client  # noqa: E402
from workbench.runtimes.vllm.remote.embedding import placeholder_there  # noqa: E402
from workbench.runtimes.vllm.remote.service import find_service  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
OVERRIDES = ("--hf-overrides", json.dumps({"architectures": [ARCHITECTURE]}))
LIMITED = ("--middleware", f"{LimitedBody.__module__}.{LimitedBody.__name__}")
NAMES = ("three_seven_one", "librivox_austen_0880", "long_digits")
ASKED = "语音转写："  # before the speech, in the demo Fun-ASR-Nano's prompt
PAD = "<|fim_pad|>"
FIM_PAD, END = 475, 458  # in the demo's vocabulary
WIDTH = 128
LONG = "size"  # of bad requests the one that is not read
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Heard:
    """What the demo Fun-ASR-Nano makes of a recording on PyTorch."""

    rows: np.ndarray  # as its language model receives them
    prompt: list[int]
    tokens: list[int]
    text: str


@pytest.fixture(scope="module", autouse=True)
def no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an ordinary Qwen3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("served")))
        return served_directory(assets() / "demo-funasr-nano", "causal_lm")


@pytest.fixture(scope="module")
def served(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    server = RealServer(directory, tmp_path_factory.mktemp("log") / "server.log", more=OVERRIDES + LIMITED)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def recordings() -> list[Heard]:
    with Registry(isolate=False) as registry, registry.open("demo/funasr-nano", "pytorch") as session:
        traces = [session.trace(assets() / "samples" / f"{name}.wav") for name in NAMES]
    return [
        Heard(trace["adaptor.output"], trace["prompt.tokens"].tolist(), trace["tokens"].tolist(), str(trace["text"]))
        for trace in traces
    ]


@pytest.fixture(scope="module")
def transformers_ids(directory: Path) -> Callable[..., list[int]]:
    """The greedy ids after a prompt of token ids and embeddings, of the same weights in transformers."""
    import transformers

    network = transformers.AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)

    def ids(parts: Sequence[list[int] | np.ndarray], most: int = 40, least: int = 0) -> list[int]:
        table = network.get_input_embeddings()
        rows = [
            torch.from_numpy(part) if isinstance(part, np.ndarray) else table(torch.tensor(part, dtype=torch.long))
            for part in parts
        ]
        with torch.no_grad():
            found = network.generate(
                inputs_embeds=torch.cat(rows)[None],
                attention_mask=torch.ones(1, sum(map(len, rows)), dtype=torch.long),
                do_sample=False,
                max_new_tokens=most,
                min_new_tokens=least,
                eos_token_id=END,
                pad_token_id=END,
            )
        return [int(number) for number in found[0]]

    return ids


def part(content: bytes | str, encoding: str = "npy", **more: Any) -> dict[str, Any]:
    data = content if isinstance(content, str) else base64.b64encode(content).decode()
    return {"type": "embedding", "embedding": {"data": data, "encoding": encoding, **more}}


def rows(values: np.ndarray, encoding: str = "npy") -> dict[str, Any]:
    return part(write_embedding(values, None, encoding), encoding)


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


def body(content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": "far",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 100,
        "return_token_ids": True,
        **fields,
    }


def posted(served: RealServer, asked: Any, route: str = "/v1/chat/completions") -> Any:
    return httpx.post(f"{served.url}{route}", json=asked, timeout=300)


def answered(served: RealServer, asked: Any, route: str = "/v1/chat/completions") -> tuple[list[int], list[int]]:
    """(the ids of the prompt, those of the answer)."""
    response = posted(served, asked, route)
    assert response.status_code == 200, response.text
    whole = response.json()
    choice = whole["choices"][0]
    return whole.get("prompt_token_ids") or choice["prompt_token_ids"], choice["token_ids"]


@pytest.mark.parametrize("encoding", ["npy", "pt", "safetensors", "npz"])
@pytest.mark.parametrize("number", range(len(NAMES)))
def test_embeddings_have_the_transcript_of_their_recording(
    number: int, encoding: str, served: RealServer, recordings: list[Heard]
) -> None:
    heard = recordings[number]
    prompt, ids = answered(served, body([text(ASKED), rows(heard.rows, encoding)]))
    at = heard.prompt.index(-1)
    assert prompt == heard.prompt[:at] + [FIM_PAD] * len(heard.rows) + heard.prompt[at + 1 :]
    assert ids == heard.tokens


def test_recording_split_into_two_embeddings_gives_the_same_transcript(
    served: RealServer, recordings: list[Heard]
) -> None:
    """In each way of saying where they go; and as float64, float16 and bfloat16 by other programs."""
    heard = recordings[0]
    first, second = heard.rows[:1], heard.rows[1:]
    halves = [
        [text(ASKED), rows(first), rows(second, "pt")],
        [text(f"{ASKED}{PAD}{PAD}"), rows(first), rows(second)],
        [rows(first), text(f"{ASKED}{PAD}{PAD}"), rows(second)],
        [text(ASKED), part(npy(first.astype(np.float64))), part(pt(torch.from_numpy(second)[None]), "pt")],
    ]
    assert [answered(served, body(content))[1] for content in halves] == [heard.tokens] * len(halves)


def test_two_recordings_in_one_prompt_give_the_tokens_of_transformers(
    served: RealServer, recordings: list[Heard], transformers_ids: Callable[..., list[int]]
) -> None:
    one, other, limits = recordings[0].rows, recordings[1].rows, {"max_tokens": 40, "min_tokens": 8}
    prompt, ids = answered(served, body([text(ASKED), rows(one), text(ASKED), rows(other)], **limits))
    at = [index for index, number in enumerate(prompt) if number == FIM_PAD]
    assert len(at) == len(one) + len(other)
    start, middle = at[0], at[len(one)]
    parts = [prompt[:start], one, prompt[start + len(one) : middle], other, prompt[middle + len(other) :]]
    assert ids == transformers_ids(parts, least=8)
    assert ids != answered(served, body([text(ASKED), rows(other), text(ASKED), rows(one)], **limits))[1]


@pytest.mark.parametrize("cuts", [(5, 19), (0, 25), (5, 10), (0, 5, 10, 19)])
def test_rows_of_the_embedding_table_give_the_same_tokens_as_their_text(
    served: RealServer, directory: Path, cuts: tuple[int, ...]
) -> None:
    """Every second stretch of a text as an embedding: the same numbers, and so the same log-probabilities."""
    from safetensors.torch import load_file

    said, tokenizer = "count from three to seven", LanguageTokenizer.read(directory)
    table = load_file(directory / "model.safetensors")["model.embed_tokens.weight"].float().numpy()
    stretches = [said[start:stop] for start, stop in zip((0, *cuts), (*cuts, len(said)), strict=True)]
    parts = [
        rows(table[tokenizer.ids(stretch)]) if number % 2 else text(stretch)
        for number, stretch in enumerate(stretches)
        if stretch
    ]
    asked = {"logprobs": True, "top_logprobs": 5, "max_tokens": 20}
    plain, ours = (posted(served, body(content, **asked)).json()["choices"][0] for content in (said, parts))
    assert plain["token_ids"] == ours["token_ids"]
    theirs, found = ([step["logprob"] for step in each["logprobs"]["content"]] for each in (plain, ours))
    assert found == pytest.approx(theirs, abs=1e-5)
    assert plain["message"]["content"] == "three four five six seven"


def test_sixteen_concurrent_requests_equal_single_requests(served: RealServer, recordings: list[Heard]) -> None:
    """With one embedding, two, none and equal ones, of several lengths."""
    random = np.random.default_rng(0)
    drawn = [0.05 * random.standard_normal((length, WIDTH)).astype(np.float32) for length in (1, 40, 300)]
    speech = [heard.rows for heard in recordings]
    contents: list[Any] = [
        *([text(ASKED), rows(values)] for values in (*speech, *drawn, speech[0])),
        *([text(ASKED), rows(speech[0]), text("and"), rows(values)] for values in (speech[1], drawn[1], drawn[2])),
        [rows(speech[2])],
        *("count from three to seven", "one, two", "2 5 9", "nine", "count from one to nine"),
    ]
    assert len(contents) == 16
    asked = [body(content, min_tokens=20, max_tokens=60) for content in contents]
    alone = [answered(served, each) for each in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda each: answered(served, each), asked))
    assert together == alone
    assert len({tuple(ids) for _, ids in alone}) > 8, "they are not all the same"


def test_whole_prompt_as_embeddings_gives_the_tokens_of_transformers(
    served: RealServer, recordings: list[Heard], transformers_ids: Callable[..., list[int]]
) -> None:
    """vLLM's own ways, of completions and of chats."""
    heard = recordings[0]
    encoded = base64.b64encode(pt(torch.from_numpy(heard.rows))).decode()
    _, ids = answered(
        served,
        {"model": "far", "prompt_embeds": encoded, "temperature": 0, "max_tokens": 40, "return_token_ids": True},
        "/v1/completions",
    )
    assert ids == transformers_ids([heard.rows])
    _, ids = answered(served, body([{"type": "prompt_embeds", "data": encoded}]))
    assert ids == answered(served, body([rows(heard.rows)]))[1]


def bad(tmp_path: Path) -> dict[str, tuple[Any, str]]:
    """By name: the content of a message, and a part of the sentence that refuses it."""
    good = np.ones((3, WIDTH), dtype=np.float32)
    trap = Trap(tmp_path / "executed")
    broken = np.full((3, WIDTH), np.nan, dtype=np.float32)
    bomb = npz(small=True, embedding=np.zeros((1_100_000, 64), dtype=np.float32))
    return {
        "width": ([part(npy(good[:, :100]))], "has the shape (3, 100); the model expects vectors of 128"),
        "empty": ([part(npy(good[:0]))], "has the shape (0, 128), which is empty"),
        "batch": ([part(npy(np.stack([good, good])))], "a batch of 2; expected (tokens, hidden)"),
        "one dimension": ([part(npy(good[0]))], "has the shape (128,); expected (tokens, hidden)"),
        "nan": ([part(npy(broken))], "NaN or infinite"),
        "infinite": ([part(pt(torch.full((3, WIDTH), float("inf"))), "pt")], "NaN or infinite"),
        "int8": ([part(npy(good.astype(np.int8)))], "holds int8; expected floating-point numbers"),
        "too long": ([rows(np.ones((3000, WIDTH), np.float32))], "is 3000 tokens long; the server takes 2047"),
        "too long together": ([rows(np.ones((1500, WIDTH), np.float32))] * 2, "the server takes 2047 at most"),
        "pickle": ([part(pickle.dumps(trap), "pt")], "a bare pickle, which can hold code and is not read"),
        "pickle in a torch file": ([part(pt({"a": trap}), "pt")], "expected"),
        "pickle in an array": ([part(npy(np.array([trap], dtype=object)))], "expected"),
        "bomb": ([part(bomb, "npz")], "expected"),
        "header that lies": ([part(npy_header((1_000_000, WIDTH)) + bytes(64))], "is 512000000 bytes, and it has 64"),
        "other archive": ([part(archive({"a.txt": b"a"}), "pt")], "expected"),
        "base64": ([part("no base64!")], "is not base64"),
        "other content": ([part(b"RIFFxxxxWAVE")], "begins with 'RIFF"),
        "other encoding": ([part(npy(good), "pt")], "is said to be pt and is a .npy file"),
        "no encoding": (
            [{"type": "embedding", "embedding": {"data": "QUJD"}}],
            "the encoding of the embedding is None",
        ),
        "no data": ([{"type": "embedding"}], "a content part of type embedding has no embedding; expected {"),
        "several": (
            [part(safetensors(one=torch.ones(3, WIDTH), two=torch.ones(2, WIDTH)), "safetensors")],
            "holds 2 tensors: one (3, 128) float32, two (2, 128) float32; expected one, or the name of one",
        ),
        "no such tensor": ([part(safetensors(one=torch.ones(3, WIDTH)), "safetensors", tensor="x")], "no tensor 'x'"),
        "placeholders, one too many": ([text(f"{PAD}{PAD}"), rows(good)], "2 times and comes with 1 embedding;"),
        "placeholders, one too few": ([text(PAD), rows(good), rows(good)], "once and comes with 2 embeddings"),
        "placeholder alone": (f"what is {PAD}?", "once and comes with no embeddings; expected one for each"),
        LONG: ([part("A" * 350_000_000)], "the request has more than 342 MB, the most that this server reads"),
    }


def sent_at_once(served: RealServer, content: str) -> tuple[int, bytes]:
    """Returns status and body of the answer. httpx would take 20 s of a core to send the longest content."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=300)) as connection:
        connection.request("POST", "/v1/chat/completions", content.encode(), JSON)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_refused_requests_do_not_disturb_a_running_stream(
    served: RealServer, recordings: list[Heard], tmp_path: Path
) -> None:
    """A long answer streams on while one bad request after another is refused in a sentence of its own."""
    heard = recordings[0]
    refused = {name: (json.dumps(body(content)), said) for name, (content, said) in bad(tmp_path).items()}
    long = body([text(ASKED), rows(heard.rows)], min_tokens=200, max_tokens=200)
    _, alone = answered(served, long)
    found: list[int] = []
    beside = 0  # requests that came while it streamed
    with httpx.stream("POST", f"{served.url}/v1/chat/completions", json={**long, "stream": True}, timeout=300) as reply:
        lines = (line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: {"))

        def more(least: int) -> None:
            while len(found) < least and (line := next(lines, None)) is not None:
                for choice in json.loads(line)["choices"]:
                    found.extend(choice.get("token_ids") or ())

        more(1)
        for name, (asked, said) in refused.items():
            beside += served.running() == 1
            status, answer = sent_at_once(served, asked)
            assert status == (413 if name == LONG else 400), (name, answer[:500])
            sentence = json.loads(answer)["error"]["message"]
            assert said in sentence and "\n" not in sentence and len(sentence) < 900, (name, sentence)
            more(len(found) + 1)
        more(1000)
    assert found == alone and len(found) == 200 and beside > 3
    assert not (tmp_path / "executed").exists()
    assert httpx.get(f"{served.url}/health").status_code == 200
    assert answered(served, body([text(ASKED), rows(heard.rows)]))[1] == heard.tokens


def test_embedding_of_a_refused_request_can_be_sent_again(served: RealServer, recordings: list[Heard]) -> None:
    """vLLM refuses it when the embedding has been taken; the same embedding is taken again."""
    fresh = np.random.default_rng(7).standard_normal((5, WIDTH)).astype(np.float32)
    assert posted(served, body([rows(fresh)], max_tokens=5000)).status_code == 400
    assert posted(served, body([rows(fresh)], max_tokens=5)).status_code == 200


def test_client_detects_that_the_server_accepts_embeddings(served: RealServer) -> None:
    client = Client(Server(served.url, "far"), "mine")
    with contextlib.closing(client):
        assert placeholder_there(client, find_service(client, "far")) == PAD


def test_example_script_prints_the_transcript_for_recording_and_embedding_files(
    served: RealServer, recordings: list[Heard], tmp_path: Path
) -> None:
    """Of a recording, and of files."""
    example = [sys.executable, str(ROOT / "notebooks" / "inject_client.py"), "--server", f"{served.url}/v1"]
    files = [
        write_embedding(half, tmp_path / f"half.{kind}")
        for half, kind in ((recordings[0].rows[:2], "pt"), (recordings[0].rows[2:], "safetensors"))
    ]
    given = [argument for path in files for argument in ("--embedding", str(path))]
    for more in ([], given):
        done = subprocess.run(
            [*example, *more], capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ}
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.strip() == recordings[0].text
    assert sorted(tmp_path.iterdir()) == sorted(files), "nothing is left behind"
