from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeInfo(_message.Message):
    __slots__ = ("protocol", "federation", "generation", "manifest_sha256", "sections", "parameters", "dtype", "version", "constants", "log_entries", "log_head", "epoch")
    class SectionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    LOG_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    LOG_HEAD_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    federation: str
    generation: int
    manifest_sha256: bytes
    sections: _containers.ScalarMap[str, str]
    parameters: int
    dtype: str
    version: str
    constants: _containers.RepeatedScalarFieldContainer[float]
    log_entries: int
    log_head: bytes
    epoch: int
    def __init__(self, protocol: _Optional[int] = ..., federation: _Optional[str] = ..., generation: _Optional[int] = ..., manifest_sha256: _Optional[bytes] = ..., sections: _Optional[_Mapping[str, str]] = ..., parameters: _Optional[int] = ..., dtype: _Optional[str] = ..., version: _Optional[str] = ..., constants: _Optional[_Iterable[float]] = ..., log_entries: _Optional[int] = ..., log_head: _Optional[bytes] = ..., epoch: _Optional[int] = ...) -> None: ...

class ExchangeId(_message.Message):
    __slots__ = ("generation", "tick", "index")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    index: int
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ..., index: _Optional[int] = ...) -> None: ...

class FetchRequest(_message.Message):
    __slots__ = ("exchange", "manifest_sha256", "saved_tick")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    SAVED_TICK_FIELD_NUMBER: _ClassVar[int]
    exchange: ExchangeId
    manifest_sha256: bytes
    saved_tick: int
    def __init__(self, exchange: _Optional[_Union[ExchangeId, _Mapping]] = ..., manifest_sha256: _Optional[bytes] = ..., saved_tick: _Optional[int] = ...) -> None: ...

class StreamAnswer(_message.Message):
    __slots__ = ("notice", "header", "refusal")
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    notice: ProgressNotice
    header: MessageHeader
    refusal: Refusal
    def __init__(self, notice: _Optional[_Union[ProgressNotice, _Mapping]] = ..., header: _Optional[_Union[MessageHeader, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "text")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class MessageHeader(_message.Message):
    __slots__ = ("exchange", "size", "sha256")
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    exchange: ExchangeId
    size: int
    sha256: bytes
    def __init__(self, exchange: _Optional[_Union[ExchangeId, _Mapping]] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ProgressNotice(_message.Message):
    __slots__ = ("generation", "tick", "waiting_for")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ..., waiting_for: _Optional[_Iterable[str]] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("generation", "tick")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AgreementSheet(_message.Message):
    __slots__ = ("content",)
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    content: bytes
    def __init__(self, content: _Optional[bytes] = ...) -> None: ...

class Suspension(_message.Message):
    __slots__ = ("name", "since")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    since: int
    def __init__(self, name: _Optional[str] = ..., since: _Optional[int] = ...) -> None: ...

class SignedManifest(_message.Message):
    __slots__ = ("manifest", "signature", "log")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    signature: bytes
    log: bytes
    def __init__(self, manifest: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., log: _Optional[bytes] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("name", "generation", "phase", "waiting_for", "step", "steps", "round_length", "loss", "accuracy", "bytes_sent", "bytes_received", "rejected", "saved", "uptime_seconds", "problem", "version", "manifest", "privacy", "baseline", "certificate_expiry", "certificate_notice", "epoch", "suspended")
    NAME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ROUND_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    BYTES_SENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    PRIVACY_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_EXPIRY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NOTICE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    name: str
    generation: int
    phase: str
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    step: int
    steps: int
    round_length: int
    loss: float
    accuracy: float
    bytes_sent: int
    bytes_received: int
    rejected: int
    saved: int
    uptime_seconds: float
    problem: str
    version: str
    manifest: bytes
    privacy: SpentBudget
    baseline: float
    certificate_expiry: float
    certificate_notice: str
    epoch: int
    suspended: _containers.RepeatedCompositeFieldContainer[Suspension]
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., phase: _Optional[str] = ..., waiting_for: _Optional[_Iterable[str]] = ..., step: _Optional[int] = ..., steps: _Optional[int] = ..., round_length: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., rejected: _Optional[int] = ..., saved: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., problem: _Optional[str] = ..., version: _Optional[str] = ..., manifest: _Optional[bytes] = ..., privacy: _Optional[_Union[SpentBudget, _Mapping]] = ..., baseline: _Optional[float] = ..., certificate_expiry: _Optional[float] = ..., certificate_notice: _Optional[str] = ..., epoch: _Optional[int] = ..., suspended: _Optional[_Iterable[_Union[Suspension, _Mapping]]] = ...) -> None: ...

class Scores(_message.Message):
    __slots__ = ("step", "loss", "accuracy")
    STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    step: _containers.RepeatedScalarFieldContainer[int]
    loss: _containers.RepeatedScalarFieldContainer[float]
    accuracy: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, step: _Optional[_Iterable[int]] = ..., loss: _Optional[_Iterable[float]] = ..., accuracy: _Optional[_Iterable[float]] = ...) -> None: ...

class SpentBudget(_message.Message):
    __slots__ = ("sums", "epsilon_spent", "epsilon", "delta")
    SUMS_FIELD_NUMBER: _ClassVar[int]
    EPSILON_SPENT_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    sums: int
    epsilon_spent: float
    epsilon: float
    delta: float
    def __init__(self, sums: _Optional[int] = ..., epsilon_spent: _Optional[float] = ..., epsilon: _Optional[float] = ..., delta: _Optional[float] = ...) -> None: ...

class DigestList(_message.Message):
    __slots__ = ("federation", "generation", "sender", "salt", "after", "last", "sent")
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SALT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    federation: str
    generation: int
    sender: str
    salt: bytes
    after: int
    last: int
    sent: _containers.RepeatedCompositeFieldContainer[SentDigest]
    def __init__(self, federation: _Optional[str] = ..., generation: _Optional[int] = ..., sender: _Optional[str] = ..., salt: _Optional[bytes] = ..., after: _Optional[int] = ..., last: _Optional[int] = ..., sent: _Optional[_Iterable[_Union[SentDigest, _Mapping]]] = ...) -> None: ...

class SentDigest(_message.Message):
    __slots__ = ("tick", "index", "digest")
    TICK_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    tick: int
    index: int
    digest: bytes
    def __init__(self, tick: _Optional[int] = ..., index: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class SignedDigestList(_message.Message):
    __slots__ = ("list", "signature", "certificate")
    LIST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    list: bytes
    signature: bytes
    certificate: bytes
    def __init__(self, list: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class SignedDigestLists(_message.Message):
    __slots__ = ("lists",)
    LISTS_FIELD_NUMBER: _ClassVar[int]
    lists: _containers.RepeatedCompositeFieldContainer[SignedDigestList]
    def __init__(self, lists: _Optional[_Iterable[_Union[SignedDigestList, _Mapping]]] = ...) -> None: ...

class DigestRequest(_message.Message):
    __slots__ = ("generation", "after", "known")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    generation: int
    after: int
    known: SignedDigestLists
    def __init__(self, generation: _Optional[int] = ..., after: _Optional[int] = ..., known: _Optional[_Union[SignedDigestLists, _Mapping]] = ...) -> None: ...
