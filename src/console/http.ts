// Reading requests and writing responses of the console.
import type { IncomingMessage, ServerResponse } from 'node:http';
import { Problem, renderProblem } from '../kernel/problem.ts';

const securityHeaders = {
  'content-security-policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'",
  'cache-control': 'no-store',
  'x-frame-options': 'DENY',
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
};

export function setHeaders(response: ServerResponse, requestId: string): void {
  for (const [name, value] of Object.entries({ ...securityHeaders, 'x-request-id': requestId }))
    response.setHeader(name, value);
}

/** The members of a JSON body. Throws a Problem for anything else. */
export async function readMembers(
  request: IncomingMessage,
  maxBytes: number,
): Promise<Record<string, unknown>> {
  if (!/^application\/json\s*(?:;|$)/i.test(request.headers['content-type'] ?? ''))
    throw new Problem(
      'unsupported_media',
      'unsupported_media_type',
      'The content type of a call must be application/json.',
    );
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += (chunk as Buffer).length;
    if (bytes > maxBytes)
      throw new Problem(
        'too_large',
        'request_too_large',
        `The body of this call is limited to ${maxBytes / 1024} KiB.`,
      );
    chunks.push(chunk as Buffer);
  }
  try {
    const members: unknown = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    if (typeof members === 'object' && members !== null && !Array.isArray(members))
      return members as Record<string, unknown>;
  } catch {
    // The Problem below also covers invalid JSON.
  }
  throw new Problem('bad_request', 'invalid_json', 'The body of a call must be a JSON object.');
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  send(response, status, Buffer.from(JSON.stringify(body)), 'application/json; charset=utf-8');
}

export function send(response: ServerResponse, status: number, content: Buffer, mediaType: string): void {
  response.writeHead(status, { 'content-type': mediaType, 'content-length': content.length });
  // node:http drops the body of a response to HEAD.
  response.end(content);
}

/** Closes the connection: the unread rest of a body would otherwise be parsed as the next request. */
export function sendProblem(response: ServerResponse, problem: Problem, requestId: string): void {
  for (const [name, value] of Object.entries(problem.headers)) response.setHeader(name, value);
  response.setHeader('connection', 'close');
  sendJson(response, problem.status, renderProblem(problem, requestId));
}

// Concatenates strings: resolved as a relative reference, `//name` would be another host, and `//[` would
// not be a URL.
export function parseTarget(target: string, base: string): URL {
  const url = URL.parse(target.startsWith('/') ? `${base}${target}` : target);
  if (url === null)
    throw new Problem('bad_request', 'invalid_path', 'The address of the request is not a URL.');
  return url;
}
