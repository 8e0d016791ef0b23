// The headers of the login page and of the page for device logins. They forbid requests to other origins,
// framing and caching.
import { createHash } from 'node:crypto';

/** A source of the content security policy: the inline text with this hash. */
export function hashSource(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

export function documentHeaders(sources: { style: string; script: string }): Record<string, string> {
  const policy = [
    "default-src 'none'",
    `style-src ${sources.style}`,
    `script-src ${sources.script}`,
    "connect-src 'self'",
    'img-src data:',
    "form-action 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",
  ].join('; ');
  return {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': policy,
    'cache-control': 'no-store',
    'referrer-policy': 'no-referrer',
    'x-frame-options': 'DENY',
    'cross-origin-opener-policy': 'same-origin',
  };
}
