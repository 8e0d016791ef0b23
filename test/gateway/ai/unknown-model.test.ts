// Calls of an unknown model fail before a bill is opened. An open bill listens for the abort of its call.
import { getEventListeners } from 'node:events';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ai, createLinks, type AiService } from '../../../src/gateway/ai/index.ts';
import { systemClock } from '../../../src/kernel/clock.ts';
import { rememberNothing } from '../../../src/kernel/data/idempotency.ts';
import { silentLog } from '../../support/databases.ts';
import { memoryLedger } from './memory-ledger.ts';

let service: AiService;
beforeAll(async () => {
  service = await ai({
    env: new Map(),
    guideDirectory: new URL('../../../docs', import.meta.url).pathname,
    curated: { providers: [], models: [] },
    clock: systemClock,
    log: silentLog,
    ledger: memoryLedger(),
    jobs: { useGenerator: () => {} } as never,
    storedResponses: {} as never,
    links: createLinks({ keys: [Buffer.alloc(32)], baseUrl: () => '', linkSeconds: 60 }),
  });
});
afterAll(() => service.close?.());

const model = 'acme/unknown';
const messages = [{ role: 'user', content: 'hi' }];
const audio = { content: Buffer.alloc(100), fileName: 'a.mp3', mediaType: 'audio/mpeg' };

test.each([
  ['ai.generateText', { prompt: 'hi' }],
  ['ai.streamText', { prompt: [] }],
  ['ai.createLanguageModelAnswer', { prompt: [] }],
  ['ai.createChatCompletion', { messages }],
  ['ai.createCompletion', { prompt: 'hi' }],
  ['ai.createResponse', { input: 'hi' }],
  ['ai.createMessage', { messages }],
  ['ai.embedText', { input: 'hi' }],
  ['ai.moderateContent', { input: 'hi' }],
  ['ai.rerankDocuments', { query: 'hi', documents: ['a'] }],
  ['ai.synthesizeSpeech', { text: 'hi' }],
  ['ai.transcribeAudio', { file: audio, audio: audio.content.toString('base64'), media_type: 'audio/mpeg' }],
])('%s opens no bill for an unknown model', async (operationId, body) => {
  const { signal } = new AbortController();
  const call = {
    operationId,
    body: { model, ...body },
    headers: {},
    request: { headers: {} },
    rawBody: Buffer.from('{}'),
    identity: { kind: 'user', userId: 'usr_1', bureauId: 'bur_1', tokenId: 'tok_1' },
    requestId: 'req_1',
    signal,
    log: silentLog,
    note: () => {},
    timing: () => {},
    remember: rememberNothing,
  };
  const handler = service.handlers[operationId as 'ai.generateText'];
  await expect((async () => handler(call as never))()).rejects.toMatchObject({ code: 'model_not_found' });
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});
