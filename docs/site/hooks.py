"""Hooks of MkDocs that build the site from pages which are also read on GitHub.

- The navigation is that of ``docs/README.md``.
- Links to files outside ``docs`` lead to the page made of the file, or to the repository.
- Every name in the tables of ``reference/api.md`` gets its docstring and arguments on a page of its group.
- The home page gets a report page, made from ``examples/published_times.py``.
"""

from __future__ import annotations

import posixpath
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HOME = "README.md"
API = "reference/api.md"
REPORT = "example-report.html"
INCLUDED = {"pricing/README.md": "reference/shipped-prices.md"}
"""Files outside ``docs`` that are pages of the site."""

LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
EXAMPLE = re.compile(r"^<!-- example report -->\n!\[.*\n", re.MULTILINE)
"""On GitHub a picture stands for the report page."""
VERSION = '<h2 id="vmselect.__version__"><code>__version__</code></h2>\n\nThe version of the package, as text.\n\n'
"""It comes from a file that is written when the package is built, so it cannot be read from the source."""
IFRAME = (
    '[Open the page in a tab of its own](example-report.html){ .md-button target="_blank" }\n\n'
    '<iframe class="example" src="example-report.html" title="Report page of the example"></iframe>\n'
)


def on_config(config: MkDocsConfig) -> None:
    """Take the navigation from the index; pages that it does not list come last."""
    nav = read_nav((DOCS / HOME).read_text(encoding="utf-8"))
    listed = str(nav)
    pages = (path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md")))
    next(iter(nav[-1].values())).extend(uri for uri in pages if f"'{uri}'" not in listed)
    config.nav = nav


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are made from other files."""
    for name, uri in INCLUDED.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=rewrite_links(text, name, uri, config)))
    for title, names in read_names().items():
        text = f"# {title}\n\n" + "".join(
            VERSION if name == "__version__" else f"::: vmselect.{name}\n\n" for name in names
        )
        files.append(File.generated(config, api_page(title), content=text))
    files.append(File.generated(config, REPORT, content=make_report()))
    files.append(File.generated(config, "site.css", content=(DOCS / "site" / "site.css").read_bytes()))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Change what works differently on GitHub."""
    uri = page.file.src_uri
    if page.file.generated_by is None:
        markdown = rewrite_links(markdown, f"docs/{uri}", uri, config)
    if uri == API:
        for title, names in read_names().items():
            for name in names:
                link = f"[`{name}`]({posixpath.relpath(api_page(title), 'reference')}#vmselect.{name})"
                markdown = re.sub(rf"^\| `{re.escape(name)}` \|", f"| {link} |", markdown, flags=re.MULTILINE)
    if uri == HOME:
        page.meta["hide"] = ["navigation"]
        markdown = EXAMPLE.sub(IFRAME, markdown)
    return markdown


def read_nav(index: str) -> list[Any]:
    """Sections of the index with their pages; an item of several pages with a label is a section of its own."""
    nav: list[Any] = [{"Home": HOME}]
    seen = {HOME}
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        title = section.partition("\n")[0].partition(":")[0]
        pages: list[Any] = []
        for item in re.split(r"^(?=- )", section, flags=re.MULTILINE)[1:]:
            links = [posixpath.normpath(posixpath.join("docs", target)) for target, _ in LINK.findall(item)]
            uris = [INCLUDED.get(link, link.removeprefix("docs/")) for link in links if link.endswith(".md")]
            new = [uri for uri in dict.fromkeys(uris) if uri not in seen]
            seen.update(new)
            label = re.match(r"- ([A-Z][^:\[\]]*): \[", item)
            if API in new:
                new.remove(API)
                pages.append({"Python API": [{"All names": API}, *map(api_page, read_names())]})
            if label and len(new) > 1:
                pages.append({label[1]: new})
            else:
                pages.extend(new)
        if pages:
            nav.append({title: pages})
    return nav


def read_names() -> dict[str, list[str]]:
    """The public names by group, from the tables of the API page."""
    text = (DOCS / API).read_text(encoding="utf-8")
    groups = (section.partition("\n") for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:])
    return {title: re.findall(r"^\| `([\w.]+)` \|", rows, flags=re.MULTILINE) for title, _, rows in groups}


def api_page(title: str) -> str:
    """The page of a group of public names."""
    return f"reference/api/{title.lower().replace(' ', '-')}.md"


def rewrite_links(markdown: str, source: str, uri: str, config: MkDocsConfig) -> str:
    """Links of the file ``source`` of the repository as links of the page ``uri``."""

    def rewrite(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if path.startswith("docs/") or path in INCLUDED:
            here = posixpath.dirname(uri) or "."
            return f"]({posixpath.relpath(INCLUDED.get(path, path.removeprefix('docs/')), here)}{anchor})"
        return f"]({config.extra['repository']}/blob/main/{path}{anchor})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(rewrite, part) for part in parts)


def make_report() -> str:
    """The report page of the published times."""
    example = runpy.run_path(str(ROOT / "examples" / "published_times.py"))
    with tempfile.TemporaryDirectory() as folder:
        return Path(example["rank_published"]().report(Path(folder) / REPORT)).read_text(encoding="utf-8")
