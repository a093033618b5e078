from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Greeting(_message.Message):
    __slots__ = ("protocol", "federation", "generation", "manifest", "sections", "parameters", "dtype", "version")
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
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SECTIONS_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    federation: str
    generation: int
    manifest: bytes
    sections: _containers.ScalarMap[str, str]
    parameters: int
    dtype: str
    version: str
    def __init__(self, protocol: _Optional[int] = ..., federation: _Optional[str] = ..., generation: _Optional[int] = ..., manifest: _Optional[bytes] = ..., sections: _Optional[_Mapping[str, str]] = ..., parameters: _Optional[int] = ..., dtype: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class Address(_message.Message):
    __slots__ = ("generation", "tick", "exchange")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    exchange: int
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ..., exchange: _Optional[int] = ...) -> None: ...

class Want(_message.Message):
    __slots__ = ("address", "manifest", "saved")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    address: Address
    manifest: bytes
    saved: int
    def __init__(self, address: _Optional[_Union[Address, _Mapping]] = ..., manifest: _Optional[bytes] = ..., saved: _Optional[int] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("head", "data", "notice")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    head: Head
    data: bytes
    notice: Notice
    def __init__(self, head: _Optional[_Union[Head, _Mapping]] = ..., data: _Optional[bytes] = ..., notice: _Optional[_Union[Notice, _Mapping]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("address", "size", "sha256")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    address: Address
    size: int
    sha256: bytes
    def __init__(self, address: _Optional[_Union[Address, _Mapping]] = ..., size: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class Notice(_message.Message):
    __slots__ = ("generation", "tick", "waiting_for")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    waiting_for: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ..., waiting_for: _Optional[_Iterable[str]] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("generation", "tick")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tick: int
    def __init__(self, generation: _Optional[int] = ..., tick: _Optional[int] = ...) -> None: ...

class Noted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Question(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignedManifest(_message.Message):
    __slots__ = ("manifest", "signature")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    signature: bytes
    def __init__(self, manifest: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Status(_message.Message):
    __slots__ = ("name", "generation", "phase", "waiting_for", "step", "steps", "round_length", "loss", "accuracy", "bytes_sent", "bytes_received", "rejected", "saved", "uptime_seconds", "problem", "version", "manifest")
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
    def __init__(self, name: _Optional[str] = ..., generation: _Optional[int] = ..., phase: _Optional[str] = ..., waiting_for: _Optional[_Iterable[str]] = ..., step: _Optional[int] = ..., steps: _Optional[int] = ..., round_length: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., bytes_sent: _Optional[int] = ..., bytes_received: _Optional[int] = ..., rejected: _Optional[int] = ..., saved: _Optional[int] = ..., uptime_seconds: _Optional[float] = ..., problem: _Optional[str] = ..., version: _Optional[str] = ..., manifest: _Optional[bytes] = ...) -> None: ...
