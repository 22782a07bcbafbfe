//! Checks of keyed rate limits in memory with the crate governor, in a closed loop, for SECONDS.
//!
//!     hotcount-peers-rust PORT memory WIDTH SECONDS KEYS SEED
//!
//! WIDTH threads check keys that are drawn uniformly before the clock starts, at a billion a minute
//! each: every check passes. PORT says nothing. Prints one line of JSON. Exit code: 0, 1 if a check
//! did not pass, 2 on bad usage. loadtest/peers/native.py runs it.

use governor::{Quota, RateLimiter};
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::time::{Duration, Instant};

const WARM: usize = 5;
const DRAWS: usize = 10_007;
const AT_ONCE: usize = 64;

/// Numbers as good as any for the choice of keys.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn draw(keys: u64, seed: u64) -> Vec<String> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..DRAWS).map(|_| format!("k{}", next(&mut state) % keys)).collect()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let parsed = (|| {
        let [_, _, mode, width, seconds, keys, seed] = &words[..] else { return None };
        let width: usize = width.parse().ok()?;
        let seconds: f64 = seconds.parse().ok()?;
        let keys: u64 = keys.parse().ok()?;
        (mode == "memory" && width > 0 && keys > 0).then_some((width, seconds, keys, seed.parse::<u64>().ok()?))
    })();
    let Some((width, seconds, keys, seed)) = parsed else {
        eprintln!("usage: hotcount-peers-rust PORT memory WIDTH SECONDS KEYS SEED");
        std::process::exit(2);
    };
    let quota = Quota::per_minute(NonZeroU32::new(1_000_000_000).unwrap());
    let limiter = RateLimiter::keyed(quota);
    let gate = Barrier::new(width);
    let results: Vec<(u64, f64)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..width)
            .map(|caller| {
                let (limiter, gate) = (&limiter, &gate);
                scope.spawn(move || {
                    let names = draw(keys, seed * 10_000 + caller as u64 + 1);
                    let check = |name: &String| {
                        if limiter.check_key(name).is_err() {
                            eprintln!("a check did not pass");
                            std::process::exit(1);
                        }
                    };
                    names.iter().take(WARM).for_each(check);
                    gate.wait();
                    let start = Instant::now();
                    let end = start + Duration::from_secs_f64(seconds);
                    let mut done = 0;
                    // The clock is looked at once in a while: it would cost as much as a check.
                    while Instant::now() < end {
                        for _ in 0..AT_ONCE {
                            check(&names[done % DRAWS]);
                            done += 1;
                        }
                    }
                    (done as u64, start.elapsed().as_secs_f64())
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let checks: u64 = results.iter().map(|(done, _)| done).sum();
    let took = results.iter().map(|(_, took)| *took).fold(0.0, f64::max);
    println!(
        "{{\"adds\": {checks}, \"warm_adds\": {}, \"seconds\": {took}}}",
        WARM * width
    );
}
