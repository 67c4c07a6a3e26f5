"""A real Chromium without a window, driven over a pipe by its own protocol: nothing to install but the browser.

``apt-get install chromium`` brings one.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium():
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused, or did not answer."""


class Browser:
    """One browser with one page; a context manager."""

    def __init__(self, *, timeout=60.0):
        self._timeout = timeout
        self._numbers = itertools.count(1)
        self._session = None
        self.events = []

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        command = [
            *(find_chromium(), "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking", "--disable-extensions"),
            *("--disable-component-update", "--disable-sync", "--disable-default-apps", "--mute-audio"),
            *(f"--user-data-dir={self._profile.name}", "about:blank"),
        ]
        # It reads from 3 and writes to 4, whatever numbers the pipes have here.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "browser", *command],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer = b""
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log", "Performance"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        for end in (self._write, self._read):
            with contextlib.suppress(OSError):
                os.close(end)
        self._profile.cleanup()

    def call(self, method, **params):
        """Ask for something and return the answer."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self, deadline):
        while b"\0" not in self._buffer:
            if not select.select([self._read], [], [], max(0, deadline - time.monotonic()))[0]:
                raise BrowserError("no answer in time")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise BrowserError("the browser has ended")
            self._buffer += chunk
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def evaluate(self, expression):
        """Return the value of an expression, or of the promise that it is."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(
                answer["exceptionDetails"].get("exception", answer["exceptionDetails"]).get("description")
            )
        return answer["result"].get("value")

    def until(self, expression, seconds=10.0):
        """Wait until an expression holds, looked at with each frame of the page; return what it then is."""
        return self.evaluate(
            f"""new Promise((resolve, reject) => {{
                const end = performance.now() + {seconds * 1000};
                const look = () => {{
                    const value = (() => {expression})();
                    if (value) resolve(value);
                    else if (performance.now() > end) reject(new Error('never: ' + {json.dumps(expression)}));
                    else setTimeout(look, 10);
                }};
                look();
            }})"""
        )

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")

    def resize(self, width, height, *, dark=False, scale=1):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key):
        for kind in ("rawKeyDown", "keyUp"):
            codes = {"Tab": 9, "Enter": 13}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=codes.get(key, 0))

    def screenshot(self, path, *, whole=True):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def problems(self):
        """Return what the page complained of: exceptions, errors in the console, refusals of its security policy."""
        told = []
        for event in self.events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.exceptionThrown":
                    told.append(params["exceptionDetails"].get("exception", {}).get("description"))
                case "Runtime.consoleAPICalled" if params["type"] in {"error", "warning"}:
                    told.append(str([argument.get("value") for argument in params["args"]]))
                case "Log.entryAdded" if params["entry"]["level"] in {"error", "warning"}:
                    told.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        return told

    def requests(self):
        """Return the addresses that were asked for."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]
