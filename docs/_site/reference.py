"""Generates parts of the reference pages from the code: commands, configuration keys, metrics.

Pages have the text between `<!-- generated: command-line -->` and `<!-- end of generated text -->`.
Each build of the site regenerates it. `python docs/_site/reference.py` updates the pages, so that
they can be read without the site. A test checks that they are current.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

DOCS = Path(__file__).parents[1]
END = "<!-- end of generated text -->"
PART = re.compile(
    rf"(?P<begin><!-- generated: (?P<name>[\w-]+)(?: (?P<argument>[\w.-]+))? -->)\n.*?{END}",
    re.DOTALL,
)


def fill(markdown: str) -> str:
    """A page with its generated parts regenerated."""

    def text(part: re.Match[str]) -> str:
        make = GENERATORS[part["name"]]
        made = make(part["argument"]) if part["argument"] else make()
        return f"{part['begin']}\n\n{made}\n\n{END}"

    return PART.sub(text, markdown)


def update_pages() -> None:
    """Write the generated parts into the pages."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        if (filled := fill(text)) != text:
            page.write_text(filled, encoding="utf-8")
            print(f"updated {page.relative_to(DOCS.parent)}")


# The command line.


def command_line() -> str:
    """Every command: usage, arguments and options."""
    import typer

    from tacit.cli.app import COMMANDS, app

    ours = ("tacit-papers", "tacit-benches")  # other installed plugins are not ours
    root = typer.main.get_command(app)
    parts = []
    for name, command in root.commands.items():
        if COMMANDS.package(name) in (None, *ours) and not command.hidden:
            parts += _command(f"tacit {name}", command)
    return "\n\n".join(parts)


def _command(path: str, command: Any, level: int = 2) -> list[str]:
    text = [f"{'#' * level} {path}", _paragraphs(command.help)]
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            text += _command(f"{path} {name}", child, level + 1)
        return text
    params = [one for one in command.params if "--help" not in one.opts]
    options = [one for one in params if one.opts[0].startswith("-")]
    arguments = [one for one in params if one not in options]
    usage = " ".join([path, *map(_placeholder, arguments), *(["[OPTIONS]"] if options else [])])
    text.append(f"```text\n{usage}\n```")
    rows = [(f"`{_escape(_placeholder(one))}`", _sentence(one.help)) for one in arguments]
    rows += [(_option(one), _sentence(one.help) + _default(one)) for one in options]
    text.append(_table(("argument or option", "meaning"), rows))
    return text


def _placeholder(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    if argument.required or name.startswith("["):
        return name
    return f"[{name}]" + ("..." if argument.nargs == -1 else "")


def _option(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    if option.required:
        return " Required."
    if option.is_flag or option.default is None or "default:" in (option.help or ""):
        return ""
    value = option.default
    shown = value.as_posix() if isinstance(value, Path) else _number(value)
    return f" Default: `{shown}`."


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1f}" if value == int(value) else f"{value:.4g}"


# The configuration.


def section_keys(name: str) -> str:
    """The keys of one section with type, default and description."""
    from pydantic_core import PydanticUndefined

    from tacit.config.sections import key_names

    kind = _section(name)
    hints = get_type_hints(kind)
    rows = []
    for key, field in kind.model_fields.items():
        default = "required" if field.default is PydanticUndefined else _value(field.default)
        description = _escape(field.description or "")
        rows.append((f"`{key_names(kind)[key]}`", _type(hints[key]), default, description))
    return _table(("key", "type", "default", "meaning"), rows)


def _section(name: str) -> type[Any]:
    from tacit.config import sections

    classes = {
        "data.augment": "AugmentSection",
        "graph.phases": "PhaseSection",
        "participation.absences": "AbsenceSection",
        "run.clip": "ClipSection",
        "transcript": "TranscriptSection",
    }
    kind = getattr(sections, classes.get(name, f"{name.capitalize()}Section"))
    assert isinstance(kind, type)
    return kind


def partitions() -> str:
    """The kinds of partition with their options."""
    from tacit import data
    from tacit.data.partitions import _KINDS

    rows = []
    for kind, (make, option) in _KINDS.items():
        # Kinds that need no labels are wrapped in a lambda: their function has the same name.
        function = getattr(data, kind, make)
        rows.append((f'`"{kind}"`', f"`{option}`" if option else "", _summary(function)))
    return _table(("kind", "option", "division"), rows)


def topologies() -> str:
    """The kinds of graph with their options."""
    from tacit.config.graphs import TOPOLOGIES

    rows = [
        (f'`"{kind}"`', _options(make, {"n": "clients"}, skip=("seed",)), _summary(make))
        for kind, make in TOPOLOGIES.items()
    ]
    rows += [
        ('`"matrix"`', "`matrix`", "Read W from a file; edges are its non-zero entries."),
        ('`"matchings"`', "`clients` or `of`", "Match clients at random, anew in each iteration."),
        ('`"phases"`', "`phases`", "Use several graphs, one after the other, again and again."),
    ]
    return _table(("kind", "options", "graph"), rows)


def models() -> str:
    """The built-in models with their options."""
    from tacit.models import MODELS

    rows = [
        (f'`"{name}"`', _options(MODELS[name], skip=("shape", "classes")), _summary(MODELS[name]))
        for name in MODELS
        if MODELS.package(name) is None
    ]
    return _table(("name", "options", "network"), rows)


def datasets() -> str:
    """The built-in datasets, then their options."""
    from tacit import data

    described = [data.describe(name) for name in data.names()]
    ours = [one for one in described if one.package is None]
    rows = [
        (f'`"{one.name}"`', one.counts, "×".join(map(str, one.shape)), str(one.classes))
        for one in ours
    ]
    meanings: dict[tuple[str, str], list[str]] = {}
    for one in ours:
        for key, meaning in one.options.items():
            meanings.setdefault((key, meaning), []).append(f"`{one.name}`")
    options = [
        _wrap(f"- `{key}` ({', '.join(names)}): {_escape(meaning)}.", indent="  ")
        for (key, meaning), names in meanings.items()
    ]
    return _table(("name", "samples", "shape", "classes"), rows) + "\n\n" + "\n".join(options)


def tasks() -> str:
    """The tasks that generate their data, with their options."""
    from tacit.config.tasks import TASKS

    text = []
    for name, make in TASKS.items():
        text += [f'### `name = "{name}"`', _summary(make)]
        described = _arguments(make)
        rows = [
            (f"`{key}`", _type(hint), default, described.get(key, ""))
            for key, (hint, default) in _parameters(make).items()
            if key not in ("clients", "dtype")
        ]
        text.append(_table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(text)


def algorithms() -> str:
    """The options of every built-in algorithm."""
    from tacit.algorithms import ALGORITHMS
    from tacit.algorithms.algorithm import options_of

    rows = []
    for name in ALGORITHMS:
        if ALGORITHMS.package(name) is not None:
            continue
        options = []
        for field in options_of(ALGORITHMS[name]).values():
            given = field.default is not dataclasses.MISSING
            options.append(
                f"`{field.name} = {_toml(field.default)}`" if given else f"`{field.name}`"
            )
        rows.append((f'`"{name}"`', ALGORITHMS[name].known_as, ", ".join(options)))
    return _table(("name", "known as", "options"), rows)


def tolerances() -> str:
    """What every built-in algorithm allows of a changing world, and why not the rest."""
    from tacit.algorithms import ALGORITHMS

    names = ("changing_graph", "absent_clients", "late_messages")
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in ALGORITHMS:
        if ALGORITHMS.package(name) is not None:
            continue
        tolerated = ALGORITHMS[name].tolerates
        reasons = [getattr(tolerated, one) for one in names]
        yes = "yes"
        if tolerated.only_with is not None:
            option, value, why = tolerated.only_with
            yes = f"with `{option} = {_toml(value)}`"
            reasons.append(why)
        cells = ["no" if getattr(tolerated, one) else yes for one in names]
        why = "; ".join(dict.fromkeys(filter(None, reasons)))
        groups.setdefault((*cells, _escape(why)), []).append(f"`{name}`")
    rows = [(", ".join(members), *cells) for cells, members in groups.items()]
    return _table(("algorithm", "graph changes", "absent clients", "late messages", "why"), rows)


# Options of which the table of leaks has rows of their own.
LEAK_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dp-dsgt", {"inject": "every"}),
    ("lppa", {"fresh": True}),
    ("defl-vp", {"private_variates": True}),
    ("defl-vp", {"variance_reduction": False}),
)


def leaks() -> str:
    """The most that adversaries compute about gradients, for every built-in algorithm."""
    import tacit
    from tacit.algorithms.private_algorithm import PrivateAlgorithm
    from tacit.auditing.adversary import Adversary
    from tacit.auditing.statements import StrongestLeak
    from tacit.auditing.symbolic.knowledge import Knowledge
    from tacit.auditing.symbolic.leakage import Leakage
    from tacit.auditing.symbolic.symbols import run_on_symbols
    from tacit.privacy.population import Population

    graph = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
    given = {"lr": 0.05, "solver": tacit.QuadraticSolver(mu=0.25)}
    shipped = [name for name in tacit.ALGORITHMS if tacit.ALGORITHMS.package(name) is None]
    rows = []
    for name, options in (*((name, {}) for name in shipped), *LEAK_OPTIONS):
        kind = tacit.ALGORITHMS[name]
        needed = {key: given[key] for key in kind.__dataclass_fields__ if key in given}
        algorithm: Any = kind(**needed | options)
        if isinstance(algorithm, PrivateAlgorithm):
            facts = Population(graph.clients, 20, 10, parameters=6, steps=20)
            algorithm = algorithm.prepared(tacit.Privacy(epsilon=3.0), facts, graph)
        run = run_on_symbols(algorithm, graph, 6, common_start=True)
        cells = [
            str(StrongestLeak.of(Leakage(Knowledge(run, Adversary.parse(who)), 0)))
            for who in ("curious(1)", "curious(1,4)", "eavesdropper")
        ]
        words = [f"`{name}`", *(f"`{key} = {_toml(value)}`" for key, value in options.items())]
        rows.append((" ".join(words), *cells))
    return _table(("algorithm", "one neighbour", "both neighbours", "eavesdropper"), rows)


def families() -> str:
    """The tables that choose one of a family: noise, codec, protection, solver, schedule."""
    from tacit.config.options import OPTION_FAMILIES, SCHEDULES

    groups: dict[str, list[tuple[str, str]]] = {}
    for family in (*OPTION_FAMILIES.values(), SCHEDULES):
        heading = f"### {family.noun[0].upper()}{family.noun[1:]}\n\nFor example"
        heading += f" `{family.example}`."
        groups[heading] = [
            (f'`{family.selector} = "{name}"`', _fields(kind), _summary(kind))
            for name, kind in family.members.items()
        ]
    return "\n\n".join(
        f"{heading}\n\n{_table(('choice', 'options', 'meaning'), rows)}"
        for heading, rows in groups.items()
    )


def metrics() -> str:
    """The metrics of a node."""
    from tacit.peer.monitoring.metrics import DESCRIPTIONS

    rows = [
        (f"`{name}`", one.kind, f"`{one.label}`" if one.label else "", one.help)
        for name, one in DESCRIPTIONS.items()
    ]
    return _table(("metric", "kind", "label", "meaning"), rows)


GENERATORS: dict[str, Callable[..., str]] = {
    "command-line": command_line,
    "keys": section_keys,
    "partitions": partitions,
    "topologies": topologies,
    "models": models,
    "datasets": datasets,
    "tasks": tasks,
    "algorithms": algorithms,
    "leaks": leaks,
    "families": families,
    "tolerances": tolerances,
    "metrics": metrics,
}


def _parameters(make: Callable[..., Any]) -> dict[str, tuple[Any, str]]:
    """Name → (type, default in TOML) of a function's parameters."""
    hints = get_type_hints(make)
    found = {}
    for name, one in inspect.signature(make).parameters.items():
        default = "required" if one.default is one.empty else _value(one.default)
        found[name] = (hints.get(name, Any), default)
    return found


def _options(
    make: Callable[..., Any],
    renamed: Mapping[str, str] | None = None,
    skip: Iterable[str] = (),
) -> str:
    shown = []
    for name, one in inspect.signature(make).parameters.items():
        if name in skip:
            continue
        key = (renamed or {}).get(name, name)
        optional = one.default is not one.empty and one.default is not None
        shown.append(f"`{key} = {_toml(one.default)}`" if optional else f"`{key}`")
    return ", ".join(shown)


def _fields(kind: type[Any]) -> str:
    shown = []
    for field in dataclasses.fields(kind):
        given = field.default is not dataclasses.MISSING and field.default is not None
        shown.append(f"`{field.name} = {_toml(field.default)}`" if given else f"`{field.name}`")
    return ", ".join(shown)


def _arguments(function: Callable[..., Any]) -> dict[str, str]:
    """The descriptions in the Args section of a docstring."""
    _, _, section = (inspect.getdoc(function) or "").partition("Args:\n")
    section = re.split(r"\n\S", section)[0]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if match := re.match(r"    (\w+): (.*)", line):
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {key: _escape(text) for key, text in found.items()}


def _type(hint: Any) -> str:
    """A type as a reader of TOML thinks of it."""
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    if hint in names:
        return names[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f'`"{one}"`' for one in arguments)
    if hasattr(hint, "__metadata__"):
        return _type(hint.__origin__)
    if origin is dict:
        return "table"
    inner = [one for one in arguments if one is not type(None) and "Tensor" not in str(one)]
    if origin in (list, tuple) or "Sequence" in str(origin):
        return f"list of {_plural(_type(inner[0]))}" if inner else "list"
    if len(inner) < len(arguments) or len(inner) > 1:
        return " or ".join(dict.fromkeys(map(_type, inner)))
    return "table" if isinstance(hint, type) else str(hint)


def _plural(name: str) -> str:
    return name.replace("list of", "lists of") if name.startswith("list") else f"{name}s"


def _value(value: Any) -> str:
    return "" if value is None else f"`{_toml(value)}`"


def _toml(value: Any) -> str:
    """A value as a configuration writes it."""
    from tacit.config.options import OPTION_FAMILIES, SCHEDULES

    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if dataclasses.is_dataclass(value):
        head = []
        for family in (*OPTION_FAMILIES.values(), SCHEDULES):
            head += [
                f'{family.selector} = "{name}"'
                for name, kind in family.members.items()
                if type(value) is kind
            ]
        fields = [
            f"{one.name} = {_toml(getattr(value, one.name))}"
            for one in dataclasses.fields(value)
            if getattr(value, one.name) is not None and not _is_default(one, value)
        ]
        return f"{{ {', '.join([*head, *fields])} }}"
    return _number(value)


def _is_default(field: Any, value: Any) -> bool:
    return bool(field.default == getattr(value, field.name)) and field.name == "values"


def _summary(thing: Any) -> str:
    return _escape((inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " "))


def _sentence(text: str | None) -> str:
    text = _escape(text or "")
    return text if not text or text.endswith((".", "…")) else f"{text}."


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(map(_wrap, (text or "").strip().split("\n\n")))


def _wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 100, subsequent_indent=indent, break_on_hyphens=False)


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    update_pages()
