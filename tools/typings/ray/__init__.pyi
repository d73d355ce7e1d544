# Of Ray, which may be missing where types are checked, and whose name is that of a module of this package.

from typing import Any

def __getattr__(name: str) -> Any: ...
