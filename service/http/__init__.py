"""The protocol front ends: from an HTTP request to rows, and from results or errors to an answer."""
