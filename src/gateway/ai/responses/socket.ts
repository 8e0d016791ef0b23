// The messages of a WebSocket on /v1/responses, as OpenAI's clients and Codex send them. The socket keeps its
// last conversation in memory, so that the next call continues it by `previous_response_id` without `store`.
import { type Clock, unixSeconds } from '../../../kernel/clock.ts';
import type { SocketConversation } from '../../../kernel/http/websocket.ts';
import { id } from '../../../kernel/ids.ts';
import { isRecord, type JsonRecord } from '../../../kernel/json-value.ts';
import { invalidMember, type Problem } from '../../../kernel/problem.ts';
import { createResponseObject } from '../formats/responses/answer.ts';
import { toContextItems, toStoredItems } from './stored/items.ts';
import { maxConversationBytes } from './stored/stored-responses.ts';

export const maxSocketMessageBytes = maxConversationBytes;
/** Maximum size of the conversations of all sockets of this process. */
const maxTotalBytes = 256 * 2 ** 20;

const continuableTypes = new Set<unknown>(['response.completed', 'response.incomplete']);
const endTypes = new Set<unknown>([...continuableTypes, 'response.failed', 'error']);

/** The memory of all sockets of this process. */
interface SocketMemory {
  totalBytes: number;
}

interface LastResponse {
  responseId: string;
  items: JsonRecord[];
  bytes: number;
}

/** Opens the conversation of each socket; their memory is bounded together. */
export function createResponseSockets(clock: Pick<Clock, 'now'>): () => SocketConversation {
  const memory: SocketMemory = { totalBytes: 0 };
  return () => new ResponseConversation(memory, clock);
}

class ResponseConversation implements SocketConversation {
  readonly #memory: SocketMemory;
  readonly #clock: Pick<Clock, 'now'>;
  #lastResponse: LastResponse | undefined;
  /** The input of the running call. */
  #input: JsonRecord[] = [];
  /** Whether the running call continues the last response. */
  #isContinuation = false;
  #isClosed = false;

  constructor(memory: SocketMemory, clock: Pick<Clock, 'now'>) {
    this.#memory = memory;
    this.#clock = clock;
  }

  read(message: JsonRecord): ReturnType<SocketConversation['read']> {
    this.#isContinuation = false;
    const { type, stream_id: _streamId, generate, stream: _stream, background, ...body } = message;
    // Codex confirms each response that it has processed.
    if (type === 'response.processed') return undefined;
    if (type !== 'response.create') throw unknownType(type);
    if (background === true) throw noBackground();
    const request = this.#continue(body);
    if (generate !== false) return { body: { ...request, stream: true } };
    const response = warmUp(request, this.#clock);
    this.#store(response.id, this.#input);
    this.#input = [];
    return {
      events: [
        { type: 'response.created', response, sequence_number: 0 },
        { type: 'response.completed', response: { ...response, status: 'completed' }, sequence_number: 1 },
      ],
    };
  }

  observe({ type, response }: JsonRecord): void {
    if (!endTypes.has(type)) return;
    // Free the input: between two calls a socket keeps only its last response, which `maxTotalBytes` limits.
    const input = this.#input;
    this.#input = [];
    const isContinuable = continuableTypes.has(type);
    // As at OpenAI, a failed call ends the conversation that it continued: the client must then send the
    // whole input again.
    if (this.#isContinuation && !isContinuable) this.#forget();
    if (!isContinuable || !isRecord(response) || typeof response['id'] !== 'string') return;
    const output = Array.isArray(response['output']) ? response['output'].filter(isRecord) : [];
    this.#store(response['id'], [...input, ...toContextItems(output, { passesThrough: false })]);
  }

  close(): void {
    this.#isClosed = true;
    this.#forget();
  }

  /** Adds the items of the last response to the request if it continues that response. */
  #continue(body: JsonRecord): JsonRecord {
    const newItems = toItems(body['input']);
    const lastResponse = this.#lastResponse;
    if (lastResponse === undefined || body['previous_response_id'] !== lastResponse.responseId) {
      this.#input = newItems;
      return body;
    }
    this.#isContinuation = true;
    this.#input = [...lastResponse.items, ...newItems];
    return { ...body, previous_response_id: null, input: this.#input };
  }

  /** Does not store a conversation beyond the limits; its client must send the whole input again. */
  #store(responseId: string, items: JsonRecord[]): void {
    this.#forget();
    // The socket may close while a message is parsed. Nothing would free what is stored after that.
    if (this.#isClosed) return;
    const bytes = Buffer.byteLength(JSON.stringify(items));
    if (bytes > maxConversationBytes || this.#memory.totalBytes + bytes > maxTotalBytes) return;
    this.#memory.totalBytes += bytes;
    this.#lastResponse = { responseId, items, bytes };
  }

  #forget(): void {
    this.#memory.totalBytes -= this.#lastResponse?.bytes ?? 0;
    this.#lastResponse = undefined;
  }
}

function toItems(input: unknown): JsonRecord[] {
  return toContextItems(toStoredItems(input), { passesThrough: false });
}

/**
 * A response without a model call. With `generate: false` a client sends the start of a conversation, such as
 * its instructions, which a later message continues.
 */
function warmUp(body: JsonRecord, clock: Pick<Clock, 'now'>) {
  const { model } = body;
  if (typeof model !== 'string') throw invalidMember('model', 'is required');
  return createResponseObject({
    modelId: model,
    responseId: id('resp'),
    nowSeconds: () => unixSeconds(clock.now()),
    body: { ...body, model },
  });
}

function unknownType(type: unknown): Problem {
  const name = typeof type === 'string' ? `, not ${type.slice(0, 64)}` : '';
  return invalidMember('type', `must be response.create${name}`);
}

function noBackground(): Problem {
  return invalidMember('background', 'is not possible over a WebSocket; send the call with POST');
}
