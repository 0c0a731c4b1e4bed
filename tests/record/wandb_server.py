"""A server on the loopback device that speaks as much of W&B's protocol as runs, artifacts and reports need.

It keeps what a database would keep, so it can be stopped and started again on the same port; and it can be slow,
refuse, or die before or after it has done what a request asks for.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

ENTITY = "us"
KEY = "0123456789" * 4


@dataclass
class Run:
    """One run: what its upserts and its file stream said."""

    attributes: dict[str, Any]
    lines: dict[str, dict[int, str]] = field(default_factory=dict)
    """Of each streamed file, its lines by number."""
    files: dict[str, bytes] = field(default_factory=dict)
    exit_code: int | None = None
    overwritten: int = 0
    """Lines that were sent again with another content."""

    @property
    def history(self) -> list[dict[str, Any]]:
        return self._rows("wandb-history.jsonl")

    @property
    def summary(self) -> dict[str, Any]:
        last = self._rows("wandb-summary.json")
        return last[-1] if last else {}

    @property
    def config(self) -> dict[str, Any]:
        found = json.loads(self.attributes.get("config") or "{}")
        return {name: entry["value"] for name, entry in found.items() if name != "_wandb"}

    def _rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for _, line in sorted(self.lines.get(name, {}).items())]


@dataclass
class Artifact:
    """One version of an artifact."""

    id: str
    run: str
    type: str
    collection: str
    digest: str
    aliases: list[str]
    state: str = "PENDING"
    manifest: bytes = b""


class Refusal(Exception):
    """The answer is this status and nothing was done."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Death(Exception):
    """The connection closes without an answer."""


Fault = Callable[[str, str], None]
"""Called with a place (``before`` or ``after``) and what is asked (an operation of GraphQL, ``file_stream``, ``put``);
may raise `Refusal` or `Death`, or wait."""


class Server:
    """The database, and while it runs the thread that serves it."""

    def __init__(self) -> None:
        self.runs: dict[str, Run] = {}
        self.artifacts: list[Artifact] = []
        self.views: dict[str, dict[str, Any]] = {}
        self.projects: set[str] = set()
        self.uploads: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.unknown: list[str] = []
        self.fault: Fault = lambda place, what: None
        self.lock = threading.RLock()
        self.port = 0
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def environment(self, home: str) -> dict[str, str]:
        """Variables for a client whose caches lie below ``home``."""
        places = {f"WANDB_{name}_DIR": f"{home}/{name.lower()}" for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT")}
        return {"WANDB_BASE_URL": self.url, "WANDB_API_KEY": KEY, "WANDB_ERROR_REPORTING": "false", **places}

    def start(self) -> None:
        server = self

        class Handler(_Handler):
            database = server

        self._http = _Listener(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
            self._http = None

    @contextmanager
    def running(self) -> Iterator[Server]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def committed(self, kind: str) -> list[Artifact]:
        return [one for one in self.artifacts if one.type == kind and one.state == "COMMITTED"]

    def content(self, artifact: Artifact) -> dict[str, bytes]:
        """The files of an artifact by name."""
        entries = json.loads(artifact.manifest)["contents"]
        return {name: self.uploads[f"artifact/{entry['digest']}"] for name, entry in entries.items()}

    # -------------------------------------------------------------- GraphQL

    def answer(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            known: Callable[[dict[str, Any]], dict[str, Any]] | None = getattr(self, f"_{operation}", None)
            if known is None:
                self.unknown.append(operation)
                raise Refusal(400)
            return known(given)

    def _Viewer(self, given: dict[str, Any]) -> dict[str, Any]:
        none: dict[str, Any] = {"edges": []}
        who = {"id": "1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "admin": False}
        return {"viewer": who | {"name": ENTITY, "teams": none, "apiKeys": none, "deletedAt": None}}

    _GetDefaultEntity = _Viewer

    def _ServerFeaturesQuery(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"serverInfo": {"features": []}}

    def _XXHashDigestsEnabled(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"entity": {"xxhashDigestsEnabled": False}}

    def _OrganizationCoreWeaveOrganizationID(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"entity": {"organization": None}}

    def _ArtifactType(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"project": None}

    def _FetchArtifactDigestAlgorithm(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"project": None}

    def _RunResumeStatus(self, given: dict[str, Any]) -> dict[str, Any]:
        run = self.runs.get(given["name"])
        if run is None:
            return {"model": self._project(given) | {"bucket": None}}
        history, events = run.history, run._rows("wandb-events.jsonl")
        bucket = {
            **self._bucket(given["name"]), "logLineCount": len(run.lines.get("output.log", {})),
            "historyLineCount": len(history), "eventsLineCount": len(events),
            "historyTail": json.dumps([json.dumps(row) for row in history[-1:]]),
            "eventsTail": json.dumps([json.dumps(row) for row in events[-1:]]),
            "summaryMetrics": json.dumps(run.summary), "tags": run.attributes.get("tags") or [],
            "notes": run.attributes.get("notes"), "wandbConfig": json.dumps({"t": 1}),
        }  # fmt: skip
        return {"model": self._project(given) | {"bucket": bucket}}

    def _UpsertBucket(self, given: dict[str, Any]) -> dict[str, Any]:
        name = given["name"]
        inserted = name not in self.runs
        run = self.runs.setdefault(name, Run({}))
        run.attributes |= {key: value for key, value in given.items() if value is not None}
        self.projects.add(run.attributes["project"])
        return {"upsertBucket": {"bucket": self._bucket(name), "inserted": inserted}}

    def _CreateRunFiles(self, given: dict[str, Any]) -> dict[str, Any]:
        places = [{"name": name, "uploadUrl": f"{self.url}/run/{given['run']}/{name}"} for name in given["files"]]
        return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": places}}

    def _CreateArtifact(self, given: dict[str, Any]) -> dict[str, Any]:
        asked = given["input"]
        collection = asked["artifactCollectionName"] or asked["artifactCollectionNames"][0]
        for one in self.artifacts:
            if (one.type, one.collection, one.digest) == (asked["artifactTypeName"], collection, asked["digest"]):
                break
        else:
            one = Artifact(
                secrets.token_hex(8), asked["runName"], asked["artifactTypeName"], collection, asked["digest"], []
            )
            self.artifacts.append(one)
        one.aliases += [alias["alias"] for alias in asked.get("aliases") or [] if alias["alias"] not in one.aliases]
        return {"createArtifact": {"artifact": self._artifact(one)}}

    def _CreateArtifactManifest(self, given: dict[str, Any]) -> dict[str, Any]:
        file = {"id": "m", "uploadUrl": f"{self.url}/manifest/{given['artifactID']}", "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": given["artifactID"], "file": file}}}

    def _UpdateArtifactManifest(self, given: dict[str, Any]) -> dict[str, Any]:
        number = given["artifactManifestID"]
        file = {"id": "m", "uploadUrl": f"{self.url}/manifest/{number}", "uploadHeaders": []}
        return {"updateArtifactManifest": {"artifactManifest": {"id": number, "file": file}}}

    def _CreateArtifactFiles(self, given: dict[str, Any]) -> dict[str, Any]:
        edges = []
        for asked in given["input"]["artifactFiles"]:
            digest = base64.b64decode(asked["md5"]).hex()
            place = f"artifact/{asked['md5']}"
            url = None if place in self.uploads else f"{self.url}/artifact/{digest}"
            edges.append({"node": {
                "storagePath": place, "uploadUrl": url, "uploadHeaders": [], "uploadMultipartUrls": None,
                "artifact": {"id": asked["artifactID"]},
            }})  # fmt: skip
        return {"createArtifactFiles": {"files": {"edges": edges}}}

    def _CommitArtifact(self, given: dict[str, Any]) -> dict[str, Any]:
        (one,) = (one for one in self.artifacts if one.id == given["artifactID"])
        one.state = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": one.id, "digest": one.digest}}}

    def _ArtifactByID(self, given: dict[str, Any]) -> dict[str, Any]:
        (one,) = (one for one in self.artifacts if one.id == given["id"])
        project = {"id": "7", "internalId": "7", "name": "p", "entity": {"name": ENTITY}}
        sequence = {"__typename": "ArtifactSequence", "name": one.collection, "project": project}
        return {"artifact": {
            "__typename": "Artifact", "id": one.id, "artifactSequence": sequence, "versionIndex": 0,
            "artifactType": {"name": one.type}, "description": None, "metadata": None, "ttlDurationSeconds": -2,
            "ttlIsInherited": True, "tags": [], "historyStep": None, "state": one.state, "size": 1,
            "digest": one.digest, "commitHash": None, "fileCount": 1, "createdAt": "2026-01-01T00:00:00Z",
            "updatedAt": None, "aliases": [],
        }}  # fmt: skip

    def _UseArtifact(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"useArtifact": {"artifact": {"id": given["input"]["artifactID"]}}}

    def _ProjectViews(self, given: dict[str, Any]) -> dict[str, Any]:
        wanted = given.get("viewName")
        views = [one for one in self.views.values() if wanted in (None, one["name"], one["displayName"])]
        edges = [{"node": view, "cursor": view["id"]} for view in views]
        return {"project": {"allViews": {"edges": edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}}}

    def _upsertView(self, given: dict[str, Any]) -> dict[str, Any]:
        number = given.get("id")
        inserted = number is None
        if inserted:
            number = secrets.token_hex(8)
        self.views[number] = {
            **{key: given[key] for key in ("name", "displayName", "description", "type", "spec")}, "id": number,
            "project": {"id": "7", "name": given["projectName"], "entityName": given["entityName"]},
            "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z", "user": None,
        }  # fmt: skip
        return {"upsertView": {"view": self.views[number], "inserted": inserted}}

    def _deleteView(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"deleteView": {"success": self.views.pop(given["id"], None) is not None, "pendingDrafts": []}}

    def _ProjectInternalId(self, given: dict[str, Any]) -> dict[str, Any]:
        known = given["projectName"] in self.projects
        return {"project": {"id": "7", "internalId": "7"} if known else None}

    def _upsertModel(self, given: dict[str, Any]) -> dict[str, Any]:
        self.projects.add(given["name"])
        return {"upsertModel": {"model": {"id": "7", "name": given["name"]}, "project": {"id": "7"}, "inserted": True}}

    def _project(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"id": "7", "name": given.get("project"), "entity": {"id": "1", "name": ENTITY}}

    def _bucket(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        return {
            "id": f"run-{name}", "name": name, "displayName": run.attributes.get("displayName"), "description": None,
            "config": run.attributes.get("config") or "{}", "sweepName": None,
            "project": self._project(run.attributes), "historyLineCount": len(run.history),
        }  # fmt: skip

    def _artifact(self, one: Artifact) -> dict[str, Any]:
        done = [other for other in self.artifacts if other.collection == one.collection and other.state == "COMMITTED"]
        return {
            "id": one.id, "state": one.state,
            "artifactSequence": {"latestArtifact": {"id": done[-1].id} if done else None},
        }  # fmt: skip

    # -------------------------------------------------------------- streams and uploads

    def stream(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.lock:
            run = self.runs[name]
            for file, chunk in (body.get("files") or {}).items():
                kept = run.lines.setdefault(file, {})
                for number, line in enumerate(chunk["content"], chunk["offset"]):
                    run.overwritten += file == "wandb-history.jsonl" and kept.get(number, line) != line
                    kept[number] = line
            if body.get("complete"):
                run.exit_code = body.get("exitcode")
        return {"exitcode": None, "limits": {}}

    def put(self, path: str, content: bytes) -> None:
        with self.lock:
            kind, _, rest = path.partition("/")
            if kind == "run":
                name, _, file = rest.partition("/")
                self.runs[name].files[file] = content
            elif kind == "manifest":
                next(one for one in self.artifacts if one.id == rest).manifest = content
            else:
                assert hashlib.md5(content).hexdigest() == rest
                self.uploads[f"artifact/{base64.b64encode(bytes.fromhex(rest)).decode()}"] = content


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that has gone
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    database: Server
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        try:
            status, answer = 200, self._answer(body)
        except Refusal as refusal:
            status, answer = refusal.status, {"errors": [{"message": "refused"}], "data": None}
        except Death:
            self.close_connection = True
            return
        content = json.dumps(answer).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = _serve

    def _answer(self, body: bytes) -> dict[str, Any]:
        path, found = unquote(self.path).lstrip("/"), json.loads(body) if self.command == "POST" and body else {}
        if path == "graphql":
            what = found.get("operationName") or found["query"].split("(")[0].split("{")[0].split()[1]
        else:
            what = {"PUT": "put", "POST": path.rpartition("/")[2]}.get(self.command, path)
        if what in ("metrics", "healthz"):
            return {}
        self.database.asked.append(what)
        self.database.fault("before", what)
        if path == "graphql":
            answer = {"data": self.database.answer(what, found.get("variables") or {})}
        elif what == "file_stream":
            answer = self.database.stream(path.split("/")[3], found)
        else:
            answer = {}
            self.database.put(path, body)
        self.database.fault("after", what)
        return answer

    def log_message(self, *words: object) -> None:
        pass


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.02)
