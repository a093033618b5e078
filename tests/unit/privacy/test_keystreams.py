"""Keystreams against published answers and stored vectors."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from tacit import Gaussian, Laplace, Misuse
from tacit.privacy import keystreams
from tacit.privacy.keystreams import (
    KeyRing,
    encode_parts,
    hkdf,
    keystream,
    public_key,
    shared_secret,
)

VECTORS = json.loads(
    (Path(__file__).parent / "vectors" / "keystreams.json").read_text(encoding="utf-8")
)
NAMES = [client["name"] for client in VECTORS["clients"]]
SECRETS = [bytes.fromhex(client["secret"]) for client in VECTORS["clients"]]
PUBLICS = [bytes.fromhex(client["public"]) for client in VECTORS["clients"]]
DRAWS = 100_000


def ring(*hosted, **changes):
    """The clients of the vectors, with the secrets of all or of those hosted."""
    held = {client: SECRETS[client] for client in hosted or range(len(SECRETS))}
    return replace(KeyRing("clinics", 1, NAMES, PUBLICS, held), **changes)


def noise(
    keys,
    source,
    target=None,
    tag="delta",
    tick=0,
    law=None,
    width=9,
    dtype=torch.float64,
    columns=None,
):
    other = None if target is None else torch.tensor(target)
    source = torch.tensor(source)
    return keys.randomness(width, dtype).rows(
        tag, law or Laplace(1.0), tick, source, other, columns
    )


# --- Published answers ---------------------------------------------------------------------------

# RFC 8439, appendix A.1: key, block, keystream of that block under a nonce of zeros.
CHACHA20 = [
    (bytes(32), 0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
                   "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"),
    (bytes(32), 1, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
                   "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"),
    (bytes(31) + b"\x01", 1, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
                             "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0"),
    (b"\x00\xff" + bytes(30), 2, "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
                                 "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "block", "expected"), CHACHA20)
def test_chacha20_gives_the_published_answers(key, block, expected):
    stream = b"".join(piece.tobytes() for piece in keystream(key, 16 * (block + 1)))
    assert stream[64 * block :].hex() == expected


def test_x25519_gives_the_published_answers():
    """RFC 7748, section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    assert (
        public_key(alice).hex()
        == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    )
    assert (
        public_key(bob).hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    )
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert (
        shared_secret(alice, public_key(bob)).hex()
        == shared_secret(bob, public_key(alice)).hex()
        == shared
    )


# RFC 5869, appendix A.1 to A.3: ikm, salt, info, output.
HKDF = [
    (b"\x0b" * 22, bytes(range(13)), bytes(range(0xF0, 0xFA)),
     "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"),
    (bytes(range(0x50)), bytes(range(0x60, 0xB0)), bytes(range(0xB0, 0x100)),
     "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
     "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"),
    (b"\x0b" * 22, b"", b"",
     "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
]  # fmt: skip


@pytest.mark.parametrize(("ikm", "salt", "info", "expected"), HKDF)
def test_hkdf_gives_the_published_answers(ikm, salt, info, expected):
    assert hkdf(ikm, salt, info, len(expected) // 2).hex() == expected


# --- Vectors -------------------------------------------------------------------------------------


def drawn(vector):
    """Keystreams of the vector's source, which holds its own secret only."""
    source = NAMES.index(vector["source"])
    keys = ring(source, federation=vector["federation"], generation=vector["generation"])
    return keys.randomness(8, torch.float64), torch.tensor([source])


def title(vector):
    other = vector["target"] or "none"
    return f"{vector['purpose']} {vector['tag']} {vector['tick']} {vector['source']} to {other}"


@pytest.fixture(params=VECTORS["streams"], ids=title)
def vector(request):
    return request.param


def test_streams_are_those_of_the_vectors(vector):
    randomness, source = drawn(vector)
    if vector["purpose"] == "words":
        got = randomness.words(vector["tag"], vector["tick"], source, 8)[0].tolist()
    else:
        target = None if vector["target"] is None else torch.tensor([NAMES.index(vector["target"])])
        # A quantile function that gives back the word shows the stream itself.
        got = (
            randomness.rows(vector["tag"], Itself(), vector["tick"], source, target)
            .tensor()[0]
            .tolist()
        )
    assert [f"{int(word):08x}" for word in got] == vector["words"]


class Itself:
    """The word that a number in (0, 1) stands for."""

    variance = math.nan

    def quantile(self, u):
        return u * 2.0**32 - 0.5


def test_noise_is_that_of_the_vectors(vector):
    if vector["purpose"] == "words":
        assert "laplace" not in vector
        return
    randomness, source = drawn(vector)
    target = None if vector["target"] is None else torch.tensor([NAMES.index(vector["target"])])
    got = randomness.rows(vector["tag"], Laplace(0.025), vector["tick"], source, target).tensor()[
        0, :4
    ]
    expected = torch.tensor(vector["laplace"], dtype=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-14, atol=0)


def test_keys_made_from_a_seed_stay_what_they_are():
    made = VECTORS["from_seed"]
    keys = KeyRing.from_seed(len(made["publics"]), made["seed"])
    assert [public.hex() for public in keys.publics] == made["publics"]
    assert (keys.federation, keys.generation, list(keys.names)) == (
        "simulation",
        1,
        ["0", "1", "2"],
    )
    assert (
        KeyRing.from_seed(2, made["seed"]).publics == keys.publics[:2]
    )  # more clients change no key
    assert len({*keys.publics, *KeyRing.from_seed(3, made["seed"] + 1).publics}) == 6


# --- Which secrets derive what -------------------------------------------------------------------


def test_both_ends_of_an_edge_derive_the_same_and_so_does_a_simulation():
    for tick in (0, 7):
        sent = noise(ring(0), [0, 0], [1, 2], tick=tick).tensor()
        received = noise(ring(1), [0, 2], [1, 1], tick=tick).tensor()
        everyone = noise(ring(), [0, 0, 2], [1, 2, 1], tick=tick).tensor()
        assert torch.equal(sent[0], received[0])
        assert torch.equal(everyone[:2], sent)
        assert torch.equal(everyone[2], received[1])


def test_words_of_32_bits_are_those_of_64():
    draw, clients = ring().randomness(9, torch.float64).words, torch.arange(3)
    narrow = draw("rr", 3, clients, 11, torch.uint32)
    assert narrow.dtype == torch.uint32
    assert torch.equal(narrow.to(torch.int64), draw("rr", 3, clients, 11))


def test_one_client_alone_draws_its_rows_of_all():
    everyone = noise(ring(), [0, 1, 2]).tensor()
    words = ring().randomness(9, torch.float64).words("rr", 3, torch.arange(3), 11)
    for client in range(3):
        alone = ring(client)
        assert torch.equal(noise(alone, [client]).tensor()[0], everyone[client])
        own = alone.randomness(9, torch.float64).words("rr", 3, torch.tensor([client]), 11)
        assert torch.equal(own[0], words[client])


def test_what_no_key_here_derives_is_not_drawn():
    with pytest.raises(
        ValueError, match="own noise of client 'Köln', whose private key is not here"
    ):
        noise(ring(0), [0, 1])
    with pytest.raises(ValueError, match="'Köln' and 'c' share: neither is hosted here"):
        noise(ring(0), [0, 1], [1, 2])
    with pytest.raises(ValueError, match="own noise of client 'c'"):
        ring(0).randomness(3, torch.float32).words("rr", 0, torch.tensor([2]), 4)
    assert len(noise(ring(0), [1, 2], [0, 0]).tensor()) == 2


def test_another_secret_gives_another_stream():
    """A peer that is not an end of the edge can derive noise only from its own secrets."""
    outsider = ring(
        0, names=[NAMES[0], "c", "Köln"]
    )  # who takes another's name has still another key
    assert not bool((noise(outsider, [0], [1]).tensor() == noise(ring(), [0], [2]).tensor()).any())


# --- No stream is used twice ---------------------------------------------------------------------


def test_every_part_of_the_address_changes_every_number():
    source, target = [0], [1]
    streams = {
        "base": noise(ring(), source, target),
        "way back": noise(ring(), target, source),
        "other neighbour": noise(ring(), source, [2]),
        "own": noise(ring(), source),
        "own of another": noise(ring(), target),
        "tag": noise(ring(), source, target, tag="zeta"),
        "tick": noise(ring(), source, target, tick=1),
        "later tick": noise(ring(), source, target, tick=11),
        "generation": noise(ring(generation=2), source, target),
        "generation and tick": noise(ring(generation=11), source, target, tick=1),
        "federation": noise(ring(federation="banks"), source, target),
        "no federation": noise(ring(federation=""), source, target),
        "names": noise(ring(names=["x", "y", "z"]), source, target),
        "own elsewhere": noise(ring(federation="banks"), source),
        "own later": noise(ring(generation=2), source),
    }
    rows = torch.stack([one.tensor()[0] for one in streams.values()])
    assert len(rows.unique()) == rows.numel()


def test_words_are_not_those_of_the_noise():
    words = ring().randomness(9, torch.float64).words("delta", 0, torch.tensor([0]), 9)
    under_noise = noise(ring(), [0], law=Itself()).tensor().round().to(torch.int64)
    assert not bool((words == under_noise).any())


def test_words_differ_by_tag_tick_generation_federation_and_client():
    def draw(keys, tag="rr", tick=0, client=0):
        return keys.randomness(1, torch.float32).words(tag, tick, torch.tensor([client]), 16)[0]

    everything = torch.stack([
        draw(ring()), draw(ring(), tag="rs"), draw(ring(), tick=1), draw(ring(), client=1),
        draw(ring(generation=2)), draw(ring(federation="banks")),
    ])  # fmt: skip
    assert len(everything.unique()) == everything.numel()


@given(st.lists(st.text(max_size=5), max_size=5), st.lists(st.text(max_size=5), max_size=5))
def test_no_two_addresses_are_written_alike(one, other):
    assert (encode_parts(*one) == encode_parts(*other)) == (one == other)


# --- Rows ----------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(picked=st.lists(st.integers(0, 5), min_size=1, max_size=8), width=st.integers(1, 70))
def test_a_row_does_not_depend_on_the_rows_drawn_with_it(picked, width):
    rows = noise(ring(), [0, 0, 1, 1, 2, 2], [1, 2, 0, 2, 0, 1], width=width)
    assert torch.equal(rows[torch.tensor(picked)], rows.tensor()[picked])


@pytest.mark.parametrize("law", [Laplace(0.7), Gaussian(0.3)])
@pytest.mark.parametrize("narrow", [1, 3, 8, 100, 129])
def test_a_narrower_row_is_the_beginning_of_a_wider_one(narrow, law):
    whole = noise(ring(), [1], law=law, width=1001).tensor()
    assert torch.equal(noise(ring(), [1], law=law, width=narrow).tensor(), whole[:, :narrow])


def test_a_long_row_is_one_stream(monkeypatch):
    whole, words = (
        noise(ring(), [0, 1], width=50, law=Itself()).tensor(),
        ring().randomness(1, torch.float32).words("rr", 0, torch.arange(2), 50),
    )
    monkeypatch.setattr(keystreams, "CHUNK", 7)
    assert torch.equal(noise(ring(), [0, 1], width=50, law=Itself()).tensor(), whole)
    assert torch.equal(
        ring().randomness(1, torch.float32).words("rr", 0, torch.arange(2), 50), words
    )


@pytest.mark.parametrize("law", [Laplace(0.7), Gaussian(0.3)])
def test_float32_is_the_rounded_float64(law):
    double = noise(ring(), [1], law=law, width=1001).tensor()
    single = noise(ring(), [1], law=law, width=1001, dtype=torch.float32).tensor()
    assert single.dtype == torch.float32
    assert torch.equal(single, double.to(torch.float32))


def test_rows_know_their_shape():
    rows = noise(ring(), [0, 1], width=3, dtype=torch.float32)
    assert (len(rows), rows.width, rows.dtype, rows.device.type) == (2, 3, torch.float32, "cpu")
    wide = noise(ring(), [0, 1], width=3, columns=9)
    assert wide.width == 9
    assert wide.tensor().shape == (2, 9)
    assert noise(ring(), [0], width=3, columns=0).tensor().shape == (1, 0)
    none = ring().randomness(5, torch.float32)
    empty = torch.arange(0)
    assert none.rows("delta", Laplace(1.0), 0, empty, empty).tensor().shape == (0, 5)
    assert none.words("rr", 0, empty, 4).shape == (0, 4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_rows_of_clients_on_a_gpu_are_there_and_have_the_same_bits():
    source = torch.tensor([0, 1], device="cuda")
    randomness = ring().randomness(1001, torch.float64)
    rows = randomness.rows("delta", Laplace(1.0), 0, source, None)
    assert rows.device.type == rows.tensor().device.type == "cuda"
    assert torch.equal(rows.tensor().cpu(), noise(ring(), [0, 1], width=1001).tensor())
    words = randomness.words("rr", 0, source, 5)
    assert words.device.type == "cuda"


def test_a_pair_of_clients_is_computed_once(monkeypatch):
    asked = []

    def counted(secret, public):
        asked.append(public)
        return shared_secret(secret, public)

    monkeypatch.setattr(keystreams, "shared_secret", counted)
    keys = ring()
    for tick in range(4):
        noise(keys, [0, 1, 2], [1, 0, 0], tick=tick).tensor()
    assert len(asked) == 2  # both directions of 0–1, and 0–2
    noise(replace(keys, generation=2), [0], [1]).tensor()
    assert len(asked) == 3  # nothing is kept outside the ring


# --- Laws ----------------------------------------------------------------------------------------


def test_noise_follows_its_law_everywhere():
    laplace = noise(ring(), [0], [1], law=Laplace(2.0), width=DRAWS).tensor()[0]
    gaussian = noise(ring(), [0], [1], law=Gaussian(3.0), width=DRAWS, tag="z").tensor()[0]
    assert stats.kstest(laplace.numpy(), stats.laplace(scale=2.0).cdf).pvalue > 1e-4
    assert stats.kstest(gaussian.numpy(), stats.norm(scale=3.0).cdf).pvalue > 1e-4


def test_words_are_uniform_in_every_byte():
    words = ring().randomness(1, torch.float32).words("rr", 0, torch.tensor([0]), DRAWS)[0]
    assert words.dtype == torch.int64
    assert int(words.min()) >= 0
    assert int(words.max()) < 2**32
    for shift in (0, 8, 16, 24):
        counts = torch.bincount(words >> shift & 0xFF, minlength=256)
        assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    assert stats.kstest((words.double() / 2**32).numpy(), "uniform").pvalue > 1e-4


# --- Keys ----------------------------------------------------------------------------------------


def test_nothing_printed_shows_a_secret():
    keys = ring()
    randomness = keys.randomness(4, torch.float32)
    noise(keys, [0], [1]).tensor()
    pair = shared_secret(SECRETS[0], PUBLICS[1])
    texts = [f(one) for f in (repr, str) for one in (keys, randomness)]
    for broken in ({0: SECRETS[1]}, {5: SECRETS[0]}, {0: SECRETS[0][:-1]}, {0: SECRETS[0].hex()}):
        with pytest.raises(Misuse) as caught:
            ring(secrets=broken)
        texts.append(str(caught.value))
    for secret in (*SECRETS, pair):
        for text in texts:
            assert repr(secret)[2:-2] not in text
            assert secret.hex()[:-2] not in text
    assert "secrets" not in repr(keys)
    assert "clinics" in repr(keys)


LOW_ORDER = [bytes(32), (1).to_bytes(32, "little"), (2**255 - 20).to_bytes(32, "little")]


@pytest.mark.parametrize("bad", LOW_ORDER, ids=["0", "1", "-1"])
def test_a_public_key_of_low_order_is_refused_by_the_client_s_name(bad):
    keys = ring(0, publics=[PUBLICS[0], bad, PUBLICS[2]])
    assert noise(keys, [0], [2]).tensor().shape == (1, 9)
    for source, target in (([0], [1]), ([1], [0])):
        with pytest.raises(Misuse, match="'Köln' has low order") as caught:
            noise(keys, source, target).tensor()
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"publics": PUBLICS[:2]}, "3 names and 2 public keys"),
        ({"names": ["a", "b", "a"]}, "empty or not unique"),
        ({"names": ["a", "b", ""]}, "empty or not unique"),
        (
            {"publics": [PUBLICS[0], PUBLICS[1][:-1], PUBLICS[2]]},
            "public key of client 'Köln' is not 32 bytes",
        ),
        (
            {"publics": [PUBLICS[0], PUBLICS[1], PUBLICS[2].hex()]},
            "public key of client 'c' is not 32 bytes",
        ),
        ({"secrets": {1: SECRETS[1] + b"x"}}, "private key of client 'Köln' is not 32 bytes"),
        ({"secrets": {1: SECRETS[2]}}, "private key of client 'Köln' does not belong"),
        ({"secrets": {3: SECRETS[2]}}, "private key of client 3"),
        ({"generation": -1}, "generation of the keys is -1"),
        ({"generation": "1"}, "generation of the keys is '1'"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(Misuse, match=words) as caught:
        ring(**changes)
    assert caught.value.remedy


def test_only_keystreams_need_the_package_of_ciphers():
    code = """
import sys
sys.modules["cryptography"] = None
import torch, tacit
task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
graph = tacit.Topology.ring(3).mixing("metropolis")
tacit.run(task, tacit.LPPA(lr=0.1), graph, steps=1)
for _ in range(2):
    try:
        tacit.run(task, tacit.LPPA(lr=0.1), graph, steps=1, prg="chacha20")
    except tacit.Misuse as refusal:
        print(refusal)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "need the package cryptography" in line
        assert "pip install 'tacit-learn[peer]'" in line
