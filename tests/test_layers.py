"""Imports point one way, and `import eqsat` brings only what it needs."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
OURS = {"eqsat", "extract", "rewrites"}
SOURCES = sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))
LANGUAGE = ("eqsat.operators", "eqsat.functions", "eqsat.meta", "eqsat.rewrite")


def check(path: Path, allowed: tuple[str, ...]) -> None:
    """Everything of ours that the file imports is one of `allowed`, or within it."""
    for name in imports(path):
        if name.split(".")[0] in OURS:
            assert any(name == a or name.startswith(f"{a}.") for a in allowed), (path.name, name)


def imports(path: Path) -> Iterator[str]:
    """The module of each import in the file, with the name taken from it where that is a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                inside = ROOT / full.replace(".", "/")
                is_module = inside.with_suffix(".py").exists() or inside.is_dir()
                yield full if is_module else base


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_engine_imports_egglog(path: Path) -> None:
    speaks = any(name.split(".")[0] == "egglog" for name in imports(path))
    assert speaks == (path == ROOT / "eqsat" / "engine.py")


def test_extract_imports_nothing_of_ours_but_itself() -> None:
    for path in (ROOT / "extract").rglob("*.py"):
        check(path, ("extract",))
        assert not {"torch", "egglog"} & {name.split(".")[0] for name in imports(path)}, path


def test_rule_files_import_only_the_language_and_each_other() -> None:
    for path in (ROOT / "rewrites").rglob("*.py"):
        brought = ("eqsat.inductor_rules",) if path.name == "inductor.py" else ()
        check(path, (*LANGUAGE, *brought, "rewrites"))


def test_only_the_command_verifies_rules() -> None:
    for path in (ROOT / "eqsat").glob("*.py"):
        verifies = any(name.startswith("eqsat.verify") for name in imports(path))
        assert verifies == (path.name == "cli.py"), path


def loaded(statement: str, names: list[str]) -> str:
    """Which of the modules a process has after the statement, as a list is printed."""
    code = f"import sys; {statement}; print([n for n in {names} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_import_eqsat_leaves_out_what_it_does_not_need() -> None:
    names = ["transformers", "torch._inductor", "typer", "pytest", "hypothesis", "eqsat.verify"]
    names += ["egglog"]  # half a second
    assert loaded("import eqsat; eqsat.optimize", names) == "[]"


def test_a_pass_imports_nothing_that_only_a_graph_needs() -> None:
    names = ["rewrites", "extract", "egglog", "eqsat.rewrite", "eqsat.cost.model", "eqsat.search"]
    made = "from eqsat.inductor import Pass; assert Pass(device='a100').uuid() is not None"
    assert loaded(made, names) == "[]"
    assert loaded("import eqsat.pipeline, eqsat; assert callable(eqsat.optimize)", []) == "[]"


@pytest.mark.parametrize("first", ["rewrites", "eqsat.cli"])
def test_any_package_can_be_imported_first(first: str) -> None:
    code = f"import {first}; import eqsat, rewrites, extract; rewrites.DEFAULT, eqsat.optimize"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
