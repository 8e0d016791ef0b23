// The bill of speech that is synthesized and then cannot be rendered.
import { expect, test } from 'vitest';
import { createBilling } from '../../../../src/gateway/ai/billing/billing.ts';
import { renderWholeSpeech, type AudioOptions } from '../../../../src/gateway/ai/handlers/audio.ts';
import type { PaidRequest } from '../../../../src/gateway/ai/calls/context.ts';
import { createModelHealth } from '../../../../src/gateway/ai/upstream/model-health.ts';
import { systemClock } from '../../../../src/kernel/clock.ts';
import { rememberNothing } from '../../../../src/kernel/data/idempotency.ts';
import { silentLog } from '../../../support/template.ts';
import { catalogModel } from '../catalog-model.ts';
import { memoryLedger } from '../memory-ledger.ts';

test('speech that cannot be rendered is settled without a charge', async () => {
  const ledger = memoryLedger();
  const model = catalogModel({ modalities: ['tts'], rates: { speech_character: 10 } });
  const options = {
    catalog: { chain: () => [model] },
    billing: createBilling({ ledger, clock: systemClock }),
    health: createModelHealth({ clock: systemClock }),
    clock: systemClock,
    timeouts: { answerMs: 10_000 },
    models: {
      speech: () => ({ generate: async () => ({ content: [Buffer.from('audio')], format: 'wav' }) }),
    },
  } as unknown as AudioOptions;
  const call: PaidRequest = {
    operationId: 'ai.synthesizeSpeech',
    requestId: 'req_a',
    identity: { kind: 'user', userId: 'usr_a', bureauId: 'local', tokenId: 'tok_a' },
    signal: new AbortController().signal,
    log: silentLog,
    note() {},
    remember: rememberNothing,
  };
  const rendering = renderWholeSpeech(options, call, {
    body: { model: model.id, text: 'Good morning' },
    render() {
      throw new Error('The answer cannot be rendered.');
    },
  });
  await expect(rendering).rejects.toThrow('cannot be rendered');
  expect(ledger.held()).toBe(0n);
  expect(ledger.last()).toMatchObject({ charged: 0n, facts: { outcome: 'rejected' } });
});
