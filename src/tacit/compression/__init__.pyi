from tacit.compression.messages import Identity as Identity
from tacit.compression.qsgd import QSGD as QSGD
from tacit.compression.rand_k import RandK as RandK
from tacit.compression.registry import CODECS as CODECS
from tacit.compression.sign_bits import SignBits as SignBits, for_signs as for_signs
from tacit.core.codec import Codec as Codec, Draw as Draw, check_codec as check_codec
