"""Rules of the tree that no linter holds."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
APPS = (
    *("seckill", "orders", "inventory", "messaging", "dlq_admin"),
    *("evidence", "faultpoint", "telemetry", "devstack", "bench", "chaos", "sandbox_provider"),
)
CODE = [p for app in APPS for p in (ROOT / app).rglob("*.py") if "migrations" not in p.parts]


def test_no_hidden_imports() -> None:
    # apps.get_model hides an import from the import contracts
    guilty = [str(p) for p in CODE if "get_model(" in p.read_text()]
    assert guilty == []


def test_migrations_stay_as_they_were_written() -> None:
    # what they import of ours would change with it, and history with that
    ours = re.compile(rf"^\s*(import|from) ({'|'.join(APPS)})\b", re.MULTILINE)
    migrations = [p for app in APPS for p in (ROOT / app).rglob("migrations/*.py")]
    assert len(migrations) > 10
    assert [str(p) for p in migrations if ours.search(p.read_text())] == []


def test_every_code_folder_is_a_package() -> None:
    folders = {p.parent for p in CODE}
    assert [str(f) for f in folders if not (f / "__init__.py").exists()] == []


def test_modules_of_one_idea() -> None:
    long = {str(p): n for p in CODE if (n := len(p.read_text().splitlines())) > 400}
    assert long == {}


def test_names_say_something() -> None:
    empty = re.compile(r"(^|/)(utils?|common|helpers?|misc|base_service)\.py$")
    assert [str(p) for p in CODE if empty.search(str(p))] == []


def test_no_signals_and_no_save_overrides() -> None:
    pattern = re.compile(r"django\.db\.models\.signals|def save\(self")
    apps = [p for p in CODE if p.relative_to(ROOT).parts[0] not in ("devstack", "bench")]
    assert [str(p) for p in apps if pattern.search(p.read_text())] == []


def test_no_test_is_skipped() -> None:
    pattern = re.compile(r"pytest\.(mark\.)?(skip|xfail)|importorskip")
    tests = [p for p in (ROOT / "tests").rglob("*.py") if p != Path(__file__)]
    assert [str(p) for p in tests if pattern.search(p.read_text())] == []


def test_no_path_of_one_machine_in_the_tree() -> None:
    tracked = subprocess.run(
        ["git", "grep", "-nIF", "-e", f"{ROOT}/", "--", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tracked.stdout == ""
