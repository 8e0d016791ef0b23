// The seed and the number of runs of the fuzz tests. The seed is fixed, so that a test fails only because
// of a change. FUZZ_SEED sets another seed, or draws one for `random`. Seed and runs are printed, so that a
// failure can be repeated.

export function readFuzzSettings(defaultRuns: number): { seed: number; runs: number } {
  const seedText = process.env['FUZZ_SEED'] ?? '490667659';
  const seed = seedText === 'random' ? Math.floor(Math.random() * 2 ** 31) : Number(seedText);
  const runs = Number(process.env['FUZZ_RUNS'] ?? defaultRuns);
  console.log(`fuzz: FUZZ_SEED=${seed} FUZZ_RUNS=${runs}`);
  return { seed, runs };
}
