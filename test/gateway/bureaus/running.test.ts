// The effect of a pause, a revocation or a reset on running streams, on this replica and the other.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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

/**
 * A running stream on the other gateway; `text` resolves with the end of its text once the
 * connection is closed.
 */
async function openStream(token: string): Promise<{ text: Promise<string>; stop(): void }> {
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

async function measureWithin<T>(
  promise: Promise<T>,
  limitMs: number,
): Promise<{ value: T; delayMs: number }> {
  const startedMs = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>(
    (_, reject) => (timer = setTimeout(() => reject(new Error(`It took more than ${limitMs} ms.`)), limitMs)),
  );
  try {
    return { value: await Promise.race([promise, deadline]), delayMs: performance.now() - startedMs };
  } finally {
    clearTimeout(timer);
  }
}

const answersStatus = (token: string, status: number) => async () =>
  (await fetch(`${otherWorld.url}/v1/accounts/me`, { headers: { authorization: `Bearer ${token}` } }))
    .status === status;

describe('an administrator’s session', () => {
  const { adminId, password } = testAdministrator;

  test('ends on the other gateway after a logout', async () => {
    const { session_token } = await firstWorld.guest.admin.login({ admin_id: adminId, password });
    const session = otherWorld.as(session_token);
    expect(await session.admin.getSession()).toMatchObject({ admin_id: adminId });
    await firstWorld.as(session_token).admin.logout();
    await expect
      .poll(() =>
        session.admin.getSession().then(
          () => 200,
          (error: unknown) => (error as { status: number }).status,
        ),
      )
      .toBe(401);
  });
});

describe('running streams', () => {
  test.each([
    ['paused', 'pauseBureau', 'bureau_paused'],
    ['archived', 'archiveBureau', 'bureau_archived'],
  ] as const)('of a Bureau that is %s end within five seconds', async (_state, action, code) => {
    const { bureau_id } = await firstWorld.admin.bureaus.createBureau({
      server_url: 'https://shop.example',
    });
    const { userToken } = await makeUser(firstWorld.sql, bureau_id);
    const stream = await openStream(userToken);
    const otherStream = await openStream(otherWorld.userToken);
    await firstWorld.admin.bureaus[action]({ bureau_id });
    const firstRefusalMs = await until(
      answersStatus(userToken, 403),
      'the user is refused on the other gateway',
    );
    const { value, delayMs } = await measureWithin(stream.text, 15_000);
    expect(value).toContain(code);
    // The promises are one second and five seconds; the bounds allow for a busy machine.
    expect(firstRefusalMs).toBeLessThan(6_000);
    expect(delayMs).toBeLessThan(10_000);
    await expect(measureWithin(otherStream.text, 300)).rejects.toThrow('more than');
    expect(await answersStatus(otherWorld.userToken, 200)()).toBe(true);
    otherStream.stop();
  });

  test('of a revoked token end after a change notice', async () => {
    const { userToken, tokenId } = await makeUser(firstWorld.sql, 'local');
    const stream = await openStream(userToken);
    await revoke(firstWorld.sql, tokenId);
    await firstWorld.sql`update gateway.changes set number = number + 1`;
    const { value } = await measureWithin(stream.text, 10_000);
    expect(value).toContain('invalid_token');
    expect(await answersStatus(userToken, 401)()).toBe(true);
  });

  test('of an administrator end with the session', async () => {
    const password = 'a third password for tests';
    await firstWorld.gateway.resetAdministrator(testAdministrator.adminId, password);
    const logIn = async () =>
      (await firstWorld.guest.admin.login({ admin_id: testAdministrator.adminId, password })).session_token;
    const [token, otherToken] = [await logIn(), await logIn()];
    const stream = await openStream(token);
    const otherStream = await openStream(otherToken);
    await firstWorld.as(token).admin.logout();
    expect((await measureWithin(stream.text, 10_000)).value).toContain('invalid_token');
    await firstWorld.gateway.resetAdministrator(testAdministrator.adminId, password);
    expect((await measureWithin(otherStream.text, 10_000)).value).toContain('invalid_token');
  });
});

describe('a reset of the administrator', () => {
  const { adminId, password } = testAdministrator;
  beforeAll(async () => {
    await firstWorld.gateway.resetAdministrator(adminId, 'another password for tests');
  });

  test('ends every session on every gateway at once', async () => {
    for (const world of [firstWorld, otherWorld])
      await expect(world.admin.admin.getSession()).rejects.toMatchObject({
        status: 401,
        code: 'invalid_token',
      });
  });

  test('ends the former password', async () => {
    await expect(firstWorld.guest.admin.login({ admin_id: adminId, password })).rejects.toMatchObject({
      code: 'invalid_credentials',
    });
  });

  test('is in the audit log', async () => {
    const actions = await firstWorld.sql`
      select distinct action from gateway.audit_entries where action like 'admin.%' order by 1`;
    expect(actions.map(({ action }) => String(action))).toEqual([
      'admin.login',
      'admin.logout',
      'admin.reset',
      'admin.setup',
    ]);
  });
});
