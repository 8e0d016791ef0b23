// The agent's view of the gateway's catalog.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { gatewayAccess } from '../../src/agent/gateway.ts';
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
  test('keeps the last catalog while the gateway is away', async () => {
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

function openAccess({ url }: ScriptedGateway, monotonicMs: () => number) {
  return gatewayAccess({
    url,
    token: { value: 'th_usr_test' },
    redactor: createRedactor(),
    clock: { ...systemClock, monotonicMs },
  });
}
