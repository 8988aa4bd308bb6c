//! Where tags, manifests and blobs are kept; knows nothing of modules.
