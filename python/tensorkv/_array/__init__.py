"""Arrays of numbers: what NDArray and its functions are made of."""
