"""Mutated protobuf messages."""

HUGE = [
    b"\xff" * 9 + b"\x01",  # 2⁶⁴ − 1
    b"\xff" * 12,  # longer than any valid number
    b"\xff\xff\xff\xff\x07",  # 2³¹ − 1
    b"\x80" * 9 + b"\x00",  # 0, with superfluous bytes
]


def mutated(raw, random):
    """A message after one to three mutations."""
    for _ in range(random.choice([1, 1, 2, 3])):
        raw = random.choice(MUTATIONS)(raw, random)
    return raw


def _flip(raw, random):
    if not raw:
        return b"\x00"
    out = bytearray(raw)
    for _ in range(random.choice([1, 1, 2, 8])):
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)
    return bytes(out)


def _cut(raw, random):
    return raw[: random.randrange(len(raw) + 1)]


def _drop(raw, random):
    begin, end = _span(raw, random)
    return raw[:begin] + raw[end:]


def _repeat(raw, random):
    begin, end = _span(raw, random)
    return raw[:end] + raw[begin:]


def _insert(raw, random):
    at = random.randrange(len(raw) + 1)
    return raw[:at] + random.choice([random.randbytes(random.randint(1, 40)), *HUGE]) + raw[at:]


def _noise(raw, random):
    return random.randbytes(random.choice([0, 1, 7, 60, 2_000, 40_000]))


def _surgery(raw, random):
    """Repeat, drop or move one field, or change its number, kind, value or length."""
    fields = _fields(raw)
    if not fields:
        return raw + random.choice(HUGE)
    at = random.randrange(len(fields))
    tag, value = fields[at]
    change = random.choice(["repeat", "drop", "move", "number", "kind", "value", "length"])
    if change == "repeat":
        fields.insert(at, (tag, value))
    elif change == "drop":
        del fields[at]
    elif change == "move":
        fields.append(fields.pop(at))
    elif change == "number":
        fields[at] = (bytes([tag[0] & 7 | random.randrange(1, 16) << 3]), value)
    elif change == "kind":
        fields[at] = (bytes([tag[0] & ~7 | random.randrange(8)]), value)
    elif change == "value":
        fields[at] = (tag, random.choice([*HUGE, b"\x00", b"\x01", b"\x7f", random.randbytes(8)]))
    else:
        fields[at] = (tag, random.choice(HUGE) + value)
    return b"".join(tag + value for tag, value in fields)


MUTATIONS = [_flip, _flip, _cut, _drop, _repeat, _insert, _noise, *[_surgery] * 7]


def _span(raw, random):
    begin = random.randrange(len(raw) + 1)
    return begin, min(len(raw), begin + random.choice([1, 2, 5, 30]))


def _fields(raw):
    """The fields of a protobuf message as (tag, bytes after it), as far as they can be parsed."""
    fields, at = [], 0
    while at < len(raw):
        tag, begin = raw[at : at + 1], at + 1
        kind = tag[0] & 7
        value, at = (
            _varint(raw, begin) if kind in (0, 2) else (0, begin + {1: 8, 5: 4}.get(kind, 0))
        )
        at += value if kind == 2 else 0
        fields.append((tag, raw[begin:at]))
    return fields


def _varint(raw, at):
    value, shift = 0, 0
    while at < len(raw):
        byte, at = raw[at], at + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            break
    return value, at
