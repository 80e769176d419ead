"""Every page can be found, says for whom it is, is read in one go, and leads where it says."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import strictyaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
RUNBOOKS = sorted((DOCS / "runbooks").glob("*.md"))
PAGES = sorted(DOCS.rglob("*.md"))
ENTRANCES = [ROOT / name for name in ("README.md", "AGENTS.md", "CHANGELOG.md", "client/README.md")]
INDEXES = [DOCS / "README.md", DOCS / "architecture" / "README.md", DOCS / "formats" / "README.md"]

WORDS_MAX = 2_500
"""Of a page that is read from its beginning to its end."""
README_LINES_MAX = 89
FOR_WHOM = re.compile(
    r"\bFor (?:services|service developers|analysts|operators|contributors|anyone|whoever)\b"
)
FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
# In code, files of other programs and plain text: docs/PAGE.md, docs/PAGE.md#anchor, docs/PAGE.md, "Section".
POINTER = re.compile(r'(?<![\w/.])(docs/[\w/-]+\.md)(?:#([\w-]+)|,\s+\\?"([^"\\]+)\\?")?')


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def said(page: Path) -> str:
    """The page without what it shows of files and terminals."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text()))


def headings(page: Path) -> list[str]:
    return re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text()), re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: of equal headings, the later ones get a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in headings(page):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w -]", "", shown.lower()).replace(" ", "-")
        found.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return found


def opening(page: Path) -> str:
    return page.read_text().split("\n## ", 1)[0]


@pytest.mark.parametrize("page", [one for one in PAGES if one.parent != REFERENCE], ids=name_of)
def test_a_page_is_read_in_one_go(page: Path) -> None:
    assert len(page.read_text().split()) <= WORDS_MAX


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MAX


@pytest.mark.parametrize(
    "page",
    [one for one in PAGES if one.parent != REFERENCE and one not in (DOCS / "README.md", *RUNBOOKS)],
    ids=name_of,
)
def test_a_page_begins_with_whom_it_is_for(page: Path) -> None:
    assert FOR_WHOM.search(opening(page))


def test_a_runbook_names_the_alerts_that_lead_to_it() -> None:
    rules = strictyaml.load((ROOT / "deploy" / "prometheus" / "thermocline.rules.yml").read_text()).data
    alerts = [alert for group in rules["groups"] for alert in group["rules"]]
    assert len(alerts) > 10
    for alert in alerts:
        page = ROOT / alert["annotations"]["runbook"]
        assert f"`{alert['alert']}`" in page.read_text().split("**What it means.**")[0], name_of(page)


def test_the_indexes_name_every_page() -> None:
    """A runbook is found by its alert, which `watching.md` lists."""
    lead = [*INDEXES, DOCS / "watching.md"]
    named = {(page.parent / path).resolve() for page in lead for path, _ in LINK.findall(page.read_text())}
    assert [name_of(page) for page in PAGES if page.resolve() not in named and page not in INDEXES] == []


@pytest.mark.parametrize("page", [*ENTRANCES, *PAGES], ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(said(page)):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


def test_what_code_and_files_say_of_the_docs_is_there() -> None:
    """Docstrings, comments, messages, rules for other programs: pages, anchors and names of sections."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    found, lost = 0, []
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path == Path(__file__) or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for page, anchor, section in POINTER.findall(text):
            found += 1
            target = ROOT / page
            if not target.exists():
                lost.append(f"{name}: {page}")
            elif (anchor and anchor not in anchors(target)) or (section and section not in headings(target)):
                lost.append(f"{name}: {page}, {anchor or section}")
    assert found > 30
    assert lost == []


@pytest.mark.parametrize(
    ("text", "leads"),
    [
        ('See docs/start.md, "Order".', ("docs/start.md", "", "Order")),
        ("(docs/formats/schemas.md#avro)", ("docs/formats/schemas.md", "avro", "")),
        ("docs/views.md says so", ("docs/views.md", "", "")),
    ],
)
def test_a_pointer_is_seen_in_each_way_of_writing_it(text: str, leads: tuple[str, str, str]) -> None:
    assert POINTER.findall(text) == [leads]
    assert POINTER.findall("https://example.org/docs/start.md") == []


def test_anchors_are_those_that_github_makes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page\n\n```sh\n# no heading\n```\n\n## `extract --at`, again\n\n## Order\n\n## Order\n"
    )
    assert anchors(page) == {"a-page", "extract---at-again", "order", "order-1"}
