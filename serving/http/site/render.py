"""Renders pages: templates with everything escaped, and the words and pictures that they use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from thermocline.serving.http.site import pictures
from thermocline.serving.status import words
from thermocline.serving.status.document import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thermocline.serving.status.document import ServerStatus, TableStatus

__all__ = ["overall", "page", "part"]

_COMMAND: Final = re.compile(r"`([^`]*)`")
VIEW_STATES: Final = {
    "now": "as of now",
    "newest": "as of the newest snapshot",
    "older": "older: right, as of before the newest",
    "ended": "has ended, and refuses to answer",
    "withdrawn": "withdrawn, and refuses to answer",
}
LABELS: Final = {"well": "Well", "attention": "Attention", "trouble": "Trouble"}


def with_commands(text: str) -> Markup:
    """The text, escaped, with what stands in backticks as code."""
    pieces = _COMMAND.split(text)  # every second one is a command
    marked = (Markup("<code>{}</code>").format(one) if i % 2 else escape(one) for i, one in enumerate(pieces))
    return Markup("").join(marked)


def worst_first(status: ServerStatus) -> list[tuple[str, TableStatus]]:
    """The tables, those in trouble first."""
    order = list(LABELS)[::-1]
    return sorted(status.tables.items(), key=lambda found: order.index(found[1].verdict.level))


def overall(status: ServerStatus) -> Finding:
    """The verdict on all tables: what is wrong with the worst, and what to do."""
    bad = [(name, one) for name, one in worst_first(status) if one.verdict.level != "well"]
    if bad:
        name, worst = bad[0]
        others = f" {words.plural(len(bad) - 1, 'more table')} to look at." if len(bad) > 1 else ""
        verdict = worst.verdict
        return Finding(level=verdict.level, text=f"{name} {verdict.text}.{others}", next=verdict.next)
    if status.problems:
        return Finding(level="attention", text=f"The server: {status.problems[0]}")
    number = len(status.tables)
    if not number:
        return Finding(level="attention", text="There is no table here that you operate.")
    return Finding(
        level="well", text="The only table is well." if number == 1 else f"All {number} tables are well."
    )


def within(path: str, folder: str) -> str:
    """The path of a file as seen from a folder that it is in; else as it is."""
    return path.removeprefix(f"{folder.rstrip('/')}/")


def part(template: str, **values: Any) -> Markup:
    """The part of a page that is replaced when it is refreshed."""
    return Markup(_ENVIRONMENT.get_template(template).render(**values))  # noqa: S704  what it was made of is escaped


def page(title: str, main: Markup, names: Sequence[str] = (), **values: Any) -> str:
    """A whole page."""
    given = {
        "signed_in": False,
        "is_sign_in": False,
        "is_still": False,
        "here": "",
        "looked_up": (),
        **values,
    }
    return _ENVIRONMENT.get_template("layout.html").render(title=title, main=main, names=names, **given)


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,  # safety: pages-escaped
    undefined=StrictUndefined,
    auto_reload=False,  # each row includes a template, which would be looked for on the disk every time
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "commands": with_commands,
    "duration": words.duration,
    "moment": words.moment,
    "iso_moment": words.iso_moment,
    "count": words.count,
    "bytes_text": words.bytes_text,
    "share": words.share,
    "within": within,
}
_ENVIRONMENT.globals |= {
    "ago": words.ago,
    "until": words.until,
    "plural": words.plural,
    "labels": LABELS,
    "view_states": VIEW_STATES,
    "worst_first": worst_first,
    "age_line": pictures.age_line,
    "commit_bars": pictures.commit_bars,
    "commit_peak": pictures.commit_peak,
    "bucket_bars": pictures.bucket_bars,
}
