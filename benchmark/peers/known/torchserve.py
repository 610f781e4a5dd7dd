"""TorchServe: a front in Java, the model in a Python process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

from benchmark.peers.forms import plain_forms
from benchmark.peers.peer import SERVERS, Launch, Peer

_PACKING_LIMIT_S = 60.0


def _lacks() -> str | None:
    return None if shutil.which("java") else "needs Java 11 or newer, and there is no java on the PATH"


def _environ(launch: Launch) -> dict[str, str]:
    logs = str(launch.scratch / "logs")
    return {
        # It starts its worker as `python`.
        "PATH": f"{launch.environment.directory / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}",
        "JAVA_TOOL_OPTIONS": "-Xmx1g",
        "LOG_LOCATION": logs,
        "METRICS_LOCATION": logs,
        "PEER_SERVERS": str(SERVERS),
    }


def _command(launch: Launch) -> list[str]:
    _pack(launch)
    config = launch.scratch / "config.properties"
    config.write_text(_config(launch))
    program = launch.environment.program("torchserve")
    return [program, "--start", "--foreground", "--ncs", "--ts-config", str(config), "--disable-token-auth"]


def _pack(launch: Launch) -> None:
    """The handler as the archive that TorchServe takes models from."""
    # fmt: off
    subprocess.run(
        [
            launch.environment.program("torch-model-archiver"), "--model-name", "m", "--version", "1.0",
            "--handler", str(SERVERS / "torchserve_handler.py"), "--export-path", str(launch.scratch), "--force",
        ],
        check=True, timeout=_PACKING_LIMIT_S, capture_output=True,
    )
    # fmt: on


def _config(launch: Launch) -> str:
    model = {
        "defaultVersion": True,
        "marName": "m.mar",
        "minWorkers": 1,
        "maxWorkers": 1,
        "batchSize": launch.workload.max_batch_size,
        "maxBatchDelay": max(1, int(launch.workload.window_ms)),
        "responseTimeout": 60,
    }
    addresses = {"inference": 0, "management": 1, "metrics": 2}
    lines = [f"{name}_address=http://127.0.0.1:{launch.port + more}" for name, more in addresses.items()]
    lines += [f"grpc_inference_port={launch.port + 3}", f"grpc_management_port={launch.port + 4}"]
    lines += ["disable_token_authorization=true", "enable_envvars_config=false", "job_queue_size=2000"]
    lines += ["default_response_timeout=60", f"model_store={launch.scratch}", "load_models=m.mar"]
    lines += [f"models={json.dumps({'m': {'1.0': model}})}"]
    return "\n".join(lines) + "\n"


PEER = Peer(
    name="torchserve",
    title="TorchServe",
    packages=("torchserve",),
    tuning="one worker, a handler of one's own, a Java heap of 1 GB",
    forms=plain_forms("/predictions/m"),
    command=_command,
    environ=_environ,
    lacks=_lacks,
)
