import pytest
import torch
from torch import nn

from tacit.models import keyed, lora
from tacit.models.attention import PlainAttention
from tacit.models.dropout import KeyedDropout, without_keys


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.1),
        nn.Dropout1d(0.2),
        nn.Dropout2d(0.3),
        nn.Dropout3d(0.4),
        nn.AlphaDropout(0.5),
        nn.FeatureAlphaDropout(0.6),
    ],
)
def test_dropout_is_torchs_own_again(layer):
    again = without_keys(keyed(nn.Sequential(nn.Linear(2, 2), layer)))[1]
    assert type(again) is type(layer)
    assert again.p == layer.p
    alone = without_keys(keyed(layer))
    assert type(alone) is type(layer)


def test_a_layer_with_two_names_is_replaced_under_both():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = KeyedDropout(0.5, None)
            self.second = self.first

    again = without_keys(Twice())
    assert type(again.first) is type(again.second) is nn.Dropout


def test_attention_is_torchs_own_again_unless_it_has_adapters():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    again = without_keys(keyed(encoder))
    assert type(again.self_attn) is nn.MultiheadAttention
    assert again.self_attn.dropout == 0.2
    x = torch.randn(3, 4, 8)
    torch.testing.assert_close(again.eval()(x), encoder.eval()(x))
    adapted = without_keys(keyed(lora(encoder, rank=2)))
    assert type(adapted.self_attn) is PlainAttention
    torch.testing.assert_close(adapted.eval()(x), encoder(x))
