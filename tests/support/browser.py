"""Drives a headless Chromium over pipes by the DevTools protocol: no package is needed.

TACIT_BROWSER names the program; otherwise Chromium or Chrome is searched on the PATH.
"""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LIMIT = 60.0  # seconds for a response of the browser, or for a condition in the page

# The browser reads from file 3 and writes to file 4.
LAUNCH = """
import fcntl, os, sys
reading, writing = (fcntl.fcntl(int(file), fcntl.F_DUPFD, 10) for file in sys.argv[1:3])
os.dup2(reading, 3)
os.dup2(writing, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser():
    """The path of a browser, or None."""
    return os.environ.get("TACIT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def browse(folder, width=1280, height=900):
    """A page in a new browser whose profile is in `folder`."""
    to_browser, from_us = os.pipe()
    from_browser, to_us = os.pipe()
    command = [
        sys.executable, "-c", LAUNCH, str(to_browser), str(to_us), find_browser(),
        "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage",
        "--disable-background-networking", "--no-first-run", "--hide-scrollbars",
        f"--user-data-dir={Path(folder) / 'profile'}", f"--window-size={width},{height}",
    ]  # fmt: skip
    # Chromium refuses to sandbox pages for root, as which containers run.
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    with (Path(folder) / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            command, pass_fds=(to_browser, to_us), stdout=log, stderr=log, start_new_session=True
        )
    os.close(to_browser)
    os.close(to_us)
    try:
        yield Page(from_us, from_browser)
    finally:
        os.close(from_us)  # the browser ends with the pipe
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)


class Page:
    """The only tab of a browser."""

    def __init__(self, writing, reading):
        self._writing, self._reading, self._buffer = writing, reading, b""
        self._numbers, self.events, self._session = itertools.count(1), [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.call(f"{domain}.enable")

    def call(self, method, **arguments):
        """Call the protocol, and collect the events that arrive before its response."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": arguments}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") != number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, url):
        """Open a page and wait until it has loaded."""
        self.call("Page.navigate", url=url)
        blank = "location.href === 'about:blank'" if url == "about:blank" else "true"
        self.wait(f"document.readyState === 'complete' && {blank}")

    def run(self, script):
        """The value of an expression in the page."""
        options = {"returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", expression=script, **options)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait(self, condition):
        """Wait until an expression is true, and return its value."""
        deadline = time.monotonic() + LIMIT
        while not (value := self.run(condition)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true in the page: {condition}")
            time.sleep(0.05)
        return value

    def text(self, selector):
        return self.run(f"document.querySelector({json.dumps(selector)})?.textContent")

    def click(self, selector):
        """Click with the mouse in the middle of an element."""
        x, y = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            "return [r.left + r.width / 2, r.top + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            where = {"x": x, "y": y, "button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, **where)

    def press(self, key, code=None, text=None):
        """Press a key, such as Tab or Enter."""
        names = {"key": key, "code": code or key} | ({"text": text} if text else {})
        number = {"Tab": 9, "Enter": 13, " ": 32, "ArrowLeft": 37, "ArrowRight": 39}[key]
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, windowsVirtualKeyCode=number, **names)

    def resize(self, width, height, scale=1, dark=False):
        """Emulate a screen, and whether its user prefers dark colours."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 500, **size)
        wanted = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=wanted)

    def screenshot(self, path, whole=True):
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def requested(self):
        """The addresses of all requests since the start."""
        sent = [one for one in self.events if one.get("method") == "Network.requestWillBeSent"]
        return [one["params"]["request"]["url"] for one in sent]

    def complaints(self):
        """Errors in the console: exceptions, and what the policy of the page has blocked."""
        thrown = [one for one in self.events if one.get("method") == "Runtime.exceptionThrown"]
        logged = [one for one in self.events if one.get("method") == "Log.entryAdded"]
        errors = [one for one in logged if one["params"]["entry"]["level"] == "error"]
        return [json.dumps(one["params"]) for one in thrown + errors]

    def _receive(self):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], LIMIT)
            received = os.read(self._reading, 1 << 20) if ready else b""
            if not received:
                raise RuntimeError("the browser does not respond")
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
