// The effect of a pause, a revocation or a reset on running streams, on this replica and the other.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startReplicas, testAdministrator, type GatewayWorld } from '../../support/gateway.ts';
import { startProvider, type ScriptedProvider } from '../../support/provider.ts';
import { makeUser, revoke } from './people.ts';
import { until } from '../../support/until.ts';

let provider: ScriptedProvider;
let folder: string;
let replicas: Awaited<ReturnType<typeof startReplicas>>;
let firstWorld: GatewayWorld;
let otherWorld: GatewayWorld;

beforeAll(async () => {
  provider = await startProvider();
  folder = await mkdtemp(join(tmpdir(), 'townhall-running-'));
  const modelsFile = join(folder, 'models.json');
  await writeFile(modelsFile, provider.modelsFile({ slow: 'ok?chunks=100000&gap=20' }));
  const env = { MODELS_FILE: modelsFile, ACME_API_KEY: 'a key for tests' };
  replicas = await startReplicas(env);
  ({ first: firstWorld, other: otherWorld } = replicas);
});
afterAll(async () => {
  await replicas?.close();
  await provider?.close();
  await rm(folder, { recursive: true, force: true });
});

/**
 * A running stream on the other gateway; `ended` resolves with its whole text once the connection
 * is closed.
 */
async function openStream(token: string): Promise<{ ended: Promise<string>; stop(): void }> {
  const gate = new AbortController();
  const callCount = provider.calls.length;
  const answer = await fetch(`${otherWorld.url}/v1/ai/chat/completions`, {
    method: 'POST',
    signal: gate.signal,
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
  return { ended: read(), stop: () => gate.abort() };
}

async function measureWithin<T>(promise: Promise<T>, limitMs: number): Promise<{ value: T; ms: number }> {
  const startedMs = performance.now();
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>(
    (_, reject) => (timer = setTimeout(() => reject(new Error(`It took more than ${limitMs} ms.`)), limitMs)),
  );
  try {
    return { value: await Promise.race([promise, deadline]), ms: performance.now() - startedMs };
  } finally {
    clearTimeout(timer);
  }
}

const answersStatus = (token: string, status: number) => async () =>
  (await fetch(`${otherWorld.url}/v1/accounts/me`, { headers: { authorization: `Bearer ${token}` } }))
    .status === status;

// Two gateways on PostgreSQL, one gateway with the embedded database.
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
    const { value, ms } = await measureWithin(stream.ended, 15_000);
    console.log(
      `${action}: refused after ${Math.round(firstRefusalMs)} ms, stream ended after ${Math.round(ms)} ms more`,
    );
    expect(value).toContain(code);
    // The promises are one second and five seconds; the bounds allow for a busy machine.
    expect(firstRefusalMs).toBeLessThan(6_000);
    expect(ms).toBeLessThan(10_000);
    await expect(measureWithin(otherStream.ended, 300)).rejects.toThrow('more than');
    expect(await answersStatus(otherWorld.userToken, 200)()).toBe(true);
    otherStream.stop();
  });

  test('of a revoked token end after a change notice', async () => {
    const { userToken, tokenId } = await makeUser(firstWorld.sql, 'local');
    const stream = await openStream(userToken);
    await revoke(firstWorld.sql, tokenId);
    await firstWorld.sql`update gateway.changes set number = number + 1`;
    const { value } = await measureWithin(stream.ended, 10_000);
    expect(value).toContain('invalid_token');
    expect(await answersStatus(userToken, 401)()).toBe(true);
  });

  test('apply an administrator’s logout and reset at once', async () => {
    const { session_token } = await firstWorld.guest.admin.login({
      admin_id: testAdministrator.adminId,
      password: testAdministrator.password,
    });
    const session = otherWorld.as(session_token);
    await expect(session.admin.getSession()).resolves.toMatchObject({ admin_id: testAdministrator.adminId });
    await firstWorld.as(session_token).admin.logout();
    await until(
      () =>
        session.admin.getSession().then(
          () => false,
          (error: unknown) => (error as { status: number }).status === 401,
        ),
      'the session is refused',
    );
    await firstWorld.gateway.resetAdministrator(testAdministrator.adminId, 'another password for tests');
    for (const world of [firstWorld, otherWorld])
      await expect(world.admin.admin.getSession()).rejects.toMatchObject({
        status: 401,
        code: 'invalid_token',
      });
    await expect(
      firstWorld.guest.admin.login({
        admin_id: testAdministrator.adminId,
        password: testAdministrator.password,
      }),
    ).rejects.toMatchObject({ code: 'invalid_credentials' });
    const actions = await firstWorld.sql<
      { action: string }[]
    >`select distinct action from gateway.audit_entries where action like 'admin.%' order by 1`;
    expect(actions.map(({ action }) => action)).toEqual([
      'admin.login',
      'admin.logout',
      'admin.reset',
      'admin.setup',
    ]);
  });

  test('of an administrator end with the session', async () => {
    const password = 'a third password for tests';
    await firstWorld.gateway.resetAdministrator(testAdministrator.adminId, password);
    const logIn = async () =>
      (await firstWorld.guest.admin.login({ admin_id: testAdministrator.adminId, password })).session_token;
    const [token, otherToken] = [await logIn(), await logIn()];
    const loggedOut = await openStream(token);
    const reset = await openStream(otherToken);
    await firstWorld.as(token).admin.logout();
    expect((await measureWithin(loggedOut.ended, 10_000)).value).toContain('invalid_token');
    await firstWorld.gateway.resetAdministrator(testAdministrator.adminId, password);
    expect((await measureWithin(reset.ended, 10_000)).value).toContain('invalid_token');
  });
});
