// The list of master keys as `townhall env keys` prints it.
import { expect } from 'vitest';
import { runTownhall } from './townhall.ts';

interface KeyList {
  keys: { kid: string; values: number; current: boolean; setting: string | null }[];
  server: string | null;
  damaged: number;
}

export async function listKeys(cwd: string, env: Record<string, string>): Promise<KeyList> {
  const { code, screen } = await runTownhall(['env', 'keys', '--json'], { cwd, env });
  expect(code, screen).toBe(0);
  return JSON.parse(screen) as KeyList;
}
