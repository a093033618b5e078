"""docs/reference/peer-files.md lists every file of tacit.peer."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_every_file_is_listed_once_in_its_folder():
    page = (ROOT / "docs" / "reference" / "peer-files.md").read_text()
    listed = {}
    for section in page.split("\n## ")[1:]:
        folder = re.match(r"`(\w+)/`", section)[1]
        cells = re.findall(r"^\| (`[^|]*) \|", section, re.MULTILINE)
        listed[folder] = sorted(name for cell in cells for name in re.findall(r"`([\w.]+)`", cell))
    source = ROOT / "src" / "tacit" / "peer"
    assert listed == {
        folder.name: sorted(
            path.name for path in folder.iterdir() if path.is_file() and path.name != "__init__.py"
        )
        for folder in source.iterdir()
        if (folder / "__init__.py").exists()
    }
