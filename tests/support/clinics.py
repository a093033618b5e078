"""A small federation that is only created: its nodes never train."""

from tacit.config.loading import make_config
from tacit.peer.federation.operator import create

CONFIG = make_config(
    {"algorithm": {"name": "lppa", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)


def clinics(folder, names="abc", *, host="127.0.0.1", **options):
    """A federation of nodes with these names on a ring, in a new folder."""
    nodes = {name: f"{host}:{7500 + number}" for number, name in enumerate(names)}
    return create(folder, "clinics", nodes, CONFIG, **options)
