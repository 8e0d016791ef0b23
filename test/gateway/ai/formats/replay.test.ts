// A conversation that was translated continues at a model whose provider supports the format. Replay metadata
// of that provider is unpacked; reasoning of another provider is left out with a warning.
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import {
  unpackChat,
  unpackMessages,
  unpackResponses,
} from '../../../../src/gateway/ai/formats/passthrough/replay.ts';
import { collectDroppedHints } from '../../../../src/gateway/ai/formats/translation/dropped-hints.ts';
import { decodeReplay, encodeReplay } from '../../../../src/gateway/ai/formats/translation/replay.ts';
import { startProvider, type ScriptedProvider } from '../../../support/provider.ts';
import { testResilience, startAi, type World } from '../world.ts';

type Json = Record<string, unknown>;

let provider: ScriptedProvider;
let world: World;
beforeAll(async () => {
  provider = await startProvider();
  const entry = (id: string, kind: string, formats: string[]) => ({
    id,
    kind,
    formats,
    name: id,
    base_url: provider.url,
    output_limit_member: 'max_tokens',
  });
  const model = (id: string, script: string) => ({
    id: `${id}/${script}`,
    provider: id,
    upstream_model: script,
    rates: null,
    max_output_tokens: 1_000,
  });
  world = await startAi({
    models: JSON.stringify({
      providers: [
        entry('claude', 'anthropic', []),
        entry('openai', 'openai', []),
        entry('gemini', 'google', []),
        entry('own', 'anthropic', ['messages']),
        entry('direct', 'openai', ['chat', 'responses']),
      ],
      models: [
        model('claude', 'reasoning'),
        model('openai', 'encrypted'),
        model('gemini', 'signed'),
        model('own', 'ok'),
        model('direct', 'ok'),
      ],
    }),
    env: {},
    resilience: testResilience,
  });
});
afterAll(async () => {
  await world.close();
  await provider.close();
});
beforeEach(() => provider.reset());

const question = { role: 'user', content: 'The weather?' };
const nextQuestion = { role: 'user', content: 'And tomorrow?' };
const lastRequest = () => JSON.parse(provider.lastCall().body.toString()) as Json;
const sentMessages = () => lastRequest()['messages'] as { role: string; content: unknown }[];

async function post(path: string, body: Json): Promise<{ answer: Json; warnings: string | null }> {
  const response = await world.post(path, body);
  const text = await response.text();
  expect(response.status, text).toBe(200);
  expect(JSON.stringify(provider.lastCall().body.toString())).not.toContain('townhall.1.');
  return { answer: JSON.parse(text) as Json, warnings: response.headers.get('x-townhall-warnings') };
}

const thinkingMember = { thinking: { type: 'enabled', budget_tokens: 1_024 } };
const message = (model: string, messages: unknown[], extraMembers: Json = {}) =>
  post('/v1/ai/messages', { model, max_tokens: 2_000, messages, ...extraMembers });

describe('messages', () => {
  test('return a signature to the provider that made it', async () => {
    const { answer } = await message('claude/reasoning', [question]);
    expect(JSON.stringify(answer)).toContain('townhall.1.');
    const turn = { role: 'assistant', content: answer['content'] };
    const { warnings } = await message('own/ok', [question, turn, nextQuestion]);
    expect(sentMessages()[1]?.content).toMatchObject([
      { type: 'thinking', thinking: 'Let me think.', signature: 'sig' },
      { type: 'text' },
    ]);
    expect(warnings).toBeNull();
  });

  test('leave out the thinking of another provider', async () => {
    const { answer } = await message('openai/encrypted', [question], thinkingMember);
    const turn = { role: 'assistant', content: answer['content'] };
    const { warnings } = await message('own/ok', [question, turn, nextQuestion]);
    expect(sentMessages()[1]?.content).toMatchObject([{ type: 'text' }]);
    expect(warnings).toContain('thinking');
  });

  test('leave out a turn without other content', async () => {
    const signature = encodeReplay({ options: {} });
    const turn = { role: 'assistant', content: [{ type: 'thinking', thinking: 'Hm.', signature }] };
    await message('own/ok', [question, turn, nextQuestion]);
    expect(sentMessages().map(({ role }) => role)).toEqual(['user', 'user']);
  });

  test('keep signatures of other servers', async () => {
    const turn = {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'Hm.', signature: 'sig' },
        { type: 'text', text: 'townhall.1. in a text' },
      ],
    };
    const response = await world.post('/v1/ai/messages', {
      model: 'own/ok',
      max_tokens: 100,
      messages: [question, turn, nextQuestion],
    });
    expect(response.status).toBe(200);
    expect(sentMessages()[1]).toEqual(turn);
  });
});

describe('responses', () => {
  const respond = (model: string, input: unknown[]) =>
    post('/v1/ai/responses', { model, input, include: ['reasoning.encrypted_content'] });

  test('return encrypted reasoning to the provider that made it', async () => {
    const { answer } = await respond('openai/encrypted', [question]);
    const { warnings } = await respond('direct/ok', [
      question,
      ...(answer['output'] as Json[]),
      nextQuestion,
    ]);
    expect(lastRequest()['input']).toContainEqual(
      expect.objectContaining({ type: 'reasoning', encrypted_content: 'openai-encrypted' }),
    );
    expect(warnings).toBeNull();
  });

  test('leave out the reasoning of another provider', async () => {
    const { answer } = await respond('claude/reasoning', [question]);
    const { warnings } = await respond('direct/ok', [
      question,
      ...(answer['output'] as Json[]),
      nextQuestion,
    ]);
    const types = (lastRequest()['input'] as Json[]).map(({ type, role }) => type ?? role);
    expect(types).toEqual(['user', 'message', 'user']);
    expect(warnings).toContain('reasoning');
  });
});

describe('chat completions', () => {
  const chat = (model: string, messages: unknown[]) => post('/v1/ai/chat/completions', { model, messages });

  test.each([false, true])('leave out packed details (streamed: %s)', async (stream) => {
    const { answer } = await chat('claude/reasoning', [question]);
    const [choice] = answer['choices'] as { message: Json }[];
    expect(choice?.message['reasoning_details']).toHaveLength(1);
    const response = await world.post('/v1/ai/chat/completions', {
      model: 'direct/ok',
      messages: [question, choice?.message, nextQuestion],
      stream,
    });
    await response.text();
    expect(sentMessages()[1]).not.toHaveProperty('reasoning_details');
    expect(sentMessages()[1]).toMatchObject({ role: 'assistant', content: choice?.message['content'] });
    expect(response.headers.get('x-townhall-warnings')).toContain('reasoning_details');
  });

  test('unpack a signature in a tool call', async () => {
    const signature = encodeReplay({ toolCallId: 'c1', options: { google: { thoughtSignature: 'own' } } });
    const call = {
      id: 'c1',
      type: 'function',
      function: { name: 'f', arguments: '{}' },
      extra_content: { google: { thought_signature: signature } },
    };
    const result = { role: 'tool', tool_call_id: 'c1', content: 'rain' };
    await chat('gemini/signed', [question, { role: 'assistant', content: null, tool_calls: [call] }, result]);
    expect(JSON.stringify(lastRequest())).toContain('"thoughtSignature":"own"');
  });
});

test("Gemini's requests unpack a signature", async () => {
  const signature = encodeReplay({ options: { google: { thoughtSignature: 'own' } } });
  await post('/v1beta/models/gemini%2Fsigned:generateContent', {
    contents: [
      { role: 'user', parts: [{ text: 'hi' }] },
      { role: 'model', parts: [{ text: 'hello', thoughtSignature: signature }] },
      { role: 'user', parts: [{ text: 'more' }] },
    ],
  });
  expect(JSON.stringify(lastRequest())).toContain('"thoughtSignature":"own"');
});

describe('the bytes', () => {
  const ownText = encodeReplay({ options: { anthropic: { signature: 'own "sig"' } } });
  const otherText = encodeReplay({ options: { google: { thoughtSignature: 'x' } } });
  const unpack = (unpacker: typeof unpackMessages, text: string) => {
    const bytes = unpacker(JSON.parse(text) as object, Buffer.from(text), collectDroppedHints());
    return Buffer.from(bytes).toString();
  };

  test('outside of the blocks are unchanged', () => {
    const otherMembers = '"n": 12345678901234567890 , "e":1e400,"m\\u006fdel":"x"';
    const block = (signature: string) =>
      `{ "type":"thinking","thinking":"\\u00e9","signature" : ${signature} }`;
    const text = (signature: string) =>
      `{${otherMembers}, "messages" : [ {"content":[ ${block(signature)} ]} ]}`;
    expect(unpack(unpackMessages, text(JSON.stringify(ownText)))).toBe(text('"own \\"sig\\""'));
  });

  test.each([
    ['first', [otherText, ownText, 'raw']],
    ['last', ['raw', ownText, otherText]],
    ['middle', [ownText, otherText, 'raw']],
    ['neighbouring', [otherText, otherText, ownText, otherText, otherText]],
  ])('are valid JSON without the %s blocks', (_place, signatures) => {
    const content = signatures.map((signature) => ({ type: 'thinking', thinking: ',]}', signature }));
    const text = JSON.stringify({ messages: [{ role: 'assistant', content }] });
    const request = JSON.parse(unpack(unpackMessages, text)) as { messages: [{ content: Json[] }] };
    expect(request.messages[0].content.map(({ signature }) => signature)).toEqual(
      signatures.flatMap((signature) =>
        signature === otherText ? [] : [signature === ownText ? 'own "sig"' : 'raw'],
      ),
    );
  });

  test.each([
    ['only', '{ "reasoning_details" : [D] }', {}],
    ['first', '{ "reasoning_details" : [D] , "a" : [","] }', { a: [','] }],
    ['last', '{ "a" : 1 , "reasoning_details" : [D , D] }', { a: 1 }],
    ['kept', '{"reasoning_details":[D,{"type":"b"}]}', { reasoning_details: [{ type: 'b' }] }],
  ])('are valid JSON after removals from the %s member', (_place, turn, expected) => {
    const detail = JSON.stringify({ type: 'reasoning.text', signature: otherText });
    const request = unpack(unpackChat, `{"messages":[${turn.replaceAll('D', detail)}]}`);
    expect(JSON.parse(request)).toEqual({ messages: [expected] });
  });

  test('are unchanged for items of unexpected types', () => {
    const text = '{"input":[1,null,"a",[],{},{"type":"reasoning","encrypted_content":5}]}';
    expect(unpack(unpackResponses, text)).toBe(text);
  });
});

// 2,000 strings, and 4 MiB of their text (translation/replay.ts).
describe('the limit on packed strings', () => {
  test.each([
    ['too many strings', Array.from({ length: 2_001 }, () => 'townhall.1.e30')],
    ['strings that are too long', ['townhall.1.'.padEnd(4_200_000, 'x')]],
  ])('refuses %s in each format', async (_name, signatures) => {
    const thinkingBlocks = signatures.map((signature) => ({ type: 'thinking', thinking: '', signature }));
    const turn = { role: 'assistant', content: thinkingBlocks };
    const items = signatures.map((text) => ({ type: 'reasoning', summary: [], encrypted_content: text }));
    const details = signatures.map((signature) => ({ type: 'reasoning.text', signature }));
    const parts = signatures.map((thoughtSignature) => ({ text: 'x', thoughtSignature }));
    const bodies: [string, Json][] = [
      ['/v1/ai/messages', { model: 'own/ok', max_tokens: 16, messages: [question, turn, nextQuestion] }],
      [
        '/v1/ai/messages',
        { model: 'gemini/signed', max_tokens: 16, messages: [question, turn, nextQuestion] },
      ],
      ['/v1/ai/responses', { model: 'direct/ok', input: [question, ...items] }],
      [
        '/v1/ai/chat/completions',
        {
          model: 'direct/ok',
          messages: [question, { role: 'assistant', content: 'x', reasoning_details: details }],
        },
      ],
      ['/v1beta/models/gemini%2Fsigned:generateContent', { contents: [{ role: 'model', parts }] }],
      ['/v1beta/models/gemini%2Fsigned:countTokens', { contents: [{ role: 'model', parts }] }],
    ];
    for (const [path, body] of bodies) expect((await world.post(path, body)).status, path).toBe(413);
    expect(provider.calls).toHaveLength(0);
  });

  // A quadratic scan would take hours.
  test('scans a string of many values in linear time', () => {
    const hostileText = `{"options":${'['.repeat(3_000_000)}`;
    expect(decodeReplay(`townhall.1.${Buffer.from(hostileText).toString('base64url')}`)).toBeUndefined();
  });
});
