"""What batches cost, as a picture."""

from __future__ import annotations

from pathlib import Path

from service.bench.errors import BenchUnavailable
from service.tune.advice import Advice
from service.tune.curve import Curve

_MEASURED, _CHOSEN = "#1f5fa8", "#c2410c"


def draw(curve: Curve, advice: Advice, title: str, path: Path) -> None:
    """Time of a batch and rows per second, by rows per batch, with the size that is recommended; an SVG file.

    Raises BenchUnavailable where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise BenchUnavailable("pip install 'jitney[bench]' brings what draws charts") from None
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    figure.suptitle(title)
    cost, gain = figure.subplots(1, 2)
    sizes = curve.sizes
    cost.plot(sizes, [1000 * curve.batch_s(size) for size in sizes], "o-", color=_MEASURED)
    cost.set(xlabel="rows per batch", ylabel="time of a batch in the model, ms", ylim=(0, None), xlim=(0, None))
    gain.plot(sizes, [curve.rows_per_s(size) for size in sizes], "o-", color=_MEASURED)
    gain.set(xlabel="rows per batch", ylabel="rows per second, model alone", ylim=(0, None), xlim=(0, None))
    for axes in (cost, gain):
        axes.axvline(advice.max_batch_size, color=_CHOSEN, linestyle="--", linewidth=1)
        axes.grid(alpha=0.25)
    gain.annotate(
        f"MAX_BATCH_SIZE={advice.max_batch_size}",
        (advice.max_batch_size, 0.06),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0) if advice.max_batch_size <= max(sizes) / 2 else (-4, 0),
        textcoords="offset points",
        ha="left" if advice.max_batch_size <= max(sizes) / 2 else "right",
        color=_CHOSEN,
    )
    figure.savefig(path, format="svg", metadata={"Date": None})
