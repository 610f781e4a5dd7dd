"""Builds the demo models, real ones, from scikit-learn and from pinned packages; see `service.demo.build`."""
