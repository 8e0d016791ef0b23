// Calls of tools that the provider runs itself, such as its web search. In the formats of other providers,
// clients run every call of an answer, so these calls are left out.
import { expect, test } from 'vitest';
import * as chat from '../../../../src/gateway/ai/formats/chat-completions/answer.ts';
import * as gemini from '../../../../src/gateway/ai/formats/gemini/answer.ts';
import * as messages from '../../../../src/gateway/ai/formats/messages/answer.ts';
import * as text from '../../../../src/gateway/ai/formats/text.ts';
import { unknownUsage, type Answer, type StreamPart } from '../../../../src/gateway/ai/hub/language-model.ts';

const end = { finishReason: { unified: 'tool-calls' as const, raw: undefined }, usage: unknownUsage() };
const search = { type: 'tool-call', toolCallId: 'search_1', toolName: 'web_search', input: '{}' } as const;
const look = { type: 'tool-call', toolCallId: 'look_1', toolName: 'look', input: '{}' } as const;
const answer: Answer = { content: [{ ...search, providerExecuted: true }, look], warnings: [], ...end };

async function* stream(): AsyncGenerator<StreamPart> {
  yield { type: 'tool-input-start', id: 'search_1', toolName: 'web_search', providerExecuted: true };
  yield { type: 'tool-input-delta', id: 'search_1', delta: '{}' };
  yield { type: 'tool-input-end', id: 'search_1' };
  for (const part of answer.content) yield part as StreamPart;
  yield { type: 'finish', ...end };
}

const options = {
  modelId: 'acme/ok',
  completionId: 'chatcmpl-1',
  createdSeconds: 0,
  includeUsage: false,
  messageId: 'msg_1',
  responseId: 'msg_1',
  includeThoughts: false,
  onWarnings: () => {},
};
const message = () =>
  text.serializeMessage(answer, {
    id: 'msg_1',
    result: { model: 'acme/ok', attempts: [], credits: '0' } as never,
  });

async function readAll(events: AsyncIterable<unknown>): Promise<unknown[]> {
  const items: unknown[] = [];
  for await (const event of events) items.push(event);
  return items;
}

test.each<[string, () => unknown]>([
  ['answers of ai.generateText', message],
  ['chat completions', () => chat.serializeCompletion(answer, options)],
  ['streamed chat completions', () => readAll(chat.serializeChunks(stream(), options))],
  ['Gemini', () => gemini.serializeAnswer(answer, options)],
  ['streamed Gemini', () => readAll(gemini.serializeChunks(stream(), options))],
  ['messages', () => messages.serializeMessage(answer, options)],
  ['streamed messages', () => readAll(messages.serializeMessageEvents(stream(), options))],
])('%s contain only the calls that the client runs', async (_format, serialize) => {
  const output = JSON.stringify(await serialize());
  expect(output).toContain('look_1');
  expect(output).not.toContain('search');
});
