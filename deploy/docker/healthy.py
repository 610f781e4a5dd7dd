"""Exit status 0 when the service in this container would answer a prediction; an image without curl asks with this."""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 4

# Docker hands its own HTTP_PROXY to every container, and no proxy could reach this one.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_ready(bind: str) -> bool:
    """Whether the service at BIND says that it is ready."""
    port = bind.rpartition(":")[2]
    try:
        with _direct.open(f"http://127.0.0.1:{port}/healthz", timeout=TIMEOUT_S) as answer:
            return answer.status == 200
    except OSError:  # 503, refused, or silent
        return False


if __name__ == "__main__":
    sys.exit(0 if is_ready(os.environ.get("BIND", "127.0.0.1:8000")) else 1)
