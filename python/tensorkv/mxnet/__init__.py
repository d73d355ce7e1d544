"""Names that only scripts of MXNet use."""
