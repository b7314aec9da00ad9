"""Chat models: the deterministic scripted one, and every provider that `init_chat_model` knows."""
