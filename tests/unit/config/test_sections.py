from tacit.config import sections


def test_every_key_has_a_description():
    kinds = [kind for kind in vars(sections).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if issubclass(kind, sections.Section)]
    found.remove(sections.Config)
    for kind in found:
        for field in kind.model_fields.values():
            assert (field.description or "").endswith(".")
