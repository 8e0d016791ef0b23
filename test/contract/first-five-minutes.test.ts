// The workflow document, run by a tool that knows only the contract, against a real gateway and a
// real agent.
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { townhall } from '../cli/townhall.ts';
import type { Run } from '../cli/townhall.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
let folder: string;
let run: Run;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-arazzo-'));
  run = townhall(['start'], { cwd: folder, env: { PORT: '0', AGENT_PORT: '0' } });
  await run.waitFor(/Ctrl-C ends it/);
});
afterAll(async () => {
  run?.process.kill('SIGTERM');
  await run?.ended;
  await rm(folder, { recursive: true, force: true });
});

test('the first five minutes pass as the contract describes them', { timeout: 180_000 }, async () => {
  const [, gateway] = await run.waitFor(/gateway +(http\S+)/);
  const [, agent] = await run.waitFor(/agent +(http\S+)/);
  const agentToken = (await readFile(join(folder, 'data', 'agent', 'agent.token'), 'utf8')).trim();
  const redocly = join(root, 'node_modules', '@redocly', 'cli', 'bin', 'cli.js');
  const redoclyArguments = [
    'respect',
    'openapi/first-five-minutes.arazzo.yaml',
    '--server',
    `gateway=${gateway}`,
    '--server',
    `agent=${agent}`,
    '--input',
    `agentToken=${agentToken}`,
  ];
  const outcome = await promisify(execFile)(process.execPath, [redocly, ...redoclyArguments], {
    cwd: root,
    env: { ...process.env, REDOCLY_TELEMETRY: 'off', NO_COLOR: '1' },
  }).catch((error: unknown) => error as { stdout: string; stderr: string });
  const screen = `${outcome.stdout}${outcome.stderr}`;
  expect(screen).toMatch(/Workflows: 1 passed, 1 total/);
  expect(screen).toMatch(/Steps: (\d+) passed, \1 total/);
});
