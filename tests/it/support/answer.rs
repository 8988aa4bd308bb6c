//! What a server of the distribution API answered, and what a test expects of it.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use serde_json::Value;

/// An answer, whole.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        let body = &self.body[..self.body.len().min(500)];
        assert_eq!(self.status.as_u16(), status, "{:?} {:?}", self.headers, Bytes::copy_from_slice(body));
        self
    }

    /// The value of a header that is there once.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> &str {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        assert!(values.next().is_none(), "{name} twice in {:?}", self.headers);
        value.to_str().unwrap()
    }

    #[track_caller]
    pub(crate) fn has_no(&self, header: &str) {
        assert!(!self.headers.contains_key(header), "{header} in {:?}", self.headers);
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    /// An error in the specification's form.
    #[track_caller]
    pub(crate) fn fails(self, status: u16, code: &str) -> Self {
        let answer = self.expect(status);
        assert_eq!(answer.header("content-type"), "application/json");
        let errors = answer.json();
        assert_eq!(errors["errors"].as_array().map(Vec::len), Some(1), "{:?}", answer.body);
        let error = &errors["errors"][0];
        assert_eq!(error["code"], code, "{:?}", answer.body);
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{:?}", answer.body);
        answer
    }

    /// Where a list goes on (`Link`, RFC 8288): the target of the one link that there is.
    #[track_caller]
    pub(crate) fn next(&self) -> Option<String> {
        self.headers.get("link")?;
        let link = self.header("link");
        let target = link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\""));
        Some(target.unwrap_or_else(|| panic!("no link to a next page: {link}")).to_owned())
    }
}
