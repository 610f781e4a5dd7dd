"""What a row costs a model on the CPU in batches of each size, and the memory of its process.

For each bundle and number of native threads in a process of its own, without a server. The rows are made up for the
model's input, texts of 2 to 66 words among each other, and the same for every size. CPU time and not the clock's: with
one thread it is the same however busy the machine is, and cores divided by it are the rows a second.

    python benchmark/batch_sizes.py [--rounds 20] [--write benchmark/batch_sizes.md] BUNDLE...
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from publishing import add_write, publish, when_and_where

from service.cpu_threads import POOL_VARIABLES

SIZES = (1, 2, 4, 8, 16, 32)
ROWS = 64
THREADS = (1, 2)


def resident_mib() -> int:
    """Memory of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


def figures_here(bundle: str, rounds: int) -> dict[str, Any]:
    """Of one model in this process; of each size the least of some rounds."""
    from loaders import load_model  # not at the top: the numbers of threads are read when NumPy is imported
    from service.models.examples import varied_rows

    model = load_model(bundle, device="cpu")
    rows = varied_rows(model.input, ROWS)
    assert rows is not None, "this model does not say what its rows are"
    random.Random(0).shuffle(rows)
    loaded_mib = resident_mib()
    cpu_s: dict[int, float] = {}
    for size in SIZES:
        batches = [rows[start : start + size] for start in range(0, ROWS, size)]
        for _ in range(rounds + 1):
            cpu_at = time.process_time()
            for batch in batches:
                model.predict_batch(batch)
            cpu_s[size] = min(cpu_s.get(size, float("inf")), time.process_time() - cpu_at)
    return {
        "cpu_ms": {str(size): seconds / ROWS * 1000 for size, seconds in cpu_s.items()},
        "loaded_mib": loaded_mib,
        "used_mib": resident_mib(),
    }


def figures(bundle: Path, threads: int, rounds: int) -> dict[str, Any]:
    """The same in a process of its own with so many native threads."""
    environ = {**os.environ, **dict.fromkeys(POOL_VARIABLES, str(threads))}
    command = [sys.executable, __file__, "--rounds", str(rounds), "--figures", str(bundle)]
    found: dict[str, Any] = json.loads(subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE).stdout)
    return found


def tables(measured: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    sizes = " | ".join(str(size) for size in SIZES)
    ruler = "|---|---|" + "---|" * len(SIZES)
    cost = [f"| CPU ms a row | threads | {sizes} |", ruler]
    memory = ["| MiB of the process | threads | loaded | after all batches |", "|---|---|---|---|"]
    for (name, threads), found in measured.items():
        cost.append(f"| {name} | {threads} | " + " | ".join(f"{v:.3g}" for v in found["cpu_ms"].values()) + " |")
        memory.append(f"| {name} | {threads} | {found['loaded_mib']} | {found['used_mib']} |")
    return ["", *cost, "", *memory]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundles", nargs="+", type=Path, metavar="BUNDLE")
    parser.add_argument("--rounds", type=int, default=20)
    add_write(parser)
    parser.add_argument("--figures", action="store_true", help="print the bare figures of one bundle as JSON")
    arguments = parser.parse_args()
    if arguments.figures:
        json.dump(figures_here(str(arguments.bundles[0]), arguments.rounds), sys.stdout)
        return
    measured = {
        (bundle.name, threads): figures(bundle, threads, arguments.rounds)
        for bundle in arguments.bundles
        for threads in THREADS
    }
    names = " ".join(f"demo-models/{bundle.name}" for bundle in arguments.bundles)
    text = "\n".join(
        [
            "# Batch sizes",
            "",
            f"`python benchmark/batch_sizes.py --rounds {arguments.rounds} {names}`: least of {arguments.rounds} "
            f"rounds of {ROWS} rows. {when_and_where()}.",
            *tables(measured),
            "",
        ]
    )
    publish(text, arguments.write)


if __name__ == "__main__":
    main()
