//! A certificate for trials: an authority of its own, a certificate for the server, and files that make clients trust them.
//!
//! Nothing but the server's own key is kept. The authority's key signs one certificate and is forgotten, so that whoever told a
//! machine to trust the authority has nothing to fear of it later. The price is a new authority wherever the names change.

use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Datelike};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::tls::ServerCertificate;

/// How long a certificate holds: macOS refuses those that hold for more than 825 days, browsers from 398 on.
const LIFETIME: Duration = Duration::from_hours(397 * 24);

/// A certificate that ends sooner is replaced when the server starts.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);

/// Clocks differ, and a client whose clock is behind must not take the certificate for one of the future.
const CLOCK_TOLERANCE: Duration = Duration::from_hours(24);

/// Where everything is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfSigned {
    /// The authority's certificate alone, for a system's list of authorities.
    pub authority: PathBuf,
    /// The authority's certificate with all those of the system, for `SSL_CERT_FILE`, which stands for the system's list.
    pub bundle: PathBuf,
    /// The server's certificate.
    pub certificate: PathBuf,
    /// The server's key.
    pub key: PathBuf,
    /// Whether they were made just now, so that clients have to be told.
    pub is_new: bool,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum SelfSignedError {
    /// The folder cannot be written.
    #[error("`{}` cannot be written: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
    /// No certificate can be made for these names.
    #[error("no certificate can be made: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// A certificate in `folder` for hosts and addresses: the one that is there, if it is good for all of them, else a new one.
pub fn prepare(folder: &Path, names: &[String]) -> Result<SelfSigned, SelfSignedError> {
    let file = |name: &str| folder.join(name);
    let mut files = SelfSigned {
        authority: file("ca.pem"),
        bundle: file("ca-bundle.pem"),
        certificate: file("certificate.pem"),
        key: file("key.pem"),
        is_new: false,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if !files.hold(names, now + RENEW_BEFORE) {
        fs::create_dir_all(folder)
            .map_err(|source| SelfSignedError::Io { path: folder.to_owned(), source })?;
        files.make(names, now)?;
        files.is_new = true;
    }
    files.write_bundle()?;
    Ok(files)
}

impl SelfSigned {
    /// Whether there is a certificate that clients accept for all of these names at that time, once they trust the authority.
    fn hold(&self, names: &[String], at: Duration) -> bool {
        let Ok([authority, certificate, key]) = self.contents() else { return false };
        let Ok(authority) = CertificateDer::from_pem_slice(&authority) else { return false };
        let Ok(leaf) = CertificateDer::from_pem_slice(&certificate) else { return false };
        let mut roots = RootCertStore::empty();
        if ServerCertificate::parse(&certificate, &key).is_err() || roots.add(authority).is_err() {
            return false;
        }
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let Ok(verifier) = verifier else { return false };
        let at = UnixTime::since_unix_epoch(at);
        names.iter().all(|name| {
            ServerName::try_from(name.as_str())
                .is_ok_and(|name| verifier.verify_server_cert(&leaf, &[], &name, &[], at).is_ok())
        })
    }

    /// Authority, certificate and key.
    fn contents(&self) -> io::Result<[Vec<u8>; 3]> {
        let [authority, certificate, key] = [&self.authority, &self.certificate, &self.key].map(fs::read);
        Ok([authority?, certificate?, key?])
    }

    fn make(&self, names: &[String], now: Duration) -> Result<(), SelfSignedError> {
        let day = |at: Duration| {
            let date = DateTime::from_timestamp(i64::try_from(at.as_secs()).unwrap_or_default(), 0)
                .unwrap_or_default();
            // A month and a day of the calendar fit into a byte.
            let [month, day] = [date.month(), date.day()].map(|number| u8::try_from(number).unwrap_or(1));
            (date_time_ymd(date.year(), month, day), date.format("%Y-%m-%d").to_string())
        };
        let (begin, _) = day(now.saturating_sub(CLOCK_TOLERANCE));
        let ((end, _), (_, today)) = (day(now + LIFETIME), day(now));
        let called = |name: String| {
            let mut distinguished = DistinguishedName::new();
            distinguished.push(DnType::CommonName, name);
            distinguished
        };

        let mut authority = CertificateParams::default();
        authority.distinguished_name = called(format!("ocimod, for trials since {today}"));
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        (authority.not_before, authority.not_after) = (begin, end);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut server = CertificateParams::new(names)?;
        server.distinguished_name = called(names.first().cloned().unwrap_or_default());
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        server.use_authority_key_identifier_extension = true;
        (server.not_before, server.not_after) = (begin, end);
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;

        // The key goes first: if this breaks off, it fits no certificate, and all is made anew.
        write(&self.key, &key.serialize_pem(), Readers::Owner)?;
        write(&self.authority, &authority.pem(), Readers::All)?;
        write(&self.certificate, &certificate.pem(), Readers::All)
    }

    fn write_bundle(&self) -> Result<(), SelfSignedError> {
        let read = fs::read_to_string(&self.authority);
        let authority =
            read.map_err(|source| SelfSignedError::Io { path: self.authority.clone(), source })?;
        let loaded = rustls_native_certs::load_native_certs();
        if loaded.certs.is_empty() {
            tracing::warn!("the system's certificates cannot be read, so the bundle holds none of them");
        }
        let own = CertificateDer::from_pem_slice(authority.as_bytes()).ok();
        let system = loaded.certs.iter().filter(|certificate| Some(*certificate) != own.as_ref());
        let bundle = system.fold(authority.clone(), |bundle, certificate| bundle + &pem(certificate));
        write(&self.bundle, &bundle, Readers::All)
    }
}

/// The names and addresses that a server is asked by on this machine, where it listens, and by its host.
pub fn names(listen: IpAddr, host: Option<&str>) -> Vec<String> {
    let host = host.map(|host| host.split_once(':').map_or(host, |(host, _)| host));
    let listen = Some(listen).filter(|address| !address.is_unspecified()).map(|address| address.to_string());
    let fixed = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut names = Vec::new();
    for name in host.map(str::to_owned).into_iter().chain(fixed).chain(listen) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A certificate in PEM form (RFC 7468): lines of 64 letters.
fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    for (index, letter) in text.chars().enumerate() {
        if index > 0 && index % 64 == 0 {
            pem.push('\n');
        }
        pem.push(letter);
    }
    pem + "\n-----END CERTIFICATE-----\n"
}

/// Who may read a file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Readers {
    Owner,
    All,
}

/// Writes a file that readers find whole or not at all. Temporary files are for their owner alone.
fn write(path: &Path, text: &str, readers: Readers) -> Result<(), SelfSignedError> {
    let written = || {
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        #[cfg(unix)]
        if readers == Readers::All {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        #[cfg(not(unix))]
        let _ = readers;
        file.persist(path)?;
        Ok(())
    };
    written().map_err(|source| SelfSignedError::Io { path: path.to_owned(), source })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn wanted(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_used_again_while_it_fits() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("tls");
        let names = names("127.0.0.1".parse().unwrap(), Some("modules.internal:8443"));
        assert_eq!(names, ["modules.internal", "localhost", "127.0.0.1", "::1"]);
        let first = prepare(&folder, &names).unwrap();
        assert!(first.is_new);
        let again = prepare(&folder, &names[1..]).unwrap();
        assert!(!again.is_new);
        assert_eq!(first.contents().unwrap(), again.contents().unwrap());
        let other = prepare(&folder, &wanted(&["localhost", "10.0.0.1"])).unwrap();
        assert!(other.is_new, "no certificate for that address yet");
        assert!(!other.hold(&names, Duration::ZERO));
    }

    #[test]
    fn a_certificate_ends_and_is_renewed_before() {
        let folder = tempfile::tempdir().unwrap();
        let names = wanted(&["localhost"]);
        let files = prepare(folder.path(), &names).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!(files.hold(&names, now + RENEW_BEFORE));
        assert!(!files.hold(&names, now + LIFETIME));
        assert!(!files.hold(&names, now.saturating_sub(CLOCK_TOLERANCE * 3)));
        let late = now.saturating_sub(LIFETIME) + RENEW_BEFORE;
        files.make(&names, late).unwrap();
        assert!(prepare(folder.path(), &names).unwrap().is_new);
    }

    #[test]
    fn what_is_damaged_is_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let names = wanted(&["localhost"]);
        let files = prepare(folder.path(), &names).unwrap();
        for file in [&files.authority, &files.certificate, &files.key] {
            fs::write(file, "nothing").unwrap();
            assert!(prepare(folder.path(), &names).unwrap().is_new);
            fs::remove_file(file).unwrap();
            assert!(prepare(folder.path(), &names).unwrap().is_new);
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_key_is_for_its_owner_alone_and_no_other_key_is_kept() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let files = prepare(folder.path(), &wanted(&["localhost"])).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&files.key), 0o600);
        for entry in fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path != files.key {
                assert_eq!(mode(&path), 0o644, "{}", path.display());
                assert!(!fs::read_to_string(&path).unwrap().contains("PRIVATE KEY"), "{}", path.display());
            }
        }
    }

    #[test]
    fn the_bundle_holds_the_authority_and_the_system_s() {
        let folder = tempfile::tempdir().unwrap();
        let files = prepare(folder.path(), &wanted(&["localhost"])).unwrap();
        let bundle = fs::read(&files.bundle).unwrap();
        let all: Vec<_> = CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>().unwrap();
        let own = CertificateDer::from_pem_slice(&fs::read(&files.authority).unwrap()).unwrap();
        assert_eq!(all.iter().filter(|certificate| **certificate == own).count(), 1);
        let system = rustls_native_certs::load_native_certs().certs;
        assert_eq!(all.len(), 1 + system.iter().filter(|certificate| **certificate != own).count());
    }
}
