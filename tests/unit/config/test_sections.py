from tacit.config import sections


def test_every_key_has_a_description():
    kinds = [kind for kind in vars(sections).values() if isinstance(kind, type)]
    found = [kind for kind in kinds if issubclass(kind, sections.Section)]
    fields = [
        field
        for kind in found
        if kind is not sections.Config
        for field in kind.model_fields.values()
    ]
    assert len(fields) > 30
    assert all(field.description.endswith(".") for field in fields)
