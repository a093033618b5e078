"""Paths in texts that people share: folders of a machine can name its user."""

from __future__ import annotations

import re

# "/a/b/" or "~/b/" or "C:\a\" before a name; not in "a/b", "https://a/b" or "../a/b".
_FOLDERS = re.compile(
    r"""(?<![\w./\\:…])
    (?: ~?/(?!\s)(?:[^/'"=,:\n]+/)+ | ~[\w.-]*/ | [A-Za-z]:[\\/](?:[^\\/'"=,:\n]+[\\/]+)* )""",
    re.VERBOSE,
)


def without_folders(text: str) -> str:
    """A text whose absolute paths begin with … instead of their folders.

    Example:
        >>> without_folders('file = "/home/ada/ward/rows.csv", sites/a.csv')
        'file = "…/rows.csv", sites/a.csv'
    """
    return _FOLDERS.sub("…/", text)
