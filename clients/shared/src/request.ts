// Builds the request of a call: address, headers and body. Its errors are programming errors of the
// caller, thrown before anything is sent.

import type { CallOptions, ConnectionOptions, Members, Target } from './call-options.ts';

export interface RequestSettings extends ConnectionOptions {
  buildUrl: (parts: { url: string; path: Members; query: Members }) => string;
}

/** Throws a TypeError for a missing path member and for a token that no header can carry. */
export async function buildRequest(
  settings: RequestSettings,
  target: Target,
  members: Members,
  options: CallOptions,
): Promise<{ url: string; init: RequestInit }> {
  const { path, rest } = splitMembers(target.url, members);
  const takesBody = target.bodyType !== undefined;
  const url = settings.buildUrl({
    url: target.url,
    path,
    query: { ...(takesBody ? {} : rest), ...options.query },
  });
  const headers = await buildHeaders(settings, target, options);
  const body = takesBody ? ((target.serializeBody ?? JSON.stringify)(rest) as BodyInit) : null;
  // Redirects are reported and not followed: following one would turn a POST into a GET.
  return { url, init: { method: target.method, headers, body, redirect: 'manual' } };
}

async function buildHeaders(
  settings: RequestSettings,
  target: Target,
  options: CallOptions,
): Promise<Headers> {
  const headers = new Headers();
  if (target.streams) headers.set('accept', 'text/event-stream');
  if (target.bodyType) headers.set('content-type', target.bodyType);
  for (const [name, value] of [
    ...Object.entries(settings.headers ?? {}),
    ...Object.entries(options.headers ?? {}),
  ]) {
    if (value !== undefined) headers.set(name, value);
  }
  if (target.secured && !headers.has('authorization')) {
    const token = await readToken(settings.token);
    if (token !== '') headers.set('authorization', `Bearer ${token}`);
  }
  // With the key the server recognizes a repetition, whether a proxy or this client repeats the request.
  if (target.method === 'POST' && target.secured && !target.streams && !headers.has('idempotency-key')) {
    // `randomUUID` is absent on pages that were not loaded over https.
    const key = globalThis.crypto?.randomUUID?.();
    if (key !== undefined) headers.set('idempotency-key', key);
  }
  return headers;
}

/** Separates the members of the path from all others. */
function splitMembers(url: string, members: Members): { path: Members; rest: Members } {
  const path: Record<string, unknown> = {};
  const bodyMembers: Record<string, unknown> = { ...members };
  for (const [, name = ''] of url.matchAll(/\{([^{}]+)\}/g)) {
    const value = bodyMembers[name];
    // An empty or dotted segment would silently select another route.
    if (value === undefined || value === null || value === '' || value === '.' || value === '..') {
      throw new TypeError(`${name} must name something; it is part of the address ${url}.`);
    }
    path[name] = value;
    delete bodyMembers[name];
  }
  return { path, rest: bodyMembers };
}

async function readToken(source: ConnectionOptions['token']): Promise<string> {
  // Trimmed, because a credential is often read from a file that ends with a newline.
  const token = (typeof source === 'function' ? await source() : (source ?? '')).trim();
  // Check here, because the error of Headers would quote the value.
  if (!/^[\x21-\x7e]*$/.test(token))
    throw new TypeError('The token has characters that a header cannot carry.');
  return token;
}
