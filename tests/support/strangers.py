"""Another process at the ports of a cluster: without the certificate, with one of its own, or as another user."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.support.clusters import import_path

STRANGER = """
import asyncio, os, ssl, sys
from distributed import Security
from distributed.comm import connect
from distributed.core import rpc

import distributed.comm.tcp, distributed.protocol

kind, ca, cert, key, *ports = sys.argv[1:]
if user := int(os.environ.get("STRANGER_USER", "0")):
    # After the imports: another user may not be able to read this user's Python.
    os.setgroups([]), os.setgid(user), os.setuid(user)


def security():
    if kind == "plain":
        return Security(require_encryption=False)
    files = {"tls_ca_file": ca, "tls_client_cert": cert, "tls_client_key": key}
    return Security(require_encryption=True, **files)


def without_certificate(port):
    # A TLS client that asks for no certificate and shows none: what it sends must not be answered.
    import socket

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", int(port)), 10) as raw, context.wrap_socket(raw) as sock:
        sock.settimeout(10)
        for _ in range(3):
            if not sock.recv(1 << 16):
                raise ConnectionError("closed")
        return "answered"


async def ask(port):
    scheme = "tcp" if kind == "plain" else "tls"
    arguments = security().get_connection_args("client")
    comm = await connect(f"{scheme}://127.0.0.1:{port}", timeout=3, **arguments)
    await comm.write({"op": "identity", "reply": True})
    return await comm.read()


for port in ports:
    try:
        told = without_certificate(port) if kind == "none" else asyncio.run(asyncio.wait_for(ask(port), 5))
        print(port, "answered", str(told)[:80])
    except Exception as error:
        print(port, "refused", type(error).__name__)
"""


def answers(kind: str, files: Mapping[str, Any], ports: Iterable[int], **environment: str) -> dict[int, str]:
    """Return what a stranger meets at each port: ``plain``, ``none`` (TLS without certificate), with a ``foreign`` one or the ``own`` one.

    ``STRANGER_USER`` in the environment makes it another user.
    """
    words = [sys.executable, "-c", STRANGER, kind, *(str(files[name]) for name in ("ca", "cert", "key")), *map(str, ports)]
    env = {**os.environ, "PYTHONPATH": import_path(), **environment}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=240, check=True)
    return {int(line.split()[0]): line.split()[1] for line in done.stdout.splitlines()}


def public_copies(files: Mapping[str, Any], parent: Path) -> dict[str, Path]:
    """Return copies of certificates that every user can read."""
    folder = Path(tempfile.mkdtemp(prefix="strangers-", dir=parent))
    folder.chmod(0o755)
    for name, path in files.items():
        (folder / name).write_bytes(Path(path).read_bytes())
        (folder / name).chmod(0o644)
    return {name: folder / name for name in files}
