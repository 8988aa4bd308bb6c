//! `login` and `logout`: the registry is asked whether it takes a login before that is kept anywhere.

use super::blocking;
use super::connect::Connection;
use super::error::{OperationError, Result};
use super::registry_setting::RegistryLocation;
use crate::registry::credentials::{
    Credential, CredentialEnvironment, CredentialSource, LoginPlace, LoginScope, Logout, forget_login,
};
use crate::registry::remote::LoginOutcome;

/// What a login to a registry is for: the registry itself, or what is below the prefix that stands behind it.
pub fn scope(location: &RegistryLocation) -> Result<LoginScope> {
    let elsewhere = |place: &str| OperationError::Usage {
        message: format!("`{place}` is no registry that anybody logs in to"),
        hint: "write for example `ghcr.io`, or `ghcr.io/acme` for what is below that alone".to_owned(),
    };
    let RegistryLocation::Remote { host, prefix, .. } = location else {
        return Err(elsewhere(&location.to_string()));
    };
    let prefix = if prefix.is_empty() {
        None
    } else {
        Some(prefix.parse().map_err(|_| elsewhere(&location.to_string()))?)
    };
    Ok(LoginScope { registry: host.clone(), prefix })
}

/// Where a login would be kept: to be known before anybody is asked for a password.
pub async fn place(environment: CredentialEnvironment, scope: LoginScope) -> Result<LoginPlace> {
    blocking(move || Ok(LoginPlace::find(&environment, scope)?)).await
}

/// Logs in: the registry is asked, and then the login is put in its place, unless it is a dry run.
pub async fn log_in(
    connection: &Connection,
    location: &RegistryLocation,
    place: LoginPlace,
    credential: Credential,
    dry_run: bool,
) -> Result<LoginOutcome> {
    let RegistryLocation::Remote { host, insecure, .. } = location else {
        return scope(location).map(|_| LoginOutcome::NotAsked);
    };
    // As the one who logs in, whatever is known of the registry until now.
    let credentials = CredentialSource::fixed(credential.clone());
    let connection = Connection { credentials, ..connection.clone() };
    let registry = connection.registry(host, *insecure)?;
    let outcome = registry.check_login().await.map_err(OperationError::registry(host.to_string()))?;
    if !dry_run {
        place.keep(credential).await?;
    }
    Ok(outcome)
}

/// Logs out, everywhere.
pub async fn log_out(
    environment: &CredentialEnvironment,
    scope: &LoginScope,
    dry_run: bool,
) -> Result<Logout> {
    Ok(forget_login(environment, scope, dry_run).await?)
}
