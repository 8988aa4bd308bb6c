//! Zips in and out: packing, the one list of checks, unpacking, directory hashes.
