"""The fifth plane: a directory in the pod, durable as content-addressed blobs and a fenced manifest."""
