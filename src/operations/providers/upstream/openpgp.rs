//! Whether a detached `OpenPGP` signature (RFC 9580) is by one of some keys: `SHA256SUMS.sig` of a provider.
//!
//! The packets and the cryptography are the crate `pgp`'s; which key and which signature count is said here, and is what OpenTofu says. A
//! key counts that the origin names, with those below it that it has signed for signing. One that was revoked does not. One that has
//! expired does, as it does for clients: releases of old are signed by keys of old. What is weak does not count: MD5, SHA-1 and RIPEMD-160 over
//! the list, DSA, and RSA of less than 2048 bits. An origin decides how much there is to compute, so all of it has bounds.

use std::time::SystemTime;

use pgp::composed::{Deserializable as _, DetachedSignature, SignedPublicKey, SignedPublicSubKey};
use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::{Signature, SignatureType};
use pgp::ser::Serialize;
use pgp::types::{Duration, Fingerprint, KeyDetails, PublicParams, Timestamp, VerifyingKey};

/// More keys than a provider ever had, and more signatures than one has reason for.
const MAX_KEYS: usize = 32;
const MAX_SIGNATURES: usize = 8;
/// Signatures of a key over itself or one below it that are looked at.
const MAX_BINDINGS: usize = 8;
/// RSA of less is refused. A key of 2048 bits may have a number that begins with a zero.
const LEAST_RSA_BITS: u16 = 2047;

/// Why a signature is not good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignatureError {
    /// A key is none.
    #[error("a key that its origin names for the signature of its checksums cannot be read")]
    Key,
    /// The bytes are no signature.
    #[error("the signature of its checksums cannot be read")]
    Unreadable,
    /// It is by none of the keys, or over other bytes.
    #[error("its checksums are not signed by a key that its origin names")]
    Wrong,
}

/// The key that a signature is by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Signer {
    /// Its fingerprint.
    pub(super) key: String,
    /// Whether its time, or that of the signature, is over.
    pub(super) is_expired: bool,
}

/// Checks a signature over `data`. Each of the keys is armoured; the signature may be.
pub(super) fn verify(
    armored_keys: &[String],
    data: &[u8],
    signature: &[u8],
) -> Result<Signer, SignatureError> {
    let signatures = read_signatures(signature)?;
    let mut keys = Vec::new();
    for armored in armored_keys.iter().take(MAX_KEYS) {
        let (read, _) = SignedPublicKey::from_string_many(armored).map_err(|_| SignatureError::Key)?;
        for key in read.take(MAX_KEYS) {
            keys.push(key.map_err(|_| SignatureError::Key)?);
        }
    }
    let now = SystemTime::now();
    for signature in signatures.iter().filter(|signature| is_over_a_file(signature)) {
        for key in keys.iter().take(MAX_KEYS) {
            if let Some(signer) = signed_by(key, signature, data, now) {
                return Ok(signer);
            }
        }
    }
    Err(SignatureError::Wrong)
}

/// The signatures in a file, of which there is one as a rule.
fn read_signatures(bytes: &[u8]) -> Result<Vec<Signature>, SignatureError> {
    let unreadable = |_| SignatureError::Unreadable;
    // A packet begins with its highest bit set, and so with no letter.
    let read = if bytes.first().is_some_and(|byte| byte & 0x80 != 0) {
        DetachedSignature::from_bytes_many(bytes).map_err(unreadable)?
    } else {
        DetachedSignature::from_armor_many_buf(bytes).map_err(unreadable)?.0
    };
    let read: Result<Vec<_>, _> =
        read.take(MAX_SIGNATURES).map(|read| read.map(|read| read.signature)).collect();
    read.map_err(unreadable)
        .and_then(|read| if read.is_empty() { Err(SignatureError::Unreadable) } else { Ok(read) })
}

/// Whether it is of a kind that signs files, with a hash that nobody can find a second file for.
fn is_over_a_file(signature: &Signature) -> bool {
    let is_strong = matches!(
        signature.hash_alg(),
        Some(
            HashAlgorithm::Sha256
                | HashAlgorithm::Sha384
                | HashAlgorithm::Sha512
                | HashAlgorithm::Sha224
                | HashAlgorithm::Sha3_256
                | HashAlgorithm::Sha3_512
        )
    );
    is_strong && matches!(signature.typ(), Some(SignatureType::Binary | SignatureType::Text))
}

/// Who of a key and those below it a signature is by.
fn signed_by(key: &SignedPublicKey, signature: &Signature, data: &[u8], now: SystemTime) -> Option<Signer> {
    let primary = &key.primary_key;
    let details = &key.details;
    let is_revoked = |revocation: &Signature| revocation.verify_key(primary).is_ok();
    if !is_usable(primary) || details.revocation_signatures.iter().take(MAX_BINDINGS).any(is_revoked) {
        return None;
    }
    let signer = |key: Fingerprint, is_expired: bool| Signer { key: key.to_string(), is_expired };
    let over = |from: Timestamp, after: Option<Duration>| is_over(from, after, now);
    let is_signature_over =
        signature.created().is_some_and(|created| over(created, signature.signature_expiration_time()));
    let is_primary_over = || {
        let certifications = details.users.iter().flat_map(|user| &user.signatures);
        let own = certifications.chain(&details.direct_signatures).take(MAX_BINDINGS);
        newest(own).is_some_and(|it| over(primary.created_at(), it.key_expiration_time()))
    };
    if is_by(primary, signature, data) {
        return Some(signer(primary.fingerprint(), is_signature_over || is_primary_over()));
    }
    key.public_subkeys.iter().take(MAX_KEYS).find_map(|below| {
        let is_candidate = is_usable(&below.key) && is_by(&below.key, signature, data);
        let binding = is_candidate.then(|| signing_bond(primary, below)).flatten()?;
        let is_key_over = over(below.key.created_at(), binding.key_expiration_time());
        Some(signer(below.key.fingerprint(), is_signature_over || is_key_over || is_primary_over()))
    })
}

fn is_by(key: &impl VerifyingKey, signature: &Signature, data: &[u8]) -> bool {
    signature.verify(key, data).is_ok()
}

/// Whether a key is of a kind that signs, and not weak. How long the others take to compute is for whoever made them to say.
fn is_usable(key: &impl KeyDetails) -> bool {
    match key.public_params() {
        // As it is written, a number begins with how many bits it has.
        PublicParams::RSA(parameters) => match parameters.to_bytes().as_deref() {
            Ok(&[high, low, ..]) => u16::from_be_bytes([high, low]) >= LEAST_RSA_BITS,
            _ => false,
        },
        PublicParams::ECDSA(_)
        | PublicParams::EdDSALegacy(_)
        | PublicParams::Ed25519(_)
        | PublicParams::Ed448(_) => true,
        _ => false,
    }
}

/// The newest word of a key that one below it signs for it, if the one below agrees and it was not taken back.
fn signing_bond<'a>(
    primary: &(impl VerifyingKey + Serialize),
    below: &'a SignedPublicSubKey,
) -> Option<&'a Signature> {
    let valid = || {
        let read = below.signatures.iter().take(MAX_BINDINGS);
        read.filter(|signature| signature.verify_subkey_binding(primary, &below.key).is_ok())
    };
    let of = |kind: SignatureType| valid().filter(move |signature| signature.typ() == Some(kind));
    if of(SignatureType::SubkeyRevocation).next().is_some() {
        return None;
    }
    newest(of(SignatureType::SubkeyBinding)).filter(|binding| {
        let back = binding.embedded_signature();
        binding.key_flags().sign()
            && back.is_some_and(|back| back.verify_primary_key_binding(&below.key, primary).is_ok())
    })
}

fn newest<'a>(signatures: impl Iterator<Item = &'a Signature>) -> Option<&'a Signature> {
    signatures.max_by_key(|signature| signature.created().map(Timestamp::as_secs))
}

/// Whether a time that begins then is over; without a length, or with none, it never is.
fn is_over(from: Timestamp, after: Option<Duration>, now: SystemTime) -> bool {
    let after = after.map(std::time::Duration::from).filter(|after| !after.is_zero());
    after.is_some_and(|after| SystemTime::from(from).checked_add(after).is_some_and(|end| end < now))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    /// What is signed by all of these, each key with its signature, as `gpg` writes them.
    const SUMS: &[u8] = b"aa  file\n";

    const ED25519: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawI0QxYJKwYBBAHaRw8BAQdAdnIB62Exl6NuMfqDsJms55ZsLHqDC6QH4DWr
TKES/Wu0E2VkMjU1MTlAZXhhbXBsZS5jb22IkAQTFggAOBYhBLwbu+gERXTyrlfo
VoSNB5AMSUmcBQJrAjRDAhsDBQsJCAcCBhUKCQgLAgQWAgMBAh4BAheAAAoJEISN
B5AMSUmctHQA/3CHmSUwx0t2oz8ed7XHNBRJEBDB1MJKVLkXJky8GKHyAQDwdTvI
20qGr5xkBZhDDsunFR5KpiZWBmhJWOKoBfrECQ==
=I/Ig
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iIoEABYIADIWIQS8G7voBEV08q5X6FaEjQeQDElJnAUCawI0RBQcZWQyNTUxOUBl
eGFtcGxlLmNvbQAKCRCEjQeQDElJnOM7AP4yUpxu+I8daqS7cwaj6R8aeKXMRr3S
r9hdnnZsRvTYugEA9xG7cYziT/uQyLlVJ0xVacFkO0tLPzbVDMrfTiM2oA4=
=UOS7
-----END PGP SIGNATURE-----",
    ];

    const NISTP256: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mFIEawI0QxMIKoZIzj0DAQcCAwQEWF+sG5TH41wtKg7jjPGC6Dho5D1cWk0EISq7
yYe73grZK8hVF22vP6RLyblr0L2e5zrBF/B03Zy5+83tfZWmtBRuaXN0cDI1NkBl
eGFtcGxlLmNvbYiQBBMTCAA4FiEEkoL2oh2IjeU6CrUHJ/wrSq3JGJ8FAmsCNEMC
GwMFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQJ/wrSq3JGJ98DwEAt3gPQYue
ZS/CReR3bKcxJpW3xX9Fb0UByIzl/+RgrbABAIuvD1AyK6f/9synvmmVNaXErjPg
6wed+s8TWqqmcfBD
=fi03
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iIsEABMIADMWIQSSgvaiHYiN5ToKtQcn/CtKrckYnwUCawI0RBUcbmlzdHAyNTZA
ZXhhbXBsZS5jb20ACgkQJ/wrSq3JGJ9iQgD/eDRd3ybKbn1ZvFMq6AbKTDoQjj8n
dkHMGmeusvw2ykcBAIMUTA4RLlnhgU/aWow45myMgTolOcZgE41ThpuNRGxI
=F8Sn
-----END PGP SIGNATURE-----",
    ];

    const RSA3072: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mQGNBGsCNEEBDAC+RafH0EJQP+22DpWDbvYhoaVlK1T4c/izD2amWB0Hk1twacGr
LVlZWqoOs0NG0TztCT/hGFMFAZ6y0oteSvDRFvdropGqexyeygTR44mlT9us+GcV
LMz5T7wK4779EWdQSFkqPUHvpffa1f0qtcEWa/p7BF8xUVvGI1zWIqQwrgzJFy5s
D3aWc5OeyRBxWBZPrrNjhQ4nVYZXeWRXBg1MgaBSKo6UgS6tSRd55YaX1fGr729j
WQetYXjOtXCC1wicd69YxabHIU5h0PsTXmWVqTTZUhCxyToMP6ggSRffQcpCpwYo
qv4gGqOUvpBYH5JD6vKoELNwGVHKNglzP3jCAMIQ4Qp6R/vbAPdJQ2mtL0jzOVMY
d2w2PWpxN1HJ7WIpJdz4AN5JgWfo8Q6ZN+iIYs9dN+yt6LqpRnLOk/yu8Y71UjlM
5im+AzyoG9wPW4KnKaDe/ukBMyM/GNphl6XYh0n8p0e/9OCuwJovkeHTID6u7azR
vAIDTP3JJCtb8ecAEQEAAbQTcnNhMzA3MkBleGFtcGxlLmNvbYkBzgQTAQoAOBYh
BAhow7kHytHw8b+nkc6Pt9SZ4HVcBQJrAjRBAhsDBQsJCAcCBhUKCQgLAgQWAgMB
Ah4BAheAAAoJEM6Pt9SZ4HVcYVYL/0XViOSennmiSstuujsLM1dJksNCVeML41ZY
sAoABMUQcacSm6X6hGMEccb4j+GBjaf+UkMwj+NhnMhuEtfK97n4UxRR7COpLm9R
5STktltNT9aZHciineG8UyvEQy/5SYQJrjRahnullXW2HVZL4h5rFbxardZWUZ/i
BKfiNI1LWP2Wt2EoK823fMG8EN4wtZ4H+btCnscWhETL3fLzzehsgNvn8UenItQT
pnsui02sHM+7Mxg6xE80XCr2Jd5dmFqsuV4Y3pm2Gk7W3nfquoOjixBIz8hPVvMu
hXjdfBwIOJGSXNtezVS2qlNEji+IG5Gg1dp7ZnORvFNjqYtDituF5D74+6uVBMae
AaLZUAbax+WTgCFqkdMshzjnKEbI4EG3FmIrUMgvHVCGbHuB6NvIq2YG9g6e/L0q
ioWlBwxxUJaV5QQ334O/f//uulIO1fnokT30DnX2i+VT4Wq65wcq+0dPXy+iYPJS
D8IOAidys/R9gqsj5105rywmFEsXXg==
=W/WF
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iQHIBAABCgAyFiEECGjDuQfK0fDxv6eRzo+31JngdVwFAmsCNEMUHHJzYTMwNzJA
ZXhhbXBsZS5jb20ACgkQzo+31JngdVy/pQwAmIpJWXGUTiWwm+0ilVf3Li4axQHF
1JHoNXKQPvu9Q8oSSMM5W/02OqCcemsYx2y0LTv/fAW3IWG/zBu0Q/OQlV9RzrHI
JCUKT5ZGW8x6SnwtWehE4oLuwNH38UNLRXmYgjJsgI6xCMSk1AxoqksJtdtPoKbi
2O8G68q/zjf/NsVB3gIKo7J4qFDWzU8b8DCmZ18cR0Vqg8yJFOaeaoNG6o4vsTdz
kgS71S/hVhS7gbz2tBYs1z4RFcJRy7cwmdin82Hji4jR73gBHyIJgHjEAQMo4LNJ
Cmvq4/gmOl0TC8leijhPLeqDcl32j4qwIntiMJ24La5IqaYmyMwkpk/Dy+zJXOK/
shYxZ3ZRaLKUvC9k6Y6KrURPQ1G0CHQntJpvdvswk6QhQT2h6VnETFNJZYhwkaR6
SkEVpG3rBZhapszTTowMNvubUPp0yDoHHoMmvht3bwLo2fAscbZ7n8JXcpcwXGuf
l5/5nh+lY84/M3NXc92yChJskiZdblJOTLZp
=OtcD
-----END PGP SIGNATURE-----",
    ];

    const SUBKEY: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawJPwhYJKwYBBAHaRw8BAQdAj3u7pxBFTD+h09e7SqTSMs6TeBVYir1uiT0m
yK1kgZi0EnN1YmtleUBleGFtcGxlLmNvbYiQBBMWCAA4FiEESxfkE0P7otRlmh7J
hzPXXohNb8YFAmsCT8ICGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQhzPX
XohNb8YvZQD/R8zPXLVHh9OcG2RAegjgALXP0w+bnYxvNoTgrA67j64BAPyOgaYf
DnwaAXUDEEWW2uL6PxH5+YyOk8GH3q4k2yAJuDMEawJPwhYJKwYBBAHaRw8BAQdA
nVR/y+tZqK/LpRBfMdoIGy/ovF7658KE4WvpVsvLrauI7wQYFggAIBYhBEsX5BND
+6LUZZoeyYcz116ITW/GBQJrAk/CAhsCAIEJEIcz116ITW/GdiAEGRYIAB0WIQRg
7Y7/6q87//tK0kj2IqauqwSuoAUCawJPwgAKCRD2IqauqwSuoG//AQC/bWCMFTA4
I2oTGxUuhtzLwuvg1Fzp2Aro+08+Aazp+QD8CPh/RLPh6hHioiY7DBcNtNzGctde
1tvJjtpl9HOMxgwuQwD/T1wWcpa//48cdwxy89tZUrWTJjghRDsBPTlmS4aPy+kB
AKxFS9iKaBat68rWotbaX084T0QabY1K4ezvqai7Kk0A
=hOmp
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iIkEABYKADEWIQRg7Y7/6q87//tK0kj2IqauqwSuoAUCawJPwhMcc3Via2V5QGV4
YW1wbGUuY29tAAoJEPYipq6rBK6gSKwBAO7rc9nx3S3VqKW/AuqiGfGrhf1+PKd6
4KK7YhfnMsuVAPwIjZV4iY1iZljEeN0onpjZNw64oUwUFN5aH4B2cQXoCw==
=E3e/
-----END PGP SIGNATURE-----",
    ];

    const EXPIRED: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEXgvhABYJKwYBBAHaRw8BAQdAqY3KZcB8bsawbb2uZKIBl0h+70q8K9YAi6lU
9yjA6ji0E2V4cGlyZWRAZXhhbXBsZS5jb22IlgQTFggAPhYhBAkCjVRpcyPM/X7j
kIRDutmcdL5NBQJeC+EAAhsDBQkB4TOABQsJCAcCBhUKCQgLAgQWAgMBAh4BAheA
AAoJEIRDutmcdL5NDGkBAJqcNfW/ipK3eSX6smIEWzzJwd3stj1TEUutEfNEwrZz
AQDZ+EaZmmXEoDGgrsOGJjWNjnO6OB0yBjSywzts73FqDg==
=B92i
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iIoEABYKADIWIQQJAo1UaXMjzP1+45CEQ7rZnHS+TQUCXtRFABQcZXhwaXJlZEBl
eGFtcGxlLmNvbQAKCRCEQ7rZnHS+TSC8AP0f/1oflMcL3TfSBkT2iaVOceYT/Vim
UCFU+GMusassFAEAvB2HzI/QAKNWxAemgO+axSPS6DBfdJCVRlgT7lSedAI=
=wWYt
-----END PGP SIGNATURE-----",
    ];

    const REVOKED: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mDMEawJPwhYJKwYBBAHaRw8BAQdAmxPKT5tIblSTMYEG3O6UF6wTx7OtIjpVjmCB
b+zW7ceIeAQgFggAIBYhBFFJ9csp5PXxmsos/amw5h2M7w0KBQJrAk/CAh0AAAoJ
EKmw5h2M7w0KLUYA/AgID1BAUxXca4gIPBpHaZFXPuf7k0C3Rfye72ehLUPuAP4s
lCxN3JyDP634fJexUJWrty7Cc/WbEa8Nml3zKIKQBrQTcmV2b2tlZEBleGFtcGxl
LmNvbYiQBBMWCAA4FiEEUUn1yynk9fGayiz9qbDmHYzvDQoFAmsCT8ICGwMFCwkI
BwIGFQoJCAsCBBYCAwECHgECF4AACgkQqbDmHYzvDQo9xgD8ChliFbemahb1i7zp
Z/ZOJ+ulFH3QdZpMoBbJq4xtQ54A/iSDGVHZjiMj3c4tzpn2mgE4pk/1ctGo+uA3
Y2kSIPgF
=JeJo
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iIoEABYKADIWIQRRSfXLKeT18ZrKLP2psOYdjO8NCgUCawJPwhQccmV2b2tlZEBl
eGFtcGxlLmNvbQAKCRCpsOYdjO8NCm5iAQDn0kfRWMJAMTzuDU6IsEltlVQoCIr4
dkrQyDnu9V4ZEgD+NT8qgoIRLmn6wa2X18gZWv5btGAJgKcFfq0O1FL3gw8=
=rbB1
-----END PGP SIGNATURE-----",
    ];

    const WEAK: [&str; 2] = [
        "\
-----BEGIN PGP PUBLIC KEY BLOCK-----

mQENBGsCT8IBCAC7+YQ/SYOBuqQ9hHya4juTC/aXn/6LuogwKMb5KfJ+6gV0sjLK
rryjnOE7YaHf+Bfo5CJAqBMGj7GH6ZsPDZzx8cc65+/mx/lB96js196zyvFr0R71
NiveMr/Ox+4Eu/sGVRTDmWEQ+ESYGLSuE1IVVvF684poY8//IOn74lHmkyE2WwFQ
JFVg0bJSpUhqcvArQc3tnLhw/pzpAP9oA1/o69Kp8wpm/PZxokGDlTW8eNmWYLwt
E0lid5f2YOPafQL25IHCLIY1Z4Btk/6WIFhNbj0SKCQRGf0ZoBvYg06Bq4yx9LYQ
kr+Ggbw77elBOwrnp7PlH2ybrW5Tg1GSY+JBABEBAAG0EHdlYWtAZXhhbXBsZS5j
b22JAU4EEwEKADgWIQQsKsaeZ2R0Dy3M9W8mk55tMwcvSAUCawJPwgIbAwULCQgH
AgYVCgkICwIEFgIDAQIeAQIXgAAKCRAmk55tMwcvSKjOCACLrH9o9/CwNV6gYMPH
TsHdYqjaacdg3ufzTjxQitoOqZ1isFe+be06bcWL6YX7JbxnfQEvlpMHXifpXs3n
YYZklTvt4nO47KPStlwu8c+67l+Gk8Oa70nrMhyJx/1IU1oMiHNa7WXD9h9MU4S6
rCdX1HgX4Qg7wQyCM3oSUmgovWuFKC12siZQx6lXZCOdoYhLoSMi9ew81RcZ4ItH
vRB94EQeRHWzhL0u4ylBOODN/dKEfxV8p2t/Ks7+xcyS66OKu6bEEcSbeHVc2/Jp
7RKycIfrTJGgDZr70tEHt8dbD9oJX+hw/TCzfiyxB7orgX5Oim+Ax8NGoGM0i1nn
bd14
=EHsF
-----END PGP PUBLIC KEY BLOCK-----",
        "\
-----BEGIN PGP SIGNATURE-----

iQFFBAABAgAvFiEELCrGnmdkdA8tzPVvJpOebTMHL0gFAmsCT8MRHHdlYWtAZXhh
bXBsZS5jb20ACgkQJpOebTMHL0i/NggAgDNYQP+64MuUX4bxOhDpeIchLpVoDyPW
sf+uoOADM5ikHB1FleXZvVOT5Qz5buAclmwAM2S3R4lLQWTXR9/lBrqMRVnm657y
j92GGRdFGa1iYGj0zd20i3xqFvmR9+wvnXEDM/xGdkDLhZghvyDnVrPkhFE74ldL
pKzlCpZp2M4xAxvtpaz8AfDhyb6nfSP/2pGEdXzFGI20Phb6Jx993Yrj74PoDtSp
WGVhKHavutkt0QQGhGdVJKZadr87l1d0MIrlCFosMxchL71E5m4KkCE7+GyqsJKy
GpBotP15VxphOHuBzOUgqsp64uB1Etbgcvvhq8k0tHV0hbWKtBb2oA==
=27oj
-----END PGP SIGNATURE-----",
    ];

    const GOOD: [[&str; 2]; 4] = [ED25519, NISTP256, RSA3072, SUBKEY];

    fn check(key: &str, data: &[u8], signature: &[u8]) -> Result<Signer, SignatureError> {
        verify(&[key.to_owned()], data, signature)
    }

    /// Without armour.
    fn binary(armored: &str) -> Vec<u8> {
        let lines = armored.lines().skip_while(|line| !line.is_empty());
        let body: String = lines.take_while(|line| !line.starts_with(['=', '-'])).collect();
        STANDARD.decode(body).unwrap()
    }

    #[test]
    fn a_signature_is_good_for_its_key_and_its_bytes_alone() {
        for (number, [key, signature]) in GOOD.into_iter().enumerate() {
            for signature in [signature.as_bytes().to_vec(), binary(signature)] {
                assert!(!check(key, SUMS, &signature).unwrap().is_expired, "{number}");
                assert_eq!(check(key, b"aa  other\n", &signature), Err(SignatureError::Wrong), "{number}");
                let [other, _] = GOOD[(number + 1) % GOOD.len()];
                assert_eq!(check(other, SUMS, &signature), Err(SignatureError::Wrong), "{number}");
            }
        }
        let keys = GOOD.map(|[key, _]| key.to_owned());
        for [_, signature] in GOOD {
            assert!(verify(&keys, SUMS, signature.as_bytes()).is_ok());
        }
        assert_eq!(verify(&[], SUMS, ED25519[1].as_bytes()), Err(SignatureError::Wrong));
    }

    #[test]
    fn an_expired_key_counts_and_is_told_of() {
        assert!(check(EXPIRED[0], SUMS, EXPIRED[1].as_bytes()).unwrap().is_expired);
    }

    #[test]
    fn a_revoked_key_does_not_count() {
        assert_eq!(check(REVOKED[0], SUMS, REVOKED[1].as_bytes()), Err(SignatureError::Wrong));
    }

    #[test]
    fn a_weak_hash_does_not_count() {
        assert_eq!(check(WEAK[0], SUMS, WEAK[1].as_bytes()), Err(SignatureError::Wrong));
    }

    #[test]
    fn a_key_below_another_counts_by_that_ones_word_alone() {
        let (mut key, _) = SignedPublicKey::from_string(SUBKEY[0]).unwrap();
        let signature = &read_signatures(SUBKEY[1].as_bytes()).unwrap()[0];
        let signed = |key: &SignedPublicKey| signed_by(key, signature, SUMS, SystemTime::now());
        assert_eq!(signed(&key).unwrap().key, key.public_subkeys[0].key.fingerprint().to_string());
        // Put below a key that never said so.
        let (stranger, _) = SignedPublicKey::from_string(ED25519[0]).unwrap();
        let with_other = SignedPublicKey { public_subkeys: key.public_subkeys.clone(), ..stranger };
        assert_eq!(signed(&with_other), None);
        key.public_subkeys[0].signatures.clear();
        assert_eq!(signed(&key), None);
    }

    #[test]
    fn what_is_no_signature_is_never_a_good_one() {
        for junk in [&b""[..], b"junk", b"-----BEGIN PGP SIGNATURE-----", &[0xff; 64], &[0x88, 0x10]] {
            assert_eq!(check(ED25519[0], SUMS, junk), Err(SignatureError::Unreadable), "{junk:?}");
        }
        let key = ED25519[0].as_bytes();
        assert_eq!(check(ED25519[0], SUMS, key), Err(SignatureError::Unreadable));
        for junk in ["", "junk", "-----BEGIN PGP PUBLIC KEY BLOCK-----"] {
            assert_eq!(check(junk, SUMS, ED25519[1].as_bytes()), Err(SignatureError::Key), "{junk:?}");
        }
    }

    #[test]
    fn what_is_signed_cannot_be_changed() {
        for [key, signature] in GOOD {
            let bytes = binary(signature);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                // What only tells where to look may be anything: how long the packet is said to be, and what is not hashed.
                let read = check(key, SUMS, &changed);
                let is_same = read_signatures(&changed).is_ok_and(|read| {
                    let known = &read_signatures(&bytes).unwrap()[0];
                    read[0].signature() == known.signature() && read[0].created() == known.created()
                });
                assert!(read.is_err() || is_same, "byte {at}");
            }
            for end in 0..bytes.len() {
                assert!(check(key, SUMS, &bytes[..end]).is_err(), "{end} bytes");
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let key = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert!(verify(&[key], SUMS, ED25519[1].as_bytes()).is_err());
            prop_assert!(check(ED25519[0], SUMS, &bytes).is_err());
            let armored = format!(
                "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n-----END PGP PUBLIC KEY BLOCK-----\n",
                STANDARD.encode(&bytes)
            );
            prop_assert!(check(&armored, SUMS, ED25519[1].as_bytes()).is_err());
        }
    }
}
