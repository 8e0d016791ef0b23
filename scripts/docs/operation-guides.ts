// Relates guides and operations: a guide that contains an operation's path or a call of its method
// is linked from the operation's page, and lists the operation below its own text.

import type { PlacedOperation } from '../generate/document.ts';

export interface GuideText {
  page: string;
  title: string;
  markdown: string;
}

// The paths of these operations consist of parameters only and would match every address.
const isGeneric = (id: string): boolean => /^services\.call(?:Reading)?(?:Action|Step)$/.test(id);

/**
 * Whether a guide's text shows the operation. Operations of the same name in two documents are told apart
 * by their paths.
 */
export function mentions(
  markdown: string,
  { id, method, path }: Pick<PlacedOperation, 'id' | 'method' | 'path'>,
  isAgent: boolean,
): boolean {
  if (isGeneric(id)) return false;
  const owner = isAgent ? 'agent' : '(?:client|admin|user|guest)';
  if (new RegExp(`\\b${owner}\\.${escapePattern(id)}\\(`).test(markdown)) return true;
  const address = escapePattern(path).replaceAll(/\\\{[^}]+\\\}/g, '[^/\\s"\'`?|]+');
  for (const { index } of markdown.matchAll(new RegExp(`${address}(?![\\w/{-])`, 'g'))) {
    const line = markdown.slice(markdown.lastIndexOf('\n', index) + 1, index);
    const [, verb] = /\b(GET|POST|PUT|PATCH|DELETE)\s+\S*$/.exec(line) ?? [];
    // Both servers have `/health`. When a guide means the agent's, the line also has the agent's port or
    // one of its variables.
    const isOfAgent = /5314|AGENT|agent/.test(line);
    if (
      (verb === undefined || verb.toLowerCase() === method) &&
      (path !== '/health' || isOfAgent === isAgent)
    )
      return true;
  }
  return false;
}

function escapePattern(text: string): string {
  return text.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
