"""KVStore: its verbs, how it is made, and its life."""
