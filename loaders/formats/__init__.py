"""One loader for each built-in model format; imported only when a model of that format is loaded."""
