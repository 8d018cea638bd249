"""Each house rule finds what it is for, and lets pass what looks alike."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from scripts.checks import docs, honest_tests, language, leaks, purity, sizes, sql
from scripts.checks.tree import Finding, SourceFile

Check = Callable[[Iterable[SourceFile]], Iterator[Finding]]


@pytest.fixture
def complaints(tmp_path: Path) -> Callable[..., list[str]]:
    """Return what a check says about files given as name=text."""

    def run(check: Check, files: dict[str, str]) -> list[str]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return [str(finding) for finding in check([SourceFile(tmp_path, name) for name in files])]

    return run


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("q = \"SELECT INTERVAL '%s seconds'\"", 1),
        ("q = '''SELECT 1\nFROM t WHERE a LIKE '%(name)s' '''", 2),
        ("q = f\"UPDATE {table} SET a = 'x-%s'\"", 1),
        ('q = "SELECT now()"', 1),
        ('q = "SELECT 1 WHERE a <" + " CURRENT_TIMESTAMP -- SELECT"', None),
        ('q = "UPDATE t SET a = clock_timestamp()"', 1),
        ('q = "SELECT * FROM t WHERE a IN (SELECT 1)"', 1),
        ("q = '''DELETE FROM t WHERE (a = 1)\nRETURNING *'''", 2),
        ('q = "SELECT t.* FROM t WHERE a = %s"', 1),
        ('q = "UPDATE t SET a = 1 RETURNING t.*"', 1),
        ('q = "SELECT DISTINCT * FROM t"', 1),
        ('q = "SELECT DISTINCT ON (a) * FROM t"', 1),
        ("q = '''SELECT a,\n\"t\".* FROM t'''", 2),
        ('q = f"SELECT a, {table}.* FROM {table}"', 1),
        ("q = \"WITH x AS (SELECT a FROM t WHERE b <> ')') SELECT * FROM t\"", 1),
        ("q = \"WITH x AS (SELECT a FROM t WHERE b <> '--') SELECT * FROM t\"", 1),
        ('q = ") SELECT * FROM t"', 1),
    ],
)
def test_sql_with_a_placeholder_in_a_literal_another_clock_or_all_columns_is_found(
    complaints: Callable[..., list[str]], text: str, line: int | None
) -> None:
    found = complaints(sql.check, {"services/x.py": text})
    assert len(found) == 1
    assert line is None or found[0].startswith(f"services/x.py:{line}:")


@pytest.mark.parametrize(
    "text",
    [
        "q = \"SELECT a FROM t WHERE a = 'x' AND b = %s AND c = 'y'\"",
        "q = \"SELECT 'it''s' || %s\"",
        'q = "SELECT dagapp.clock()"',
        'q = "WITH x AS (DELETE FROM t RETURNING *) SELECT a, count(*) FROM x, LATERAL (SELECT * FROM u) AS v"',
        'q = "SELECT 1 -- it\'s %s\\n FROM t"',
        "q = \"SELECT 'SELECT *', 'x' * 2, f(a, b) * 2, (a) * b, 2 * t.a, selected * 2 FROM t\"",
        '"""A docstring: SELECT now() is never said."""',
        'text = "what happens now() is prose"',
    ],
)
def test_sql_that_binds_its_values_passes(complaints: Callable[..., list[str]], text: str) -> None:
    assert complaints(sql.check, {"services/x.py": text}) == []


def test_the_body_of_the_one_clock_may_read_the_server(complaints: Callable[..., list[str]]) -> None:
    body = "CREATE FUNCTION dagapp.clock() RETURNS timestamptz\nAS $$ BEGIN RETURN clock_timestamp(); END $$;\n"
    assert complaints(sql.check, {"migrations/1.sql": body}) == []
    assert complaints(sql.check, {"migrations/1.sql": body + "SELECT now();"})[0].startswith("migrations/1.sql:3:")


def test_long_modules_functions_and_files_are_found(complaints: Callable[..., list[str]]) -> None:
    function = "def f():\n" + "    x = 1\n" * 60
    assert "f has 61 lines" in complaints(sizes.check, {"core/x.py": function})[0]
    assert complaints(sizes.check, {"core/x.py": function.replace("    x = 1\n", "", 1)}) == []
    assert "401 lines" in complaints(sizes.check, {"core/x.py": "x = 1\n" * 401})[0]
    assert complaints(sizes.check, {"core/x.py": "x = 1\n" * 400, "tests/x.py": "x = 1\n" * 401}) == []
    assert "bytes" in complaints(sizes.check, {"data.bin": "x" * ((1 << 20) + 1)})[0]


def test_more_than_five_mocks_to_a_hundred_tests_are_found(complaints: Callable[..., list[str]]) -> None:
    tests = "".join(f"def test_{n}(): pass\n" for n in range(20))
    assert complaints(honest_tests.check, {"tests/a.py": tests + "m = Mock()\n"}) == []
    found = complaints(honest_tests.check, {"tests/a.py": tests + "m = Mock()\nn = mock.AsyncMock()\n"})
    assert [line.split(": ")[1] for line in found] == ["Mock", "AsyncMock"]


@pytest.mark.parametrize("text", ["pytest.skip('no')", "@pytest.mark.xfail\ndef test_a(): pass"])
def test_skipped_tests_are_found(complaints: Callable[..., list[str]], text: str) -> None:
    assert "no test is skipped" in complaints(honest_tests.check, {"tests/a.py": text})[0]


@pytest.mark.parametrize(
    "text",
    ["import os", "from time import sleep", "import psycopg", "x = datetime.now()", "open('f')"],
)
def test_io_in_core_is_found(complaints: Callable[..., list[str]], text: str) -> None:
    assert len(complaints(purity.check, {"core/x.py": text})) == 1
    assert complaints(purity.check, {"services/x.py": text}) == []


def test_pure_imports_in_core_pass(complaints: Callable[..., list[str]]) -> None:
    text = "import json\nimport yaml\nfrom pydantic import BaseModel\nfrom core.ids import JobId\nimport urllib.parse\n"
    assert complaints(purity.check, {"core/x.py": text}) == []


@pytest.mark.parametrize(
    "text",
    [
        "p = '/work/main/x'",
        "see https://files.pythonhosted.org/packages/x",
        "pip install --index-url x",
        "-----BEGIN RSA PRIVATE KEY-----",
        "AccountKey=" + "a" * 44,
        "x = 1  # TODO later",
        "x = f()  # type: ignore",
        "raise NotImplementedError",
    ],
)
def test_paths_of_this_machine_secrets_and_unfinished_work_are_found(
    complaints: Callable[..., list[str]], text: str
) -> None:
    assert len(complaints(leaks.check, {"services/x.py": text})) == 1


@pytest.mark.parametrize("text", ["a network/work/x", "x = f()  # type: ignore[arg-type]", "key = 'from the key file'"])
def test_ordinary_lines_pass(complaints: Callable[..., list[str]], text: str) -> None:
    assert complaints(leaks.check, {"services/x.py": text}) == []


def test_links_that_lead_nowhere_are_found(complaints: Callable[..., list[str]]) -> None:
    pages = {
        "README.md": "[a](docs/a.md) [b](docs/a.md#two-words) [c](docs/b.md)\n[d](docs/a.md#none) [e](https://x.y)\n"
        "```\n[f](nowhere.md)\n```\n",
        "docs/a.md": "# One\n## Two words\n",
    }
    found = complaints(docs.check, pages)
    assert [line.split(": ")[0] for line in found] == ["README.md:1", "README.md:2"]


def test_names_of_tests_that_do_not_exist_are_found(complaints: Callable[..., list[str]]) -> None:
    pages = {
        "docs/security.md": "`tests/unit/a.py::test_one`\n`tests/unit/a.py::test_two`\n`tests/unit/b.py`\n",
        "tests/unit/a.py": "def test_one(): pass\n",
    }
    assert [line.split(": ")[0] for line in complaints(docs.check, pages)] == [
        "docs/security.md:2",
        "docs/security.md:3",
    ]


def test_a_long_adr_is_found(complaints: Callable[..., list[str]]) -> None:
    assert "at most 30" in complaints(docs.check, {"docs/adr/0001-x.md": "x\n" * 31})[0]


def test_dependencies_and_their_page_say_the_same(complaints: Callable[..., list[str]]) -> None:
    project = (
        '[build-system]\nrequires = ["setuptools>=77"]\n[project]\nname = "geodag"\n'
        'dependencies = ["pydantic>=2,<3"]\n[project.optional-dependencies]\n'
        'a = ["geodag[b]", "psycopg[binary]>=3"]\n'
    )
    page = "| `setuptools` | x |\n| `pydantic` | x |\n| `old-one` | x |\n"
    found = complaints(docs.check, {"docs/dependencies.md": page, "pyproject.toml": project})
    assert [line.split(": ")[1].split(" ")[0] for line in found if "dependencies.md" in line] == ["psycopg", "old-one"]


def test_each_word_of_the_workflow_language_has_a_row_that_names_its_test(complaints: Callable[..., list[str]]) -> None:
    rows = [f"| `{word}` | what it is | `tests/unit/a.py::test_b` |" for word in sorted(language.words())]
    rows = [row for row in rows if row.split("`")[1] not in language.PLANNED | {"node.when"}]
    rows[0] = "| `branch.condition` | what it is | no test |"
    rows.append("| `task.colour` | what it is | `tests/unit/a.py::test_b` |")
    assert complaints(language.check, {language.PAGE: "\n".join(rows)}) == [
        f"{language.PAGE}:1: the row of branch.condition names no test",
        f"{language.PAGE}:1: node.when has no row",
        f"{language.PAGE}:{len(rows)}: task.colour is no word of the language, or one that is planned",
    ]


def test_the_words_of_the_language_are_those_of_its_models() -> None:
    words = language.words()
    assert {"node.type", "node.when", "task.handler", "fan_out.task", "child.version", "input.enum"} <= words
    assert not {"child.definition_hash", "task.when", "gate.type", "conditional.next"} & words
    assert len(words) > 80
