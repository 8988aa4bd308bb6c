//! The options of `serve` for certificates, and the path in front of every route.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::super::Context;
use super::super::failure::{ErrorKind, Failure};
use crate::module::Host;
use crate::server::self_signed::{self, SelfSigned};
use crate::server::{BasePath, Live, Reloads, ServerCertificate};

/// Options for certificates, and the path in front of every route
#[derive(Args, Clone, Debug, Default)]
pub struct TlsOptions {
    /// Speak https with this certificate and its chain (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Speak https for a trial: make a certificate in this folder, and an authority that clients can be told to trust
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub tls_self_signed: Option<PathBuf>,
    /// Serve below this path, such as `/ocimod`; `/.well-known/` and `/v2/` stay at the root
    #[arg(long, value_name = "PATH")]
    pub base_path: Option<BasePath>,
}

impl TlsOptions {
    /// Reads the certificate, if there is to be one; from then on it is what the files say.
    pub(super) fn open(
        &self,
        context: &Context,
        listen: IpAddr,
        host: Option<&Host>,
        reloads: &mut Reloads,
    ) -> Result<Option<Live<ServerCertificate>>, Failure> {
        let absolute = |file: &PathBuf| context.environment.absolute(file);
        let files = match (&self.tls_cert, &self.tls_key, &self.tls_self_signed) {
            (None, None, None) => return Ok(None),
            (Some(certificate), Some(key), None) => vec![absolute(certificate), absolute(key)],
            (None, None, Some(folder)) => {
                let names = self_signed::names(listen, host.map(Host::as_str));
                let made = self_signed::prepare(&absolute(folder), &names);
                let made = made.map_err(|error| Failure::new(ErrorKind::Failed, error.to_string()))?;
                context.printer.note(&how_to_trust(&made));
                vec![made.certificate, made.key]
            }
            (_, _, Some(_)) => {
                return Err(Failure::usage(
                    "`--tls-self-signed` makes a certificate of its own, so `--tls-cert` and `--tls-key` cannot go with it",
                ));
            }
            _ => return Err(Failure::usage("`--tls-cert` and `--tls-key` go together; give both")),
        };
        let parse = |contents: &[Vec<u8>]| match contents {
            [certificate, key] => {
                ServerCertificate::parse(certificate, key).map_err(|error| error.to_string())
            }
            _ => Err("there are not two files".to_owned()),
        };
        let certificate = reloads.read(files, parse);
        certificate.map(Some).map_err(|error| {
            Failure::usage(error.to_string())
                .with_hint("the options are `--tls-cert` and `--tls-key`, both PEM")
        })
    }
}

/// What clients are told, system by system: Go programs, as OpenTofu and Terraform are, heed `SSL_CERT_FILE` on Linux alone.
fn how_to_trust(made: &SelfSigned) -> String {
    let (authority, bundle) = (made.authority.display(), made.bundle.display());
    let made = if made.is_new {
        "made a certificate for trials"
    } else {
        "using the certificate for trials that is there"
    };
    format!(
        "{made}; tell clients to trust it:\n\n  \
         Linux    export SSL_CERT_FILE={bundle}\n  \
         macOS    security add-trusted-cert -r trustRoot -k ~/Library/Keychains/login.keychain-db {authority}\n  \
         Windows  certutil -user -addstore Root {authority}\n"
    )
}
