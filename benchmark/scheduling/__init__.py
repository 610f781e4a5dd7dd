"""What `compare_schedulers.py` is made of."""
