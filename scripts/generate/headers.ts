// Adds the headers that whole classes of responses share to each of these responses, so that path files
// list only their own headers. A response component gets the headers of every operation that refers to
// it.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'yaml';
import { type Document, type Operation, hasParameter, operationsOf, resolve } from './document.ts';
import type { Surface } from './surfaces.ts';

interface Response {
  headers?: Record<string, object>;
  content?: Record<string, unknown>;
}

/** A response of an operation, with the properties that decide its headers. */
interface ResponseContext {
  surface: Pick<Surface, 'name'>;
  operation: Operation;
  status: number;
  mediaTypes: readonly string[];
}

/**
 * The shared headers: the name, the component under openapi/shared/headers and the responses that
 * have it.
 */
const sharedHeaders: readonly {
  name: string;
  component: string;
  isOn: (place: ResponseContext) => boolean;
}[] = [
  ...Object.entries({
    'x-request-id': 'RequestId',
    'x-client-request-id': 'ClientRequestId',
    'server-timing': 'ServerTiming',
    'cache-control': 'CacheControl',
    'x-content-type-options': 'ContentTypeOptions',
    vary: 'VaryOrigin',
    'access-control-allow-origin': 'AllowOrigin',
    'access-control-expose-headers': 'ExposeHeaders',
  }).map(([name, component]) => ({ name, component, isOn: () => true })),
  { name: 'ratelimit', component: 'RateLimit', isOn: isCounted },
  { name: 'ratelimit-policy', component: 'RateLimitPolicy', isOn: isCounted },
  {
    name: 'retry-after',
    component: 'RetryAfter',
    isOn: ({ status }) => [403, 409, 429, 502, 503, 504].includes(status),
  },
  { name: 'x-townhall-attempts', component: 'ModelAttempts', isOn: hasAttempts },
  {
    name: 'x-should-retry',
    component: 'ShouldRetry',
    isOn: (place) =>
      place.status >= 400 && ((place.status < 500 && place.status !== 429) || canBeReplayed(place)),
  },
  { name: 'www-authenticate', component: 'WwwAuthenticate', isOn: ({ status }) => status === 401 },
  { name: 'allow', component: 'Allow', isOn: ({ status }) => status === 405 },
  { name: 'idempotent-replayed', component: 'IdempotentReplayed', isOn: canBeReplayed },
  {
    name: 'x-accel-buffering',
    component: 'AccelBuffering',
    isOn: ({ mediaTypes }) => mediaTypes.includes('text/event-stream'),
  },
  ...Object.entries({
    'content-security-policy': 'ContentSecurityPolicy',
    'referrer-policy': 'ReferrerPolicy',
    'x-frame-options': 'FrameOptions',
    'cross-origin-opener-policy': 'OpenerPolicy',
  }).map(([name, component]) => ({
    name,
    component,
    isOn: ({ mediaTypes, status }: ResponseContext) => mediaTypes.includes('text/html') || status === 303,
  })),
];

/** The gateway counts each request whose credential it checks. */
function isCounted({ surface, operation }: ResponseContext): boolean {
  return surface.name === 'gateway' && operation['x-ignores-credential'] !== true;
}

// The gateway stores the results of successful calls and of calls that failed midway. A refused call is not
// stored: it can be repeated. The agent also stores the failure of a run that a call has started, with any
// status.
function canBeReplayed({ surface, operation, status }: ResponseContext): boolean {
  const hasKey = hasParameter(operation, 'IdempotencyKey');
  return hasKey && (surface.name !== 'gateway' || status < 300 || (status >= 500 && status !== 503));
}

// A failed model call lists its attempts like a successful one.
function hasAttempts({ operation, status }: ResponseContext): boolean {
  const { headers } = (operation.responses?.['200'] ?? {}) as Response;
  return status >= 400 && headers?.['x-townhall-attempts'] !== undefined;
}

/** Changes the bundled document. `folder` has the components' files. */
export function addSharedHeaders(document: Document, surface: Pick<Surface, 'name'>, folder: string): void {
  for (const { operation } of operationsOf(document)) {
    for (const [status, reference] of Object.entries(operation.responses ?? {})) {
      const response = resolve<Response>(document, reference as Response);
      const place = {
        surface,
        operation,
        status: Number(status),
        mediaTypes: Object.keys(response.content ?? {}),
      };
      for (const { name, component, isOn } of sharedHeaders) {
        if (!isOn(place) || response.headers?.[name] !== undefined) continue;
        (response.headers ??= {})[name] = { $ref: `#/components/headers/${component}` };
        declareHeader(document, component, folder);
      }
    }
  }
}

function declareHeader(document: Document, component: string, folder: string): void {
  const components = (document.components ??= {});
  const headers = (components.headers ??= {});
  headers[component] ??= parse(readFileSync(path.join(folder, `${component}.yaml`), 'utf8')) as object;
}
