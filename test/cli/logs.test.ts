// `townhall logs`: the lines of a file, a pipe or a running local edition, and the lines of one request.
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startProvider, type ScriptedProvider } from '../support/provider.ts';
import { runTownhall, townhall, type Run, type RunResult } from './townhall.ts';

const failedLine = {
  level: 'info',
  time: '2026-11-23T09:00:00.123Z',
  requestId: 'req_1',
  method: 'POST',
  operationId: 'ai.generateText',
  status: 502,
  ms: 12.5,
  model: 'acme/one',
  provider: 'acme',
  code: 'upstream_failed',
  attempts: 'acme/one;upstream_failed',
  providerWords: 'boom \u001B[31m',
  msg: 'request',
};
const otherLine = {
  level: 'error',
  time: '2026-11-23T09:00:01.000Z',
  requestId: 'req_2',
  msg: 'request failed',
};
const log = [JSON.stringify(failedLine), 'Starting Townhall', JSON.stringify(otherLine), ''].join('\n');

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'townhall-logs-'));
  await writeFile(join(folder, 'server.log'), log);
});
afterAll(() => rm(folder, { recursive: true }));

function runLogs(
  words: string[],
  options: { input?: string; env?: Record<string, string> } = {},
): Promise<RunResult> {
  return runTownhall(['logs', ...words], { cwd: folder, ...options });
}

describe('townhall logs of a file or a pipe', () => {
  test('prints the lines of one request unchanged', async () => {
    const { code, screen } = await runLogs(['server.log', '--request', 'req_1']);
    expect([code, screen]).toEqual([0, `${JSON.stringify(failedLine)}\n`]);
  });

  test('refuses to follow a file', async () => {
    const { code, screen } = await runLogs(['server.log', '--follow']);
    expect(code).toBe(2);
    expect(screen).toContain('tail -F server.log | townhall logs -');
  });

  test('says that no line is about the request', async () => {
    const { code, screen } = await runLogs(['server.log', '--request', 'req_9']);
    expect([code, screen]).toEqual([1, 'townhall logs: no line is about req_9.\n']);
  });

  test('reads standard input for -', async () => {
    const { screen } = await runLogs(['-', '--request', 'req_2'], { input: log });
    expect(screen).toBe(`${JSON.stringify(otherLine)}\n`);
  });

  test('prints a readable line without control characters for --pretty', async () => {
    const { screen } = await runLogs(['server.log', '--pretty']);
    expect(screen).toContain(
      '09:00:00.123 info  POST ai.generateText 502 12.5 ms upstream_failed requestId=req_1 model=acme/one',
    );
    expect(screen).toContain('providerWords=boom \\u001b[31m');
    expect(screen).toContain('Starting Townhall');
  });

  test('exits with 1 when no line is about the request', async () => {
    const { code, screen } = await runLogs(['server.log', '--request', 'req_9']);
    expect([code, screen]).toEqual([1, expect.stringContaining('no line is about req_9')]);
  });
});

describe('townhall logs without a running local edition', () => {
  test('names the folder of the data', async () => {
    const { code, screen } = await runLogs([]);
    expect([code, screen]).toEqual([1, expect.stringContaining('No local edition runs with the data at')]);
  });
});

describe('townhall logs of a running local edition', () => {
  let provider: ScriptedProvider;
  let server: Run;
  let url: string;
  beforeAll(async () => {
    provider = await startProvider();
    await writeFile(
      join(folder, 'models.json'),
      provider.modelsFile({ broken: 'status?code=500&message=boom' }),
    );
    await start();
  });
  afterAll(async () => {
    await stop();
    await provider.close();
  });

  async function start(): Promise<void> {
    server = townhall(['start'], {
      cwd: folder,
      env: { PORT: '0', AGENT_PORT: '0', MODELS_FILE: 'models.json', ACME_API_KEY: 'CANARY-key' },
    });
    [, url = ''] = await server.waitFor(/gateway +(http:\/\/\S+)/);
  }

  async function stop(): Promise<void> {
    server.process.kill('SIGINT');
    await server.ended;
  }

  async function callBrokenModel(): Promise<Response> {
    const token = (await readFile(join(folder, 'data/local.token'), 'utf8')).trim();
    return fetch(`${url}/v1/ai/text`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: '{"model": "acme/broken", "prompt": "Hi"}',
    });
  }

  test('shows a failed call by its id with the message of the provider', async () => {
    const response = await callBrokenModel();
    const requestId = response.headers.get('x-request-id') ?? '';
    await response.text();
    const { code, screen } = await runLogs(['--request', requestId]);
    expect(code).toBe(0);
    const lines = screen
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(lines.map((line) => 'requestId' in line && line.requestId)).toEqual(lines.map(() => requestId));
    expect(lines.at(-1)).toMatchObject({
      status: response.status,
      model: 'acme/broken',
      provider: 'acme',
      code: 'upstream_failed',
      attempts: response.headers.get('x-townhall-attempts'),
      providerStatus: 500,
      providerWords: expect.stringContaining('boom'),
    });
    expect(screen).not.toContain('CANARY');
  });

  test('shows lines that the server itself does not print', () => {
    expect(server.screen()).not.toContain('"msg":"request"');
  });

  test('prints new lines until it is stopped with --follow', async () => {
    const follower = townhall(['logs', '--follow', '--pretty'], { cwd: folder });
    await follower.waitFor(/ai\.generateText/);
    await fetch(`${url}/nowhere-at-all`);
    await follower.waitFor(/GET \/nowhere-at-all 404/);
    follower.process.kill('SIGINT');
    expect(await follower.ended).toBe('SIGINT');
  });

  test('shows the usage record of a request whose lines are gone', async () => {
    const response = await callBrokenModel();
    const requestId = response.headers.get('x-request-id') ?? '';
    await response.text();
    await stop();
    await start();
    const token = (await readFile(join(folder, 'data/local.token'), 'utf8')).trim();
    const env = { TOWNHALL_URL: url, TOWNHALL_TOKEN: token };
    const { code, screen } = await runLogs(['--pretty', '--request', requestId], { env });
    expect(code, screen).toBe(0);
    expect(screen).toMatch(
      /model=acme\/broken provider=acme outcome=upstream_failed failure_code=upstream_failed attempts=\d/,
    );
  });
});
