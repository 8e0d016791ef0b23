// The messages of a WebSocket on /v1/responses, as OpenAI's clients and Codex send them. The socket keeps its
// last conversation in memory, so that the next call continues it by `previous_response_id` without `store`.
import type { SocketConversation } from '../../../kernel/http/websocket.ts';
import { id } from '../../../kernel/ids.ts';
import { isRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import { responseObject } from '../formats/responses/answer.ts';
import { toContextItems, toStoredItems } from './stored/items.ts';
import { maxConversationBytes } from './stored/stored-responses.ts';

export const maxSocketMessageBytes = maxConversationBytes;
/** Maximum size of the conversations of all sockets of this process. */
const maxTotalBytes = 256 * 2 ** 20;

const continuableTypes = new Set<unknown>(['response.completed', 'response.incomplete']);
const finalTypes = new Set<unknown>([...continuableTypes, 'response.failed', 'error']);

interface LastResponse {
  responseId: string;
  items: JsonRecord[];
  bytes: number;
}

/** Opens the conversation of each socket; their memory is bounded together. */
export function createResponseSockets(clock: { now(): Date }): () => SocketConversation {
  let totalBytes = 0;
  return () => {
    let lastResponse: LastResponse | undefined;
    /** The input of the running call. */
    let current: JsonRecord[] = [];
    /** Whether the running call continues the last response. */
    let continues = false;

    function keep(responseId: string, items: JsonRecord[]): void {
      forget();
      const bytes = JSON.stringify(items).length;
      if (bytes > maxConversationBytes || totalBytes + bytes > maxTotalBytes) return;
      totalBytes += bytes;
      lastResponse = { responseId, items, bytes };
    }

    function forget(): void {
      totalBytes -= lastResponse?.bytes ?? 0;
      lastResponse = undefined;
    }

    return {
      read(message) {
        continues = false;
        const { type, stream_id: _streamId, generate, stream: _stream, background, ...body } = message;
        // Codex confirms each response that it has processed.
        if (type === 'response.processed') return undefined;
        if (type !== 'response.create') throw unknownType(type);
        if (background === true) throw noBackground();
        const input = toItems(body['input']);
        continues = lastResponse !== undefined && body['previous_response_id'] === lastResponse.responseId;
        current = continues ? [...(lastResponse?.items ?? []), ...input] : input;
        const request: JsonRecord = continues
          ? { ...body, previous_response_id: null, input: current }
          : body;
        if (generate !== false) return { body: { ...request, stream: true } };
        const response = warmUp(request, clock);
        keep(response.id, current);
        current = [];
        return {
          events: [
            { type: 'response.created', response, sequence_number: 0 },
            {
              type: 'response.completed',
              response: { ...response, status: 'completed' },
              sequence_number: 1,
            },
          ],
        };
      },
      observe({ type, response }) {
        if (!finalTypes.has(type)) return;
        // Between two calls a socket has no memory beside `last`, which `maxTotalBytes` bounds.
        const input = current;
        current = [];
        // A failed call ends, as at OpenAI, the conversation that it continued: its client sends
        // the whole input.
        if (continues && !continuableTypes.has(type)) forget();
        if (!continuableTypes.has(type) || !isRecord(response) || typeof response['id'] !== 'string') return;
        const output = Array.isArray(response['output']) ? response['output'].filter(isRecord) : [];
        keep(response['id'], [...input, ...toContextItems(output, { passesThrough: false })]);
      },
      close: forget,
    };
  };
}

function toItems(input: unknown): JsonRecord[] {
  return toContextItems(toStoredItems(input), { passesThrough: false });
}

/** A response without a call: `generate: false` announces a conversation that a later message continues. */
function warmUp(body: JsonRecord, clock: { now(): Date }) {
  const nowSeconds = () => Math.floor(clock.now().getTime() / 1000);
  const { model } = body;
  if (typeof model !== 'string') throw invalidProblem('model', 'is required');
  return responseObject({
    modelId: model,
    responseId: id('resp'),
    nowSeconds,
    body: { ...body, model },
  });
}

function unknownType(type: unknown): Problem {
  const name = typeof type === 'string' ? `, not ${type.slice(0, 64)}` : '';
  return invalidProblem('type', `must be response.create${name}`);
}

function noBackground(): Problem {
  return invalidProblem('background', 'is not possible over a WebSocket; send the call with POST');
}

function invalidProblem(param: string, message: string): Problem {
  return new Problem('bad_request', 'invalid_request', `\`${param}\` ${message}.`, {
    param,
    details: [{ path: param, message }],
  });
}
