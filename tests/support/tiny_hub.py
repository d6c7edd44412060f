"""A Hugging Face Hub of a few routes on this machine.

It answers what ``huggingface_hub`` asks: the facts of a model at a revision, and files with their commit and
entity tag, whole or in ranges. Gated and private models refuse as the Hub does, by a header.
"""

import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

STEP_S = 0.1


@dataclass
class HubModel:
    """A model as the Hub has it. ``token`` is asked for if it is set; ``gate`` is the Hub's error code."""

    files: dict[str, bytes]
    commit: str = "a" * 40
    revisions: tuple[str, ...] = ("main",)
    token: str = ""
    gate: str = ""
    bytes_per_s: int = 0
    """How fast its files go out; 0 is as fast as they can."""


@dataclass
class TinyHub:
    """The server's models by id, and the requests that it saw as (method, path, authorization)."""

    models: dict[str, HubModel] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    endpoint: str = ""


@contextmanager
def serving(address: str = "127.0.0.1") -> Iterator[TinyHub]:
    """A running hub at an address of this machine."""
    hub = TinyHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer((address, 0), handler)
    hub.endpoint = f"http://{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: TinyHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class names it so
        pass

    def do_HEAD(self) -> None:
        self._answer(head=True)

    def do_GET(self) -> None:
        self._answer(head=False)

    def _answer(self, *, head: bool) -> None:
        authorization = self.headers.get("Authorization", "")
        path = self.path.split("?", 1)[0]
        self.hub.requests.append((self.command, path, authorization))
        parts = path.strip("/").split("/")
        if parts[:2] == ["api", "models"] and parts[4:5] == ["tree"] and len(parts) == 6:
            self._tree("/".join(parts[2:4]), parts[5], authorization, head=head)
        elif parts[:2] == ["api", "models"] and len(parts) >= 4:
            revision = unquote(parts[5]) if parts[4:5] == ["revision"] else "main"
            self._model("/".join(parts[2:4]), revision, authorization, head=head)
        elif len(parts) >= 5 and parts[2] == "resolve":
            self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), authorization, head=head)
        else:
            self._send(404, b"{}", {}, head=head)

    def _found(self, name: str, revision: str, authorization: str, *, head: bool) -> HubModel | None:
        model = self.hub.models.get(name)
        if model is None:
            self._refuse(401, "RepoNotFound", head=head)
        elif model.token and authorization != f"Bearer {model.token}":
            self._refuse(403 if model.gate == "GatedRepo" else 401, model.gate or "RepoNotFound", head=head)
        elif revision not in {*model.revisions, model.commit}:
            self._refuse(404, "RevisionNotFound", head=head)
        else:
            return model
        return None

    def _model(self, name: str, revision: str, authorization: str, *, head: bool) -> None:
        model = self._found(name, revision, authorization, head=head)
        if model is not None:
            facts = {"id": name, "sha": model.commit, "siblings": [{"rfilename": f} for f in model.files]}
            self._send(200, json.dumps(facts).encode(), {"Content-Type": "application/json"}, head=head)

    def _tree(self, name: str, revision: str, authorization: str, *, head: bool) -> None:
        model = self._found(name, revision, authorization, head=head)
        if model is not None:
            files = [
                {
                    "type": "file",
                    "path": path,
                    "size": len(content),
                    "oid": hashlib.sha256(content).hexdigest(),
                }
                for path, content in model.files.items()
            ]
            self._send(200, json.dumps(files).encode(), {"Content-Type": "application/json"}, head=head)

    def _file(self, name: str, revision: str, file: str, authorization: str, *, head: bool) -> None:
        model = self._found(name, revision, authorization, head=head)
        if model is None:
            return
        content = model.files.get(file)
        commit = {"X-Repo-Commit": model.commit}
        if content is None:
            self._send(404, b"", {**commit, "X-Error-Code": "EntryNotFound"}, head=head)
            return
        tag = {**commit, "ETag": f'"{hashlib.sha256(content).hexdigest()}"', "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or len(content)), len(content) - 1)
            tag["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
            self._send(206, content[begin : end + 1], tag, head=head, bytes_per_s=model.bytes_per_s)
        else:
            self._send(200, content, tag, head=head, bytes_per_s=model.bytes_per_s)

    def _refuse(self, status: int, code: str, *, head: bool) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "X-Error-Message": code}, head=head)

    def _send(
        self, status: int, body: bytes, headers: Mapping[str, str], *, head: bool, bytes_per_s: int = 0
    ) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        step = max(1, int(bytes_per_s * STEP_S)) if bytes_per_s else max(1, len(body))
        for begin in range(0, 0 if head else len(body), step):
            self.wfile.write(body[begin : begin + step])
            if bytes_per_s:
                time.sleep(STEP_S)
