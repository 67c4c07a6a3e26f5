"""Bad networks, worker processes that keep books, and the account that is held over them."""
