//! The error codes of the distribution specification ("Error Codes") and the status that each is answered with.

/// One of the specification's codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the specification's own
pub enum ErrorCode {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadUnknown,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    NameUnknown,
    SizeInvalid,
    Unauthorized,
    Denied,
    Unsupported,
    TooManyRequests,
}

/// Code, spelling, status.
const TABLE: [(ErrorCode, &str, u16); 14] = [
    (ErrorCode::BlobUnknown, "BLOB_UNKNOWN", 404),
    (ErrorCode::BlobUploadInvalid, "BLOB_UPLOAD_INVALID", 400),
    (ErrorCode::BlobUploadUnknown, "BLOB_UPLOAD_UNKNOWN", 404),
    (ErrorCode::DigestInvalid, "DIGEST_INVALID", 400),
    (ErrorCode::ManifestBlobUnknown, "MANIFEST_BLOB_UNKNOWN", 404),
    (ErrorCode::ManifestInvalid, "MANIFEST_INVALID", 400),
    (ErrorCode::ManifestUnknown, "MANIFEST_UNKNOWN", 404),
    (ErrorCode::NameInvalid, "NAME_INVALID", 400),
    (ErrorCode::NameUnknown, "NAME_UNKNOWN", 404),
    (ErrorCode::SizeInvalid, "SIZE_INVALID", 400),
    (ErrorCode::Unauthorized, "UNAUTHORIZED", 401),
    (ErrorCode::Denied, "DENIED", 403),
    (ErrorCode::Unsupported, "UNSUPPORTED", 405),
    (ErrorCode::TooManyRequests, "TOOMANYREQUESTS", 429),
];

impl ErrorCode {
    /// The code as it stands in an answer.
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// The HTTP status that goes with the code, where a request gives no better one.
    pub fn status(self) -> u16 {
        self.row().2
    }

    /// The code of that spelling; registries have codes of their own, which are `None`.
    pub fn from_text(text: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == text).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, u16) {
        // The table has the variants in the order of their declaration; the test holds it to that.
        &TABLE[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_variants() {
        for (index, row) in TABLE.iter().enumerate() {
            assert_eq!(row.0 as usize, index);
            assert_eq!(ErrorCode::from_text(row.1), Some(row.0));
        }
        assert_eq!(ErrorCode::from_text("NOT_FOUND"), None);
    }
}
