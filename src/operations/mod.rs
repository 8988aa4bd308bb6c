//! The verbs: what the commands and the endpoints do.
