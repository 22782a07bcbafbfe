"""Servers that speak just enough of PostgreSQL's or MariaDB's handshake to ask for what they want.

`received` is all that clients have sent, decrypted: whether a password is in it is the question.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.listener import Listener, end

CANARY = "canary-in-the-mine"

Talk = Callable[["Peer"], None]


class Peer:
    """One client, as the server sees it."""

    def __init__(self, server: FakeServer, connection: socket.socket) -> None:
        self._server = server
        self.socket = connection

    def read(self, size: int) -> bytes:
        """Exactly so much; an end of the stream ends the conversation."""
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError
            self._server.received += more
            data += more
        return data

    def read_on(self) -> None:
        """Whatever else there is, until the client goes."""
        while True:
            self.read(1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_bytewise(self, data: bytes) -> None:
        if self.socket.family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(len(data)):
            self.socket.sendall(data[index : index + 1])

    def note(self, data: bytes) -> None:
        """What it has found out besides what it has read."""
        self._server.received += data

    def start_tls(self, context: ssl.SSLContext) -> None:
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self._server.opened(self.socket)


class FakeServer(Listener):
    """Holds the conversation with each of its clients, each in a thread."""

    def __init__(self, talk: Talk, *, unix: Path | None = None) -> None:
        self.received = b""
        self._talk = talk
        super().__init__(unix)

    def got_the_password(self) -> bool:
        return CANARY.encode() in self.received

    def serve(self, client: socket.socket) -> None:
        peer = Peer(self, client)
        with contextlib.suppress(OSError):
            self._talk(peer)
        end(peer.socket)
        peer.socket.close()


def self_signed(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context for 127.0.0.1, and the certificate to verify it with."""
    certificate, key = folder / "fake.crt", folder / "fake.key"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"),
        *("-addext", "subjectAltName=IP:127.0.0.1"),
        *("-keyout", str(key), "-out", str(certificate)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


# -- PostgreSQL ---------------------------------------------------------------

_TLS_REQUEST, _GSS_REQUEST = 80877103, 80877104
CLEAR_TEXT = 3


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def asks_for(method: int, more: bytes = b"") -> bytes:
    return message(b"R", struct.pack("!i", method) + more)


ASKS_FOR_SCRAM = asks_for(10, b"SCRAM-SHA-256\0\0")
ASKS_FOR_MD5 = asks_for(5, b"salt")
ASKS_FOR_CLEAR_TEXT = asks_for(CLEAR_TEXT)


def refuses(text: str, code: str = "28P01") -> bytes:
    fields = f"SFATAL\0VFATAL\0C{code}\0M{text}\0Ff.c\0L1\0Rr\0\0"
    return message(b"E", fields.encode())


def postgres(answer: Callable[[Peer], None], *, tls: ssl.SSLContext | None = None) -> Talk:
    """Reads the startup packet, and goes on as `answer` says."""

    def talk(peer: Peer) -> None:
        while True:
            (size,) = struct.unpack("!i", peer.read(4))
            body = peer.read(size - 4)
            (version,) = struct.unpack("!i", body[:4])
            if version == _TLS_REQUEST and tls is not None:
                peer.send(b"S")
                peer.start_tls(tls)
            elif version in (_TLS_REQUEST, _GSS_REQUEST):
                peer.send(b"N")
            else:
                break
        answer(peer)

    return talk


# -- MariaDB ------------------------------------------------------------------

_CAPABILITIES = 0x1 | 0x8 | 0x80 | 0x200 | 0x2000 | 0x8000 | 0x80000
_TLS = 0x800
_SALT = b"saltsaltsaltsaltsalt"


def packet(number: int, payload: bytes) -> bytes:
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def greeting(method: str = "mysql_native_password", *, tls: bool = False) -> bytes:
    capabilities = _CAPABILITIES | (_TLS if tls else 0)
    return packet(
        0,
        b"\x0a"
        + b"5.5.5-10.11.0-MariaDB\0"
        + struct.pack("<I", 1)
        + b"saltsalt\0"
        + struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
        + bytes(10)
        + b"saltsaltsalt\0"
        + method.encode()
        + b"\0",
    )


OK = b"\x00\x00\x00\x02\x00\x00\x00"


def error(text: str, number: int = 1045) -> bytes:
    return b"\xff" + struct.pack("<H", number) + b"#28000" + text.encode()


def read_packet(peer: Peer) -> tuple[int, bytes]:
    """Its number and what is in it."""
    header = peer.read(4)
    return header[3], peer.read(int.from_bytes(header[:3], "little"))


def switch_to(method: str) -> bytes:
    return b"\xfe" + method.encode() + b"\0" + _SALT + b"\0"


class RsaKey:
    """A key for which a client of a sha2 method may encrypt its password."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "rsa.pem"
        self._openssl("genpkey", "-algorithm", "RSA", "-out", str(self._file))
        self.public = self._openssl("pkey", "-in", str(self._file), "-pubout")

    def read(self, encrypted: bytes) -> bytes:
        """What a client has encrypted; nothing if it has not."""
        padding = ("-pkeyopt", "rsa_padding_mode:oaep")
        try:
            text = self._openssl(
                "pkeyutl", "-decrypt", "-inkey", str(self._file), *padding, data=encrypted
            )
        except subprocess.CalledProcessError:
            return b""
        return bytes(byte ^ _SALT[index % len(_SALT)] for index, byte in enumerate(text))

    @staticmethod
    def _openssl(*arguments: str, data: bytes = b"") -> bytes:
        command = ["openssl", *arguments]
        return subprocess.run(command, check=True, capture_output=True, input=data).stdout


# caching_sha2_password: "I do not know you; send the whole of it".
FULL_AUTHENTICATION = b"\x01\x04"


def asks_for_all(
    *packets: bytes,
    greets: str,
    key: RsaKey,
    delivery: str = "in turn",
    tls: ssl.SSLContext | None = None,
) -> Talk:
    """Sends the packets in turn with the client, then its key; decrypts whatever comes."""

    def talk(peer: Peer) -> None:
        send = peer.send_bytewise if delivery == "bytewise" else peer.send
        number = 2 if tls is None else 3
        left = [
            packet(number + 2 * index, payload)
            for index, payload in enumerate([*packets, b"\x01" + key.public])
        ]
        begin = greeting(greets, tls=tls is not None)
        if delivery == "at once" and tls is None:
            begin, left = begin + b"".join(left), []
        send(begin)
        if tls is not None:
            read_packet(peer)
            peer.start_tls(tls)
        while True:
            _, answer = read_packet(peer)
            peer.note(key.read(answer))
            if left:
                send(left.pop(0))

    return talk
