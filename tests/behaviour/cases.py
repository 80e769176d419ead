"""The cases that every read path answers: what is written before and after a commit, and what is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Raw:
    """A record that no key and no value can be made of, or only one of them."""

    key: bytes | None
    value: bytes | None


# An attribute and its new value (None is a tombstone), or raw bytes.
Write = tuple[str, str | None] | Raw


@dataclass(frozen=True)
class Case:
    """``first`` is written before the first commit, ``second`` after it; the rows are {attribute: value}."""

    name: str
    first: Sequence[Write] = ()
    second: Sequence[Write] = ()
    rows_first: dict[str, str] = field(default_factory=dict)
    rows_second: dict[str, str] = field(default_factory=dict)


CASES = [
    Case("an insert", [("plan", "free")], [], {"plan": "free"}, {"plan": "free"}),
    Case(
        "an update after the commit",
        [("plan", "free"), ("city", "Köln")],
        [("plan", "pro")],
        {"plan": "free", "city": "Köln"},
        {"plan": "pro", "city": "Köln"},
    ),
    Case(
        "an update before the commit",
        [("plan", "free"), ("plan", "pro")],
        [],
        {"plan": "pro"},
        {"plan": "pro"},
    ),
    Case(
        "a key many times on both sides of the seam",
        [("plan", f"v{i}") for i in range(50)],
        [("plan", f"w{i}") for i in range(50)],
        {"plan": "v49"},
        {"plan": "w49"},
    ),
    Case(
        "a tombstone over a cold row",
        [("plan", "free"), ("city", "Bonn")],
        [("plan", None)],
        {"plan": "free", "city": "Bonn"},
        {"city": "Bonn"},
    ),
    Case("a tombstone before the commit", [("plan", "free"), ("plan", None)], [], {}, {}),
    Case(
        "a re-insert over a committed tombstone",
        [("plan", "free"), ("plan", None)],
        [("plan", "pro")],
        {},
        {"plan": "pro"},
    ),
    Case(
        "a tombstone and a re-insert beyond the seam",
        [("plan", "free")],
        [("plan", None), ("plan", "team")],
        {"plan": "free"},
        {"plan": "team"},
    ),
    Case("a tombstone for a key that never was", [("plan", None)], [("city", None)], {}, {}),
    Case("the same value again", [("plan", "free")], [("plan", "free")], {"plan": "free"}, {"plan": "free"}),
    Case("nothing before the commit", [], [("plan", "free")], {}, {"plan": "free"}),
    Case("nothing at all"),
    Case(
        "awkward text",
        [("naïve \u0000 key", 'tab\t"quote" \U0001f600'), ("", "empty name")],
        [("naïve \u0000 key\u0000", "longer by one zero")],
        {"naïve \u0000 key": 'tab\t"quote" \U0001f600', "": "empty name"},
        {
            "naïve \u0000 key": 'tab\t"quote" \U0001f600',
            "": "empty name",
            "naïve \u0000 key\u0000": "longer by one zero",
        },
    ),
    Case(
        "a key beyond any index's limit",
        [("k" * 2_000, "long"), ("k" * 2_000 + "2", "longer")],
        [("k" * 2_000, None)],
        {"k" * 2_000: "long", "k" * 2_000 + "2": "longer"},
        {"k" * 2_000 + "2": "longer"},
    ),
    Case(
        "poison among good records",
        [
            ("plan", "free"),
            Raw(b'{"app_id":7,"user_id":"poison among good records","key":"plan"}', b'{"value":"bad"'),
            Raw(b"\xff\xfe", b"\x00\x01"),
            Raw(None, None),
            ("city", "Bonn"),
        ],
        [
            Raw(b'{"app_id":7,"user_id":"poison among good records","key":"plan"}', b'{"value":1}'),
            Raw(b'{"app_id":7,"user_id":"poison among good records","key":"plan"}{}', None),
            ("city", "Köln"),
        ],
        {"plan": "free", "city": "Bonn"},
        {"plan": "free", "city": "Köln"},
    ),
]
POISON_COUNT = sum(isinstance(write, Raw) for case in CASES for write in (*case.first, *case.second))
