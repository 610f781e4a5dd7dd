"""The models of a process: where they come from, which are loaded, and how each proves itself before it serves."""
