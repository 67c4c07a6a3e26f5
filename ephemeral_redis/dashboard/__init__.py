"""A page that shows a fleet, or one process, as it is now. It changes nothing.

`app` gives it as an ASGI application, to be served alone or mounted into another one. It needs the extra ``dashboard``.
"""

try:
    from ._app import app as app
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] != "starlette":
        raise
    raise ImportError("the dashboard needs starlette: pip install 'ephemeral-redis[dashboard]'") from missing

__all__ = ["app"]
