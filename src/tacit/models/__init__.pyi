from tacit.models.batch_norm import replace_batch_norm as replace_batch_norm
from tacit.models.dropout import keyed as keyed
from tacit.models.low_rank import lora as lora, merge_lora as merge_lora
from tacit.models.networks import (
    deep_tanh_cnn as deep_tanh_cnn,
    lenet as lenet,
    linear as linear,
    mlp as mlp,
    sigmoid_cnn as sigmoid_cnn,
    tanh_cnn as tanh_cnn,
    two_layer_cnn as two_layer_cnn,
    vgg11 as vgg11,
)
from tacit.models.parameters import load_weights as load_weights
from tacit.models.registry import MODELS as MODELS, build as build
from tacit.models.resnet import resnet18 as resnet18
from tacit.models.transformer import transformer as transformer
