// Commands such as `townhall users list`: their requests, the credential they choose, and their tables.
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { stripVTControlCharacters } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { tableLines } from '../../src/cli/call/resource.ts';
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
const server = createServer((request, response) => {
  requests.push(request);
  const isAllowed = request.headers.authorization !== 'Bearer refused';
  response.writeHead(isAllowed ? 200 : 403, { 'content-type': 'application/json' });
  const error = { code: 'forbidden_for_identity', message: 'Not you.', param: null, request_id: 'req_1' };
  response.end(JSON.stringify(isAllowed ? keyPage : { error }));
});
beforeAll(async () => {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => void server.close());

const tokens = { TOWNHALL_TOKEN: 'user', TOWNHALL_ADMIN_TOKEN: 'admin', TOWNHALL_AGENT_TOKEN: 'agent' };
const lastRequest = (): IncomingMessage => requests.at(-1) as IncomingMessage;

describe('townhall keys list', () => {
  test('prints a table and where the list goes on', async () => {
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
    expect(JSON.parse(output.join(''))).toEqual(keyPage);
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
    expect([code, errors.join('')]).toEqual([1, 'townhall: 403 forbidden_for_identity: Not you. [req_1]']);
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

  test('is TOWNHALL_TOKEN where the others are not set', async () => {
    await runInProcess(['users', 'list'], { TOWNHALL_URL: url, TOWNHALL_TOKEN: 'any' });
    expect(lastRequest().headers.authorization).toBe('Bearer any');
  });

  test('is an administrator\u2019s where an operation takes both and no user is set', async () => {
    await runInProcess(['usage', 'list'], { TOWNHALL_URL: url, TOWNHALL_ADMIN_TOKEN: 'admin' });
    expect(lastRequest().headers.authorization).toBe('Bearer admin');
  });
});

describe('tableLines', () => {
  test('cuts lines at the width of the terminal', () => {
    const lines = tableLines([{ id: 'a long identifier' }], ['id'], 8).map(stripVTControlCharacters);
    expect(lines).toEqual(['ID', 'a long …']);
  });

  test('shows no control character of a value', () => {
    expect(tableLines([{ id: 'a\u001B[31m\nb' }], ['id'], undefined)[1]).toBe('a\uFFFD[31m\uFFFDb');
  });

  test('is empty without records', () => {
    expect(tableLines([], ['id'], 80)).toEqual([]);
  });
});
