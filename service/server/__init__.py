"""What runs inside gunicorn: the worker process, its connections and threads, and how one process follows another."""
