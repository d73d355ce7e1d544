"""Helpers of tensorkv.torch and tensorkv.ray."""
