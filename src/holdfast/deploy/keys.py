"""Certificates and keys of a federation: a CA, the server's certificate, a key for every site."""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError, file_errors_said

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
# A name or an address, no longer than a certificate's name may be.
_HOST = re.compile(r"[A-Za-z0-9:.*-]{1,64}")
_DAYS = 397


@file_errors_said()
def write_keys(
    folder: Path, sites: Sequence[str], hosts: Sequence[str] = ("localhost", "127.0.0.1")
) -> list[Path]:
    """Make what is not there yet; what is there stays. Returns the files that were written.

    Args:
        folder: where they go. `ca.crt` goes to every site, its own key to each, all else stays at the server.
        sites: their names.
        hosts: names and addresses under which sites reach the server.
    """
    for name in sites:
        if not _FILE_NAME.fullmatch(name):
            raise HoldfastError(
                f"keys: a site called {name!r}; give letters, digits, - and _, since its key is a file.",
                about=("sites",),
            )
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise HoldfastError(
                f"keys: a host called {host!r}; give a name or an address under which sites reach the "
                f"server, such as fed.example.org.",
                about=("host",),
            )
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    certificates = [folder / name for name in ("ca.key", "ca.crt", "server.key", "server.crt")]
    there = [path.exists() for path in certificates]
    if any(there) and not all(there):
        missing = certificates[there.index(False)]
        raise HoldfastError(f"keys: {missing} is missing and others are there; delete them all.")
    if not any(there):
        for path, content in zip(certificates, _certificates(hosts), strict=True):
            written.append(_write(path, content))
    for name in sites:
        private, public = folder / f"{name}.key", folder / f"{name}.pub"
        if not private.exists():
            own, shown = _site_key()
            written += [_write(private, own), _write(public, shown)]
    return written


def _write(path: Path, content: bytes) -> Path:
    secret = path.suffix == ".key"
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644), "wb"
    ) as f:
        f.write(content)
    return path


def _library() -> Any:
    try:
        import cryptography.x509  # noqa: F401
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise HoldfastError(
            'keys: the library `cryptography` is not installed; pip install "holdfast[flower]".'
        ) from None
    return hashes, serialization, ec


def _private(serialization: Any, key: Any, how: Any) -> bytes:
    found: bytes = key.private_bytes(serialization.Encoding.PEM, how, serialization.NoEncryption())
    return found


def _site_key() -> tuple[bytes, bytes]:
    _, serialization, ec = _library()
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    return _private(serialization, key, serialization.PrivateFormat.OpenSSH), public + b"\n"


def _certificates(hosts: Sequence[str]) -> tuple[bytes, bytes, bytes, bytes]:
    hashes, serialization, ec = _library()
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def named(words: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, words)])

    now = datetime.datetime.now(datetime.UTC)
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))

    def begun(subject: str, key: Any, is_authority: bool) -> x509.CertificateBuilder:
        usage = dict.fromkeys(
            (
                "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
                "encipher_only", "decipher_only",
            ),
            False,
        )  # fmt: skip
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named("holdfast federation"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=not is_authority,
                    key_cert_sign=is_authority,
                    crl_sign=is_authority,
                    **usage,
                ),
                critical=True,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
                critical=False,
            )
        )

    root = begun("holdfast federation", authority, True).sign(authority, hashes.SHA256())
    leaf = (
        begun(hosts[0], server, False)
        .add_extension(x509.SubjectAlternativeName([_host(x509, h) for h in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority, hashes.SHA256())
    )
    pem, how = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return (
        _private(serialization, authority, how),
        root.public_bytes(pem),
        _private(serialization, server, how),
        leaf.public_bytes(pem),
    )


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
