"""The page at ``/docs``: the OpenAPI document as plain HTML, without a script or a second request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

Part = Mapping[str, Any]


def docs_page(document: Part) -> str:
    """The whole page: every route with its parameters, body and answers, then the shapes they refer to."""
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    routes = [
        _route(f"{method.upper()} {path}", operation)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]
    shapes = [_shape(name, schema) for name, schema in document["components"]["schemas"].items()]
    parts = [f"<h1>{title}</h1>", _paragraph(info["description"]), _FOR_PROGRAMS]
    return _PAGE.format(title=title, body="\n".join([*parts, *routes, "<h2>Shapes</h2>", *shapes]))


_FOR_PROGRAMS: Final = '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>'
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }}
h2 {{ margin-top: 2.5rem }}
table {{ border-collapse: collapse; margin: 1rem 0 }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem 1.5rem .2rem 0 }}
pre {{ background: #f4f4f4; padding: .5rem; overflow-x: auto }}
</style>
{body}
</html>
"""


def _route(name: str, operation: Part) -> str:
    parts = [f"<h2><code>{escape(name)}</code></h2>", _paragraph(operation["summary"])]
    if "description" in operation:
        parts.append(_paragraph(operation["description"]))
    if "parameters" in operation:
        rows = [_parameter(parameter) for parameter in operation["parameters"]]
        parts.append(_table(("parameter", "in", "type", "", ""), rows))
    if "requestBody" in operation:
        parts += [
            _shape(f"Body: {kind}", body["schema"]) for kind, body in _content(operation["requestBody"])
        ]
    answers = [
        (status, answer["description"], ", ".join(kind for kind, _ in _content(answer)))
        for status, answer in operation["responses"].items()
    ]
    parts.append(_table(("status", "answer", "as"), answers))
    parts += [
        _shape(f"{status}: {kind}", body["schema"])
        for status, answer in operation["responses"].items()
        for kind, body in _content(answer)
        if kind == "application/json"
    ]
    return "\n".join(parts)


def _parameter(parameter: Part) -> tuple[str, ...]:
    schema = parameter["schema"]
    need = "needed" if parameter["required"] else ""
    kind = schema.get("format", schema["type"])
    return parameter["name"], parameter["in"], kind, need, parameter.get("description", "")


def _content(part: Part) -> Iterable[tuple[str, Part]]:
    content: Part = part["content"]
    return content.items()


def _shape(name: str, schema: Part) -> str:
    text = json.dumps(schema, indent=2, ensure_ascii=False)
    return f"<details><summary>{escape(name)}</summary><pre>{escape(text)}</pre></details>"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(["<table>", _line("th", headings), *(_line("td", row) for row in rows), "</table>"])


def _line(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _paragraph(text: str) -> str:
    return f"<p>{escape(text)}</p>"
