import inspect

from tacit.config import sections


def test_every_key_has_a_description():
    kinds = [kind for kind in vars(sections).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if issubclass(kind, sections.Section)]
    found.remove(sections.Config)
    for kind in found:
        texts = sections.descriptions(kind)
        assert list(texts) == list(inspect.get_annotations(kind))
        assert all(text.endswith(".") for text in texts.values())
    assert sum(len(kind.model_fields) for kind in found) > 30
