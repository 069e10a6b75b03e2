"""A headless Chromium, spoken to over the pipe of its DevTools protocol: no port, no packages.

    with Browser(width=1280) as browser:
        browser.open("report.html")
        browser.evaluate("document.title")
"""
import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time


def find():
    """The program, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    def __init__(self, width=1280, height=900, dark=False, touch=False, timeout=60):
        self.timeout, self.width, self.height, self.dark, self.touch = timeout, width, height, dark, touch
        self.messages, self.requests, self.number, self.pending = [], [], 0, b""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="memplan-browser.")
        there, self.write_end = os.pipe()
        self.read_end, back = os.pipe()

        def connect():
            # Both away from 3 and 4 first: they may be these very numbers.
            read, write = os.dup(there), os.dup(back)
            read, write = os.dup2(read, 30), os.dup2(write, 31)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(there)
        os.close(back)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(self.width, self.height)
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}])
        return self

    def __exit__(self, *failure):
        try:
            self.session = None
            self.call("Browser.close")
            self.process.wait(10)
        except (OSError, TimeoutError, RuntimeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)
        shutil.rmtree(self.folder, ignore_errors=True)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=self.touch)

    def read(self, deadline):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.read_end, 1 << 20) if ready else b""
            if not piece:
                raise TimeoutError("the browser does not answer")
            self.pending += piece
        line, self.pending = self.pending.split(b"\0", 1)
        return json.loads(line)

    def note(self, message):
        """What the page said or asked for, of all that the browser tells."""
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.messages.append(parameters["exceptionDetails"].get("exception", {}).get("description", "an exception"))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.messages.append(str([argument.get("value") for argument in parameters["args"]]))
        elif method == "Log.entryAdded":
            self.messages.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        os.write(self.write_end, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + self.timeout
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, path):
        """Loads a file; of a page returns once its script has run."""
        self.messages, self.requests, path = [], [], pathlib.Path(path)
        self.url = path.resolve().as_uri()
        self.call("Page.navigate", url=self.url)
        deadline = time.monotonic() + self.timeout
        ready = "document.documentElement.dataset.ready === 'yes'" if path.suffix == ".html" else "true"
        while not self.evaluate(f"location.href !== 'about:blank' && document.readyState === 'complete' && {ready}"):
            if time.monotonic() > deadline or self.messages:
                raise TimeoutError(f"{path} does not come to rest: {self.messages}")
            time.sleep(0.02)

    def evaluate(self, script):
        """The value of an expression, or of a promise; must be plain JSON."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def mouse(self, kind, x, y, buttons=0, **more):
        """mouseMoved, mousePressed or mouseReleased, at a place of the window."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if buttons or kind != "mouseMoved" else "none",
                  buttons=buttons, clickCount=0 if kind == "mouseMoved" else 1, **more)

    def picture(self, path):
        """The whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                         clip={"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(shot["data"]))

    def print(self, path):
        """The page as a PDF file on A4."""
        sheet = self.call("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69, preferCSSPageSize=False)
        pathlib.Path(path).write_bytes(base64.b64decode(sheet["data"]))
