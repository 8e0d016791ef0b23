// Each planted bug must be found. A child process loads the changed source; it begins with the seed
// that found the bug when it was planted, and tries the following seeds if the code has changed since.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { describe, expect, test } from 'vitest';
import { plantedBugs } from './planted-bugs.ts';

const run = promisify(execFile);

async function findBug(name: string, seed: number): Promise<string> {
  const program = new URL('main.ts', import.meta.url).pathname;
  const options = ['--bug', name, '--seed', String(seed), '--schedules', '5000', '--seconds', '80'];
  const { stdout } = await run(process.execPath, [program, ...options]).catch(
    (error: unknown) => error as { stdout: string },
  );
  return stdout;
}

describe('simulation', () => {
  test.each(plantedBugs.map(({ name, seed }) => [name, seed] as const))(
    'finds the planted bug: %s',
    async (name, seed) => {
      const output = await findBug(name, seed);
      console.log(`${name}: ${output.split('\n')[0]}`);
      expect(output).toMatch(/^seed \d+: /);
      // A changed source that throws would prove nothing: a promise of the ledger must be broken.
      expect(output).not.toMatch(/^seed \d+: (?:An unexpected error|A start failed)/);
    },
  );
});
