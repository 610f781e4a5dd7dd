"""The Open Inference Protocol (V2): a translator between its tensors and the rows that Jitney batches."""
