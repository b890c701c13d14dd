// Solves the puzzles of a sign-up form: for the number n of each, the first nonce for which SHA-256(digest, n, nonce)
// begins with `bits` zeros; n and the nonce have four bytes. A trial decides who hashes: without https there is no
// crypto.subtle, and without a compiler for JavaScript, as in hardened browsers, it is much faster.
"use strict";

const TRIAL = 50; // milliseconds for each way to hash
const BATCH = 256; // nonces

// -- SHA-256 (FIPS 180-4) of one block in plain JavaScript ----------------------------------------

const primes = [2];
for (let n = 3; primes.length < 64; n += 2) if (primes.every((p) => n % p)) primes.push(n);
const fraction = (root) => (root % 1) * 2 ** 32;
const K = Int32Array.from(primes, (p) => fraction(Math.cbrt(p)));
const START = Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)));
const W = new Int32Array(64); // of which the first 16 are the block

// Returns the first word of the hash of the block with this nonce (6.2.2).
function hash(nonce) {
  W[9] = nonce;
  for (let t = 16; t < 64; t++) {
    const x = W[t - 15];
    const y = W[t - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    W[t] = (W[t - 16] + s0 + W[t - 7] + s1) | 0;
  }
  let a = START[0], b = START[1], c = START[2], d = START[3], e = START[4], f = START[5], g = START[6], h = START[7];
  for (let t = 0; t < 64; t++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const one = (h + s1 + ((e & f) ^ (~e & g)) + K[t] + W[t]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const two = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    (h = g), (g = f), (f = e), (e = (d + one) | 0), (d = c), (c = b), (b = a), (a = (one + two) | 0);
  }
  return (START[0] + a) | 0;
}

// -- two ways to hash a batch of nonces; the input is the digest and the number of the puzzle, as words --

function hashPlain(input, nonce) {
  W.set([...input, 0, 0x80000000, 0, 0, 0, 0, 320]); // 6.2.1: the length in bits stands last
  return new Int32Array(BATCH).map((_, i) => hash(nonce + i));
}

async function hashSubtle(input, nonce) {
  const blocks = Array.from({ length: BATCH }, (_, i) => {
    const block = new DataView(new ArrayBuffer(40));
    [...input, nonce + i].forEach((word, at) => block.setUint32(4 * at, word));
    return crypto.subtle.digest("SHA-256", block);
  });
  return (await Promise.all(blocks)).map((each) => new DataView(each).getUint32(0));
}

// -- the search -------------------------------------------------------------------------------------

onmessage = async ({ data: { digest, puzzles, bits } }) => {
  const words = digest.match(/.{8}/g).map((each) => parseInt(each, 16));
  const untried = crypto.subtle ? [hashSubtle, hashPlain] : [hashPlain];
  const speeds = new Map();
  const nonces = [];
  let nonce = 0;
  while (nonces.length < puzzles) {
    const way = untried.pop() ?? [...speeds.keys()].reduce((a, b) => (speeds.get(a) > speeds.get(b) ? a : b));
    const began = performance.now();
    let batches = 0;
    for (; nonces.length < puzzles && performance.now() < began + TRIAL; batches++) {
      const hashes = await way([...words, nonces.length], nonce);
      const found = hashes.findIndex((each) => each >>> (32 - bits) === 0);
      if (found >= 0) nonces.push(nonce + found);
      nonce = found >= 0 ? 0 : nonce + BATCH;
    }
    speeds.set(way, batches / (performance.now() - began));
  }
  postMessage(nonces.join(" "));
};
