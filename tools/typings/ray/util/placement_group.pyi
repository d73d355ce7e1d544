from typing import Any

class PlacementGroup:
    bundle_count: int
    def wait(self, timeout_seconds: float = ...) -> bool: ...

def __getattr__(name: str) -> Any: ...
