"""Starts a module as a child that does not outlive its parent: `python -m kbmesh_cli.child PARENT_PID MODULE ...`."""

import ctypes
import os
import runpy
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1
"""prctl(2). The setting survives execve."""


def main() -> None:
    """Ties this process to its parent, then becomes the module."""
    parent_pid, module, *arguments = int(sys.argv[1]), *sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # it died before the setting took hold
            sys.exit(1)
        os.execv(sys.executable, [sys.executable, "-m", module, *arguments])  # noqa: S606 - this very Python
    threading.Thread(target=_end_with, args=(parent_pid,), daemon=True).start()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
