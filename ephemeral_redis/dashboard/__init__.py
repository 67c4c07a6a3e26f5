"""A page that shows a fleet, or one process, as it is now. It changes nothing.

`app` gives it as an ASGI application, to be served alone or mounted into another one. It needs the extra ``dashboard``.
"""

from ._app import app as app
