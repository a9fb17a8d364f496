"""Dumps the values between the parts of SenseVoice in the original `funasr` package, under the package's own names.

    python dump_funasr.py CHECKPOINT SPEECH.wav FOLDER [--itn] [--language LANGUAGE]

A program independent of the workbench: it needs only `funasr`, torch, numpy and soundfile. It writes to FOLDER a `.npy`
file for each part, with the package's batch dimension, and `meta.json`. `dump_funasr.toml` beside this file maps the
files to the workbench's stages:

    workbench trace SPEECH.wav --model CHECKPOINT --out trace.safetensors
    workbench compare trace.safetensors FOLDER --mapping dump_funasr.toml
"""

import argparse
import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import soundfile
import torch

PARTS = ("encoder", "encoder.embed", "encoder.after_norm", "ctc.ctc_lo")
STACKS = ("encoder.encoders0", "encoder.encoders", "encoder.tp_encoders")
NEEDED = (
    "funasr.frontends.wav_frontend",
    "funasr.tokenizer.sentencepiece_tokenizer",
    "funasr.models.ctc.ctc",
    "funasr.models.sanm.encoder",
    "funasr.models.sense_voice.model",
)


def auto_model():
    """The package's `AutoModel`, with the parts of SenseVoice alone: the package itself imports every model it has."""
    spec = importlib.util.find_spec("funasr")
    if spec is None:
        sys.exit("the funasr package is not installed")
    shell = types.ModuleType("funasr")
    shell.__spec__, shell.__path__ = spec, list(spec.submodule_search_locations)
    sys.modules["funasr"] = shell
    for name in NEEDED:
        importlib.import_module(name)
    return importlib.import_module("funasr.auto.auto_model").AutoModel


def main() -> None:
    """Parses the arguments, runs the model once, writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("speech")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--itn", action="store_true")
    parser.add_argument("--language", default="auto")
    options = parser.parse_args()
    opened = auto_model()(
        model=options.checkpoint, device="cpu", disable_update=True, disable_pbar=True, log_level="ERROR"
    )
    opened._reset_runtime_configs()  # otherwise it would run copies of the modules that it exposes here
    model, frontend = opened.model, opened.kwargs["frontend"]
    frontend.dither = 0.0
    options.folder.mkdir(parents=True, exist_ok=True)

    def dump(name):
        def hook(module, inputs, output):
            first = output[0] if isinstance(output, tuple) else output
            np.save(options.folder / f"{name}.npy", first.detach().numpy())

        return hook

    frontend.register_forward_hook(dump("frontend"))
    for part in PARTS:
        model.get_submodule(part).register_forward_hook(dump(f"model.{part}"))
    for stack in STACKS:
        for number, layer in enumerate(model.get_submodule(stack)):
            layer.register_forward_hook(dump(f"model.{stack}.{number}"))
            layer.self_attn.linear_out.register_forward_hook(dump(f"model.{stack}.{number}.self_attn.linear_out"))
    samples, rate = soundfile.read(options.speech, dtype="float32")
    with torch.inference_mode():
        opened.generate(input=samples, fs=rate, language=options.language, use_itn=options.itn)
    logits = np.load(options.folder / "model.ctc.ctc_lo.npy")[0]
    path = logits.argmax(axis=1)
    ids = [int(number) for n, number in enumerate(path) if number and (n == 0 or number != path[n - 1])]
    np.save(options.folder / "ids.npy", np.array(ids))
    (options.folder / "meta.json").write_text(json.dumps({"program": "funasr", "dtype": "float32"}))


if __name__ == "__main__":
    main()
