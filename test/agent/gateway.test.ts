// The agent's view of the gateway's catalog, and its token file.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { gatewayAccess, type GatewayToken } from '../../src/agent/gateway.ts';
import { systemClock } from '../../src/kernel/clock.ts';
import { createRedactor } from '../../src/kernel/secrets/secret.ts';
import { scriptedGateway, type ScriptedGateway } from '../support/scripted-gateway.ts';

const minuteMs = 60_000;
let gateway: ScriptedGateway;
beforeAll(async () => {
  gateway = await scriptedGateway();
});
afterAll(() => gateway.close());

describe('the catalog of an agent', () => {
  test('keeps the last catalog while the gateway is unreachable', async () => {
    let elapsedMs = 0;
    const stoppedGateway = await scriptedGateway();
    stoppedGateway.catalog([{ id: 'acme/small', context_window: 8_000 }]);
    const access = openAccess(stoppedGateway, () => elapsedMs);
    expect(await access.describe('acme/small')).toMatchObject({ contextTokens: 8_000 });
    await stoppedGateway.close();
    elapsedMs += 6 * minuteMs;
    expect(await access.describe('acme/small')).toMatchObject({ contextTokens: 8_000 });
    elapsedMs += minuteMs;
    expect(await access.describe('acme/small')).toMatchObject({ contextTokens: 8_000 });
  });

  test('reads the catalog again after five minutes', async () => {
    let elapsedMs = 0;
    const access = openAccess(gateway, () => elapsedMs);
    gateway.catalog([{ id: 'acme/small', context_window: 8_000 }]);
    await access.describe('acme/small');
    gateway.catalog([{ id: 'acme/large', context_window: 100_000 }]);
    expect(await access.describe('acme/small')).toMatchObject({ contextTokens: 8_000 });
    elapsedMs += 6 * minuteMs;
    expect(await access.describe('acme/small')).toMatchObject({ contextTokens: null });
    expect(await access.describe('acme/large')).toMatchObject({ contextTokens: 100_000 });
  });
});

describe('the token file of an agent', () => {
  test.each([
    ['a missing file', undefined, 'cannot be read'],
    ['an empty file', '', 'must contain one word'],
    ['two words', 'th_usr_one th_usr_two', 'must contain one word'],
  ])('is refused with its reason: %s', async (_, content, reason) => {
    const folder = await mkdtemp(join(tmpdir(), 'townhall-token-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = join(folder, 'gateway.token');
    if (content !== undefined) await writeFile(file, content);
    await expect(openAccess(gateway, () => 0, { file }).model('acme/small')).rejects.toMatchObject({
      code: 'not_ready',
      message: expect.stringContaining(reason),
    });
  });
});

function openAccess(
  { url }: ScriptedGateway,
  monotonicMs: () => number,
  token: GatewayToken = { value: 'th_usr_test' },
) {
  return gatewayAccess({
    url,
    token,
    redactor: createRedactor(),
    clock: { ...systemClock, monotonicMs },
  });
}
