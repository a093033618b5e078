"""Links, line lengths and completeness of the documentation."""

import importlib.util
import posixpath
import re
import tomllib
from pathlib import Path

import pytest
import typer
from code_blocks import ROOT, pages

import tacit
from tacit.algorithms import ALGORITHMS
from tacit.cli.app import COMMANDS, app
from tacit.config.sections import Config, key_names
from tacit.core.here import Network

pytestmark = pytest.mark.quick

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
NAMES = {page: str(page.relative_to(ROOT)) for page in pages()}


@pytest.fixture(scope="module")
def reference():
    """The module that generates reference pages."""
    path = ROOT / "docs" / "_site" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(text):
    """The anchors of a page's headings, as Python-Markdown makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\s-]", "", heading.encode("ascii", "ignore").decode())
        found.add(re.sub(r"[-\s]+", "-", plain.strip().lower()))
    return found


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(CODE.sub("", text)):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = ROOT / posixpath.normpath(page.parent.relative_to(ROOT) / path) if path else page
        assert target.is_file(), f"{NAMES[page]}: {link}"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), f"{NAMES[page]}: {link}"


@pytest.mark.parametrize("name", ["README.md", "docs/explanation/one-idea.md"])
def test_pages_name_all_operations_of_a_network(name):
    """The one idea is that an algorithm sees these, and nothing else of the others."""
    text = (ROOT / name).read_text(encoding="utf-8")
    operations = {operation for operation in vars(Network) if not operation.startswith("_")}
    assert "four operations" in text
    assert len(operations) == 4
    assert {operation for operation in operations if f"`{operation}`" not in text} == set()


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_lines_end_at_100_characters(page):
    """Except rows of tables, and lines that are one long link."""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        exempt = re.match(r"\s*(\||!?\[|ExecStart)", line)
        assert len(line) <= 100 or exempt, f"{NAMES[page]}:{number}"


def test_the_menu_has_every_page():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT / "docs").as_posix() in menu


def test_the_api_pages_have_every_public_name():
    folder = ROOT / "docs" / "reference" / "api"
    text = "\n".join(page.read_text(encoding="utf-8") for page in folder.glob("*.md"))
    documented = set(re.findall(r"^::: ([\w.]+)$", text, re.MULTILINE))
    modules = {"tacit": tacit, "tacit.compression": tacit.compression}
    modules |= {"tacit.data": tacit.data, "tacit.models": tacit.models}
    modules |= {"tacit.callbacks": tacit.callbacks}
    for path, module in modules.items():
        for name in module.__all__:
            is_module = f"{path}.{name}" in modules
            elsewhere = f"tacit.{name}" in documented
            assert is_module or elsewhere or f"{path}.{name}" in documented, f"{path}.{name}"


@pytest.mark.parametrize("page", pages(), ids=NAMES.get)
def test_generated_parts_are_current(page, reference):
    text = page.read_text(encoding="utf-8")
    assert reference.fill(text) == text, "run: .venv/bin/python docs/_site/reference.py"


def test_every_command_and_option_is_on_the_page():
    text = (ROOT / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    for command in ("run", "audit", "federation create", "node", "data list"):
        assert f" tacit {command}\n" in text
    for option in ("--set", "--adversary", "`-n`, `--iterations`", "--metrics-port"):
        assert option in text


def test_help_has_the_commands_in_the_order_of_the_readme():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `tacit ")]
    named = [word for cell in cells for word in re.findall(r"`(?:tacit )?([\w-]+)`", cell)]
    ours = (None, "tacit-papers", "tacit-benches")
    commands = typer.main.get_command(app).commands
    shown = [name for name in COMMANDS if not commands[name].hidden]
    assert named == [name for name in shown if COMMANDS.package(name) in ours]


def test_every_configuration_key_is_on_the_page():
    text = (ROOT / "docs" / "reference" / "configuration.md").read_text(encoding="utf-8")
    for name, field in Config.model_fields.items():
        assert f"\n## [{name}]\n" in text
        section = next(
            kind
            for kind in (field.annotation, *getattr(field.annotation, "__args__", ()))
            if hasattr(kind, "model_fields")
        )
        for field_name, key in key_names(section).items():
            assert f"| `{key}` |" in text
            assert section.model_fields[field_name].description
    for name in ALGORITHMS:
        if ALGORITHMS.package(name) is None:
            assert f'`"{name}"`' in text


def test_the_version_to_cite_is_the_package_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = Path(ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version = project.get("version", tacit.__version__)
    assert f"\nversion: {version}\n" in citation
