"""A driver for `hotcount-load run -s exec:`, from docs/reference/load-protocol.md; may misbehave.

    python raw_driver.py HOW [CALLS]

It keeps the votes in memory and answers rightly, but for HOW, which begins after CALLS calls.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time

HOW = sys.argv[1]
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 0


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<IB", 1 + len(body), kind) + body


def answer(number: int, outcome: int = 0) -> bytes:
    return frame(131, struct.pack("<QBBqq", number, outcome, 0, 0, 0))


def receive(line: socket.socket) -> tuple[int, bytes]:
    def take(size: int) -> bytes:
        data = line.recv(size, socket.MSG_WAITALL)
        if len(data) < size:
            sys.exit(0)
        return data

    (length,) = struct.unpack("<I", take(4))
    data = take(length)
    return data[0], data[1:]


def misbehave(line: socket.socket, number: int) -> None:
    if HOW == "hang":
        time.sleep(600)
    elif HOW == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif HOW == "exit":
        sys.exit("no more of this")
    elif HOW == "garbage":
        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    elif HOW == "long":
        line.sendall(struct.pack("<I", 1 << 21))
    elif HOW == "unknown_id":
        line.sendall(answer(number + 12345))
    elif HOW == "twice":
        line.sendall(answer(number) + answer(number))
    elif HOW == "short":
        line.sendall(frame(131, b"\0" * 5))


def main() -> None:
    votes: dict[tuple[int, int], int] = {}
    calls = 0
    print("this line is for the log", flush=True)
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["HOTCOUNT_LOAD_SOCKET"])
    version = 99 if HOW == "version" else 1
    line.sendall(frame(129, struct.pack("<IIIB", version, 1, 4, 1)))
    while True:
        kind, body = receive(line)
        if kind == 1 and HOW == "refuse":
            line.sendall(frame(134, b"the tables cannot be made"))
        elif kind == 1:
            texts = ("told", "all of it", "" if HOW == "nameless" else "a dict")
            packed = b"".join(struct.pack("<H", len(text)) + text.encode() for text in texts)
            line.sendall(frame(130, b"\0" + packed))
        elif kind in (2, 3):
            calls += 1
            number = int(struct.unpack_from("<Q", body)[0])
            if calls > CALLS and HOW not in ("well", "lie", "nameless"):
                misbehave(line, number)
                continue
            if kind == 2:
                _, item, user, value = struct.unpack("<Qqqq", body)
                if HOW != "lie" or calls % 50:
                    votes[item, user] = value
            line.sendall(answer(number))
        elif kind == 4:
            rows = [struct.pack("<qqq", *key, value) for key, value in votes.items()]
            while HOW == "empty_pages":
                line.sendall(frame(132, b"\0"))
                time.sleep(0.005)
            if HOW == "torn_rows":
                rows = [b"123"]
            line.sendall(frame(132, b"\1" + b"".join(rows)))
        elif kind == 5:
            counts: dict[int, int] = {}
            for (item, _), value in votes.items():
                counts[item] = counts.get(item, 0) + value
            packed = b"".join(struct.pack("<qq", *count) for count in counts.items())
            line.sendall(frame(133, b"\1" + packed))
        elif kind == 6:
            return


main()
