"""HTTP: the one pipeline of requests, for the socket of this user and for REST over TCP."""
