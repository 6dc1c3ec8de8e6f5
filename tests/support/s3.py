"""A small S3 in this process: buckets in memory behind a server on loopback, with faults on request and a list of what was asked."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

HANG = 3.0


@dataclass
class S3:
    """Buckets, faults and a record of requests.

    Attributes
    ----------
    buckets
        Name -> key -> bytes.
    requests
        ``METHOD /path`` of everything that was asked.
    answer
        Status given to everything instead of an answer, such as 403 or 500.
    delay
        Seconds before an answer.
    cut
        How many of the next bodies end half way, with the connection.
    hung
        How many of the next requests for an object are not answered for ``HANG`` seconds.
    page
        Keys of one page of a listing.
    tags
        Whether answers have a tag, by which a client may ask for the rest of one.
    """

    port: int
    buckets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    answer: int | None = None
    delay: float = 0.0
    cut: int = 0
    hung: int = 0
    tags: bool = True
    page: int = 1000
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self, signed: bool = True) -> dict[str, str]:
        """Variables that make a process talk to this server, with or without credentials; nothing else on the machine is asked."""
        found = {"AWS_ENDPOINT": self.endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        return {**found, "AWS_ACCESS_KEY_ID": "tester", "AWS_SECRET_ACCESS_KEY": "no-secret"} if signed else found


@contextmanager
def s3_server(*buckets: str) -> Iterator[S3]:
    """Serve empty buckets until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    state = S3(server.server_address[1], {name: {} for name in buckets})
    server.state = state  # pyright: ignore[reportAttributeAccessIssue] (read by the handlers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _etag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one packet

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _begin(self) -> tuple[S3, str, str, dict[str, str], bytes]:
        state: S3 = self.server.state  # pyright: ignore[reportAttributeAccessIssue]
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        state.requests.append(f"{self.command} {self.path}")
        time.sleep(state.delay)
        return state, bucket, key, query, body

    def _send(self, status: int, data: bytes = b"", **headers: str) -> None:
        state: S3 = self.server.state  # pyright: ignore[reportAttributeAccessIssue]
        is_cut = self.command == "GET" and state.cut > 0 and "ETag" in headers
        if not state.tags:
            headers.pop("ETag", None)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if is_cut:
            state.cut -= 1
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
        elif self.command != "HEAD":
            self.wfile.write(data)

    def _fail(self, status: int, code: str) -> None:
        self._send(status, f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode())

    def _handle(self) -> None:
        state, bucket, key, query, body = self._begin()
        if state.answer is not None:
            self._fail(state.answer, "AccessDenied" if state.answer == 403 else "InternalError")
        elif bucket not in state.buckets:
            self._fail(404, "NoSuchBucket")
        elif self.command in ("GET", "HEAD"):
            self._listing(state.buckets[bucket], query, state.page) if not key else self._get(state.buckets[bucket], key)
        elif self.command == "PUT":
            self._put(state, state.buckets[bucket], key, query, body)
        elif self.command == "DELETE":
            state.buckets[bucket].pop(key, None)
            self._send(204)
        else:
            self._post(state, state.buckets[bucket], key, query, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _get(self, objects: dict[str, bytes], key: str) -> None:
        state: S3 = self.server.state  # pyright: ignore[reportAttributeAccessIssue]
        if state.hung:
            state.hung -= 1
            time.sleep(HANG)
        data = objects.get(key)
        if data is None:
            return self._fail(404, "NoSuchKey")
        about = {"ETag": _etag(data), "Last_Modified": "Sat, 21 Nov 2026 10:00:00 GMT"}
        span = self.headers.get("Range")
        if span is None:
            return self._send(200, data, **about, Content_Length=str(len(data)))
        first, _, last = span.removeprefix("bytes=").partition("-")
        lo, hi = int(first), min(len(data) - 1, int(last) if last else len(data))
        if lo >= len(data):
            return self._fail(416, "InvalidRange")
        return self._send(206, data[lo : hi + 1], **about, Content_Range=f"bytes {lo}-{hi}/{len(data)}")

    def _put(self, state: S3, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if "uploadId" in query:
            state.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return self._send(200, ETag=_etag(body))
        with state.lock:
            there = objects.get(key)
            wanted = self.headers.get("If-Match")
            if (self.headers.get("If-None-Match") == "*" and there is not None) or (wanted and (there is None or _etag(there) != wanted)):
                return self._fail(412, "PreconditionFailed")
            objects[key] = body
        return self._send(200, ETag=_etag(body))

    def _post(self, state: S3, objects: dict[str, bytes], key: str, query: dict[str, str], body: bytes) -> None:
        if "delete" in query:
            keys = [node.text or "" for node in ElementTree.fromstring(body).iter() if node.tag.endswith("Key")]
            for gone in keys:
                objects.pop(gone, None)
            rows = "".join(f"<Deleted><Key>{escape(gone)}</Key></Deleted>" for gone in keys)
            return self._send(200, f"<DeleteResult>{rows}</DeleteResult>".encode())
        if "uploads" in query:
            name = f"upload-{len(state.uploads)}"
            state.uploads[name] = {}
            return self._send(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>".encode())
        parts = state.uploads.pop(query["uploadId"])
        objects[key] = b"".join(parts[number] for number in sorted(parts))
        tag = escape(_etag(objects[key]))
        return self._send(200, f"<CompleteMultipartUploadResult><ETag>{tag}</ETag></CompleteMultipartUploadResult>".encode())

    def _listing(self, objects: dict[str, bytes], query: dict[str, str], page: int) -> None:
        prefix, delimiter, after = (
            query.get("prefix", ""),
            query.get("delimiter"),
            query.get("continuation-token", query.get("start-after", "")),
        )
        keys = [key for key in sorted(objects) if key.startswith(prefix) and key > after]
        limit = min(page, int(query.get("max-keys", page)))
        shown, folders = [], []
        for key in keys[:limit]:
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.append(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                shown.append(key)
        rows = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-21T10:00:00.000Z</LastModified><Size>{len(objects[key])}</Size>"
            f"<ETag>{escape(_etag(objects[key]))}</ETag></Contents>"
            for key in shown
        ]
        rows += [f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in dict.fromkeys(folders)]
        more = len(keys) > limit
        token = f"<NextContinuationToken>{escape(keys[limit - 1])}</NextContinuationToken>" if more else ""
        self._send(
            200, f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(rows)}</ListBucketResult>".encode()
        )
