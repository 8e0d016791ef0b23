// Commands such as `townhall users list`: their requests, the credential they choose, and their
// tables.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { renderTable } from '../../src/cli/call/table.ts';
import { listen } from '../support/local-server.ts';
import { runInProcess } from './in-process.ts';

const keyPage = {
  items: [
    {
      token_id: 'tok_1',
      name: 'ci',
      last4: 'FkUH',
      credits_spent: 1_200,
      credit_cap: null,
      expires_at: '2026-12-23T08:50:10.123Z',
      last_used_at: null,
    },
  ],
  next_cursor: 'page-2',
};

let url = '';
const requests: IncomingMessage[] = [];
const bodies: string[] = [];
const server = createServer((request, response) => void answer(request, response));
async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  requests.push(request);
  bodies.push(await text(request));
  const { authorization } = request.headers;
  const isStrict = request.url?.startsWith('/strict/') === true;
  const isAllowed = authorization !== 'Bearer refused' && (authorization !== undefined || !isStrict);
  const refusedStatus = authorization === undefined ? 401 : 403;
  response.writeHead(isAllowed ? 200 : refusedStatus, { 'content-type': 'application/json' });
  const error = { code: 'forbidden_for_identity', message: 'Not you.', param: null, request_id: 'req_1' };
  response.end(`${JSON.stringify(isAllowed ? keyPage : { error })}\n`);
}
beforeAll(async () => {
  ({ url } = await listen(server));
});
afterAll(() => void server.close());

const tokens = { TOWNHALL_TOKEN: 'user', TOWNHALL_ADMIN_TOKEN: 'admin', TOWNHALL_AGENT_TOKEN: 'agent' };
const lastRequest = (): IncomingMessage => requests.at(-1) as IncomingMessage;

describe('townhall keys list', () => {
  test('prints a table and the cursor of the next page', async () => {
    const { code, output, errors } = await runInProcess(['keys', 'list'], { TOWNHALL_URL: url });
    expect(code).toBe(0);
    expect(output.map(stripVTControlCharacters)).toEqual([
      'TOKEN ID  NAME  LAST4  CREDITS SPENT  CREDIT CAP  EXPIRES AT            LAST USED AT',
      'tok_1     ci    FkUH           1,200  -           2026-12-23T08:50:10Z  -',
    ]);
    expect(errors).toEqual(['There is more: cursor=page-2']);
  });

  test('prints the answer for --json', async () => {
    const { output } = await runInProcess(['keys', 'list', '--json'], { TOWNHALL_URL: url });
    expect(output).toEqual([JSON.stringify(keyPage)]);
  });

  test('prints what --jq selects', async () => {
    const { output } = await runInProcess(['keys', 'list', '--jq', '.items[].name'], { TOWNHALL_URL: url });
    expect(output).toEqual(['ci']);
  });

  test('prints an error as a line for --jq', async () => {
    const env = { TOWNHALL_URL: url, TOWNHALL_TOKEN: 'refused' };
    const { code, output, errors } = await runInProcess(['keys', 'list', '--jq', '.items[]'], env);
    expect([code, output]).toEqual([1, []]);
    expect(errors[0]).toContain('403 forbidden_for_identity');
  });

  test('exits with 1 and the code of an error', async () => {
    const env = { TOWNHALL_URL: url, TOWNHALL_TOKEN: 'refused' };
    const { code, errors } = await runInProcess(['keys', 'list'], env);
    expect([code, errors[0]]).toEqual([1, 'townhall: 403 forbidden_for_identity: Not you. [req_1]']);
  });
});

describe('the request', () => {
  test('has the members that were typed', async () => {
    await runInProcess(['users', 'list', 'bureau_id=shop', 'limit=5'], { TOWNHALL_URL: url });
    expect(lastRequest().url).toBe('/v1/accounts/users?bureau_id=shop&limit=5');
  });

  test('goes to --url before TOWNHALL_URL', async () => {
    await runInProcess(['models', 'list', '--url', url], { TOWNHALL_URL: 'http://127.0.0.1:9' });
    expect(lastRequest().url).toBe('/v1/ai/models');
  });

  test('refuses a TOWNHALL_URL that is no address', async () => {
    await expect(runInProcess(['keys', 'list'], { TOWNHALL_URL: 'localhost' })).rejects.toThrow(
      /"localhost" is not an address/,
    );
  });
});

describe('the credential', () => {
  test.each([
    [['users', 'list'], 'admin'],
    [['keys', 'list'], 'user'],
    [['models', 'list'], 'user'],
    [['usage', 'list'], 'user'],
    [['call', 'agent', 'sessions.list'], 'agent'],
    [['call', 'gateway', 'accounts.listUsers'], 'admin'],
  ])('of %j is that of the %s', async (words, token) => {
    await runInProcess(words, { ...tokens, TOWNHALL_URL: url, TOWNHALL_AGENT_URL: url });
    expect(lastRequest().headers.authorization).toBe(`Bearer ${token}`);
  });

  test('is TOWNHALL_TOKEN when the other variables are not set', async () => {
    await runInProcess(['users', 'list'], { TOWNHALL_URL: url, TOWNHALL_TOKEN: 'any' });
    expect(lastRequest().headers.authorization).toBe('Bearer any');
  });

  test("is an administrator's when no user token is set", async () => {
    await runInProcess(['usage', 'list'], { TOWNHALL_URL: url, TOWNHALL_ADMIN_TOKEN: 'admin' });
    expect(lastRequest().headers.authorization).toBe('Bearer admin');
  });
});

describe('renderTable', () => {
  const now = new Date('2026-11-27T12:00:00.000Z');
  const render = (record: Record<string, unknown>, width: number | undefined) => {
    const { lines, hiddenTitles } = renderTable([record], Object.keys(record), { width, now });
    return { lines: lines.map(stripVTControlCharacters), hiddenTitles };
  };

  test('leaves out the last columns on a narrow terminal', () => {
    const { lines, hiddenTitles } = render({ id: 'key_1', name: 'ci', note: 'a long note' }, 12);
    expect(lines).toEqual(['ID     NAME', 'key_1  ci']);
    expect(hiddenTitles).toEqual(['NOTE']);
  });

  test('leaves out empty columns first', () => {
    const { lines, hiddenTitles } = render({ id: 'key_1', email: null, name: 'ci' }, 12);
    expect(lines).toEqual(['ID     NAME', 'key_1  ci']);
    expect(hiddenTitles).toEqual([]);
  });

  test('cuts a first column that is too wide', () => {
    expect(render({ id: 'a long identifier' }, 8).lines).toEqual(['ID', 'a long …']);
  });

  test.each([
    ['2026-11-27T11:59:30.000Z', '30s ago'],
    ['2026-11-27T11:15:00.000Z', '45m ago'],
    ['2026-11-25T12:00:00.000Z', '2d ago'],
    ['2026-11-27T15:30:00.000Z', 'in 3h'],
  ])('shows the time %s as "%s" on a terminal', (time, shownTime) => {
    expect(render({ at: time }, 80).lines[1]).toBe(shownTime);
  });

  test('shows complete times and all columns elsewhere', () => {
    const { lines } = render({ at: '2026-11-27T11:59:30.123Z', note: 'x'.repeat(200) }, undefined);
    expect(lines[1]).toBe(`2026-11-27T11:59:30Z  ${'x'.repeat(200)}`);
  });

  test('shows no control character of a value', () => {
    expect(render({ id: 'a\u001B[31m\nb' }, undefined).lines[1]).toBe('a\uFFFD[31m\uFFFDb');
  });

  test('is empty without records', () => {
    expect(renderTable([], ['id'], { width: 80, now })).toEqual({ lines: [], hiddenTitles: [] });
  });
});

describe('the first word', () => {
  test('may have the name of its member', async () => {
    await runInProcess(['keys', 'create', 'name=ci'], { TOWNHALL_URL: url });
    expect(bodies.at(-1)).toBe('{"name":"ci"}');
  });

  test('may contain an equals sign', async () => {
    await runInProcess(['keys', 'create', 'stage=test'], { TOWNHALL_URL: url });
    expect(bodies.at(-1)).toBe('{"name":"stage=test"}');
  });

  test('is refused when it sets another member', async () => {
    await expect(runInProcess(['keys', 'create', 'credit_cap=5'], { TOWNHALL_URL: url })).rejects.toThrow(
      'the first word is the name, and "credit_cap=5" sets credit_cap; write NAME before it.',
    );
  });
});

describe('a refused credential', () => {
  test.each([
    [
      'a missing user token',
      ['keys', 'list'],
      {},
      /^No token was sent\.\nLog in with "townhall login --url http:/,
    ],
    [
      'the token of the environment',
      ['keys', 'list'],
      { TOWNHALL_TOKEN: 'refused' },
      /^The token of TOWNHALL_TOKEN was sent\./,
    ],
    [
      'a user token at an operation of administrators',
      ['users', 'list'],
      { TOWNHALL_TOKEN: 'refused' },
      /\nThe operation needs an administrator: log in with "townhall login --admin --url http:/,
    ],
    [
      'a missing token of the agent',
      ['call', 'agent', 'sessions.list'],
      {},
      /^No token was sent\.\nThe operation needs the agent's token: set --token-file/,
    ],
  ])('names %s and the remedy', async (_, words, env, advice) => {
    const servers = { TOWNHALL_URL: `${url}/strict`, TOWNHALL_AGENT_URL: `${url}/strict` };
    const { code, errors } = await runInProcess(words, { ...servers, ...env });
    expect(code).toBe(1);
    expect(errors.slice(1).join('\n')).toMatch(advice);
  });
});
