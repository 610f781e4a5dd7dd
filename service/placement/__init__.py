"""Which cores the threads of a serving process run on; knows nothing of models, settings or HTTP."""
