"""The documentation tells the truth about paths, symbols, states and settings."""

import ast
import re
from pathlib import Path

import pytest

from docs import generate
from seckill.api.schema import HOT_PATH, ProblemSerializer, add_async_endpoints

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
# `path/to/file.py:symbol` in backticks names a function, class or method of that file.
SYMBOL = re.compile(r"`([\w/.-]+\.py):([\w.]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = [
        target
        for target, _ in LINK.findall(page.read_text())
        if "://" not in target
        and not target.startswith("mailto:")
        and not (page.parent / target).resolve().exists()
    ]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_symbols_exist(page: Path) -> None:
    missing = []
    for path, symbol in SYMBOL.findall(page.read_text()):
        file = ROOT / path
        names = _names(file) if file.exists() else set()
        if symbol not in names:
            missing.append(f"{path}:{symbol}")
    assert missing == []


def _names(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
        if isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


@pytest.mark.parametrize("name", sorted(generate.PAGES))
def test_generated_pages_are_current(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == generate.PAGES[name](), (
        "run: python -m docs.generate"
    )


def test_problems_page_names_every_member_of_its_own_that_the_schema_has() -> None:
    optional = {name for name, field in ProblemSerializer().fields.items() if not field.required}
    assert optional == set(generate.PROBLEM_MEMBERS)


def test_schema_tells_of_retry_after_where_a_problem_has_it() -> None:
    schema = add_async_endpoints({"paths": {}}, None, None, True)
    responses = schema["paths"][HOT_PATH]["post"]["responses"]
    telling = {status for status, response in responses.items() if "headers" in response}
    assert telling == {"429", "503"}
    assert set(responses["503"]["headers"]) == {"Retry-After"}


def test_every_runtime_package_is_explained() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text().lower()
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        name = re.split(r"[\[=]", line)[0].strip().lower()
        if name and not name.startswith("#"):
            assert name in text, f"docs/dependencies.md does not say why {name} is here"
