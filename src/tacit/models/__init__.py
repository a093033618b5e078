"""Networks of the papers, a ResNet and a transformer, by name.

Packages can register further models under the entry-point group `tacit.models`: a function
`(shape, classes, *, option=…) -> nn.Module`. The public names are listed in `__init__.pyi`.
"""

from tacit.core.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
