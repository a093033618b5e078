"""The code that a node runs for a manifest: what Tacit has, and what its owner allowed.

The operator signs a manifest, but the owner of a node decides what runs on the node's machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.config.named_code import NamedCode, named_code
from tacit.config.options import import_object
from tacit.config.sections import Config
from tacit.core.errors import Misuse


def check_allowed(config: Config, allowed: Sequence[str]) -> None:
    """Raise Misuse if a configuration names code that is neither Tacit's nor allowed.

    Code that is not allowed is not imported.

    Args:
        config: The configuration of a manifest.
        allowed: The packages and modules ("package.module") whose classes and functions may run,
            and single ones ("package.module:Name").
    """
    for code in named_code(config):
        if code.path is None or code.path in allowed:
            continue
        module = code.path.partition(":")[0]
        if not _covers(allowed, module):
            raise _refusal(code, "", f"--allow-code {module}")
        # A module also has the names that it imports from other modules, such as Popen.
        home = getattr(import_object(code.path, code.key), "__module__", None)
        if code.package is None and not _covers(allowed, str(home)):
            raise _refusal(code, f", which is defined in {home}", f"--allow-code {code.path}")


def _covers(allowed: Sequence[str], module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in allowed)


def _refusal(code: NamedCode, where: str, option: str) -> Misuse:
    registered = "" if code.package is None else f" ({code.path}, registered by {code.package})"
    return Misuse(
        f"The manifest names {code.key} = {code.name!r}{registered}{where}, and this node is not "
        "allowed to run it.",
        f"Read that code. If you trust it, start the node with {option}.",
    )
