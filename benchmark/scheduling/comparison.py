"""Token cost of each scheduler over batch sizes and shares of short texts, as rows of a table."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import mean
from typing import Any

from scheduling.token_cost import TokenCost, token_cost
from scheduling.workload import LONG_TOKENS, SHORT_TOKENS, text_lengths

# What the others are compared with.
BASELINE = "fifo"


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. `backlog_rows`: texts that wait at a time, as long as there are so many. `saved_percent`: batch tokens
    saved against arrival order, for the same texts and the same batch size.
    """

    scheduler: str
    batch_size: int
    seed: int
    short_share: float
    requests: int
    backlog_rows: int
    batches: int
    own_tokens: int
    batch_tokens: int
    padding_tokens: int
    saved_percent: float
    longest_wait_batches: int


def compare(
    schedulers: Sequence[str],
    *,
    requests: int,
    batch_size: int,
    seed: int,
    short_share: float,
    backlog_rows: int,
) -> Iterator[Measured]:
    """One row for each scheduler; all of them serve the same texts."""
    lengths = text_lengths(requests, short_share, seed)
    baseline = token_cost(BASELINE, lengths, batch_size=batch_size, backlog_rows=backlog_rows)
    for scheduler in schedulers:
        cost = _cost(scheduler, lengths, baseline, batch_size, backlog_rows)
        yield Measured(
            scheduler=scheduler,
            batch_size=batch_size,
            seed=seed,
            short_share=short_share,
            requests=requests,
            backlog_rows=backlog_rows,
            batches=cost.batches,
            own_tokens=cost.own_tokens,
            batch_tokens=cost.batch_tokens,
            padding_tokens=cost.padding_tokens,
            saved_percent=round(100 * (1 - cost.batch_tokens / baseline.batch_tokens), 2),
            longest_wait_batches=cost.longest_wait_batches,
        )


def _cost(scheduler: str, lengths: Sequence[int], baseline: TokenCost, batch_size: int, backlog_rows: int) -> TokenCost:
    if scheduler == BASELINE:
        return baseline
    return token_cost(scheduler, lengths, batch_size=batch_size, backlog_rows=backlog_rows)


def write_csv(path: Path, rows: Sequence[Any]) -> None:
    """Rows of one dataclass, its fields as titles."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(field.name for field in fields(rows[0]))
        writer.writerows(astuple(row) for row in rows)


def chosen(rows: Iterable[Measured], **values: object) -> list[Measured]:
    """The rows that have these values in these fields."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in values.items())]


def summary(rows: Sequence[Measured]) -> str:
    """What `rows` say, for people: means over the seeds."""
    first = rows[0]
    seeds = sorted({row.seed for row in rows})
    lines = [
        f"{first.requests:,} texts wait at once, {100 * first.short_share:g} % of them of {_span(SHORT_TOKENS)} tokens"
        f" and the others of {_span(LONG_TOKENS)}.",
        "A batch costs rows x longest row; what it costs beyond the rows' own tokens is padding.",
        f"Means over seeds {', '.join(map(str, seeds))}.",
        "",
        f"{'batch':>5}  {'scheduler':<14}{'tokens':>10}{'padding':>10}{'saved against ' + BASELINE:>22}",
    ]
    for size in sorted({row.batch_size for row in rows}):
        for scheduler in dict.fromkeys(row.scheduler for row in rows):
            found = chosen(rows, batch_size=size, scheduler=scheduler)
            tokens = mean(row.batch_tokens for row in found)
            padding = mean(row.padding_tokens / row.batch_tokens for row in found)
            saved = mean(row.saved_percent for row in found)
            lines.append(f"{size:>5}  {scheduler:<14}{tokens:>10,.0f}{padding:>10.1%}{saved:>20.1f} %")
    return "\n".join(lines) + "\n"


def _span(tokens: tuple[int, int]) -> str:
    return f"{tokens[0]}-{tokens[1]}"
