"""A process that checks cases, so that a crash or a hang of compiled code is a finding and not the end of the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import select
import struct
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tests.fuzz.checks import Verdict, check

ROOT = Path(__file__).parents[2]


class Worker:
    """Sends cases to a child process, which is started again after it died. limit: seconds a case may take."""

    def __init__(self, limit: float = 20.0) -> None:
        self.limit = limit
        self.child: subprocess.Popen[bytes] | None = None

    def check(self, kind: str, case: Any) -> Verdict:
        child = self.child
        if child is None:
            child = self.child = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
            )
            os.set_blocking(child.stderr.fileno(), False)  # pyright: ignore[reportOptionalMemberAccess]
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            _send(child.stdin, (kind, case))
        ready, _, _ = select.select([child.stdout], [], [], self.limit)
        verdict = _receive(child.stdout) if ready else None
        said = (child.stderr.read() or b"").decode(errors="replace")
        if verdict is not None:
            return verdict
        code = child.wait() if ready else None
        self.close()
        if code is None:
            return "fail", "hang", f"no answer after {self.limit} s"
        return "fail", f"crash {code}", said[-4000:]

    def close(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None


def _send(file: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value)
    file.write(struct.pack("=q", len(data)) + data)
    file.flush()


def _receive(file: IO[bytes]) -> Any:
    head = file.read(8)
    if len(head) < 8:
        return None
    size = struct.unpack("=q", head)[0]
    data = file.read(size)
    return pickle.loads(data) if len(data) == size else None


def main() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what programs print
    while (request := _receive(sys.stdin.buffer)) is not None:
        if request[0] == "crash":  # as generated code might, for the test of the worker
            ctypes.string_at(0)
        _send(answers, check(*request))


if __name__ == "__main__":
    main()
