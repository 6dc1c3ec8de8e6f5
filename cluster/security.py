"""Encryption: certificate files and the settings that name them, and the check which connections stay on this computer."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .errors import ClusterConfigError, PlaintextRefused

if TYPE_CHECKING:
    from distributed import Security

VARIABLES = {"ca": "GRAMPLANE_TLS_CA", "cert": "GRAMPLANE_TLS_CERT", "key": "GRAMPLANE_TLS_KEY"}
_DASK_SETTINGS = {"ca": "ca-file", "cert": "client.cert", "key": "client.key"}  # below distributed.comm.tls


@dataclass(frozen=True)
class TLSFiles:
    """The three PEM files of one party: trusted authority, own certificate, and private key."""

    ca: str
    cert: str
    key: str

    def check(self) -> TLSFiles:
        """Check that the files can be read and return ``self``. Raises ClusterConfigError with the unreadable file and its setting."""
        for name, variable in VARIABLES.items():
            path = Path(getattr(self, name))
            if not os.access(path, os.R_OK):
                raise ClusterConfigError(f"TLS {name} file {str(path)!r} ({variable}): not a readable file")
        return self


def _complete_files(found: Mapping[str, str | None], source: str) -> TLSFiles | None:
    missing = [name for name in VARIABLES if not found.get(name)]
    if len(missing) == len(VARIABLES):
        return None
    if missing:
        raise ClusterConfigError(f"TLS settings from {source}: {', '.join(missing)} missing; give ca, cert and key together")
    return TLSFiles(**{name: str(found[name]) for name in VARIABLES})


def find_tls(given: TLSFiles | None = None) -> TLSFiles | None:
    """Return the TLS files to use: ``given``, or else those of the environment, or else those of Dask's configuration, or else ``None``."""
    if given is not None:
        return given.check()
    files = _complete_files({name: os.environ.get(variable) for name, variable in VARIABLES.items()}, "the environment")
    if files is None:
        import dask

        settings = {name: dask.config.get(f"distributed.comm.tls.{key}", None) for name, key in _DASK_SETTINGS.items()}
        files = _complete_files(settings, "the Dask configuration")
    return files.check() if files else None


def choose_security(address: str, tls: TLSFiles | None) -> Security | None:
    """Return the security settings for ``address``: for ``tls://`` those with the certificates ``tls``, which are required; for ``tcp://``
    none.
    """
    if not address.startswith("tls://"):
        return None
    files = find_tls(tls)
    if files is None:
        ways = f"--tls-ca, --tls-cert, --tls-key, or {', '.join(VARIABLES.values())}, or distributed.comm.tls in the Dask configuration"
        raise ClusterConfigError(f"cluster {address!r} uses TLS, but no certificates are set; give ca, cert and key files ({ways})")
    from distributed import Security

    return Security(require_encryption=True, tls_ca_file=files.ca, tls_client_cert=files.cert, tls_client_key=files.key)


def make_security() -> Security:
    """Return the security settings of a cluster started here: a certificate of its own, which both sides must present."""
    from ssl import TLSVersion

    from distributed import Security

    # All of it is named, so that nothing of the user's Dask configuration, meant for another cluster, takes its place.
    return Security.temporary(tls_ciphers=None, tls_min_version=TLSVersion.TLSv1_3)


def _is_loopback_ip(text: str) -> bool:
    return ipaddress.ip_address(text.split("%")[0]).is_loopback


def is_loopback(host: str) -> bool:
    """Return whether all addresses of ``host`` are on this computer's loopback interface; ``False`` for unknown names."""
    with suppress(ValueError):
        return _is_loopback_ip(host)
    with suppress(OSError):
        addresses = socket.getaddrinfo(host, None)
        return bool(addresses) and all(_is_loopback_ip(str(entry[4][0])) for entry in addresses)
    return False


def is_plaintext_abroad(address: str) -> bool:
    """Return whether a connection to ``address`` would leave this computer unencrypted."""
    parts = urlsplit(address)
    return parts.scheme in ("tcp", "ws", "ucx") and not is_loopback(parts.hostname or "")


def check_plaintext(address: str, allow_plaintext: bool) -> str | None:
    """Reject an unencrypted connection to another computer, because anyone who reaches a Dask port can run code. If allowed, return a
    warning.
    """
    if not is_plaintext_abroad(address):
        return None
    reason = f"cluster {address!r} is not on this computer and not encrypted: anyone on the network can run code on the cluster"
    if allow_plaintext:
        return reason
    raise PlaintextRefused(f"{reason}; use a tls:// scheduler, or allow it with --allow-plaintext (allow_plaintext=True)")


def _write_private(path: Path, content: str, mode: int) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(content)


def make_certificates(folder: str | os.PathLike[str]) -> TLSFiles:
    """Make one self-signed certificate and key for a whole cluster; the certificate is also the certificate authority. Whoever has the key
    can join the cluster.

    ``folder``: where ``cert.pem`` (mode 0644) and ``key.pem`` (0600) are created. They must not exist; the folder is made with mode 0700 if
    absent.
    """
    made, target = make_security(), Path(folder)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_private(target / "key.pem", str(made.tls_client_key), 0o600)
    _write_private(target / "cert.pem", str(made.tls_client_cert), 0o644)
    return TLSFiles(ca=str(target / "cert.pem"), cert=str(target / "cert.pem"), key=str(target / "key.pem"))
