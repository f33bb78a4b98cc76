//! Foreign clients against a running server.
