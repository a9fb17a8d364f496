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
from workbench.artifacts.vllm_directories import vllm_directory  # noqa: E402
from workbench.core.settings import Server  # noqa: E402
from workbench.embeddings import write_embedding  # noqa: E402
from workbench.families.language.directory import LanguageTokenizer  # noqa: E402
from workbench.registry.registry import Registry  # noqa: E402
from workbench.registry.sources import assets  # noqa: E402
from workbench.runtimes.vllm.body import LimitedBody  # noqa: E402
from workbench.runtimes.vllm.embedding_parts.chat import ARCHITECTURE  # noqa: E402
from workbench.runtimes.vllm.remote.client import Client  # noqa: E402
from workbench.runtimes.vllm.remote.embedding import placeholder_there  # noqa: E402
from workbench.runtimes.vllm.remote.service import find_service  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[4]
OVERRIDES = ("--hf-overrides", json.dumps({"architectures": [ARCHITECTURE]}))
LIMITED = ("--middleware", f"{LimitedBody.__module__}.{LimitedBody.__name__}")
NAMES = ("three_seven_one", "librivox_austen_0880", "long_digits")
QUESTION = "语音转写："  # before the speech, in the demo Fun-ASR-Nano's prompt
PAD = "<|fim_pad|>"
FIM_PAD, END = 475, 458  # in the demo's vocabulary
WIDTH = 128
TOO_LARGE = "size"  # the bad request whose body is not read
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Reference:
    """Embeddings, prompt and transcript of a recording, by the demo Fun-ASR-Nano on PyTorch."""

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
    """The served directory of an ordinary Qwen3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("served")))
        return vllm_directory(assets() / "demo-funasr-nano", "causal_lm")


@pytest.fixture(scope="module")
def server(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    process = RealServer(directory, tmp_path_factory.mktemp("log") / "server.log", extra_arguments=OVERRIDES + LIMITED)
    yield process
    process.kill()


@pytest.fixture(scope="module")
def recordings() -> list[Reference]:
    with Registry(isolate=False) as registry, registry.open("demo/funasr-nano", "pytorch") as session:
        traces = [session.trace(assets() / "samples" / f"{name}.wav") for name in NAMES]
    return [
        Reference(
            trace["adaptor.output"], trace["prompt.tokens"].tolist(), trace["tokens"].tolist(), str(trace["text"])
        )
        for trace in traces
    ]


@pytest.fixture(scope="module")
def transformers_ids(directory: Path) -> Callable[..., list[int]]:
    """The greedy ids after a prompt of token ids and embeddings, of the same weights in transformers."""
    import transformers

    network = transformers.AutoModelForCausalLM.from_pretrained(str(directory), dtype=torch.float32)

    def ids(parts: Sequence[list[int] | np.ndarray], maximum: int = 40, minimum: int = 0) -> list[int]:
        table = network.get_input_embeddings()
        rows = [
            torch.from_numpy(part) if isinstance(part, np.ndarray) else table(torch.tensor(part, dtype=torch.long))
            for part in parts
        ]
        with torch.no_grad():
            output = network.generate(
                inputs_embeds=torch.cat(rows)[None],
                attention_mask=torch.ones(1, sum(map(len, rows)), dtype=torch.long),
                do_sample=False,
                max_new_tokens=maximum,
                min_new_tokens=minimum,
                eos_token_id=END,
                pad_token_id=END,
            )
        return [int(number) for number in output[0]]

    return ids


def part(content: bytes | str, encoding: str = "npy", **fields: Any) -> dict[str, Any]:
    data = content if isinstance(content, str) else base64.b64encode(content).decode()
    return {"type": "embedding", "embedding": {"data": data, "encoding": encoding, **fields}}


def rows(values: np.ndarray, encoding: str = "npy") -> dict[str, Any]:
    return part(write_embedding(values, None, encoding), encoding)


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def body(content: Any, **fields: Any) -> dict[str, Any]:
    return {
        "model": "far",
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 100,
        "return_token_ids": True,
        **fields,
    }


def post(server: RealServer, request: Any, route: str = "/v1/chat/completions") -> Any:
    return httpx.post(f"{server.url}{route}", json=request, timeout=300)


def token_ids(server: RealServer, request: Any, route: str = "/v1/chat/completions") -> tuple[list[int], list[int]]:
    """Returns the ids of the prompt and those of the answer."""
    response = post(server, request, route)
    assert response.status_code == 200, response.text
    answer = response.json()
    choice = answer["choices"][0]
    return answer.get("prompt_token_ids") or choice["prompt_token_ids"], choice["token_ids"]


@pytest.mark.parametrize("encoding", ["npy", "pt", "safetensors", "npz"])
@pytest.mark.parametrize("number", range(len(NAMES)))
def test_embeddings_have_the_transcript_of_their_recording(
    number: int, encoding: str, server: RealServer, recordings: list[Reference]
) -> None:
    recording = recordings[number]
    prompt, ids = token_ids(server, body([text(QUESTION), rows(recording.rows, encoding)]))
    position = recording.prompt.index(-1)
    assert prompt == recording.prompt[:position] + [FIM_PAD] * len(recording.rows) + recording.prompt[position + 1 :]
    assert ids == recording.tokens


def test_recording_split_into_two_embeddings_gives_the_same_transcript(
    server: RealServer, recordings: list[Reference]
) -> None:
    """With every form of placeholder; also as files of another program, in float64 and float32."""
    recording = recordings[0]
    first, second = recording.rows[:1], recording.rows[1:]
    halves = [
        [text(QUESTION), rows(first), rows(second, "pt")],
        [text(f"{QUESTION}{PAD}{PAD}"), rows(first), rows(second)],
        [rows(first), text(f"{QUESTION}{PAD}{PAD}"), rows(second)],
        [text(QUESTION), part(npy(first.astype(np.float64))), part(pt(torch.from_numpy(second)[None]), "pt")],
    ]
    assert [token_ids(server, body(content))[1] for content in halves] == [recording.tokens] * len(halves)


def test_two_recordings_in_one_prompt_give_the_tokens_of_transformers(
    server: RealServer, recordings: list[Reference], transformers_ids: Callable[..., list[int]]
) -> None:
    first, second, limits = recordings[0].rows, recordings[1].rows, {"max_tokens": 40, "min_tokens": 8}
    prompt, ids = token_ids(server, body([text(QUESTION), rows(first), text(QUESTION), rows(second)], **limits))
    positions = [index for index, number in enumerate(prompt) if number == FIM_PAD]
    assert len(positions) == len(first) + len(second)
    start, middle = positions[0], positions[len(first)]
    parts = [prompt[:start], first, prompt[start + len(first) : middle], second, prompt[middle + len(second) :]]
    assert ids == transformers_ids(parts, minimum=8)
    assert ids != token_ids(server, body([text(QUESTION), rows(second), text(QUESTION), rows(first)], **limits))[1]


@pytest.mark.parametrize("cuts", [(5, 19), (0, 25), (5, 10), (0, 5, 10, 19)])
def test_rows_of_the_embedding_table_give_the_same_tokens_as_their_text(
    server: RealServer, directory: Path, cuts: tuple[int, ...]
) -> None:
    """Every second part of a text is an embedding: the same numbers give the same log-probabilities."""
    from safetensors.torch import load_file

    sentence, tokenizer = "count from three to seven", LanguageTokenizer.read(directory)
    table = load_file(directory / "model.safetensors")["model.embed_tokens.weight"].float().numpy()
    stretches = [sentence[start:stop] for start, stop in zip((0, *cuts), (*cuts, len(sentence)), strict=True)]
    parts = [
        rows(table[tokenizer.encode(stretch)]) if number % 2 else text(stretch)
        for number, stretch in enumerate(stretches)
        if stretch
    ]
    options = {"logprobs": True, "top_logprobs": 5, "max_tokens": 20}
    plain, mixed = (post(server, body(content, **options)).json()["choices"][0] for content in (sentence, parts))
    assert plain["token_ids"] == mixed["token_ids"]
    expected, actual = ([step["logprob"] for step in choice["logprobs"]["content"]] for choice in (plain, mixed))
    assert actual == pytest.approx(expected, abs=1e-5)
    assert plain["message"]["content"] == "three four five six seven"


def test_sixteen_concurrent_requests_equal_single_requests(server: RealServer, recordings: list[Reference]) -> None:
    """The requests have one embedding, two or none, of several lengths, and two of them are equal."""
    random = np.random.default_rng(0)
    random_rows = [0.05 * random.standard_normal((length, WIDTH)).astype(np.float32) for length in (1, 40, 300)]
    speech = [recording.rows for recording in recordings]
    contents: list[Any] = [
        *([text(QUESTION), rows(values)] for values in (*speech, *random_rows, speech[0])),
        *(
            [text(QUESTION), rows(speech[0]), text("and"), rows(values)]
            for values in (speech[1], random_rows[1], random_rows[2])
        ),
        [rows(speech[2])],
        *("count from three to seven", "one, two", "2 5 9", "nine", "count from one to nine"),
    ]
    assert len(contents) == 16
    requests = [body(content, min_tokens=20, max_tokens=60) for content in contents]
    expected = [token_ids(server, request) for request in requests]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda request: token_ids(server, request), requests))
    assert answers == expected
    assert len({tuple(ids) for _, ids in expected}) > 8, "most answers differ"


def test_whole_prompt_as_embeddings_gives_the_tokens_of_transformers(
    server: RealServer, recordings: list[Reference], transformers_ids: Callable[..., list[int]]
) -> None:
    """By vLLM's own fields for embeddings, in completions and in chats."""
    recording = recordings[0]
    encoded = base64.b64encode(pt(torch.from_numpy(recording.rows))).decode()
    _, ids = token_ids(
        server,
        {"model": "far", "prompt_embeds": encoded, "temperature": 0, "max_tokens": 40, "return_token_ids": True},
        "/v1/completions",
    )
    assert ids == transformers_ids([recording.rows])
    _, ids = token_ids(server, body([{"type": "prompt_embeds", "data": encoded}]))
    assert ids == token_ids(server, body([rows(recording.rows)]))[1]


def bad(tmp_path: Path) -> dict[str, tuple[Any, str]]:
    """Maps the name of a bad request to the content of its message and a part of the error."""
    valid = np.ones((3, WIDTH), dtype=np.float32)
    trap = Trap(tmp_path / "executed")
    with_nan = np.full((3, WIDTH), np.nan, dtype=np.float32)
    bomb = npz(small=True, embedding=np.zeros((1_100_000, 64), dtype=np.float32))
    return {
        "width": ([part(npy(valid[:, :100]))], "has the shape (3, 100); the model expects vectors of 128"),
        "empty": ([part(npy(valid[:0]))], "has the shape (0, 128), which is empty"),
        "batch": ([part(npy(np.stack([valid, valid])))], "a batch of 2; expected (tokens, hidden)"),
        "one dimension": ([part(npy(valid[0]))], "has the shape (128,); expected (tokens, hidden)"),
        "nan": ([part(npy(with_nan))], "NaN or infinite"),
        "infinite": ([part(pt(torch.full((3, WIDTH), float("inf"))), "pt")], "NaN or infinite"),
        "int8": ([part(npy(valid.astype(np.int8)))], "holds int8; expected floating-point numbers"),
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
        "other encoding": ([part(npy(valid), "pt")], "is said to be pt and is a .npy file"),
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
        "placeholders, one too many": ([text(f"{PAD}{PAD}"), rows(valid)], "2 times and comes with 1 embedding;"),
        "placeholders, one too few": ([text(PAD), rows(valid), rows(valid)], "once and comes with 2 embeddings"),
        "placeholder alone": (f"what is {PAD}?", "once and comes with no embeddings; expected one for each"),
        TOO_LARGE: ([part("A" * 350_000_000)], "the request has more than 342 MB, the most that this server reads"),
    }


def send_at_once(server: RealServer, content: str) -> tuple[int, bytes]:
    """Returns status and body of the answer; httpx would need 20 s to send the longest content."""
    with contextlib.closing(http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=300)) as connection:
        connection.request("POST", "/v1/chat/completions", content.encode(), JSON)
        answer = connection.getresponse()
        return answer.status, answer.read()


def test_refused_requests_do_not_disturb_a_running_stream(
    server: RealServer, recordings: list[Reference], tmp_path: Path
) -> None:
    """A long answer continues while the server refuses bad requests, each with its own one-line error."""
    recording = recordings[0]
    bad_requests = {name: (json.dumps(body(content)), reason) for name, (content, reason) in bad(tmp_path).items()}
    long_request = body([text(QUESTION), rows(recording.rows)], min_tokens=200, max_tokens=200)
    _, expected = token_ids(server, long_request)
    streamed: list[int] = []
    during_stream = 0  # bad requests sent while the answer streamed
    with httpx.stream(
        "POST", f"{server.url}/v1/chat/completions", json={**long_request, "stream": True}, timeout=300
    ) as reply:
        lines = (line.removeprefix("data: ") for line in reply.iter_lines() if line.startswith("data: {"))

        def read_tokens(count: int) -> None:
            while len(streamed) < count and (line := next(lines, None)) is not None:
                for choice in json.loads(line)["choices"]:
                    streamed.extend(choice.get("token_ids") or ())

        read_tokens(1)
        for name, (request, reason) in bad_requests.items():
            during_stream += server.running() == 1
            status, answer = send_at_once(server, request)
            assert status == (413 if name == TOO_LARGE else 400), (name, answer[:500])
            sentence = json.loads(answer)["error"]["message"]
            assert reason in sentence and "\n" not in sentence and len(sentence) < 900, (name, sentence)
            read_tokens(len(streamed) + 1)
        read_tokens(1000)
    assert streamed == expected and len(streamed) == 200 and during_stream > 3
    assert not (tmp_path / "executed").exists()
    assert httpx.get(f"{server.url}/health").status_code == 200
    assert token_ids(server, body([text(QUESTION), rows(recording.rows)]))[1] == recording.tokens


def test_embedding_of_a_refused_request_can_be_sent_again(server: RealServer, recordings: list[Reference]) -> None:
    """vLLM refuses the first request after it has read the embedding, and accepts the same embedding again."""
    fresh = np.random.default_rng(7).standard_normal((5, WIDTH)).astype(np.float32)
    assert post(server, body([rows(fresh)], max_tokens=5000)).status_code == 400
    assert post(server, body([rows(fresh)], max_tokens=5)).status_code == 200


def test_client_detects_that_the_server_accepts_embeddings(server: RealServer) -> None:
    client = Client(Server(server.url, "far"), "mine")
    with contextlib.closing(client):
        assert placeholder_there(client, find_service(client, "far")) == PAD


def test_example_script_prints_the_transcript_for_recording_and_embedding_files(
    server: RealServer, recordings: list[Reference], tmp_path: Path
) -> None:
    """Without arguments the script sends a recording, otherwise the named files."""
    example = [sys.executable, str(ROOT / "notebooks" / "inject_client.py"), "--server", f"{server.url}/v1"]
    files = [
        write_embedding(half, tmp_path / f"half.{kind}")
        for half, kind in ((recordings[0].rows[:2], "pt"), (recordings[0].rows[2:], "safetensors"))
    ]
    embedding_arguments = [argument for path in files for argument in ("--embedding", str(path))]
    for arguments in ([], embedding_arguments):
        process = subprocess.run(
            [*example, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ}
        )
        assert process.returncode == 0, process.stderr[-2000:]
        assert process.stdout.strip() == recordings[0].text
    assert sorted(tmp_path.iterdir()) == sorted(files), "the script writes no files"
