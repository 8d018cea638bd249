"""The page of a validation report: no script, nothing from elsewhere, every value escaped."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from core.report_view import ReportView


def _file(name: str) -> str:
    return files("ui").joinpath("templates", name).read_text(encoding="utf-8")


_STYLE: Final = files("ui").joinpath("static", "report.css").read_text(encoding="utf-8")
_ENVIRONMENT: Final = Environment(
    loader=FunctionLoader(_file), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
"""What a browser may load for the page: its own style and pictures that are in it."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture of the version."""

    caption: str
    png: bytes
    width: int
    height: int

    @property
    def source(self) -> str:
        """Return the picture as a data URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True, slots=True)
class ReportPage:
    """What stands around a report."""

    title: str
    facts: Sequence[tuple[str, str]]
    pictures: Sequence[Picture] = ()


def report_html(page: ReportPage, view: ReportView) -> str:
    """Return the page."""
    template = _ENVIRONMENT.get_template("report.html.j2")
    return template.render(page=page, view=view, style=Markup(_STYLE))  # noqa: S704 - our own file
