// The session of a call as a number, so that all calls of a session reach the same key and the
// provider's prompt cache stays warm. A caller's own session id comes first; without one the
// start of the prompt identifies the session.
import { hashText } from '../../../kernel/hash-text.ts';
import { asRecord } from '../../../kernel/json-value.ts';

// Conversations differ within these limits, and hashing this much takes about a microsecond.
const maxIdLength = 512;
const maxPrefixLength = 1_024;
const maxItems = 16;

/** A call in any format. */
export interface SessionSource {
  headers?: object | undefined;
  body: object;
}

/** Undefined for a call without a session id and a prompt. */
export function sessionHash({ headers, body }: SessionSource): number | undefined {
  const id = sessionId(asRecord(headers), asRecord(body));
  if (id !== undefined) return hashText(id.slice(0, maxIdLength));
  const prefix = promptPrefix(asRecord(body));
  return prefix === '' ? undefined : hashText(prefix);
}

function sessionId(headers: Record<string, unknown>, body: Record<string, unknown>): string | undefined {
  const ids = [headers['x-session-id'], body['prompt_cache_key'], asRecord(body['metadata'])['user_id']];
  return ids.find((id) => typeof id === 'string' && id !== '') as string | undefined;
}

/** The instructions, and the prompt up to and including its first user message. */
function promptPrefix(body: Record<string, unknown>): string {
  const instructions = body['system'] ?? body['instructions'];
  const prompt = body['messages'] ?? body['input'] ?? body['prompt'];
  return `${startOf(instructions, maxPrefixLength)}\n${startOfPrompt(prompt)}`.trim();
}

function startOfPrompt(prompt: unknown): string {
  if (!Array.isArray(prompt)) return startOf(prompt, maxPrefixLength);
  let text = '';
  for (const message of prompt.slice(0, maxItems) as unknown[]) {
    const { role, content } = asRecord(message);
    text += `\n${startOf(content ?? message, maxPrefixLength)}`;
    if (role === 'user') break;
  }
  return text;
}

/** The start of the text of a string, of a part with a text, or of a list of both. */
function startOf(value: unknown, length: number): string {
  if (typeof value === 'string') return value.slice(0, length);
  if (!Array.isArray(value)) {
    const { text } = asRecord(value);
    return typeof text === 'string' ? text.slice(0, length) : '';
  }
  let start = '';
  for (const part of value.slice(0, maxItems) as unknown[]) {
    if (start.length >= length) break;
    start += typeof part === 'string' ? part : startOf(asRecord(part), length);
  }
  return start.slice(0, length);
}

/**
 * The 32-bit finalizer of MurmurHash3 over both hashes, so that similar texts get unrelated hashes.
 */
export function mixHashes(firstHash: number, secondHash: number): number {
  let hash = firstHash ^ Math.imul(secondHash, 0x9e3779b1);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
