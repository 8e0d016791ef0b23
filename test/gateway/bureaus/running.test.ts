// The effect of a pause, a revocation, a logout or a reset on running streams and on sessions: a change on
// the first gateway also applies on the other gateway.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { settlesWithin, withTimeout } from '../../../src/kernel/async.ts';
import { startReplicas, testAdministrator, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { until } from '../../support/until.ts';
import { writeModelsFile } from '../provider-world.ts';
import { makeUser, revoke } from './people.ts';

let provider: ScriptedProvider;
let modelsFile: Awaited<ReturnType<typeof writeModelsFile>>;
let replicas: Awaited<ReturnType<typeof startReplicas>>;
let firstWorld: GatewayWorld;
let otherWorld: GatewayWorld;

beforeAll(async () => {
  provider = await startProvider();
  modelsFile = await writeModelsFile(provider.modelsFile({ slow: 'ok?chunks=100000&gap=20' }));
  const env = { MODELS_FILE: modelsFile.path, ACME_API_KEY: 'a key for tests' };
  replicas = await startReplicas(env);
  ({ first: firstWorld, other: otherWorld } = replicas);
});
afterAll(async () => {
  await replicas?.close();
  await provider?.close();
  await modelsFile?.remove();
});

interface Stream {
  /** Resolves with the last 4,000 characters once the connection is closed. */
  text: Promise<string>;
  stop(): void;
}

/** Opens a stream on the other gateway; resolves once it runs. */
async function openStreamOnOther(token: string): Promise<Stream> {
  const abort = new AbortController();
  const callCount = provider.calls.length;
  const answer = await fetch(`${otherWorld.url}/v1/ai/chat/completions`, {
    method: 'POST',
    signal: abort.signal,
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({
      model: 'acme/slow',
      stream: true,
      messages: [{ role: 'user', content: 'Count.' }],
    }),
  });
  expect(answer.status).toBe(200);
  await provider.until((calls) => calls.length > callCount);
  const reader = (answer.body as ReadableStream<Uint8Array>).getReader();
  await reader.read();
  const read = async (): Promise<string> => {
    let text = '';
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined }));
      if (done) return text;
      text = (text + Buffer.from(value as Uint8Array).toString('utf8')).slice(-4_000);
    }
  };
  return { text: read(), stop: () => abort.abort() };
}

/** The end of the stream's text; rejects when the stream still runs after 10 seconds. */
function textOf({ text }: Stream): Promise<string> {
  return withTimeout(() => text, { ms: 10_000 });
}

/** Fails when the stream ends within 300 ms. */
async function expectRunning({ text }: Stream): Promise<void> {
  expect(await settlesWithin(text, { ms: 300 }), 'the stream ended').toBe(false);
}

/** The status that the other gateway answers to a user. */
async function userStatus(token: string): Promise<number> {
  const headers = { authorization: `Bearer ${token}` };
  return (await fetch(`${otherWorld.url}/v1/accounts/me`, { headers })).status;
}

const { adminId, password } = testAdministrator;

/** Opens a new session for each test, because a reset ends all existing sessions. */
async function logIn(): Promise<string> {
  const { session_token } = await firstWorld.guest.admin.login({ admin_id: adminId, password });
  return session_token;
}

async function resetAdministrator(newPassword = password): Promise<void> {
  await firstWorld.gateway.resetAdministrator(adminId, newPassword);
}

/** Resolves with `valid` or with the code of the refusal. */
function sessionState(world: GatewayWorld, token: string): Promise<string> {
  return world
    .as(token)
    .admin.getSession()
    .then(
      () => 'valid',
      (error: unknown) => String((error as { code?: unknown }).code),
    );
}

describe('an administrator’s session', () => {
  test('ends on the other gateway after a logout', async () => {
    const token = await logIn();
    expect(await sessionState(otherWorld, token)).toBe('valid');
    await firstWorld.as(token).admin.logout();
    await expect.poll(() => sessionState(otherWorld, token)).toBe('invalid_token');
  });
});

describe('running streams', () => {
  test.each([
    ['paused', 'pauseBureau', 'bureau_paused'],
    ['archived', 'archiveBureau', 'bureau_archived'],
  ] as const)('of a Bureau that is %s end within five seconds', async (_state, action, code) => {
    const { bureaus } = firstWorld.as(await logIn());
    const { bureau_id } = await bureaus.createBureau({ server_url: 'https://shop.example' });
    const { userToken } = await makeUser(firstWorld.sql, bureau_id);
    const stream = await openStreamOnOther(userToken);
    const unaffectedStream = await openStreamOnOther(otherWorld.userToken);
    await bureaus[action]({ bureau_id });
    const startedMs = performance.now();
    await until(
      async () => (await userStatus(userToken)) === 403,
      'the user is refused on the other gateway',
    );
    const refusedAfterMs = performance.now() - startedMs;
    expect(await textOf(stream)).toContain(code);
    const endedAfterMs = performance.now() - startedMs;
    // The promises are one second for the refusal and five for the end of the stream, both after the
    // change. The bounds allow for a busy machine.
    expect(refusedAfterMs).toBeLessThan(6_000);
    expect(endedAfterMs).toBeLessThan(10_000);
    await expectRunning(unaffectedStream);
    expect(await userStatus(otherWorld.userToken)).toBe(200);
    unaffectedStream.stop();
  });

  test('of a revoked token end after a change notice', async () => {
    const { userToken, tokenId } = await makeUser(firstWorld.sql, 'local');
    const stream = await openStreamOnOther(userToken);
    await revoke(firstWorld.sql, tokenId);
    // The notice that a revocation through the API would send: every gateway polls this number.
    await firstWorld.sql`update gateway.changes set number = number + 1`;
    expect(await textOf(stream)).toContain('invalid_token');
    expect(await userStatus(userToken)).toBe(401);
  });

  test('of an administrator end with a logout of their session', async () => {
    const [token, otherToken] = [await logIn(), await logIn()];
    const stream = await openStreamOnOther(token);
    const streamOfOtherSession = await openStreamOnOther(otherToken);
    await firstWorld.as(token).admin.logout();
    expect(await textOf(stream)).toContain('invalid_token');
    await expectRunning(streamOfOtherSession);
    streamOfOtherSession.stop();
  });

  test('of an administrator end with a reset', async () => {
    const stream = await openStreamOnOther(await logIn());
    await resetAdministrator();
    expect(await textOf(stream)).toContain('invalid_token');
  });
});

describe('a reset of the administrator', () => {
  test('ends every session on every gateway', async () => {
    const tokens = [await logIn(), await logIn()];
    const sessions = tokens.flatMap((token) => [firstWorld, otherWorld].map((world) => ({ world, token })));
    for (const { world, token } of sessions) expect(await sessionState(world, token)).toBe('valid');
    await resetAdministrator();
    for (const { world, token } of sessions)
      await expect.poll(() => sessionState(world, token)).toBe('invalid_token');
  });

  test('is in the audit log', async () => {
    const countEntries = async () => {
      const [row] = await firstWorld.sql`
        select count(*)::int as entries from gateway.audit_entries where action = 'admin.reset'`;
      return Number(row?.['entries']);
    };
    const countBefore = await countEntries();
    await resetAdministrator();
    expect(await countEntries()).toBe(countBefore + 1);
  });

  test('invalidates the old password', async () => {
    await resetAdministrator('another password for tests');
    try {
      await expect(firstWorld.guest.admin.login({ admin_id: adminId, password })).rejects.toMatchObject({
        code: 'invalid_credentials',
      });
    } finally {
      await resetAdministrator(password);
    }
  });
});
