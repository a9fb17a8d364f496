"""The programs of docs/port.md write arrays that the workbench reads."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.support.processes import ROOT
from tests.support.tiny_language import random_network
from workbench.compare import read_trace

ARRAYS = {"encoder.layers.0": np.arange(21, dtype="f4").reshape(7, 3) / 8, "logits": np.array([[1e-30, -2.5]], "f4")}


def blocks(language: str) -> list[str]:
    """Returns the examples in a language, in their order."""
    text = (ROOT / "docs" / "port.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def needs(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed on this machine")
    return path


def run(*words: str | Path, **options: Any) -> None:
    process = subprocess.run([str(word) for word in words], capture_output=True, text=True, **options)
    assert process.returncode == 0, process.stderr


def check(folder: Path) -> None:
    trace = read_trace(folder)
    assert set(trace) == set(ARRAYS)
    for stage, array in ARRAYS.items():
        assert trace[stage].dtype == np.float32 and np.array_equal(trace[stage], array)


def literals(array: np.ndarray) -> str:
    return ", ".join(f"{value:.9e}" for value in array.ravel().tolist())


def test_cpp_example_writes_readable_arrays(tmp_path: Path) -> None:
    calls = "".join(
        f'{{ std::vector<float> v{{{literals(array)}}}; write_npy(argv[1], "{stage}", v.data(), '
        f"{{{', '.join(map(str, array.shape))}}}); }}\n"
        for stage, array in ARRAYS.items()
    )
    source = tmp_path / "port.cpp"
    source.write_text(blocks("cpp")[0] + f"int main(int, char **argv) {{\n{calls}}}\n", encoding="utf-8")
    run(needs("g++"), "-std=c++17", "-Wall", "-Werror", source, "-o", tmp_path / "port")
    (tmp_path / "dumps").mkdir()
    run(tmp_path / "port", tmp_path / "dumps")
    check(tmp_path / "dumps")


def test_ggml_callback_example_writes_readable_arrays(tmp_path: Path) -> None:
    """A product of two matrices, computed by a scheduler with the example as its callback."""
    compiler = needs("g++")
    packages = Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    libraries = packages / "llama_cpp" / "lib"
    if not (packages / "include" / "ggml-backend.h").is_file():
        pytest.skip("llama-cpp-python was installed without the headers of ggml")
    main = textwrap.dedent("""
        #include <ggml-cpu.h>
        int main(int, char **argv) {
            std::string folder = argv[1];
            ggml_backend_t cpu = ggml_backend_cpu_init();
            ggml_backend_sched_t sched = ggml_backend_sched_new(&cpu, nullptr, 1, 64, false, true);
            ggml_context *c = ggml_init({1 << 20, nullptr, true});
            ggml_tensor *a = ggml_new_tensor_2d(c, GGML_TYPE_F32, 2, 3);
            ggml_tensor *b = ggml_new_tensor_2d(c, GGML_TYPE_F32, 2, 4);
            ggml_set_input(a);
            ggml_set_input(b);
            ggml_tensor *product = ggml_mul_mat(c, a, b);
            ggml_set_name(product, "l_out-0");
            ggml_cgraph *graph = ggml_new_graph(c);
            ggml_build_forward_expand(graph, product);
            ggml_backend_sched_set_eval_callback(sched, dump_tensor, &folder);
            ggml_backend_sched_alloc_graph(sched, graph);
            float va[] = {1, 2, 3, 4, 5, 6}, vb[] = {1, 0, 0, 1, 1, 1, 2, -1};
            ggml_backend_tensor_set(a, va, 0, sizeof va);
            ggml_backend_tensor_set(b, vb, 0, sizeof vb);
            return ggml_backend_sched_graph_compute(sched, graph) == GGML_STATUS_SUCCESS ? 0 : 1;
        }
    """)
    source = tmp_path / "port.cpp"
    source.write_text("".join(blocks("cpp")) + main, encoding="utf-8")
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lggml", "-lggml-base", "-lggml-cpu"]
    run(compiler, "-std=c++17", f"-I{packages / 'include'}", source, "-o", tmp_path / "port", *linked)
    (tmp_path / "dumps").mkdir()
    run(tmp_path / "port", tmp_path / "dumps")
    a, b = np.array([[1, 2], [3, 4], [5, 6]], "f4"), np.array([[1, 0], [0, 1], [1, 1], [2, -1]], "f4")
    assert np.array_equal(read_trace(tmp_path / "dumps")["l_out-0"], b @ a.T)


def test_javascript_example_writes_readable_arrays(tmp_path: Path) -> None:
    calls = "".join(
        f'writeNpy(process.argv[2], "{stage}", new Float32Array([{literals(array)}]), {list(array.shape)});\n'
        for stage, array in ARRAYS.items()
    )
    (tmp_path / "port.mjs").write_text(blocks("js")[0] + calls, encoding="utf-8")
    run(needs("node"), tmp_path / "port.mjs", tmp_path / "dumps")
    check(tmp_path / "dumps")


def test_rust_example_writes_readable_arrays(tmp_path: Path) -> None:
    calls = "".join(
        f'write_npy(&folder, "{stage}", &[{literals(array)}], &{list(array.shape)}).unwrap();\n'
        for stage, array in ARRAYS.items()
    )
    main = f"fn main() {{ let folder = std::env::args().nth(1).unwrap();\n{calls}}}\n"
    (tmp_path / "port.rs").write_text(blocks("rust")[0] + main, encoding="utf-8")
    run(needs("rustc"), "--edition=2021", "-o", tmp_path / "port", tmp_path / "port.rs", env=os.environ)
    (tmp_path / "dumps").mkdir()
    run(tmp_path / "port", tmp_path / "dumps")
    check(tmp_path / "dumps")


def test_transformers_hooks_example_records_the_stages() -> None:
    names: dict[str, Any] = {}
    exec(blocks("python")[0], names)
    model = random_network()
    layers = model.config.num_hidden_layers
    stages = names["watch"](model, names["stages_of_a_language_model"](layers))
    ids = torch.tensor([[3, 5, 7, 9]])
    with torch.no_grad():
        result = model(ids, output_hidden_states=True)
    assert set(stages) == {"llm.embeddings", *(f"llm.layers.{n}" for n in range(layers)), "llm.norm", "logits"}
    assert np.array_equal(stages["logits"], result.logits[0].numpy())
    assert np.array_equal(stages["llm.layers.0"], result.hidden_states[1][0].numpy())


def test_transformers_steps_example_records_a_row_of_a_batch() -> None:
    """The rows of the steps equal those of one pass over prompt and answer without a batch."""
    names: dict[str, Any] = {}
    for block in blocks("python")[:2]:
        exec(block, names)
    model = random_network()
    prompt, answer = [3, 5, 7, 9], [4, 8, 2]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer[:2]])).logits[0].numpy()
    stages = names["stages_of_a_language_model"](model.config.num_hidden_layers)
    arrays = names["dump_steps"](model, [[6, *prompt, *prompt], prompt], 1, answer, stages)
    assert list(arrays["tokens"]) == answer and arrays["llm.layers.0"].shape[0] == len(prompt)
    rows = np.concatenate([arrays["logits"], arrays["steps.1.logits"], arrays["steps.2.logits"]])
    np.testing.assert_allclose(rows, logits, rtol=1e-4, atol=1e-5)
    assert "steps.3.logits" not in arrays


def test_onnx_example_exposes_all_outputs_of_a_graph(tmp_path: Path) -> None:
    """In ONNX Runtime if it is installed, else in the interpreter that comes with onnx."""
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["hidden"]),
        helper.make_node("Relu", ["hidden"], ["encoder.output"]),
        helper.make_node("Softmax", ["encoder.output"], ["posteriors"]),
    ]
    weights = onnx.numpy_helper.from_array(np.array([[1, -1], [2, 3]], "f4"), "w")
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 2]) for name in ("x", "posteriors")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "model.onnx"
    )
    space: dict[str, Any] = {}
    exec(blocks("python")[2], space)
    model = space["with_all_outputs"](str(tmp_path / "model.onnx"))
    x = np.array([[1.0, 2.0], [-1.0, 0.5]], "f4")
    try:
        from onnxruntime import InferenceSession
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(model)
        outputs = session.output_names
    else:
        session = InferenceSession(model.SerializeToString())
        outputs = [each.name for each in session.get_outputs()]
    stages = dict(zip(outputs, session.run(outputs, {"x": x})))
    assert set(stages) == {"posteriors", "hidden", "encoder.output"}
    assert np.array_equal(stages["hidden"], x @ np.array([[1, -1], [2, 3]], "f4"))
    assert np.array_equal(stages["encoder.output"], np.maximum(stages["hidden"], 0))
