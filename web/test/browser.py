"""Chromium without a window, steered over a pipe by its DevTools protocol. Nothing but Python."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    """One page. `errors` has what its console complained about, uncaught exceptions and violations of the policy."""

    def __init__(self, program, prefix=()):
        self.profile = tempfile.mkdtemp(prefix="carnet-browser-")
        to_browser, self.out = os.pipe()
        self.source, from_browser = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                 "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
                 "--hide-scrollbars", f"--user-data-dir={self.profile}", "about:blank"]

        # The protocol is on descriptors 3 and 4. Neither pipe may be lost when it gets the number of the other.
        def descriptors():
            high = [os.dup(to_browser), os.dup(from_browser)]
            while min(high) < 5:
                high = [os.dup(fd) for fd in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen([*prefix, program, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=descriptors)
        os.close(to_browser)
        os.close(from_browser)
        self.rest = b""
        self.number = 0
        self.session = None
        self.errors = []
        pages = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in pages if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None
        try:
            self.call("Browser.close")
            self.process.wait(5)
        except (EOFError, OSError, RuntimeError, TimeoutError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.source)
        # The browser's other processes may end later, and write until then.
        for _ in range(50):
            shutil.rmtree(self.profile, ignore_errors=True)
            if not os.path.exists(self.profile):
                break
            time.sleep(0.1)

    def _next(self, until):
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.source], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            octets = os.read(self.source, 1 << 20)
            if not octets:
                raise EOFError("the browser is gone")
            self.rest += octets
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            got = self._next(until)
            if got.get("id") == number:
                if "error" in got:
                    raise RuntimeError(f"{method}: {got['error']['message']}")
                return got["result"]
            self._saw(got)

    def _saw(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:600])
        elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(json.dumps(parameters["args"])[:600])
        elif event.get("method") == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}")

    def run(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:600])
        return result["result"].get("value")

    def accessibility(self, axe):
        """What axe-core, whose source is given, finds serious or critical: rule and elements, a line each. In a world of its
        own, which the page's policy does not reach and does not see."""
        frame = self.call("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = self.call("Page.createIsolatedWorld", frameId=frame)["executionContextId"]
        script = axe + """
        ;axe.run(document, {resultTypes: ["violations"]}).then(({violations, passes}) => ({
          rules: passes.length,
          faults: violations.filter(({impact}) => ["serious", "critical"].includes(impact)).map(({id, help, nodes}) =>
            `${id}: ${help}: ${nodes.slice(0, 3).map(({target, failureSummary}) => `${target} ${failureSummary}`).join("; ")}`)}))"""
        result = self.call("Runtime.evaluate", expression=script, contextId=world, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:600])
        found = result["result"]["value"]
        # Where no rule has passed none was tried.
        return found["faults"] if found["rules"] else ["axe has tried nothing"]

    def wait(self, script, what, seconds=40):
        until = time.monotonic() + seconds
        while True:
            value = self.run(script)
            if value:
                return value
            if time.monotonic() > until:
                raise TimeoutError(f"{what}: not within {seconds} s; the page says {self.run('document.body.innerText')[:3000]!r}")
            time.sleep(0.1)

    def look(self, width, dark, path=None):
        """Another window, light or dark; a picture of the whole page."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        time.sleep(0.3)
        if path:
            height = self.run("document.documentElement.scrollHeight")
            clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
            picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
            with open(path, "wb") as file:
                file.write(base64.b64decode(picture))
