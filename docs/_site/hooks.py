"""Hooks of mkdocs: generated text, notebooks, and files of the repository that pages link to.

Pages link to files outside of docs/ as GitHub shows them, such as `../../examples/mnist-mini.toml`.
The site publishes every such file; a link to a file that does not exist fails a strict build.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
import notebooks
import reference

ROOT = Path(__file__).parents[2]
# Pages of the site that lie elsewhere in the repository.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/plugin/README.md": "guides/example-plugin.md",
    "papers/report/README.md": "report/index.md",
    "papers/results/README.md": "results/index.md",
}
FOLDERS = {"docs/": "", "papers/report/": "report/", "papers/results/": "results/"}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#|/)([^)\s#]+)(?=[)#])")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def site_path(path: str) -> str:
    """Where the site has a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    for folder, place in FOLDERS.items():
        if path.startswith(folder):
            path = re.sub(r"\.ipynb$", ".md", path)
            return place + path.removeprefix(folder)
    return f"files/{path}"


def repository_path(page: str) -> str:
    """Where the repository has a page of the site."""
    inverse = {place: path for path, place in PAGES.items()}
    return inverse.get(page, f"docs/{page}")


def linked_files(path: str, markdown: str) -> set[str]:
    """The files of the repository that a page at `path` links to."""
    targets = {
        posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        for link in LINK.findall(FENCE.sub("", markdown))
    }
    return {target for target in targets if (ROOT / target).is_file()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of notebooks, those that lie elsewhere, and every file that a page links to."""
    for path, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    for file in [one for one in files if one.src_uri.endswith(".ipynb")]:
        page = notebooks.to_markdown(file.content_string, posixpath.basename(file.src_uri))
        place = site_path(f"docs/{file.src_uri}")
        files.append(File.generated(config, place, content=page))
    for page in list(files.documentation_pages()):
        path = repository_path(page.src_uri)
        for target in sorted(linked_files(path, page.content_string)):
            place = site_path(target)
            if files.get_file_from_path(place) is None:
                files.append(File.generated(config, place, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in generated text, and point links to where the site has their files."""
    path = repository_path(page.file.src_uri)
    folder = posixpath.dirname(path)
    own = posixpath.dirname(page.file.src_uri)

    def place(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[1]))
        if not (ROOT / target).is_file():
            return match[1]
        return os.path.relpath(site_path(target), own or ".").replace(os.sep, "/")

    return LINK.sub(place, reference.fill(markdown))
