"""Pages as a browser shows them: headless Chromium, spoken to over a pipe; no driver, no port."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 120  # that an answer may take, on a machine with much else to do
OPTIONS = [
    f"--{option}"
    for option in (
        "headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
        "disable-component-update", "disable-sync", "disable-dev-shm-usage", "disable-extensions", "hide-scrollbars",
        "remote-debugging-pipe",
    )
]  # fmt: skip


def browser_program() -> str | None:
    """Return the path of Chromium, or None."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Tab:
    """One page in a browser: what it holds is asked for in JavaScript, what went wrong in it is collected."""

    def __init__(self, out: int, answers: int) -> None:
        self.out, self.answers, self.rest = out, answers, b""
        self.numbers, self.session = itertools.count(1), None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command of the DevTools protocol and return its answer; events on the way are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        until = time.monotonic() + SECONDS
        while b"\0" not in self.rest:
            if time.monotonic() > until:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise EOFError("the browser ended")
            self.rest += part
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def show(self, page: Path, width: int, dark: bool, height: int = 900) -> None:
        """Load a page in a window so many CSS pixels wide, of a user who likes it light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.ask("Page.navigate", url=page.absolute().as_uri())
        until = time.monotonic() + SECONDS
        while self.value("document.readyState") != "complete":
            if time.monotonic() > until:
                raise TimeoutError(f"{page} does not load")
            time.sleep(0.02)

    def value(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        result = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"].get("description", "an exception in the page"))
        return result["result"].get("value")

    def troubles(self) -> list[str]:
        """Return what the page complained of since it was loaded: errors, warnings, and everything it asked for that is not in it."""
        told = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                told.append(params["entry"]["text"])
            elif event.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Network.loadingFailed"):
                told.append(json.dumps(params)[:300])
            elif event.get("method") == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("data:", "file:")):
                    told.append(f"asked for {url}")
        return told

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)
        if key == "Enter":
            self.ask("Input.dispatchKeyEvent", type="char", key=key, text="\r")

    def picture(self, file: Path) -> Path:
        """Write the whole page as a PNG file."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(shot["data"]))
        return file


# The browser reads from descriptor 3 and writes to descriptor 4; ours are moved there in its own process.
_START = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
_FIRST_FREE = 64  # descriptors are taken from here on, out of the way of 3 and 4


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    moved = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for end in ends)
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


@contextmanager
def browser_tab() -> Iterator[Tab]:
    """Yield a tab of a browser of its own, with a profile that is thrown away."""
    program = browser_program()
    if program is None:
        raise FileNotFoundError("no Chromium")
    (to_browser, out), (answers, from_browser) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        start = [sys.executable, "-I", "-S", "-c", _START, str(to_browser), str(from_browser)]
        command = [*start, program, *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
        quiet: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, pass_fds=(to_browser, from_browser), start_new_session=True, **quiet)
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Tab(out, answers)
        finally:
            for end in (out, answers):
                with suppress(OSError):
                    os.close(end)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            if process.poll() is None:
                process.kill()
                process.wait()
