//! Keys that sign the checksums of providers, made anew for each test.

use pgp::composed::{ArmorOptions, DetachedSignature, KeyType, SecretKeyParamsBuilder, SignedSecretKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::ser::Serialize as _;
use pgp::types::Password;

/// A key for signatures.
pub(crate) struct SigningKey {
    key: SignedSecretKey,
}

impl SigningKey {
    pub(crate) fn generate() -> Self {
        let mut parameters = SecretKeyParamsBuilder::default();
        parameters
            .key_type(KeyType::Ed25519Legacy)
            .can_certify(true)
            .can_sign(true)
            .primary_user_id("A provider <provider@example.com>".into());
        let parameters = parameters.build().expect("parameters of a key");
        Self { key: parameters.generate(rand::thread_rng()).expect("a key") }
    }

    /// What the origin names.
    pub(crate) fn public(&self) -> String {
        self.key.to_public_key().to_armored_string(ArmorOptions::default()).expect("a key is text")
    }

    /// A detached signature, without armour as release tools write it.
    pub(crate) fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let (key, nobody) = (&self.key.primary_key, Password::empty());
        let rng = rand::thread_rng();
        let signature = DetachedSignature::sign_binary_data(rng, key, &nobody, HashAlgorithm::Sha512, bytes);
        signature.and_then(|signature| signature.to_bytes()).expect("a signature")
    }
}
