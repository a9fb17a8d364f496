"""The families of this project, one entry for each. A new family is one entry here and the files that it names.

Other packages have their families in an entry of the same form; see `workbench.families.outside`.
"""

from __future__ import annotations

from importlib import import_module

from workbench.families.family import CONVERSE, Cell, Family, GgufParts, HubFiles, VllmParts
from workbench.families.language.directory import MODEL_TYPES
from workbench.session.values import CONVERSATION, PROMPT

FUNASR = HubFiles(weights=("model.pt",))
FUNASR_HINT = "a FunASR checkpoint has a config.yaml beside model.pt"
FUNASR_EXPLAIN = "workbench.families.funasr:explain_directory"
LAYOUTS = "workbench.runtimes.gguf.files.funasr_files"
CLASSES = "workbench.runtimes.vllm.models"
NOTHING_TO_SERVE = "has no autoregressive part, so there is nothing for vLLM to serve"

BUILT_IN: tuple[Family, ...] = (
    Family(
        name="sensevoice",
        title="SenseVoice",
        module="workbench.families.sanm.sensevoice",
        recognise="is_sensevoice",
        options="SenseVoiceOptions",
        mixed=True,
        parts=("ctc", "fsmn", "gradients"),
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.sensevoice"),
            "gguf": Cell("workbench.runtimes.gguf.sensevoice"),
            "vllm": Cell(reason=f"SenseVoice {NOTHING_TO_SERVE}"),
        },
        hub=FUNASR,
        gguf=GgufParts(
            architectures=("sensevoice-small",),
            converter="workbench.conversion.sensevoice",
            layouts={"sensevoice-small": f"{LAYOUTS}:SENSEVOICE"},
        ),
        ctc="workbench.families.vocabularies.ctc_layouts:sensevoice_layout",
        speller="workbench.families.vocabularies.spelling:sensevoice_speller",
        recipe="workbench.training.recognisers.sensevoice",
        explain=FUNASR_EXPLAIN,
        hint=FUNASR_HINT,
    ),
    Family(
        name="paraformer",
        title="Paraformer",
        module="workbench.families.sanm.paraformer",
        recognise="is_paraformer",
        options="SeacoOptions",
        options_of="workbench.families.sanm.paraformer:options_of",
        mixed=True,
        parts=("cif", "fsmn", "gradients"),
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.paraformer"),
            "gguf": Cell("workbench.runtimes.gguf.paraformer"),
            "vllm": Cell(reason=f"Paraformer {NOTHING_TO_SERVE}"),
        },
        hub=FUNASR,
        gguf=GgufParts(
            architectures=("paraformer",),
            converter="workbench.conversion.paraformer",
            layouts={"paraformer": f"{LAYOUTS}:PARAFORMER"},
        ),
        recipe="workbench.training.recognisers.paraformer",
        explain=FUNASR_EXPLAIN,
        hint=FUNASR_HINT,
    ),
    Family(
        name="funasr_nano",
        title="Fun-ASR-Nano",
        module="workbench.families.speech_llm.funasr_nano",
        recognise="is_funasr_nano",
        options="FunasrNanoOptions",
        parts=("fsmn", "gradients"),
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.funasr_nano"),
            "gguf": Cell("workbench.runtimes.gguf.funasr_nano"),
            "vllm": Cell("workbench.runtimes.vllm.funasr_nano"),
        },
        tasks=("transcribe", CONVERSE),
        hub=FUNASR,
        gguf=GgufParts(
            architectures=("funasr-sensevoice-encoder", "funasr-nano"),
            converter="workbench.conversion.funasr_nano",
            layouts={"funasr-sensevoice-encoder": f"{LAYOUTS}:NANO_ENCODER_FILE"},
        ),
        vllm=VllmParts(
            classes={"SpeechWorkbenchFunASRNano": f"{CLASSES}.funasr_nano:SpeechWorkbenchFunASRNano"},
            writer="workbench.conversion.vllm_checkpoint.funasr_nano",
            wording="workbench.runtimes.vllm.remote.wording:NanoWording",
        ),
        ctc="workbench.families.vocabularies.ctc_layouts:funasr_nano_layout",
        recipe="workbench.training.recognisers.funasr_nano",
        explain=FUNASR_EXPLAIN,
        hint=FUNASR_HINT,
    ),
    Family(
        name="fireredasr",
        title="FireRedASR-LLM",
        module="workbench.families.speech_llm.fireredasr",
        recognise="is_fireredasr",
        options="FireRedAsrOptions",
        parts=("gradients",),
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.fireredasr"),
            "gguf": Cell("workbench.runtimes.gguf.fireredasr"),
            "vllm": Cell("workbench.runtimes.vllm.fireredasr"),
        },
        tasks=("transcribe", CONVERSE),
        hub=HubFiles(
            weights=("model.pth.tar", "asr_encoder.pth.tar", "cmvn.ark"),
            optional=("Qwen2-7B-Instruct/*.safetensors",),
        ),
        gguf=GgufParts(architectures=("fireredasr-llm",), converter="workbench.conversion.fireredasr"),
        vllm=VllmParts(
            classes={"SpeechWorkbenchFireRedASR": f"{CLASSES}.fireredasr:SpeechWorkbenchFireRedASR"},
            writer="workbench.conversion.vllm_checkpoint.fireredasr",
            wording="workbench.runtimes.vllm.remote.wording:FireRedWording",
        ),
        recipe="workbench.training.recognisers.fireredasr",
        explain="workbench.families.speech_llm.fireredasr:explain_directory",
        hint="FireRedASR-LLM has a model.pth.tar",
    ),
    Family(
        name="fsmn_vad",
        title="FSMN-VAD",
        module="workbench.families.voice_activity.fsmn_vad",
        recognise="is_fsmn_vad",
        options="FsmnVadOptions",
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.fsmn_vad"),
            "gguf": Cell("workbench.runtimes.gguf.fsmn_vad"),
            "vllm": Cell(reason=f"FSMN-VAD {NOTHING_TO_SERVE}"),
        },
        tasks=("vad",),
        hub=FUNASR,
        gguf=GgufParts(
            architectures=("fsmn-vad",),
            converter="workbench.conversion.fsmn_vad",
            layouts={"fsmn-vad": f"{LAYOUTS}:FSMN_VAD"},
        ),
        explain=FUNASR_EXPLAIN,
        hint=FUNASR_HINT,
    ),
    Family(
        name="speechlm",
        title="SpeechLM",
        module="workbench.families.speechlm.model",
        recognise="is_speechlm",
        options="SpeechLmOptions",
        parts=("codec",),
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.speechlm"),
            "gguf": Cell("workbench.runtimes.gguf.speechlm"),
            "vllm": Cell("workbench.runtimes.vllm.speechlm"),
        },
        tasks=(CONVERSE,),
        input=CONVERSATION,
        hub=HubFiles(weights=("*.[ps][ta]*",)),  # safetensors, or ESPnet's .pt file
        gguf=GgufParts(architectures=("speechlm",), converter="workbench.conversion.speechlm"),
        vllm=VllmParts(
            classes={"SpeechWorkbenchSpeechLM": f"{CLASSES}.speechlm:SpeechWorkbenchSpeechLM"},
            writer="workbench.conversion.vllm_checkpoint.speechlm",
            configuration="workbench.runtimes.vllm.serving.configuration:SpeechLmConfiguration",
        ),
        recipe="workbench.training.speechlm.recipe",
        hint="a SpeechLM has a config.json of type bagpiper, or the yaml of ESPnet's training beside its .pt file",
    ),
    Family(
        name="causal_lm",
        title="Causal language model",
        module="workbench.families.language.causal_lm",
        recognise="is_causal_lm",
        options="CausalLmOptions",
        cells={
            "pytorch": Cell("workbench.runtimes.pytorch.causal_lm"),
            "gguf": Cell("workbench.runtimes.gguf.causal_lm"),
            "vllm": Cell("workbench.runtimes.vllm.causal_lm"),
        },
        tasks=("generate", CONVERSE),
        input=PROMPT,
        hub=HubFiles(weights=("model*.safetensors",)),
        gguf=GgufParts(architectures=MODEL_TYPES, converter="workbench.conversion.causal_lm"),
        vllm=VllmParts(
            classes={"SpeechWorkbenchEmbeddingLM": f"{CLASSES}.embedding_lm:SpeechWorkbenchEmbeddingLM"},
            writer="workbench.conversion.vllm_checkpoint.causal_lm",
        ),
        explain="workbench.families.language.directory:explain_directory",
        hint="a language model has a config.json",
        fallback=True,
    ),
)


def import_cells(runtime: str, language: bool | None = None) -> None:
    """Imports what runs these families on a runtime, before there is a model.

    Args:
        language: True for families with a language model, False for those without, None for both.
    """
    for family in BUILT_IN:
        module = family.cell(runtime).module
        if module and language in (None, family.has_language_model):
            import_module(module)
