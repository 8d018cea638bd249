"""The page of a report: whatever partners wrote stays text."""

from html.parser import HTMLParser
from typing import Any

import pytest

from core.report_view import report_view
from ui.report import CONTENT_SECURITY_POLICY, Picture, ReportPage, report_html

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style><script>alert(1)</script>",
    "{{ 7 * 7 }}{% raw %}",
    "' onmouseover='alert(1)",
    "<!--", "-->", "]]>", "&lt;b&gt;", "javascript:alert(1)",
)  # fmt: skip
REFUSED = frozenset({"script", "a", "iframe", "object", "embed", "form", "link", "base", "svg", "input", "button"})


class Reader(HTMLParser):
    """Keeps which elements and attributes a page has, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def everywhere(text: str) -> tuple[ReportPage, dict[str, Any]]:
    """Return a page and a report with a text at every place that a partner's words may reach."""
    finding = {"code": text, "level": text, "field": text, "message": text, "from": text, "to": [text]}
    error = {"code": text, "message": text, "field": text, "remediation": text}
    report = {
        "verdict": text,
        "errors": [error],
        "findings": [finding],
        "type": {"detected": text, "evidence": text},
        "steps": [text],
        "compared": [{"name": text, "before": text, "after": {text: text}}],
        "cog": {text: text},
    }
    return ReportPage(text, [("asset", text)], [Picture(text, b"png", 3, 2)]), report


def benign_tags() -> list[str]:
    """Return the elements of the page when every text is harmless."""
    page, report = everywhere("harmless")
    reader = Reader()
    reader.feed(report_html(page, report_view(report, None, "harmless")))
    return [tag for tag, _ in reader.found]


@pytest.mark.parametrize("attack", ATTACKS)
def test_words_of_partners_stay_text(attack: str) -> None:
    page, report = everywhere(attack)
    html = report_html(page, report_view(report, None, attack))
    reader = Reader()
    reader.feed(html)
    assert not {tag for tag, _ in reader.found} & REFUSED
    assert [tag for tag, _ in reader.found] == benign_tags()
    assert not any(name.startswith("on") for _, attributes in reader.found for name in attributes)
    sources = [attributes["src"] for _, attributes in reader.found if "src" in attributes]
    assert all(source is not None and source.startswith("data:image/png;base64,") for source in sources)
    assert not any("href" in attributes for _, attributes in reader.found)
    assert reader.text.count(attack) >= 10
    assert html.count("<style>") == html.count("</style>") == 1


def test_the_policy_allows_no_script_and_nothing_from_elsewhere() -> None:
    assert CONTENT_SECURITY_POLICY.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "script" not in CONTENT_SECURITY_POLICY
