// Seeded random numbers for the fault runs, so that a failing run can be repeated with its seed.

/** Numbers from 0 up to 1 (Lehmer generator), the same for the same seed. */
export function seededRandom(seed: number): () => number {
  let state = seed % 2147483647 || 1;
  return () => (state = (state * 48271) % 2147483647) / 2147483647;
}

/** The seed on the command line, or a new one. Prints it at once, so that a failure can be repeated. */
export function readSeed(): number {
  const seedArgument = process.argv.slice(2).find((argument) => !argument.startsWith('--'));
  const seed = Number(seedArgument ?? (Date.now() % 1_000_000) + 1);
  if (!Number.isSafeInteger(seed) || seed < 1)
    throw new Error('The seed must be a whole number of at least 1.');
  console.log(`seed ${seed}`);
  return seed;
}
