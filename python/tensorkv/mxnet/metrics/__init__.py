"""The measures of ``mx.metric``."""
