"""Jitney beside the servers that one could use instead, on the same three workloads."""
