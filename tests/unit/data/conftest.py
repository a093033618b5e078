"""Small files in the datasets' formats, the real ones where they are, and a server that can misbehave."""

import gzip
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tacit.data.formats.idx import encode


@pytest.fixture
def real_data() -> Path:
    """Return the folder of the real datasets; without it the test is skipped."""
    folder = os.environ.get("TACIT_DATA")
    if not folder:
        pytest.skip("TACIT_DATA is not set")
    return Path(folder)


@pytest.fixture
def write_mnist() -> Callable[..., dict[str, np.ndarray]]:
    """Write four small IDX files into a folder and return what is in them."""

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
                contents = encode(array)
                (folder / (name + (".gz" if zipped else ""))).write_bytes(
                    gzip.compress(contents) if zipped else contents
                )
                arrays[f"{stem} {what}"] = array
        return arrays

    return write


class Shop:
    """What the local server hands out: path → a list of answers, one per request, the last repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[tuple[int, bytes, int]]] = {}
        self.requests: list[str] = []
        self.address = ""

    def put(self, name: str, contents: bytes) -> str:
        return self._add(name, (200, contents, len(contents)))

    def cut(self, name: str, contents: bytes) -> str:
        """Promise all, send half, hang up."""
        return self._add(name, (200, contents[: len(contents) // 2], len(contents)))

    def fail(self, name: str, status: int) -> str:
        return self._add(name, (status, b"no", 2))

    def _add(self, name: str, answer: tuple[int, bytes, int]) -> str:
        self.answers.setdefault("/" + name, []).append(answer)
        return f"{self.address}/{name}"


@pytest.fixture
def shop() -> Iterator[Shop]:
    stock = Shop()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stock.requests.append(self.path)
            answers = stock.answers.get(self.path, [(404, b"", 0)])
            status, contents, promised = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(contents)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stock.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield stock
    server.shutdown()
    server.server_close()
    thread.join()
