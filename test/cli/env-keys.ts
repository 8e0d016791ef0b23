// The list of master keys as `townhall env keys` prints it.
import { expect } from 'vitest';
import { townhall } from './townhall.ts';

interface KeyList {
  keys: { kid: string; values: number; current: boolean; setting: string | null }[];
  server: string | null;
  damaged: number;
}

export async function listKeys(cwd: string, env: Record<string, string>): Promise<KeyList> {
  const run = townhall(['env', 'keys', '--json'], { cwd, env });
  expect(await run.ended, run.screen()).toBe(0);
  return JSON.parse(run.screen()) as KeyList;
}
