"""RMIA by its definition, and on models that were trained on half of the candidates."""

import pytest
import torch

from tacit.auditing.attacks.rmia import choose_interpolation, rmia_score
from tacit.core.errors import Misuse

DRAW = torch.Generator().manual_seed(0)
COUNT, SAMPLES, MODELS = 12, 30, 6
PHI, Z = torch.randn(COUNT, generator=DRAW), torch.randn(SAMPLES, generator=DRAW)
SHADOW_PHI = torch.randn(MODELS, COUNT, generator=DRAW)
SHADOW_Z = torch.randn(MODELS, SAMPLES, generator=DRAW)
HELD = torch.rand(MODELS, COUNT, generator=DRAW) < 0.5
HELD[0], HELD[1] = True, False


@pytest.mark.parametrize(("a", "gamma"), [(0.3, 1.0), (1.0, 2.0), (0.0, 0.7)])
def test_the_score_by_the_definition(a, gamma):
    def ratio(phi, out):
        p = 1 / (1 + torch.exp(-phi.double()))
        return p / (0.5 * ((1 + a) * out + 1 - a))

    expected = []
    others = ratio(Z, SHADOW_Z.double().sigmoid().mean(0))
    for k in range(COUNT):
        out = SHADOW_PHI[~HELD[:, k], k].double().sigmoid().mean()
        expected.append(float((ratio(PHI[k], out) / others >= gamma).double().mean()))
    found = rmia_score(PHI, Z, SHADOW_PHI, SHADOW_Z, HELD, a=a, gamma=gamma)
    assert found.tolist() == pytest.approx(expected)
    assert len(set(expected)) > 3


def test_a_is_chosen_where_members_of_reference_models_are_found_best():
    """If samples differ in difficulty, calibrating with the reference models helps: a = 0 loses."""
    draw = torch.Generator().manual_seed(1)
    hardness = 3 * torch.randn(200, generator=draw)
    held = torch.zeros(8, 200, dtype=torch.bool)
    for pair in range(4):
        half = torch.rand(200, generator=draw) < 0.5
        held[2 * pair], held[2 * pair + 1] = half, ~half
    phi = hardness + 1.0 * held + 0.3 * torch.randn(8, 200, generator=draw)
    z = 3 * torch.randn(100, generator=draw) + 0.3 * torch.randn(8, 100, generator=draw)
    a = choose_interpolation(phi, z, held)
    assert a > 0


def test_bad_references_are_refused():
    with pytest.raises(Misuse, match="a from 0 to 1"):
        rmia_score(PHI, Z, SHADOW_PHI, SHADOW_Z, HELD, a=1.5)
    with pytest.raises(Misuse, match="halves of the candidates"):
        rmia_score(PHI, Z, SHADOW_PHI, SHADOW_Z, torch.ones_like(HELD), a=0.5)
