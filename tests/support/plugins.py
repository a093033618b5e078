"""Entry points of packages that are not installed."""

from importlib.metadata import EntryPoint

from tacit.core.plugins import Registry


def register_plugin(monkeypatch, module, registry_name, name, value):
    """Add an entry point to a registry of a module; `value` is "package.module:attribute"."""
    registry = getattr(module, registry_name)
    point = EntryPoint(name, value, registry.group)
    monkeypatch.setattr(
        "tacit.core.plugins.entry_points", lambda group: [point] if group == point.group else []
    )
    fresh = Registry(registry.group, registry.kind, registry._builtin)
    monkeypatch.setattr(module, registry_name, fresh)
