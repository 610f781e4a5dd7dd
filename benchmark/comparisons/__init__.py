"""One module for each comparison: `NAME`, `TITLE`, `measure(scale)`, `draw(rows)` and `says(rows)`, what they show."""
