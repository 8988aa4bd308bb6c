//! Registries that want a repository to be made before anything is pushed into it, and the command that makes it.
//!
//! Which command that is follows from the host alone. It is shown to be typed by a person, never run.

use super::host::RegistryHost;
use crate::oci::Repository;
use crate::registry::RegistryError;

/// The error of a push, said in full where there is no repository to push into.
pub(super) fn of_push(error: RegistryError, registry: &RegistryHost) -> RegistryError {
    match error {
        RegistryError::RepositoryUnknown(repository) => {
            let command =
                repository.parse().ok().and_then(|repository| command(registry.as_str(), &repository));
            RegistryError::RepositoryNotMade { registry: registry.to_string(), repository, command }
        }
        error => error,
    }
}

/// What makes a repository, where the registry is one whose command line is known.
fn command(host: &str, repository: &Repository) -> Option<String> {
    private_ecr(host, repository)
        .or_else(|| public_ecr(host, repository))
        .or_else(|| artifact_registry(host, repository))
}

/// `123456789012.dkr.ecr.eu-west-1.amazonaws.com`, also in China, with FIPS, and under the names that IPv6 has.
fn private_ecr(host: &str, repository: &Repository) -> Option<String> {
    let (account, rest) = host.split_once('.')?;
    let region = ["dkr.ecr.", "dkr.ecr-fips.", "dkr-ecr.", "dkr-ecr-fips."].iter().find_map(|service| {
        let ends = if service.starts_with("dkr.") {
            [".amazonaws.com", ".amazonaws.com.cn"]
        } else {
            [".on.aws", ".on.amazonwebservices.com.cn"]
        };
        ends.iter().find_map(|end| rest.strip_prefix(service)?.strip_suffix(end))
    })?;
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    (is_account && is_word(region)).then(|| {
        format!(
            "aws ecr create-repository --registry-id {account} --region {region} --repository-name {repository}"
        )
    })
}

/// `public.ecr.aws/ALIAS/repository`, which is made in one region for all.
fn public_ecr(host: &str, repository: &Repository) -> Option<String> {
    let (_, name) = repository.as_str().split_once('/').filter(|_| host == "public.ecr.aws")?;
    Some(format!("aws ecr-public create-repository --region us-east-1 --repository-name {name}"))
}

/// `europe-docker.pkg.dev/PROJECT/REPOSITORY/image`: what has to be made is the second part. A project of a domain has two parts.
fn artifact_registry(host: &str, repository: &Repository) -> Option<String> {
    let location = host.strip_suffix("-docker.pkg.dev").filter(|location| is_word(location))?;
    let mut parts = repository.as_str().split('/');
    let first = parts.next()?;
    let project = if first.contains('.') { format!("{first}:{}", parts.next()?) } else { first.to_owned() };
    let name = parts.next()?;
    Some(format!(
        "gcloud artifacts repositories create {name} --repository-format=docker --location={location} --project={project}"
    ))
}

/// A region or location: it becomes part of a line to type.
fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn command_for(host: &str, repository: &str) -> String {
        command(host, &repository.parse().unwrap()).unwrap_or_default()
    }

    #[test]
    fn the_line_makes_just_the_repository_that_is_missing() {
        let ecr = |region: &str| {
            format!(
                "aws ecr create-repository --registry-id 123456789012 --region {region} --repository-name acme/vpc/aws"
            )
        };
        for (host, region) in [
            ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", "eu-west-1"),
            ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", "cn-north-1"),
            ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
            ("123456789012.dkr-ecr.eu-west-1.on.aws", "eu-west-1"),
        ] {
            assert_eq!(command_for(host, "acme/vpc/aws"), ecr(region));
        }
        assert_eq!(
            command_for("public.ecr.aws", "a1b2c3d4/acme/vpc"),
            "aws ecr-public create-repository --region us-east-1 --repository-name acme/vpc"
        );
        let gcloud = |project: &str| {
            format!(
                "gcloud artifacts repositories create modules --repository-format=docker --location=europe-west1 --project={project}"
            )
        };
        let host = "europe-west1-docker.pkg.dev";
        assert_eq!(command_for(host, "acme/modules/vpc/aws"), gcloud("acme"));
        assert_eq!(command_for(host, "acme.example/infra/modules/vpc"), gcloud("acme.example:infra"));
    }

    #[test]
    fn a_host_that_only_looks_like_one_gets_no_line() {
        for host in [
            "registry.example",
            "123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example",
            "evil.123456789012.dkr.ecr.eu-west-1.amazonaws.com",
            "12345.dkr.ecr.eu-west-1.amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.evil.amazonaws.com",
            "123456789012.dkr.ecr..amazonaws.com",
            "123456789012.dkr.ecr.eu-west-1.on.aws",
            "public.ecr.aws.evil.example",
            "evil.example-docker.pkg.dev",
            "-docker.pkg.dev.evil.example",
        ] {
            assert_eq!(command_for(host, "acme/vpc/aws"), "", "{host}");
        }
        assert_eq!(command_for("europe-docker.pkg.dev", "acme"), "", "nothing that could be made");
    }
}
