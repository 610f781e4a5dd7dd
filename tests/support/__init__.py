"""Doubles that the tests share: time that stands still, models behind gates, models that remember."""
