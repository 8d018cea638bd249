"""The Functions app is made of what it imports and of nothing else."""

import ast
import re
import tomllib
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from scripts import functions_package, requirements_of

PROJECT = tomllib.loads((functions_package.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OURS = frozenset(PROJECT["tool"]["importlinter"]["root_packages"])
FORBIDDEN = frozenset({"rasterio", "rio-tiler", "titiler-core", "pyproj", "numpy", "fastapi", "uvicorn", "pypgstac"})


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("functions") / "app"
    functions_package.write_package(folder)
    return folder


def module_file(package: Path, module: str) -> Path | None:
    path = package / module.replace(".", "/")
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((one for one in candidates if one.is_file()), None)


def imports_of(path: Path) -> set[str]:
    """Return what a module may import, each `from x import y` as x and as x.y."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.partition(".")[0] in OURS}


def reached(package: Path) -> tuple[set[str], set[str]]:
    """Return our modules that function_app reaches, and those among them that the package lacks."""
    waiting, seen, lacking = imports_of(package / "function_app.py"), set[str](), set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        path = module_file(package, name)
        if path is not None:
            waiting |= imports_of(path)
        elif module_file(functions_package.ROOT, name) is not None:
            lacking.add(name)
    return {name for name in seen if module_file(package, name)}, lacking


def test_every_module_that_the_app_may_import_is_in_the_folder(package: Path) -> None:
    modules, lacking = reached(package)
    assert lacking == set()
    assert {"core.errors", "edge.identity", "function.queries", "repositories.database"} <= modules


def test_no_code_of_other_processes_is_reached_or_deployed(package: Path) -> None:
    modules, _ = reached(package)
    assert {name.partition(".")[0] for name in modules} == {"core", "edge", "function", "repositories"}
    assert {one.name for one in package.iterdir()} == {
        "core",
        "edge",
        "function",
        "function_app.py",
        "host.json",
        "repositories",
        "requirements.txt",
    }
    assert not any(path.suffix not in {".py", ".json", ".txt"} for path in package.rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in package.rglob("*.py")) < 2 << 20


def test_a_module_left_out_is_noticed(package: Path) -> None:
    gone = package / "core" / "errors.py"
    text = gone.read_bytes()
    gone.unlink()
    try:
        assert "core.errors" in reached(package)[1]
    finally:
        gone.write_bytes(text)


def test_the_app_installs_what_its_modules_import_and_nothing_with_gdal(package: Path) -> None:
    text = (package / "requirements.txt").read_text(encoding="utf-8")
    names = {name for name, _ in requirements_of.locked_blocks(text)}
    assert {"azure-functions", "psycopg", "psycopg-binary", "pyjwt", "cryptography", "aiohttp", "pydantic"} <= names
    assert not names & FORBIDDEN
    assert text.count("--hash=sha256:") >= len(names)


def test_the_files_of_requirements_are_those_of_the_lock() -> None:
    for name, text in requirements_of.rendered().items():
        path = requirements_of.FOLDER / f"{name}.txt"
        assert path.read_text(encoding="utf-8") == text, f"{path} is not current; run ./scripts/lock"


def test_what_azure_runs_beside_the_app_has_every_package_of_the_app() -> None:
    tested = (functions_package.ROOT / "scripts/functions-requirements.lock").read_text(encoding="utf-8")
    names = {canonicalize_name(name) for name in re.findall(r"^([\w.-]+)==", tested, re.MULTILINE)}
    ours = {name for name, _ in requirements_of.locked_blocks(requirements_of.rendered()["gateway"])}
    assert ours <= names


def test_a_package_that_the_lock_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="lacks left-pad"):
        requirements_of.subset("a==1 \\\n    --hash=sha256:0\n", ["a", "left-pad"])


def test_extras_of_extras_are_followed() -> None:
    names = requirements_of.closure(PROJECT["project"], ("worker",))
    assert {"rasterio", "psycopg-binary", "affine", "pydantic-core"} <= names
    assert not names & {"pytest", "fastapi", "azure-functions"}
