//! Parses the command line, runs it, and turns the outcome into an exit status.

fn main() {}
