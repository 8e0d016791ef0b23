// Rejects requests that Node and intermediaries interpret differently: repeated
// headers, ambiguous hosts, too many headers.
import type { IncomingMessage } from 'node:http';
import { Problem } from '../problem.ts';

export interface RequestLimits {
  maxHeaders: number;
  maxUrlBytes: number;
}

const hostShape = /^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/;
// Node silently keeps the first value of most of these; an intermediary may have used the
// last one. It joins the values of a repeated key header, which would hide the repetition.
const singleHeaders = [
  'authorization',
  'content-type',
  'content-length',
  'origin',
  'x-api-key',
  'api-key',
  'x-goog-api-key',
];

/** All `Host` headers of the request, in order; Node's `headers` has only the first. */
export function hostHeaders({ rawHeaders }: Pick<IncomingMessage, 'rawHeaders'>): string[] {
  const hosts: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] as string;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts.push(rawHeaders[index + 1] as string);
  }
  return hosts;
}

/** Throws a 400 that closes the connection, so that a desynchronized connection is not used again. */
export function refuseAmbiguous(request: IncomingMessage, limits: RequestLimits): void {
  if (request.httpVersionMajor !== 1) throw malformedProblem('The request must be HTTP/1.1.');
  const hosts = hostHeaders(request);
  const [host] = hosts;
  if (hosts.length !== 1 || host === undefined || !hostShape.test(host))
    throw malformedProblem('The request must have exactly one Host.');
  refuseTarget(request.url ?? '', host, limits);
  const { headers, rawHeaders } = request;
  if (rawHeaders.length > 2 * limits.maxHeaders)
    throw malformedProblem(`The request may have ${limits.maxHeaders} headers at most.`);
  if (headers.expect !== undefined && !/^100-continue$/i.test(headers.expect))
    throw malformedProblem('The header `Expect` may only have the value 100-continue.');
  if (rawHeaders.length > 2 * Object.keys(headers).length) refuseRepeatedHeaders(rawHeaders);
}

function refuseTarget(target: string, host: string, limits: RequestLimits): void {
  if (target.length > limits.maxUrlBytes)
    throw malformedProblem(`The address of the request may have at most ${limits.maxUrlBytes} bytes.`);
  if (target.startsWith('/') || target === '*') return;
  const authority = /^https?:\/\/([^/?]*)(?:[/?]|$)/i.exec(target)?.[1];
  if (authority?.toLowerCase() !== host.toLowerCase())
    throw malformedProblem('The address of the request names another host.');
}

function refuseRepeatedHeaders(rawHeaders: readonly string[]): void {
  const names = new Set<string>();
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] as string).toLowerCase();
    if (singleHeaders.includes(name) && names.has(name))
      throw malformedProblem(`The header \`${name}\` appears more than once.`);
    names.add(name);
  }
}

function malformedProblem(message: string): Problem {
  return new Problem('bad_request', 'invalid_request', message, { headers: { connection: 'close' } });
}
