"""What MkDocs calls while it builds the site: pages that have their source elsewhere, and links that leave docs/."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # where this file's neighbours are

import diagram  # noqa: E402
import methods  # noqa: E402
import notebooks  # noqa: E402
import protocols  # noqa: E402
from moved import NOTEBOOKS, PAGES, Moved  # noqa: E402

ROOT = HERE.parents[1]


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Draw flow charts here: Material would load mermaid from elsewhere."""
    fence = {"name": "mermaid", "class": "diagram", "format": diagram.drawn}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and files that are not in docs/."""
    moved = Moved(ROOT)
    own = [file.src_uri for file in files.documentation_pages()]
    for uri, content in _pages(moved, own):
        files.append(File.generated(config, uri, content=content))
    for file in moved.needed:
        files.append(File.generated(config, f"source/{file}", abs_src_path=str(ROOT / file)))
    return files


def _pages(moved: Moved, own: list[str]) -> Iterator[tuple[str, str | bytes]]:
    for source, uri in PAGES.items():
        yield uri, moved.page(source, uri)
    for source, uri in NOTEBOOKS.items():
        yield from notebooks.pages(ROOT / source, uri, partial(moved.links, source=source, uri=uri))
    yield from methods.pages()
    for file in own:
        moved.links((ROOT / "docs" / file).read_text(encoding="utf-8"), f"docs/{file}", file)


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links of the pages in docs/ to where things are on the site."""
    if page.file.generated_by is not None:
        return markdown
    if page.file.src_uri == "concepts/protocols.md":
        markdown = protocols.listed(markdown)
    return Moved(ROOT).links(markdown, f"docs/{page.file.src_uri}", page.file.src_uri)
