// Reads the body of a request within its limits, once the request is authorized. The exact bytes stay
// available, no more than the limit is read from the socket, and undeclared media types are rejected.
import type { IncomingMessage } from 'node:http';
import { type ContractOperation, formType } from '../../contract/operations.ts';
import type { RequestBody } from '../../contract/request.ts';
import { parseBody, parseForm } from './parser.ts';
import { asProblem, Problem } from '../../problem.ts';
import { smallBodyBytes } from './budget.ts';

const absentBody: RequestBody = { raw: new Uint8Array(0), isPresent: false, value: undefined, isForm: false };

export interface BodyLimits {
  /** The limit of operations without an `x-max-body-bytes` of their own. */
  maxBytes: number;
  /** The deadline of operations without an `x-body-deadline-ms` of their own. */
  deadlineMs: number;
}

/** Counts bytes of a large body as they arrive. Throws a 429 when the body exceeds the budget. */
export type CountBytes = (bytes: number) => void;

/** Whether the request has a body according to its headers. */
export function announcesBody(request: IncomingMessage): boolean {
  const length = request.headers['content-length'];
  return request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/** Throws a 400, 413 or 415 for a body that the operation does not accept. */
export function receiveBody(
  request: IncomingMessage,
  operation: ContractOperation,
  limits: BodyLimits,
  count: CountBytes = () => {},
): RequestBody | Promise<RequestBody> {
  if (!announcesBody(request)) return absentBody;
  const maxBytes = operation.maxBodyBytes ?? limits.maxBytes;
  refuseEncoding(request);
  const mediaType = operation.body === null ? null : declaredMediaType(request, operation.body.mediaTypes);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge(maxBytes);
  const deadlineMs = operation.bodyDeadlineMs ?? limits.deadlineMs;
  const contentType = request.headers['content-type'] ?? '';
  const options = { mediaType, isRaw: operation.rawBody, contentType };
  const raw = readArrived(request, Math.min(maxBytes, smallBodyBytes));
  if (raw !== undefined) return parse(raw, options);
  return collect(request, { maxBytes, deadlineMs, count }).then((bytes) => parse(bytes, options));
}

/**
 * The whole body if it has arrived with the head, as most bodies do: needs no deadline and no
 * listeners. Undefined for all other bodies, including larger ones, which are counted as they arrive.
 */
function readArrived(request: IncomingMessage, maxBytes: number): Buffer | undefined {
  if (!request.complete || request.readableFlowing !== null || request.readableLength > maxBytes)
    return undefined;
  return (request.read() as Buffer | null) ?? undefined;
}

async function parse(
  raw: Buffer,
  { mediaType, isRaw, contentType }: { mediaType: string | null; isRaw: boolean; contentType: string },
): Promise<RequestBody> {
  if (mediaType === null) {
    // Many clients send an empty object when no body is declared.
    if (!isEmptyObject(raw))
      throw new Problem('bad_request', 'invalid_request', 'This operation takes no body.');
    return absentBody;
  }
  if (raw.byteLength === 0) return absentBody;
  if (mediaType === formType)
    return { ...(await parseForm(raw, contentType)), isPresent: true, isForm: true };
  if (mediaType !== 'application/json' || isRaw)
    return { raw, isPresent: true, value: undefined, isForm: false };
  return { ...(await parseBody(raw)), isPresent: true, isForm: false };
}

/** Whether the body is blank or `{}`, in at most 64 bytes. */
function isEmptyObject(raw: Buffer): boolean {
  return raw.byteLength <= 64 && /^\s*(?:\{\s*\})?\s*$/.test(raw.toString('latin1'));
}

function refuseEncoding(request: IncomingMessage): void {
  const encoding = request.headers['content-encoding'];
  if (encoding === undefined || encoding.trim().toLowerCase() === 'identity') return;
  throw unsupportedMedia('The body must not be compressed.', 'content-encoding');
}

function declaredMediaType(request: IncomingMessage, mediaTypes: readonly string[]): string {
  const [essence = '', ...parameters] = (request.headers['content-type'] ?? '').split(';');
  const mediaType = essence.trim().toLowerCase();
  if (!mediaTypes.includes(mediaType))
    throw unsupportedMedia(`The body must be sent as ${mediaTypes.join(' or ')}.`, 'content-type');
  for (const parameter of parameters) {
    const [name = '', value = ''] = parameter.split('=');
    if (name.trim().toLowerCase() === 'charset' && !/^\s*"?utf-?8"?\s*$/i.test(value))
      throw unsupportedMedia('The body must be in UTF-8.', 'content-type');
  }
  return mediaType;
}

function unsupportedMedia(message: string, header: string): Problem {
  return new Problem('unsupported_media', 'unsupported_media_type', message, { param: header });
}

function tooLarge(maxBytes: number): Problem {
  return new Problem('too_large', 'request_too_large', `The body may have at most ${maxBytes} bytes.`);
}

function tooSlow(deadlineMs: number): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The body was not complete within ${deadlineMs / 1000} seconds.`,
    { headers: { connection: 'close' } },
  );
}

function incompleteBody(): Problem {
  return new Problem('bad_request', 'invalid_request', 'The body ended before it was complete.');
}

function collect(
  request: IncomingMessage,
  { maxBytes, deadlineMs, count }: BodyLimits & { count: CountBytes },
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // The client may have disconnected before its request was authorized; then no further event follows.
    if (request.destroyed && !request.complete) return reject(incompleteBody());
    const chunks: Buffer[] = [];
    let size = 0;
    const addChunk = (chunk: Buffer) => {
      const sizeBefore = size;
      size += chunk.byteLength;
      if (size > maxBytes) return refuse(tooLarge(maxBytes));
      chunks.push(chunk);
      if (size <= smallBodyBytes) return;
      try {
        count(sizeBefore > smallBodyBytes ? chunk.byteLength : size);
      } catch (error) {
        refuse(asProblem(error));
      }
    };
    // The rest of the body stays unread; the server closes the connection after its response.
    const refuse = (problem: Problem) => {
      clearTimeout(timer);
      request.off('data', addChunk);
      request.pause();
      reject(problem);
    };
    const timer = setTimeout(() => refuse(tooSlow(deadlineMs)), deadlineMs);
    request.on('data', addChunk);
    request.on('end', () => {
      clearTimeout(timer);
      resolve(chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks, size));
    });
    // Node also emits `close` after `end`, when the promise has already settled.
    request.on('close', () => {
      if (request.complete) return;
      clearTimeout(timer);
      reject(incompleteBody());
    });
  });
}
