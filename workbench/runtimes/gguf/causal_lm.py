"""The plain causal language model on llama.cpp: opens a session from a GGUF file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.core.errors import BadInput
from workbench.core.settings import Settings
from workbench.families.gguf_files import contains_language_model
from workbench.families.language.causal_lm import CausalLmModel, read_causal_lm
from workbench.families.language.directory import TURN_END
from workbench.families.speech_llm.fireredasr import find_language_directory
from workbench.formats.gguf_file import GgufFile, read_gguf
from workbench.pipelines.text.causal_lm import CausalLm
from workbench.pipelines.text.text_session import TextSession
from workbench.runtimes.gguf.files.language_file import language_config
from workbench.runtimes.gguf.files.unpacking import FILES, unpacked
from workbench.runtimes.gguf.llama_cpp.language import LanguageModel, open_language
from workbench.runtimes.gguf.llama_cpp.llama_tokenizer import LlamaTokenizer

FIRERED = "fireredasr-llm"  # the architecture of FireRedASR's files
ENDS = (TURN_END, "<|endoftext|>")  # tokens that end an answer of Qwen's models in every program


def open_session(path: Path, name: str, settings: Settings) -> TextSession:
    """Opens a session for the language model in the file at `path`; results call the model `name`.

    If the file holds a speech model, its language model is opened.
    """
    file = read_gguf(path)
    resources = (settings.threads, settings.kv_cache)
    if FILES in file.metadata:
        model = _model_of_checkpoint(file)
        language = open_language(file, model.language, *resources)
        return TextSession(name, "gguf", CausalLm(model, language), language.notes)
    if contains_language_model(file):
        raise BadInput(f"{file.name} carries no tokenizer ({FILES}); convert the model again")
    language = open_language(file, language_config(file), *resources, vocabulary=True)
    try:
        return TextSession(name, "gguf", CausalLm(_model_of_keys(language, file), language), language.notes)
    except BadInput:
        language.close()
        raise


def _model_of_checkpoint(file: GgufFile) -> CausalLmModel:
    """Returns the model with the configuration and the tokenizer of the checkpoint that the file was made from."""
    with unpacked(file) as directory:
        if file.architecture == FIRERED:
            directory = find_language_directory(directory)
        return read_causal_lm(directory, file.path)


def _model_of_keys(language: LanguageModel, file: GgufFile) -> CausalLmModel:
    """Returns the model with the tokenizer in llama.cpp's keys."""
    tokenizer = LlamaTokenizer(language.model, file)
    tokenizer.check_room(language.config)
    ends = [number for number in map(tokenizer.id_of, ENDS) if number is not None]
    stops = tuple(dict.fromkeys([*language.config.stop_ids, *ends]))
    return CausalLmModel(replace(language.config, stop_ids=stops), tokenizer, stops)
