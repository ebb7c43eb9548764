//! Measures the signatures that each cryptographic back end computes and verifies per second, in one run on
//! one core.
#![allow(missing_docs, reason = "criterion makes the functions")]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};

use carnet_security::crypto::{CryptoBackend, PortableBackend};
use carnet_security::keys::EllipticCurve;

fn bench_backend(
    criterion: &mut Criterion,
    name: &str,
    backend: &dyn CryptoBackend,
    curves: &[EllipticCurve],
) {
    for curve in curves {
        let mut group = criterion.benchmark_group(format!("{name} {}", curve.name()));
        group.throughput(Throughput::Elements(1));
        let mut scalar = vec![7; curve.octets()];
        scalar[0] = 1;
        let key = backend.signing_key(*curve, &scalar).expect("a scalar of the curve");
        let input = [5; 96];
        let signature = key.sign(&input).expect("a signature");
        let public = key.public_key();
        let ready = backend.verifying_key(&public).expect("a point of the curve");
        assert!(ready.verify(&input, &signature), "signature of {name} {}", curve.name());
        group.bench_function("sign", |bencher| bencher.iter(|| key.sign(&input)));
        group.bench_function("verify", |bencher| bencher.iter(|| ready.verify(&input, &signature)));
        group.bench_function("verify, new key", |bencher| {
            bencher.iter(|| {
                backend.verifying_key(&public).is_some_and(|ready| ready.verify(&input, &signature))
            });
        });
        group.finish();
    }
}

fn bench_signatures(criterion: &mut Criterion) {
    bench_backend(criterion, "portable", &PortableBackend, &EllipticCurve::ALL);
    #[cfg(feature = "aws-lc-rs")]
    bench_backend(
        criterion,
        "aws-lc-rs",
        &carnet_security::crypto::AwsLc,
        &[EllipticCurve::NistP256, EllipticCurve::NistP384],
    );
}

criterion_group!(benches, bench_signatures);
criterion_main!(benches);
