// Reads a request's body within its limits, once it is known that somebody wants it. The rule it keeps: the
// exact bytes stay available, no more than the limit is taken off the wire, and what is not declared is refused.
import type { IncomingMessage } from 'node:http';
import type { OperationFacts, ReceivedBody } from '../contract/exchange.ts';
import { parseBody, parseForm } from './body-parser.ts';
import { Problem } from '../problem.ts';

const nothing = new Uint8Array(0);
const absent: ReceivedBody = { raw: nothing, present: false, value: undefined, isForm: false };

export interface BodyLimits {
  /** For operations that do not name their own `x-max-body-bytes`. */
  maxBytes: number;
  /** For operations that do not name their own `x-body-deadline-ms`. */
  deadlineMs: number;
}

/** Whether the request announces a body at all. */
export function announcesBody(request: IncomingMessage): boolean {
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

export function receiveBody(
  request: IncomingMessage,
  operation: OperationFacts,
  limits: BodyLimits,
): ReceivedBody | Promise<ReceivedBody> {
  if (!announcesBody(request)) return absent;
  const maximum = operation.maxBodyBytes ?? limits.maxBytes;
  refuseEncoding(request);
  const mediaType = operation.body === null ? null : declaredMediaType(request, operation.body.mediaTypes);
  if (Number(request.headers['content-length'] ?? 0) > maximum) throw tooLarge(maximum);
  return collect(request, maximum, operation.bodyDeadlineMs ?? limits.deadlineMs).then(async (raw) => {
    if (mediaType === null) {
      // Many clients send an empty object where nothing is asked for; anything more is a misunderstanding.
      if (!/^\s*(?:\{\s*\})?\s*$/.test(raw.toString('latin1', 0, 64)) || raw.byteLength > 64) {
        throw new Problem('bad_request', 'invalid_request', 'This operation takes no body.');
      }
      return absent;
    }
    if (raw.byteLength === 0) return absent;
    if (mediaType === 'multipart/form-data') {
      return {
        ...(await parseForm(raw, request.headers['content-type'] ?? '')),
        present: true,
        isForm: true,
      };
    }
    if (mediaType !== 'application/json' || operation.rawBody)
      return { raw, present: true, value: undefined, isForm: false };
    return { ...(await parseBody(raw)), present: true, isForm: false };
  });
}

function refuseEncoding(request: IncomingMessage): void {
  const encoding = request.headers['content-encoding'];
  if (encoding === undefined || encoding.trim().toLowerCase() === 'identity') return;
  throw new Problem('unsupported_media', 'unsupported_media_type', 'The body must not be compressed.', {
    param: 'content-encoding',
  });
}

function declaredMediaType(request: IncomingMessage, mediaTypes: readonly string[]): string {
  const [essence = '', ...parameters] = (request.headers['content-type'] ?? '').split(';');
  const mediaType = essence.trim().toLowerCase();
  if (!mediaTypes.includes(mediaType)) {
    throw new Problem(
      'unsupported_media',
      'unsupported_media_type',
      `The body must be sent as ${mediaTypes.join(' or ')}.`,
      {
        param: 'content-type',
      },
    );
  }
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=');
    if (name.trim().toLowerCase() === 'charset' && !/^\s*"?utf-?8"?\s*$/i.test(value)) {
      throw new Problem('unsupported_media', 'unsupported_media_type', 'The body must be in UTF-8.', {
        param: 'content-type',
      });
    }
  }
  return mediaType;
}

function tooLarge(maximum: number): Problem {
  return new Problem('too_large', 'request_too_large', `The body may have ${maximum} bytes at most.`);
}

function tooSlow(deadlineMs: number): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The body was not complete within ${deadlineMs / 1000} seconds.`,
    { headers: { connection: 'close' } },
  );
}

function collect(request: IncomingMessage, maximum: number, deadlineMs: number): Promise<Buffer> {
  return new Promise((resolve, settleWith) => {
    const timer = setTimeout(() => refuse(tooSlow(deadlineMs)), deadlineMs);
    const reject = (problem: Problem) => {
      clearTimeout(timer);
      settleWith(problem);
    };
    const chunks: Buffer[] = [];
    let size = 0;
    const take = (chunk: Buffer) => {
      size += chunk.byteLength;
      if (size <= maximum) {
        chunks.push(chunk);
        return;
      }
      refuse(tooLarge(maximum));
    };
    // What is still to come stays on the wire; the server closes the connection after its answer.
    const refuse = (problem: Problem) => {
      request.off('data', take);
      request.pause();
      reject(problem);
    };
    request.on('data', take);
    request.on('end', () => {
      clearTimeout(timer);
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, size));
    });
    // Comes after the end as well, when it changes nothing any more.
    request.on('close', () => {
      if (!request.complete)
        reject(new Problem('bad_request', 'invalid_request', 'The body ended before it was complete.'));
    });
  });
}
