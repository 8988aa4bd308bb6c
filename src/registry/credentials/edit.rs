//! Changes one entry of a credential file and leaves everything else in it as it stands, to the byte where that is possible:
//! other programs keep their settings there.

use std::fmt;

use base64::Engine as _;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use super::Credential;
use super::file::{BASE64, SECRET_FIELDS, TOKEN_USER};

/// A JSON object whose members keep their order, and their text where nothing changes it.
struct Object(Vec<(String, Node)>);

enum Node {
    /// As it stands in the file.
    Kept(Box<RawValue>),
    /// Looked into, or new.
    Object(Object),
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            /// Go writes an empty map as `null`.
            fn visit_unit<E>(self) -> Result<Object, E> {
                Ok(Object(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push((key, Node::Kept(value)));
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_any(Members)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, node) in &self.0 {
            match node {
                Node::Kept(text) => map.serialize_entry(key, text)?,
                Node::Object(object) => map.serialize_entry(key, object)?,
            }
        }
        map.end()
    }
}

impl Object {
    /// The members of one that was not looked into yet.
    fn of(text: &RawValue) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text.get())
    }

    /// Takes out the object under a key, an empty one where there is none; and where to put it back.
    fn take(&mut self, key: &str) -> Result<(usize, Self), serde_json::Error> {
        let at = self.0.iter().position(|(name, _)| name == key).unwrap_or(self.0.len());
        let object = if at == self.0.len() {
            self.0.push((key.to_owned(), Node::Object(Self(Vec::new()))));
            Self(Vec::new())
        } else {
            match std::mem::replace(&mut self.0[at].1, Node::Object(Self(Vec::new()))) {
                Node::Kept(text) => Self::of(&text)?,
                Node::Object(object) => object,
            }
        };
        Ok((at, object))
    }

    fn text(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut text = Vec::new();
        // Docker and the containers tools indent by tabs.
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b"\t");
        let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
        Serialize::serialize(self, &mut serializer)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// What is to become of an entry.
#[derive(Clone, Copy)]
pub(super) enum Change<'a> {
    /// It holds this credential.
    Hold(&'a Credential),
    /// It is there and holds none: a helper has it.
    Empty,
    /// It is not there.
    Remove,
}

/// The file with an entry changed, `None` where it is so already. Every entry whose key is the same place in another spelling
/// goes; what else stood in the first of them stays in the new one.
pub(super) fn changed(
    old: &[u8],
    is_legacy: bool,
    key: &str,
    is_same: impl Fn(&str) -> bool,
    change: Change<'_>,
) -> Result<Option<Vec<u8>>, serde_json::Error> {
    let old = if old.trim_ascii().is_empty() { b"{}" } else { old };
    let mut file: Object = serde_json::from_slice(old)?;
    if is_legacy {
        return if change_entry(&mut file, key, is_same, change)? { file.text().map(Some) } else { Ok(None) };
    }
    let (at, mut auths) = file.take("auths")?;
    if !change_entry(&mut auths, key, is_same, change)? {
        return Ok(None);
    }
    file.0[at].1 = Node::Object(auths);
    file.text().map(Some)
}

/// Changes one of the entries; whether that was to be done.
fn change_entry(
    auths: &mut Object,
    key: &str,
    is_same: impl Fn(&str) -> bool,
    change: Change<'_>,
) -> Result<bool, serde_json::Error> {
    let first = auths.0.iter().position(|(name, _)| is_same(name));
    if first.is_none() && !matches!(change, Change::Hold(_)) {
        return Ok(false);
    }
    let mut entry = match first.map(|at| &auths.0[at].1) {
        Some(Node::Kept(text)) => Object::of(text)?,
        _ => Object(Vec::new()),
    };
    let is_empty = |entry: &Object| !entry.0.iter().any(|(name, _)| SECRET_FIELDS.contains(&name.as_str()));
    if matches!(change, Change::Empty)
        && is_empty(&entry)
        && auths.0.iter().filter(|(name, _)| is_same(name)).count() == 1
    {
        return Ok(false);
    }
    let at = first.unwrap_or(auths.0.len());
    // Those in front of the first are others, so it keeps its place.
    auths.0.retain(|(name, _)| !is_same(name));
    if !matches!(change, Change::Remove) {
        entry.0.retain(|(name, _)| !SECRET_FIELDS.contains(&name.as_str()));
        if let Change::Hold(credential) = change {
            for (name, value) in fields(credential).into_iter().rev() {
                entry.0.insert(0, (name.to_owned(), Node::Kept(to_raw_value(&value)?)));
            }
        }
        auths.0.insert(at, (key.to_owned(), Node::Object(entry)));
    }
    Ok(true)
}

/// The credential as Docker writes it. `auth` stands with every kind: the containers tools pass over an entry without it.
fn fields(credential: &Credential) -> Vec<(&'static str, String)> {
    let auth = |username: &str, password: &str| ("auth", BASE64.encode(format!("{username}:{password}")));
    match credential {
        Credential::Anonymous => Vec::new(),
        Credential::Basic { username, password } => vec![auth(username, password)],
        Credential::IdentityToken { username, token } => {
            let username = if username.is_empty() { TOKEN_USER } else { username };
            vec![auth(username, ""), ("identitytoken", token.clone())]
        }
        Credential::Bearer(token) => vec![("registrytoken", token.clone())],
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn basic(username: &str) -> Credential {
        Credential::Basic { username: username.into(), password: "p".into() }
    }

    fn change(old: &str, key: &str, change: Change<'_>) -> Option<String> {
        let host = |key: &str| key.trim_start_matches("https://").trim_end_matches("/v1/").to_owned();
        let new = changed(old.as_bytes(), false, key, |other| host(other) == host(key), change).unwrap();
        new.map(|new| String::from_utf8(new).unwrap())
    }

    #[test]
    fn everything_else_stays_as_it_stands() {
        let old = "{ \"psFormat\": \"table {{.ID}}\",\n\t\"big\": 123456789012345678901234567890, \"float\": 1.50,\n  \
                   \"auths\": {\"a.example\": {\"auth\":\"eDp5\"}, \"b.example\": {\"email\":\"b@b\",\"auth\":\"b2xk\"}, \
                   \"c.example\": {}},\n\"HttpHeaders\": {\"X\" : [1,  2]}}";
        insta::assert_snapshot!(change(old, "b.example", Change::Hold(&basic("u"))).unwrap(), @r#"
        {
        	"psFormat": "table {{.ID}}",
        	"big": 123456789012345678901234567890,
        	"float": 1.50,
        	"auths": {
        		"a.example": {"auth":"eDp5"},
        		"b.example": {
        			"auth": "dTpw",
        			"email": "b@b"
        		},
        		"c.example": {}
        	},
        	"HttpHeaders": {"X" : [1,  2]}
        }
        "#);
    }

    #[test]
    fn an_entry_is_made_emptied_and_removed() {
        let made = change("", "a.example", Change::Hold(&basic("u"))).unwrap();
        insta::assert_snapshot!(made, @r#"
        {
        	"auths": {
        		"a.example": {
        			"auth": "dTpw"
        		}
        	}
        }
        "#);
        let emptied = change(&made, "a.example", Change::Empty).unwrap();
        assert!(emptied.contains("\"a.example\": {}") && !emptied.contains("dTpw"), "{emptied}");
        assert_eq!(change(&emptied, "a.example", Change::Empty), None);
        let removed = change(&made, "a.example", Change::Remove).unwrap();
        assert_eq!(removed, "{\n\t\"auths\": {}\n}\n");
        for nothing in [Change::Empty, Change::Remove] {
            assert_eq!(change(&made, "b.example", nothing), None);
            assert_eq!(change("", "b.example", nothing), None);
        }
        let other = change(&made, "b.example", Change::Hold(&basic("v"))).unwrap();
        assert!(other.contains("a.example") && other.contains("b.example"));
    }

    #[test]
    fn other_spellings_of_the_same_place_go() {
        let old = r#"{"auths":{"x":{},"https://a.example":{"auth":"b2xk"},"y":{},"https://a.example/v1/":{"auth":"b2xk"}}}"#;
        let new = change(old, "a.example", Change::Hold(&basic("u"))).unwrap();
        assert!(!new.contains("https") && !new.contains("b2xk"), "{new}");
        let order: Vec<_> = ["\"x\"", "\"a.example\"", "\"y\""].map(|key| new.find(key).unwrap()).into();
        assert!(order.is_sorted(), "{new}");
    }

    #[test]
    fn every_kind_of_credential_is_written_as_docker_does() {
        let token = Credential::identity_token(String::new(), "t".into());
        let new = change("{\"auths\":null}", "a", Change::Hold(&token)).unwrap();
        assert!(
            new.contains(&BASE64.encode("<token>:")) && new.contains("\"identitytoken\": \"t\""),
            "{new}"
        );
        let token = Credential::identity_token("ann".into(), "t".into());
        let new = change("{}", "a", Change::Hold(&token)).unwrap();
        assert!(new.contains(&BASE64.encode("ann:")), "{new}");
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        for text in ["[]", "7", "{", "{\"auths\":7}", "{\"auths\":[]}", "{\"auths\":{\"a\":7}}", "{} {}"] {
            let held = basic("u");
            assert!(
                changed(text.as_bytes(), false, "a", |key| key == "a", Change::Hold(&held)).is_err(),
                "{text}"
            );
        }
    }
}
