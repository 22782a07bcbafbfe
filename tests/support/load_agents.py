"""hotcount-load agents as programs, and the frames that they speak."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.load_generator import program

HELLO, SETTINGS, READY, START, PING, PONG, STOP, RESULT, FETCH, RECORDS, FAILED = range(1, 12)


class Agent:
    """One that listens on a port of its own."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [program(), "agent", "--listen", "127.0.0.1:0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening at " in line, line
        self.address = line.split()[-1]

    def children(self) -> list[int]:
        """The processes that serve a coordinator."""
        pid = self.process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise


@contextmanager
def agents(count: int, *arguments: str) -> Iterator[list[Agent]]:
    started: list[Agent] = []
    try:
        for _ in range(count):
            started.append(Agent(*arguments))
        yield started
    finally:
        for agent in started:
            agent.process.terminate()
        for agent in started:
            agent.stop()


def addresses(started: list[Agent]) -> str:
    return ",".join(agent.address for agent in started)


def send(peer: socket.socket, kind: int, body: dict[str, Any] | bytes) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    peer.sendall(struct.pack(">IB", len(raw), kind) + raw)


def receive(peer: socket.socket) -> tuple[int, dict[str, Any]]:
    """The next frame; (0, {}) if the peer hung up."""
    header = peer.recv(5, socket.MSG_WAITALL)
    if len(header) < 5:
        return 0, {}
    length, kind = struct.unpack(">IB", header)
    body: dict[str, Any] = json.loads(peer.recv(length, socket.MSG_WAITALL))
    return kind, body


def said_to(address: str, kind: int, body: dict[str, Any] | bytes) -> tuple[int, dict[str, Any]]:
    """What an agent answers to a stranger's first frame."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as peer:
        send(peer, kind, body)
        return receive(peer)
