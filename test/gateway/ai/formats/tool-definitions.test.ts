// The limit of 1 MiB for the tools and answer schemas of a call, in each format.
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { checkDefinitions } from '../../../../src/gateway/ai/formats/tool-definitions.ts';
import { errorOf, startAi, type World } from '../world.ts';

let world: World;
beforeAll(async () => {
  world = await startAi();
});
afterAll(() => world.close());

const longText = 'é'.repeat(600_000);
const schema = { type: 'object', properties: { city: { type: 'string', description: longText } } };
const call = { model: 'local/echo', messages: [{ role: 'user', content: 'hi' }] };
const prompt = [{ role: 'user', content: [{ type: 'text', text: 'hi' }] }];

describe('checkDefinitions', () => {
  test.each([
    ['text', { ...call, tools: [{ name: 'a', input_schema: schema }] }, 'tools[0]'],
    [
      'stream',
      { model: 'local/echo', prompt, tools: [{ type: 'function', name: 'a', inputSchema: schema }] },
      'tools[0]',
    ],
    [
      'chat/completions',
      { ...call, tools: [{ type: 'function', function: { name: 'a', parameters: schema } }] },
      'tools[0]',
    ],
    [
      'responses',
      { model: 'local/echo', tools: [{ type: 'function', name: 'a', parameters: schema }] },
      'tools[0]',
    ],
    ['messages', { ...call, tools: [{ name: 'a', input_schema: schema }] }, 'tools[0]'],
    [
      'ui',
      {
        model: 'local/echo',
        messages: [{ role: 'user', parts: [{ type: 'text', text: 'hi' }] }],
        tools: [{ type: 'function', name: 'a', inputSchema: schema }],
      },
      'tools[0]',
    ],
    ['text', { ...call, response_format: { type: 'json', schema } }, 'response_format'],
    ['responses', { model: 'local/echo', text: { format: { type: 'json_schema', schema } } }, 'text'],
  ])('refuses more than 1 MiB in a call of %s', async (path, body, param) => {
    const response = await world.post(`/v1/ai/${path}`, body);
    expect(response.status).toBe(413);
    expect(await errorOf(response)).toMatchObject({ code: 'request_too_large', param });
  });

  test.each([
    [
      'tools',
      { tools: [{ functionDeclarations: [{ name: 'a', parametersJsonSchema: schema }] }] },
      'tools[0].functionDeclarations[0]',
    ],
    [
      'generationConfig',
      { generationConfig: { responseMimeType: 'application/json', responseJsonSchema: schema } },
      'generationConfig.responseSchema',
    ],
  ])("refuses more than 1 MiB in the member %s of Gemini's format", async (_member, members, param) => {
    const response = await world.post('/v1beta/models/local%2Fecho:generateContent', {
      contents: [{ role: 'user', parts: [{ text: 'hi' }] }],
      ...members,
    });
    expect(response.status).toBe(413);
    expect(await errorOf(response)).toMatchObject({ details: [{ metadata: { param } }] });
  });

  test('adds up all definitions of a call', () => {
    const tool = (letters: number) => ({ name: 'a', description: 'x'.repeat(letters) });
    expect(() => checkDefinitions({ tools: [tool(500_000), tool(500_000)] })).not.toThrow();
    expect(() =>
      checkDefinitions({ tools: [tool(500_000), tool(500_000)], response_format: tool(100_000) }),
    ).toThrow('response_format');
  });

  test('refuses a list of half a million numbers', () => {
    // approximateJsonBytes takes 5 bytes for each number and its comma.
    const numbers = Array.from({ length: 500_000 }, () => 1);
    expect(() => checkDefinitions({ tools: [{ enum: numbers }] })).toThrow('tools[0]');
  });

  test('does not limit conversations', () => {
    expect(() =>
      checkDefinitions({ messages: [{ content: longText }], prompt: longText, text: longText }),
    ).not.toThrow();
  });
});
