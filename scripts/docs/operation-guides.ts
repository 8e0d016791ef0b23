// Which guides speak of which operations: a guide that shows a path of an operation, or calls its method, is linked
// from the operation's page, and lists the operation below its text.

import type { PlacedOperation } from '../generate/document.ts';

export interface GuideText {
  page: string;
  title: string;
  markdown: string;
}

// Their paths have only parameters and would be seen in every address.
const isGeneric = (id: string): boolean => /^services\.call(?:Reading)?(?:Action|Step)$/.test(id);

/** Whether a guide's text shows the operation. Operations of one name in two documents differ by their path. */
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
    // `/health` is a path of both servers, and the guides name the agent's port or variable where they mean it.
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
