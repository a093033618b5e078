"""Small files in the formats of the datasets, the real data, and a server that can fail."""

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tacit.data.formats.images import encode_idx


@pytest.fixture
def real_data() -> Path:
    """The folder of the real datasets."""
    folder = os.environ.get("TACIT_DATA")
    if not folder:
        pytest.skip("TACIT_DATA is not set")
    return Path(folder)


@pytest.fixture
def write_mnist() -> Callable[..., dict[str, np.ndarray]]:
    """A function that writes four small IDX files and returns their arrays."""

    def write(
        folder: Path, train: int = 30, test: int = 12, dotted: bool = False, zipped: bool = True
    ) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(3)
        arrays: dict[str, np.ndarray] = {}
        folder.mkdir(parents=True, exist_ok=True)
        for stem, count in (("train", train), ("t10k", test)):
            for what, shape in (("images", (count, 28, 28)), ("labels", (count,))):
                array = rng.integers(0, 256 if what == "images" else 10, shape, dtype=np.uint8)
                name = f"{stem}-{what}{'.' if dotted else '-'}idx{array.ndim}-ubyte"
                contents = encode_idx(array)
                (folder / (name + (".gz" if zipped else ""))).write_bytes(
                    gzip.compress(contents) if zipped else contents
                )
                arrays[f"{stem} {what}"] = array
        return arrays

    return write


class FileServer:
    """A local server with a list of responses per path; the last one repeats."""

    def __init__(self) -> None:
        self.responses: dict[str, list[tuple[int, bytes, int]]] = {}
        self.requests: list[str] = []
        self.address = ""

    def add(self, name: str, contents: bytes) -> str:
        return self._add(name, (200, contents, len(contents)))

    def add_truncated(self, name: str, contents: bytes) -> str:
        """Announce everything, send half of it, close the connection."""
        return self._add(name, (200, contents[: len(contents) // 2], len(contents)))

    def add_error(self, name: str, status: int) -> str:
        return self._add(name, (status, b"no", 2))

    def _add(self, name: str, response: tuple[int, bytes, int]) -> str:
        self.responses.setdefault("/" + name, []).append(response)
        return f"{self.address}/{name}"


@pytest.fixture
def file_server() -> Iterator[FileServer]:
    files = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            files.requests.append(self.path)
            responses = files.responses.get(self.path, [(404, b"", 0)])
            status, contents, length = responses.pop(0) if len(responses) > 1 else responses[0]
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(contents)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    files.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield files
    server.shutdown()
    server.server_close()
    thread.join()
